"""The rows of a diff: step, phases and kernels with their verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

import numpy as np

from tracelab.compare.noise import (
    ControlDrift,
    control_drift,
    drift_for,
    drift_of_step,
    floor_of,
    judge,
    positive,
)
from tracelab.compare.options import DiffOptions
from tracelab.compare.side import Failing, Side
from tracelab.difference import (
    IMPROVEMENT,
    INCONCLUSIVE,
    REGRESSION,
    Change,
    PhaseChange,
)
from tracelab.errors import UsageError
from tracelab.step_samples import F64

Key = TypeVar("Key")

SAME_COUNT = 0.01  # counts that are means over steps of other sequences may differ by this much
_FEW_STEPS = 0.25  # a median does not notice what is missing in fewer steps
_NONE = np.zeros(0)
_NOT_TIMED = "the host's speed differs from process to process; give two captures of each side"


def all_phases(before: Side, after: Side) -> list[str]:
    """Every phase of either side."""
    return list(dict.fromkeys((*before.phases, *after.phases)))


def find_controls(before: Side, after: Side, options: DiffOptions) -> list[ControlDrift]:
    """Phases whose kernel names, counts and launch shapes are the same on both sides, or the ones the user named.

    A phase with other grids has other work, so its time says nothing about the run; by hand it can be named still.

    Raises UsageError where no phase has a named one's name, or where its kernels differ.
    """
    same = [phase for phase in before.phases if phase in after.phases and _same_kernels(phase, before, after)]
    alike = [phase for phase in same if _same_calls(before.shapes_of(phase), after.shapes_of(phase))]
    if options.controls is not None:
        named = [phase for phase in all_phases(before, after) if options.controls.search(phase)]
        if not named:
            raise UsageError(f"--control {options.controls.pattern!r} matches no phase; {phases_there(before, after)}.")
        unlike = [phase for phase in named if phase not in same]
        if unlike:
            raise UsageError(f"--control: the kernels of {', '.join(unlike)} differ, so it is no control.")
        alike = named
    return [
        control_drift(p, before.phase_ns(p) or [], after.phase_ns(p) or [], _launched(before, after, p), options.floors)
        for p in alike
    ]


def _launched(before: Side, after: Side, phase: str) -> float:
    """Launches of a phase in a step, of the side that has more."""
    return max(sum(before.kernels_of(phase).values()), sum(after.kernels_of(phase).values()))


def phases_there(before: Side, after: Side) -> str:
    """The phases there are, in a sentence."""
    return f"there are {', '.join(all_phases(before, after)) or 'none'}"


def step_change(
    before: Side, after: Side, controls: Sequence[ControlDrift], options: DiffOptions
) -> tuple[Change, str]:
    """The change of the step time, and what its floor comes from. A single capture of a host-bound program cannot tell
    it. Where the device bounds both sides, the step drifts with it."""
    bounds = {str(_bound(capture_bound)) for capture_bound in _bounds(before, after)}
    drift = drift_of_step(controls, all_phases(before, after)) if bounds == {"device"} else None
    found = judge(before.step_ns, after.step_ns, drift=drift, calls=1, floors=options.floors)
    if all(np.array_equal(one, other) for one, other in zip_longest(before.step_ns, after.step_ns, fillvalue=_NONE)):
        return found, ""  # the same steps: whatever the host does, nothing changed
    if bounds != {"device"} and min(len(before.captures), len(after.captures)) < 2:
        return replace(found, floor=None, verdict=INCONCLUSIVE, remark=_NOT_TIMED), ""
    source = _source(before.step_ns, after.step_ns, drift, 1, options)
    return with_failures(found, before.failing, after.failing), source


def device_change(
    before: Side, after: Side, controls: Sequence[ControlDrift], options: DiffOptions
) -> tuple[Change, str]:
    """The change of the step's busy time, and in words what its floor comes from."""
    drift = drift_of_step(controls, all_phases(before, after))
    calls = max(float(side.places.calls.sum()) for side in (before, after))
    found = judge(before.busy_ns, after.busy_ns, drift=drift, calls=calls, floors=options.floors)
    source = _source(before.busy_ns, after.busy_ns, drift, calls, options)
    return with_failures(found, before.failing, after.failing), source


def _source(
    before: Sequence[F64], after: Sequence[F64], drift: float | None, calls: float, options: DiffOptions
) -> str:
    """What made a floor as large as it is, and what else was looked at."""
    one, other = positive(before), positive(after)
    if not one or not other:
        return ""
    floor = floor_of(one, other, drift=drift, calls=calls, floors=options.floors)
    return f"{floor.source}; less from {', '.join(floor.others)}" if floor.others else floor.source


def phase_changes(
    before: Side, after: Side, controls: Sequence[ControlDrift], options: DiffOptions
) -> list[PhaseChange]:
    """All phases, the largest change first."""
    known = {control.phase for control in controls}
    rows = []
    for phase in all_phases(before, after):
        kernels_b, kernels_a = sum(before.kernels_of(phase).values()), sum(after.kernels_of(phase).values())
        time = judge(
            before.phase_ns(phase),
            after.phase_ns(phase),
            drift=drift_for(phase, controls),
            calls=max(kernels_b, kernels_a),
            floors=options.floors,
        )
        time = with_failures(time, before.failing_in(phase), after.failing_in(phase))
        rows.append(
            PhaseChange(
                phase, time, before.share_of(phase), after.share_of(phase), kernels_b, kernels_a, phase in known
            )
        )
    return sorted(rows, key=lambda row: (-abs(row.time.delta_ns), row.phase))


def _same_kernels(phase: str, before: Side, after: Side) -> bool:
    return _same_calls(before.kernels_of(phase), after.kernels_of(phase))


def _same_calls(one: Mapping[Key, float], other: Mapping[Key, float]) -> bool:
    """Whether both have the same keys, each as often."""
    return one.keys() == other.keys() and all(abs(one[k] - other[k]) <= SAME_COUNT * max(one[k], other[k]) for k in one)


def _bounds(before: Side, after: Side) -> list[object]:
    return [c.main.results["gaps"].metrics.get("bound") for side in (before, after) for c in side.captures]


def _bound(metric: object) -> object:
    return getattr(metric, "value", "unknown")


def with_failures(change: Change, failing_before: Failing, failing_after: Failing) -> Change:
    """Work that failed to launch takes no time: a side that lacks more of it is not faster. Failures in few steps leave
    the median as it is."""
    less_after, less_before = failing_after.share, failing_before.share
    misled = (change.verdict == IMPROVEMENT and less_after > max(less_before, _FEW_STEPS)) or (
        change.verdict == REGRESSION and less_before > max(less_after, _FEW_STEPS)
    )
    if not misled:
        return change
    where, count = (
        ("after", failing_after.launches) if less_after > less_before else ("before", failing_before.launches)
    )
    remark = f"{count} launches failed {where}: what did not run is missing"
    return replace(change, verdict=INCONCLUSIVE, remark=remark)
