"""How often a diff is wrong: pairs without a change, and pairs with a small one, drawn from real steps."""

import numpy as np
import pytest
from recorded import HOST_BOUND, PROGRAMS, captured
from resampled import redrawn, scaled, with_spread

from tracelab.compare.compare import compare
from tracelab.compare.noise import Floors
from tracelab.compare.options import DiffOptions
from tracelab.compare.side import Capture, Side
from tracelab.difference import IMPROVEMENT, NEUTRAL, REGRESSION, Diff

PAIRS = 200
STEPS = (11, 30)  # a short capture and a longer one
NO_FLOOR = Floors(relative=0.0, per_row_ns=0.0, from_steps=False)


def _diff(before: Capture, after: Capture, floors: Floors | None = None) -> Diff:
    options = DiffOptions() if floors is None else DiffOptions(floors=floors)
    return compare(Side((before,)), Side((after,)), options)


def _alarms(diff: Diff, verdict: str) -> int:
    times = [diff.step, diff.device_time, *(p.time for p in diff.phases), *(k.time for k in diff.kernels)]
    return sum(time.verdict == verdict for time in times)


def _unchanged_pairs(floors: Floors | None) -> list[Diff]:
    rng = np.random.default_rng(20261130)
    programs = list(PROGRAMS)
    diffs = []
    for i in range(PAIRS):
        source = captured(programs[i % len(programs)], 1)
        steps = STEPS[i // len(programs) % len(STEPS)]
        diffs.append(_diff(redrawn(source, steps, rng), redrawn(source, steps, rng), floors))
    return diffs


def test_pairs_without_a_change_hardly_ever_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    diffs = _unchanged_pairs(None)
    false = sum(_alarms(diff, REGRESSION) > 0 for diff in diffs)
    in_phases = sum(any(p.time.verdict == REGRESSION for p in diff.phases) for diff in diffs)
    with capsys.disabled():
        print(f"\nfalse regressions: {false} of {PAIRS} pairs in any row, {in_phases} in a phase", end=" ")
    assert false <= 0.05 * PAIRS
    assert sum(_alarms(diff, IMPROVEMENT) > 0 for diff in diffs) <= 0.05 * PAIRS


def test_without_a_floor_the_same_pairs_do_alarm() -> None:
    """Negative control: intervals alone are not enough, so the test above has something to find."""
    with_floor = sum(_alarms(diff, REGRESSION) > 0 for diff in _unchanged_pairs(None))
    without = sum(_alarms(diff, REGRESSION) > 0 for diff in _unchanged_pairs(NO_FLOOR))
    assert without >= 5
    assert without > 2 * with_floor


def test_five_per_cent_on_a_phase_that_spreads_by_one_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(5)
    programs = [program for program in PROGRAMS if len(captured(program, 1).samples.phases) > 1]
    found = named_only = 0
    for i in range(PAIRS):
        source = captured(programs[i % len(programs)], 1)
        phases = list(source.samples.phases)
        phase = phases[i // len(programs) % len(phases)]
        noisy = with_spread(source, phase, 0.01)
        steps = STEPS[i % len(STEPS)]
        diff = _diff(redrawn(noisy, steps, rng), scaled(redrawn(noisy, steps, rng), phase, 1.05))
        verdicts = {row.phase: row.time.verdict for row in diff.phases}
        found += verdicts.pop(phase) == REGRESSION
        named_only += set(verdicts.values()) == {NEUTRAL}
    with capsys.disabled():
        print(f"\n+5 % found: {found} of {PAIRS} pairs; nothing else named in {named_only}", end=" ")
    assert found >= 0.95 * PAIRS
    assert named_only >= 0.95 * PAIRS


def test_the_step_itself_is_judged_by_what_bounds_it() -> None:
    """Redrawn steps of host-bound programs say nothing about another process, so their step time stays open."""
    rng = np.random.default_rng(1)
    for program in PROGRAMS:
        source = captured(program, 1)
        diff = _diff(redrawn(source, 11, rng), redrawn(source, 11, rng))
        assert (diff.step.verdict == "inconclusive") == (program in HOST_BOUND), program
