"""Whole comparisons: what is judged a change, what is said about it, and traces on which diffs go wrong."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compare_fixture import EVEN, NOISY, Kernel, capture, loaded, one, program, slower

from tracelab.compare.compare import compare
from tracelab.compare.options import DiffOptions
from tracelab.compare.side import Side
from tracelab.difference import GONE, IMPROVEMENT, INCONCLUSIVE, NEUTRAL, NEW, REGRESSION, Diff
from tracelab.result import Finding

STEP = [
    Kernel("attn", "attention", 26_000),
    Kernel("mlp", "gemm_a", 54_000),
    Kernel("mlp", "silu", 10_000),
    Kernel("head", "argmax", 10_000),
]
PHASES = [Kernel(phase, f"gemm_{phase}", 100_000) for phase in ("attn", "mlp", "head")]


def _diff(before: Side, after: Side) -> Diff:
    return compare(before, after, DiffOptions())


def _changed(diff: Diff) -> dict[str, str]:
    """Phases and kernels with another verdict than neutral."""
    rows = {row.phase: row.time.verdict for row in diff.phases}
    rows |= {" + ".join(row.after or row.before): row.time.verdict for row in diff.kernels}
    return {name: verdict for name, verdict in rows.items() if verdict != NEUTRAL}


def _finding(diff: Diff, code: str) -> Finding | None:
    return next((finding for finding in diff.findings if finding.code == code), None)


# 20 steps in turn 0.998, 1.000 and 1.002 times as long: they spread by less than 1 %, and so do their halves.
TWENTY = tuple(0.998 + 0.002 * (i % 3) for i in range(20))


def test_c10_a_slower_kernel_in_steps_that_mostly_wait(tmp_path: Path) -> None:
    """100 µs of kernels and 300 µs of waiting. attention, 26 µs, takes 20 % more: 5.2 µs, 1.3 % of the step. The step
    is host-bound, so nothing can be said of it; the GPU's 100 µs are 5.2 % more; nothing else moved."""
    files = [program(kernels, TWENTY, gap_ns=300_000) for kernels in (STEP, slower(STEP, 1.2, "attention"))]
    before, after = (loaded(trace.save(tmp_path / f"{i}.sqlite")) for i, trace in enumerate(files))
    diff = _diff(before, after)
    assert diff.before.bound == "host"
    assert diff.step.change == pytest.approx(5.2 / 400, abs=1e-4)
    assert _changed(diff) == {"attn": REGRESSION, "attention": REGRESSION}
    assert diff.phases[0].time.change == diff.kernels[0].time.change == pytest.approx(0.2)
    assert diff.device_time.change == pytest.approx(0.052)
    assert (diff.verdict, diff.step.verdict) == (REGRESSION, INCONCLUSIVE)
    assert diff.regressed == ("device time of the step", "attn")
    assert _changed(_diff(before, before)) == {}  # the control


def test_c11_equal_kernels_at_odd_offsets(tmp_path: Path) -> None:
    """Steps of 300 µs of kernels, each of an odd number of ns, that begin anywhere: not a ns of difference."""
    kernels = [Kernel("attn", "attention", 95_333), Kernel("mlp", "gemm_a", 200_001), Kernel("head", "argmax", 4_667)]
    starts = (0, 7, 123_457, 5_000_049_999)
    sides = [loaded(program(kernels, EVEN, start=at).save(tmp_path / f"{at}.sqlite")) for at in starts]
    for side in sides:
        diff = _diff(sides[0], side)
        times = [diff.step, diff.device_time, *(p.time for p in diff.phases), *(k.time for k in diff.kernels)]
        assert {(time.change, time.delta_ns, time.verdict) for time in times} == {(0.0, 0.0, NEUTRAL)}
        assert (diff.step.before_ns, diff.device_time.before_ns, len(times)) == (300_001, 300_001, 8)


MANY = [Kernel("attn", "attention", 1_000), *[Kernel("mlp", "gemm_a", 1_000)] * 47]


def test_c12_a_launch_that_fails_once_is_no_improvement(tmp_path: Path) -> None:
    """10 steps of 48 kernels; in step 4 one launch fails and nothing runs. That step is left out: no time differs, but
    the failure is told first."""
    before = loaded(program(MANY, [1.0] * 10).save(tmp_path / "a.sqlite"))
    after = loaded(program(MANY, [1.0] * 10, failing={4: 20}).save(tmp_path / "b.sqlite"))
    assert (before.steps_used, after.steps_used) == (10, 9)
    diff = _diff(before, after)
    assert _changed(diff) == {}
    assert (diff.device_time.change, diff.verdict) == (0.0, NEUTRAL)
    assert diff.findings[0].code == "failed-launch"
    assert diff.findings[0].title == "Failed launches: 0 before, 1 after (mlp 1)."
    assert [warning.code for warning in diff.warnings] == ["failed-launches"]


def test_c12_launches_that_fail_in_each_step_are_no_improvement(tmp_path: Path) -> None:
    """silu, 10 of 100 µs, never runs: less time, but work is missing. The other way round its return is no regression.
    Without failures the same kernels are an improvement."""
    failing = dict.fromkeys(range(9), 2)
    before = loaded(program(STEP).save(tmp_path / "a.sqlite"))
    after = loaded(program(STEP, failing=failing).save(tmp_path / "b.sqlite"))
    diff, back = _diff(before, after), _diff(after, before)
    assert diff.device_time.change == pytest.approx(-0.1)
    for told in (diff, back):
        verdicts = {row.phase: row.time.verdict for row in told.phases}
        assert verdicts == {"mlp": INCONCLUSIVE, "attn": NEUTRAL, "head": NEUTRAL}
        assert (told.device_time.verdict, told.verdict, told.regressed) == (INCONCLUSIVE, INCONCLUSIVE, ())
        assert told.findings[0].code == "failed-launch"
    assert diff.device_time.remark == "9 launches failed after: what did not run is missing"
    without = loaded(program([*STEP[:2], STEP[3]]).save(tmp_path / "c.sqlite"))
    assert _changed(_diff(before, without)) == {"mlp": IMPROVEMENT, "silu": GONE}


def test_failures_do_not_hide_what_became_slower() -> None:
    """Who has more failed launches, and is slower all the same, is slower."""
    diff = _diff(one(STEP, NOISY), one(slower(STEP, 1.2, "mlp"), NOISY, failed={"mlp": 2}))
    assert _changed(diff) == {"mlp": REGRESSION, "gemm_a": REGRESSION, "silu": REGRESSION}


@pytest.mark.parametrize(("failing", "verdict"), [(2, REGRESSION), (5, INCONCLUSIVE)])
def test_failures_in_few_steps_do_not_hide_a_regression(failing: int, verdict: str) -> None:
    """mlp is 20 % slower after. Launches of it failed before in 2 of 9 steps, which the median does not notice, or in
    5, and then the time before is not that of the whole work."""
    diff = _diff(one(STEP, NOISY, failed={"mlp": failing}), one(slower(STEP, 1.2, "mlp"), NOISY))
    assert next(row for row in diff.phases if row.phase == "mlp").time.verdict == verdict


def test_a_new_phase_is_a_finding() -> None:
    added = [*STEP, Kernel("sampling", "argmax", 5_000.0, 132)]
    found = _finding(_diff(one(STEP, NOISY), one(added, NOISY)), "phase-new")
    assert found is not None
    assert found.title == "sampling is new: 5.0 µs a step more."


def test_failures_are_told_before_anything_else() -> None:
    """All three phases are 5 % slower, one of them by 50 %; without failures that comes first."""
    moved = slower(slower(PHASES, 1.05), 1.5, "mlp")
    told = [_diff(one(PHASES, NOISY), one(moved, NOISY, failed=f)).findings[0].code for f in ({"head": 1}, {})]
    assert told == ["failed-launch", "run-slower"]


def test_equal_failures_on_both_sides_are_no_finding() -> None:
    failing = one(STEP, NOISY, failed={"mlp": 2})
    assert _finding(_diff(failing, failing), "failed-launch") is None


def _moved(*factors: float) -> Side:
    """Three phases, each `factor` times as slow."""
    kernels = [kernel._replace(ns=kernel.ns * factor) for kernel, factor in zip(PHASES, factors, strict=True)]
    return one(kernels, NOISY)


@pytest.mark.parametrize(("factors", "code"), [((1.05, 1.07, 1.06), "run-slower"), ((0.95, 0.93, 0.94), "run-faster")])
def test_controls_that_all_moved_together_are_a_finding(factors: tuple[float, ...], code: str) -> None:
    diff = _diff(_moved(1, 1, 1), _moved(*factors))
    found = _finding(diff, code)
    assert found is not None
    word, sign = code.removeprefix("run-"), "+" if code == "run-slower" else "−"
    low, high = ("5.0", "7.0") if sign == "+" else ("7.0", "5.0")
    assert found.title == (
        f"This run was {word}, not one phase: all 3 controls moved by {sign}{low} % to {sign}{high} %."
    )
    assert [control.change for control in diff.controls] == pytest.approx([factor - 1 for factor in factors])


@pytest.mark.parametrize(
    "factors",
    [(1.05, 1.07, 1.0), (1.05, 1.07, 1.009), (1.05, 1.07, 0.95), (1.009, 1.009, 1.009)],
    ids=["one stood still", "one moved within its noise", "one the other way", "all within their noise"],
)
def test_control_one_that_did_not_move_along_is_enough(factors: tuple[float, ...]) -> None:
    diff = _diff(_moved(1, 1, 1), _moved(*factors))
    assert (_finding(diff, "run-slower"), _finding(diff, "run-faster")) == (None, None)


def test_control_a_single_phase_that_moved_is_that_phase() -> None:
    diff = _diff(one(PHASES[:1], NOISY), one(slower(PHASES[:1], 1.2), NOISY))
    assert (_finding(diff, "run-slower"), _changed(diff)) == (None, {"attn": REGRESSION, "gemm_attn": REGRESSION})


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [(132, 64, True), (119, 118, True), (132, 119, False), (100, 50, False), (64, 132, False)],
    ids=["half is empty", "below nine tenths", "still filled", "was below before", "is filled now"],
)
def test_a_grid_that_no_longer_fills_the_gpu_is_a_finding(before: int, after: int, told: bool) -> None:
    """Nine tenths of 132 SMs are 118.8. The time did not change."""
    sides = [one([Kernel("mlp", "gemm_a", blocks=blocks), *PHASES], NOISY) for blocks in (before, after)]
    diff = _diff(sides[0], sides[1])
    found = _finding(diff, "grid-shrunk")
    assert _changed(diff) == {}
    assert (found is not None) == told
    if found is not None:
        blocks = f"{before} → {after} blocks for 132 SMs"
        assert found.title == f"gemm_a in mlp no longer fills the GPU: {blocks} (100.0 µs → 100.0 µs a step)."


def test_a_changed_phase_is_told_with_its_kernels() -> None:
    found = _finding(_diff(one(STEP, NOISY), one(slower(STEP, 1.5, "gemm_a"), NOISY)), "phase-slower")
    assert found is not None
    assert found.title == "mlp is 27.0 µs a step slower: 64.0 µs → 91.0 µs (+42.2 %)."
    assert found.evidence == "gemm_a +27.0 µs (54.0 µs → 81.0 µs a call)."


def test_a_phase_that_kept_its_time_and_not_its_share_is_told() -> None:
    """mlp is twice as slow: attn is 26 of 100 µs and then of 164."""
    diff = _diff(one(STEP, NOISY), one(slower(STEP, 2.0, "mlp"), NOISY))
    found = _finding(diff, "shares-moved")
    assert found is not None
    assert "attn 26.0 % → 15.9 %" in found.title
    assert _finding(_diff(one(STEP, NOISY), one(STEP, NOISY)), "shares-moved") is None


def test_more_launches_for_the_same_time_are_told() -> None:
    split = [*STEP[1:], Kernel("attn", "attention", 13_000), Kernel("attn", "attention", 13_000)]
    found = _finding(_diff(one(STEP, NOISY), one(split, NOISY)), "launches-changed")
    assert found is not None
    assert found.title.startswith("Kernels 4 → 5 a step and launches 4 → 5 a step, device time unchanged")
    assert _finding(_diff(one(STEP, NOISY), one(STEP, NOISY)), "launches-changed") is None


def test_new_and_gone_phases_are_rows_without_a_change() -> None:
    diff = _diff(one(STEP, NOISY), one([*STEP[:3], Kernel("sample", "argmax", 10_000)], NOISY))
    assert _changed(diff) == {"head": GONE, "sample": NEW, "argmax": NEW}
    assert diff.device_time.verdict == NEUTRAL


def test_a_device_bound_step_of_equal_traces_did_not_change(tmp_path: Path) -> None:
    side = loaded(program(STEP).save(tmp_path))
    assert side.first.main.results["gaps"].metrics["bound"].value == "device"
    diff = _diff(side, side)
    assert (diff.step.verdict, diff.device_time.verdict, diff.verdict) == (NEUTRAL, NEUTRAL, NEUTRAL)


def _host(kernels: Sequence[Kernel], *step_factors: float) -> Side:
    """One capture for each factor: the step takes so many times the time of its kernels."""
    return Side(tuple(capture(kernels, NOISY, bound="host", step_factor=factor) for factor in step_factors))


def test_single_captures_of_a_host_bound_step_tell_nothing_of_it() -> None:
    """The step takes 4 and 5 times its kernels; both times are told. The kernels are judged all the same."""
    diff = _diff(_host(STEP, 4), _host(slower(STEP, 1.2, "attention"), 5))
    assert (diff.step.verdict, diff.step.floor) == (INCONCLUSIVE, None)
    assert diff.step.before_ns == pytest.approx(400_000)
    assert "two captures of each side" in diff.step.remark
    assert diff.step.change == pytest.approx(5 * 105.2 / 400 - 1)
    assert _changed(diff) == {"attn": REGRESSION, "attention": REGRESSION}
    assert (diff.device_time.verdict, diff.verdict) == (REGRESSION, REGRESSION)


def test_two_captures_a_side_decide_a_host_bound_step() -> None:
    """4.00 and 4.02 against 5.00 and 5.02 times the kernels: logarithms 0.005 apart before and 0.004 after, so the
    floor stays 1 %, and Welch's half interval is 4.3 × 0.0032 = 1.4 % around +24.9 %."""
    diff = _diff(_host(STEP, 4.0, 4.02), _host(STEP, 5.0, 5.02))
    assert (diff.step.verdict, diff.device_time.verdict, diff.verdict) == (REGRESSION, NEUTRAL, REGRESSION)
    assert diff.step.change == pytest.approx(5.01 / 4.01 - 1, abs=0.002)
    assert diff.regressed == ("the step",)


def test_two_captures_that_differ_more_than_the_sides_do_not() -> None:
    """4 and 6 against 5 and 7 times the kernels: the captures of one side differ by half."""
    assert _diff(_host(STEP, 4.0, 6.0), _host(STEP, 5.0, 7.0)).step.verdict == NEUTRAL


@pytest.mark.parametrize(("before", "after"), [((4.0,), (5.0, 5.02)), ((4.0, 4.02), (5.0,))])
def test_two_captures_on_one_side_only_are_too_few(before: tuple[float, ...], after: tuple[float, ...]) -> None:
    assert _diff(_host(STEP, *before), _host(STEP, *after)).step.verdict == INCONCLUSIVE


def test_one_host_bound_side_is_enough_to_tell_nothing() -> None:
    """A graph in place of single launches: before the host decides, after the device."""
    assert _diff(_host(STEP, 4), one(STEP, NOISY)).step.verdict == INCONCLUSIVE
    assert _diff(one(STEP, NOISY, step_factor=1.2), one(STEP, NOISY)).step.verdict == IMPROVEMENT  # the control


def test_the_steps_of_all_captures_of_a_side_are_its_samples() -> None:
    """The second capture is 10 % slower: the median of all 18 steps lies between the two."""
    second = replace(capture(slower(STEP, 1.1), NOISY), title="second")
    diff = _diff(Side((capture(STEP, EVEN), second)), one(STEP, EVEN))
    samples = np.concatenate([np.full(9, 100_000.0), 110_000 * np.array(NOISY)])
    assert diff.device_time.before_ns == pytest.approx(np.median(samples))
    assert diff.before.steps_used == 18
