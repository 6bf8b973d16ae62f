"""What counts as no change: floors, controls that are never their own, and the verdict on a change."""

import re
from dataclasses import replace
from math import asinh, expm1, inf, log, log1p, sqrt

import numpy as np
import pytest
from compare_fixture import NOISY, Kernel, capture, one, sequence, slower
from numpy.typing import NDArray

from tracelab.compare.compare import compare
from tracelab.compare.noise import ControlDrift, Floors, drift_for, drift_of_step, drift_without, judge, own_spread
from tracelab.compare.options import DiffOptions
from tracelab.compare.rows import find_controls
from tracelab.compare.side import Side
from tracelab.difference import GONE, IMPROVEMENT, INCONCLUSIVE, NEUTRAL, NEW, REGRESSION, Change
from tracelab.errors import UsageError

F64 = NDArray[np.float64]
FLOORS = Floors()
MS = 1e6
STEADY = MS * np.array(NOISY)  # 1 ms a step, halves alike; the 2nd and 8th of 9 are 0.998 and 1.002
# 0.8 to 1.2 ms: odd steps 0.8 0.9 1.0 1.1 1.2, even steps 0.8 0.95 1.05 1.2, the median of both is 1.
WIDE = MS * np.array([0.8, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.2])


def _judged(before: F64 | None, after: F64 | None, drift: float | None = None, floors: Floors = FLOORS) -> Change:
    sides = ([side] if side is not None else None for side in (before, after))
    return judge(*sides, drift=drift, calls=1, floors=floors)


def test_a_time_on_one_side_only_is_new_or_gone() -> None:
    new, gone = _judged(None, STEADY), _judged(STEADY, None)
    assert (new.verdict, new.before_ns, new.after_ns, new.change) == (NEW, None, MS, None)
    assert (gone.verdict, gone.before_ns, gone.after_ns, gone.change) == (GONE, MS, None, None)
    assert (new.delta_ns, gone.delta_ns) == (MS, -MS)


@pytest.mark.parametrize("factor", [1.009, 1 / 1.009])
def test_inside_the_floor_nothing_changed_whatever_the_sign(factor: float) -> None:
    """0.9 % is below the floor of 1 %, though the interval (0.9 ± 0.28 %) says that it is there."""
    change = _judged(STEADY, STEADY * factor)
    assert change.verdict == NEUTRAL
    assert change.floor == pytest.approx(0.01)
    assert change.interval is not None
    assert change.interval[0] * change.interval[1] > 0


@pytest.mark.parametrize(("factor", "verdict"), [(1.011, REGRESSION), (1 / 1.011, IMPROVEMENT)])
def test_beyond_the_floor_it_is_told(factor: float, verdict: str) -> None:
    change = _judged(STEADY, STEADY * factor)
    assert change.verdict == verdict
    assert change.change == pytest.approx(factor - 1)
    assert (change.before_ns, change.after_ns) == pytest.approx((MS, MS * factor))


def test_an_interval_around_zero_is_no_change() -> None:
    """5 % more is beyond the floor of 1 %, but the steps alone spread by 20 %."""
    change = _judged(WIDE, WIDE * 1.05)
    assert change.verdict == NEUTRAL
    assert (change.change, change.floor) == pytest.approx((0.05, 0.01))
    assert _judged(WIDE, WIDE * 2).verdict == REGRESSION  # the control: 0.69 ± 0.29 on logarithms


def test_the_same_samples_in_any_order_are_no_change() -> None:
    change = _judged(WIDE, WIDE[::-1].copy())
    assert (change.verdict, change.change, change.delta_ns) == (NEUTRAL, 0.0, 0.0)


@pytest.mark.parametrize(("before", "after"), [(STEADY[:1], 2 * STEADY[:1]), (STEADY[:1], STEADY)])
def test_one_step_on_a_side_tells_nothing(before: F64, after: F64) -> None:
    """0.999 ms against 1.998 ms, or against nine steps with the median 1."""
    change = _judged(before, after)
    assert (change.verdict, change.interval) == (INCONCLUSIVE, None)
    assert change.remark == "one step on a side: nothing tells its spread"


def test_control_one_step_of_the_very_same_time_is_no_change() -> None:
    change = _judged(STEADY[:1], STEADY[:1])
    assert (change.verdict, change.change, change.interval, change.remark) == (NEUTRAL, 0.0, None, "")


def test_no_steps_tell_nothing_and_no_number_is_made_up() -> None:
    none = np.zeros(0)
    assert _judged(none, STEADY) == Change(None, None, None, None, None, INCONCLUSIVE, "a side has no steps")
    some = judge([STEADY, none], [STEADY * 1.1], drift=None, calls=1, floors=FLOORS)
    assert some.verdict == REGRESSION
    assert some.change == pytest.approx(0.1)


def test_a_phase_that_some_steps_lack_has_finite_numbers() -> None:
    """0 in 3 of 9 steps, else 1 ms; afterwards 2 ms in all: the medians are 1 and 2."""
    some = np.array([0, 0, 0, 1, 1, 1, 1, 1, 1]) * MS
    change = _judged(some, np.full(9, 2 * MS))
    assert change.verdict == REGRESSION
    assert change.change == pytest.approx(1.0)
    assert change.interval is not None
    assert change.interval[1] < inf
    most = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1]) * MS
    assert (_judged(most, most).before_ns, _judged(most, most).verdict) == (0.0, NEUTRAL)


def test_steps_that_alternate_raise_the_floor_to_their_difference() -> None:
    """1 and 1.05 ms in turn: 4 % more is what two neighbouring steps differ by anyway, 8 % is not."""
    turns = MS * np.array([1, 1.05, 1, 1.05, 1, 1.05, 1, 1.05, 1])
    assert _judged(turns, turns * 1.04).floor == pytest.approx(0.05)
    assert [_judged(turns, turns * factor).verdict for factor in (1.04, 1.08)] == [NEUTRAL, REGRESSION]


def test_captures_of_one_side_raise_the_floor_to_their_difference() -> None:
    """Two captures before that differ by 3 %: 2 % is nothing then, with one capture it is a regression."""
    before, after = [STEADY, STEADY * 1.03], [STEADY * 1.035]
    assert own_spread(before, after) == pytest.approx(log(1.03))
    assert judge(before, after, drift=None, calls=1, floors=FLOORS).verdict == NEUTRAL
    assert judge(before[:1], after, drift=None, calls=1, floors=FLOORS).verdict == REGRESSION


def test_a_run_that_moved_adds_its_drift_to_the_floor() -> None:
    """Controls 5 % slower: with its own noise of 1 % a phase may be up to 6 % slower, either way; 20 % is a change."""
    verdicts = [_judged(STEADY, STEADY * f, log(1.05)).verdict for f in (1.045, 1.055, 1.2)]
    assert verdicts == [NEUTRAL, NEUTRAL, REGRESSION]
    assert _judged(STEADY, STEADY * 1.055, log(1.05)).floor == pytest.approx(1.05 * 1.01 - 1)
    assert _judged(STEADY, STEADY / 1.055, -log(1.05)).verdict == NEUTRAL
    assert _judged(STEADY, STEADY * 1.055).verdict == REGRESSION  # the control: nothing else moved


def test_a_drift_below_the_noise_changes_nothing() -> None:
    assert _judged(STEADY, STEADY, log(1.005)).floor == pytest.approx(0.01)


def test_floors_without_the_steps_are_the_least_ones() -> None:
    turns = MS * np.array([1, 1.05, 1, 1.05, 1, 1.05])
    assert _judged(turns, turns, log(1.3), replace(FLOORS, from_steps=False)).floor == pytest.approx(0.01)


def test_the_least_floor_grows_with_the_root_of_the_calls() -> None:
    """256 ns for a call: 2.56 % of 10 µs; 4 calls in these 10 µs even out to 512 ns. Long times have 1 %. Two times
    that are 256 ns apart and have the geometric mean m differ by 2·asinh(128 / m) in their logarithms."""
    assert FLOORS.least(10_000, 1) == pytest.approx(2 * asinh(0.0128))
    assert FLOORS.least(10_000, 4) == pytest.approx(2 * asinh(0.0256))
    assert FLOORS.least(MS, 4) == pytest.approx(log1p(0.01))
    assert FLOORS.least(sqrt(300.0 * 556.0), 1) == pytest.approx(log(556 / 300))
    assert FLOORS.least(0.0, 0.0) == pytest.approx(2 * asinh(128))  # nothing to divide by: still a number


A, B, C = (
    ControlDrift(name, log1p(drift), ns, 0.0) for name, drift, ns in (("a", 0, 4), ("b", 0.2, 5), ("c", 0.02, 1))
)


def test_a_phase_is_judged_by_the_other_controls_only() -> None:
    """By time: without a, b has 5 of 6 parts; without b, a has 4 of 5."""
    drifts = [drift_without([A, B, C], phase) for phase in ("a", "b", "c", "")]
    assert drifts == pytest.approx([log1p(0.2), 0.0, log1p(0.2), (log1p(0.02) + log1p(0.2)) / 2])
    assert drift_without([A], "a") is None


def test_a_second_phase_that_changed_raises_no_floor() -> None:
    """For c, a and b are left; taking out b leaves a, which stood still. For a, taking out b leaves c with 2 %.
    A single other phase has to do."""
    assert drift_for("c", [A, B, C]) == 0.0
    assert drift_for("a", [A, B, C]) == pytest.approx(log1p(0.02))
    assert drift_for("a", [A, B]) == pytest.approx(log1p(0.2))
    assert drift_for("a", [A]) is None


def test_the_step_is_judged_without_the_phase_that_explains_most() -> None:
    """Without b the others stood still; a phase that is no control takes none of them out: 5.7 % on logarithms."""
    assert drift_of_step([A, B, C], ["a", "b", "c"]) == 0.0
    assert drift_of_step([A, B], ["other"]) == pytest.approx(log1p(0.2))
    assert drift_of_step([A], ["a"]) is None
    assert drift_of_step([], ["a"]) is None


TWO = [Kernel("attn", "attention", 100_000), Kernel("mlp", "gemm_a", 300_000)]
SLOWED = slower(TWO, 1.2, "mlp")  # the phase with most time is 20 % slower, and its kernels are the same


def test_a_phase_is_no_control_for_itself() -> None:
    diff = compare(one(TWO, NOISY), one(SLOWED, NOISY), DiffOptions())
    assert [control.phase for control in diff.controls] == ["attn", "mlp"]
    assert {row.phase: row.time.verdict for row in diff.phases} == {"mlp": REGRESSION, "attn": NEUTRAL}
    assert diff.device_time.verdict == REGRESSION  # 400 → 460 µs


def test_control_if_it_were_the_change_would_explain_itself() -> None:
    """All controls, mlp among them: by time the drift is mlp's own 20 %, and so is the floor of phase and step."""
    before, after = one(TWO, NOISY), one(SLOWED, NOISY)
    everything = drift_without(find_controls(before, after, DiffOptions()))
    assert everything == pytest.approx(log(1.2))
    for times in ((before.phase_ns("mlp"), after.phase_ns("mlp")), (before.busy_ns, after.busy_ns)):
        assert judge(*times, drift=everything, calls=1, floors=FLOORS).verdict == NEUTRAL


def test_phases_that_all_moved_are_no_regression() -> None:
    """5.0, 5.2 and 4.8 % slower with a noise of 1 %: the run was slower, not one of them, nor the step as their sum."""
    kernels = [Kernel(p, f"gemm_{p}", ns) for p, ns in (("a", 100_000), ("b", 200_000), ("c", 150_000))]
    moved = slower(slower(slower(kernels, 1.050, "a"), 1.052, "b"), 1.048, "c")
    diff = compare(one(kernels, NOISY), one(moved, NOISY), DiffOptions())
    assert {row.time.verdict for row in diff.phases} == {row.time.verdict for row in diff.kernels} == {NEUTRAL}
    assert (diff.device_time.verdict, diff.step.verdict, diff.verdict) == (NEUTRAL, NEUTRAL, NEUTRAL)
    alone = compare(one(kernels, NOISY), one(slower(kernels, 1.05, "a"), NOISY), DiffOptions())  # the control
    assert {row.phase: row.time.verdict for row in alone.phases} == {"a": REGRESSION, "b": NEUTRAL, "c": NEUTRAL}
    host = [Side(one(made, NOISY, bound="host").captures * 2) for made in (kernels, moved)]
    assert compare(host[0], host[1], DiffOptions()).step.verdict == REGRESSION  # nor does a host drift with the GPU


def _controls(before: list[Kernel], after: list[Kernel], pattern: str | None = None) -> list[str]:
    options = DiffOptions(controls=re.compile(pattern) if pattern else None)
    return [control.phase for control in find_controls(one(before), one(after), options)]


STEP = [*sequence("attn", "attention", "attention"), *sequence("mlp", "gemm_a", "silu"), *sequence("head", "argmax")]


@pytest.mark.parametrize(
    ("what", "after"),
    [
        ("name", [*STEP[:4], Kernel("head", "argmax_2")]),
        ("count", [*STEP, Kernel("head", "argmax")]),
        ("grid", [*STEP[:4], Kernel("head", "argmax", blocks=64)]),
        ("phase", STEP[:4]),
    ],
)
def test_controls_have_the_same_kernels_counts_and_grids(what: str, after: list[Kernel]) -> None:
    assert what
    assert _controls(STEP, after) == _controls(after, STEP) == ["attn", "mlp"]
    assert _controls(STEP, STEP) == ["attn", "mlp", "head"]


def test_a_control_named_by_hand_is_the_only_one_and_may_have_another_grid() -> None:
    other = [Kernel("attn", "attention", blocks=64)] * 2 + STEP[2:]
    assert _controls(STEP, other) == ["mlp", "head"]
    assert _controls(STEP, other, "^attn$") == ["attn"]
    assert _controls(STEP, other, "attn|head") == ["attn", "head"]


def test_a_control_that_is_no_phase_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"'nowhere' matches no phase; there are attn, mlp, head\."):
        _controls(STEP, STEP, "nowhere")


@pytest.mark.parametrize("after", [[*STEP, Kernel("head", "argmax")], STEP[:4]])
def test_a_control_with_other_kernels_is_refused(after: list[Kernel]) -> None:
    with pytest.raises(UsageError, match="the kernels of head differ, so it is no control"):
        _controls(STEP, after, "head|mlp")


def test_counts_that_are_means_may_differ_by_a_hundredth_either_way() -> None:
    """100 against 101.005 calls: 1.005 is less than a hundredth of the larger, but not of the smaller."""

    def calls(count: float) -> Side:
        made = capture(sequence("p", "gemm_a"), ordered=False)
        counted = replace(made.samples.places, calls=np.array([count]))
        return Side((replace(made, samples=replace(made.samples, places=counted)),))

    by_hand = DiffOptions(controls=re.compile("p"))
    assert len(find_controls(calls(100), calls(101.005), by_hand)) == 1
    assert len(find_controls(calls(101.005), calls(100), by_hand)) == 1
    with pytest.raises(UsageError):
        find_controls(calls(100), calls(102), by_hand)


def test_a_floor_is_told_as_a_relative_change() -> None:
    change = _judged(MS / 100 * np.ones(9), MS / 100 * np.ones(9))  # 10 µs
    assert change.floor == pytest.approx(expm1(2 * asinh(0.0128)))
