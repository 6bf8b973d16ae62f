"""The rows of a diff: step, phases and kernels with their verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

import numpy as np

from tracelab.compare.comparable import gpu_of
from tracelab.compare.noise import (
    ControlDrift,
    control_drift,
    drift_of_step,
    drift_without,
    floor_of,
    judge,
    positive,
)
from tracelab.compare.options import DiffOptions
from tracelab.compare.pairing import Pair, pair_places
from tracelab.compare.side import Failing, Side
from tracelab.difference import (
    COUNT_CHANGED,
    GONE,
    IMPROVEMENT,
    INCONCLUSIVE,
    NEW,
    REGRESSION,
    SAME,
    Change,
    KernelChange,
    PhaseChange,
    Shape,
)
from tracelab.errors import UsageError
from tracelab.step_samples import Places

Key = TypeVar("Key")

_SAME_COUNT = 0.01  # counts that are means over steps of other sequences may differ by this much
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


def step_change(before: Side, after: Side, controls: Sequence[ControlDrift], options: DiffOptions) -> Change:
    """The change of the step time, which a single capture of a host-bound program cannot tell. Where the device bounds
    both sides, the step drifts with it."""
    bounds = {str(_bound(capture_bound)) for capture_bound in _bounds(before, after)}
    drift = drift_of_step(controls, all_phases(before, after)) if bounds == {"device"} else None
    found = judge(before.step_ns, after.step_ns, drift=drift, calls=1, floors=options.floors)
    if all(np.array_equal(one, other) for one, other in zip_longest(before.step_ns, after.step_ns, fillvalue=_NONE)):
        return found  # the same steps: whatever the host does, nothing changed
    if bounds != {"device"} and min(len(before.captures), len(after.captures)) < 2:
        return replace(found, floor=None, verdict=INCONCLUSIVE, remark=_NOT_TIMED)
    return _with_failures(found, before.failing, after.failing)


def device_change(
    before: Side, after: Side, controls: Sequence[ControlDrift], options: DiffOptions
) -> tuple[Change, str]:
    """The change of the step's busy time, and in words what its floor comes from."""
    drift = drift_of_step(controls, all_phases(before, after))
    calls = max(float(side.places.calls.sum()) for side in (before, after))
    found = judge(before.busy_ns, after.busy_ns, drift=drift, calls=calls, floors=options.floors)
    busy = positive(before.busy_ns), positive(after.busy_ns)
    source = ""
    if all(busy):
        floor = floor_of(*busy, drift=drift, calls=calls, floors=options.floors)
        source = f"{floor.source}; less from {', '.join(floor.others)}" if floor.others else floor.source
    return _with_failures(found, before.failing, after.failing), source


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
            drift=drift_without(controls, phase),
            calls=max(kernels_b, kernels_a),
            floors=options.floors,
        )
        time = _with_failures(time, before.failing_in(phase), after.failing_in(phase))
        rows.append(
            PhaseChange(
                phase, time, before.share_of(phase), after.share_of(phase), kernels_b, kernels_a, phase in known
            )
        )
    return sorted(rows, key=lambda row: (-abs(row.time.delta_ns), row.phase))


def kernel_changes(
    before: Side, after: Side, controls: Sequence[ControlDrift], options: DiffOptions
) -> list[KernelChange]:
    """All kernels by phase and place, the largest change first."""
    one, other = _alike_ordered(before, after)
    rows = []
    for pair in pair_places(one.places, other.places):
        row = _kernel_change(pair, one, other, drift_without(controls, pair.phase), options)
        time = _with_failures(row.time, before.failing_in(pair.phase), after.failing_in(pair.phase))
        rows.append(replace(row, time=time))
    return sorted(rows, key=lambda row: (-abs(row.time.delta_ns), row.phase, row.before, row.after))


def counts_differ(row: KernelChange) -> bool:
    """Whether a step launches the kernel more or less often than before."""
    return abs(row.calls_after - row.calls_before) > _SAME_COUNT * max(row.calls_after, row.calls_before)


def _same_kernels(phase: str, before: Side, after: Side) -> bool:
    return _same_calls(before.kernels_of(phase), after.kernels_of(phase))


def _same_calls(one: Mapping[Key, float], other: Mapping[Key, float]) -> bool:
    """Whether both have the same keys, each as often."""
    return one.keys() == other.keys() and all(
        abs(one[k] - other[k]) <= _SAME_COUNT * max(one[k], other[k]) for k in one
    )


def _bounds(before: Side, after: Side) -> list[object]:
    return [c.main.results["gaps"].metrics.get("bound") for side in (before, after) for c in side.captures]


def _bound(metric: object) -> object:
    return getattr(metric, "value", "unknown")


def _with_failures(change: Change, failing_before: Failing, failing_after: Failing) -> Change:
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


def _alike_ordered(before: Side, after: Side) -> tuple[Side, Side]:
    """Both sides by place, or both by name where the steps of one do not run one sequence."""
    places = [capture.samples.places for side in (before, after) for capture in side.captures]
    if all(one.ordered for one in places):
        return before, after
    return _by_name(before), _by_name(after)


def _by_name(side: Side) -> Side:
    captures = [
        replace(capture, samples=replace(capture.samples, places=by_name(capture.samples.places)))
        for capture in side.captures
    ]
    return Side(tuple(captures))


def by_name(places: Places) -> Places:
    """One place for each phase and name, with the calls and times of all of them; by phase and name, so that captures
    which launch them in another order have the same places."""
    found: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(zip(places.phase, places.name, strict=True)):
        found.setdefault(key, []).append(i)
    groups = dict(sorted(found.items()))
    first = [columns[0] for columns in groups.values()]
    times = [places.time_ns[:, columns].sum(axis=1) for columns in groups.values()]
    return Places(
        ordered=False,
        phase=tuple(phase for phase, _ in groups),
        run=(0,) * len(groups),
        name=tuple(name for _, name in groups),
        family=tuple(places.family[i] for i in first),
        calls=np.array([places.calls[columns].sum() for columns in groups.values()]),
        time_ns=np.stack(times, axis=1) if times else places.time_ns,
        grid=places.grid[first],
        block=places.block[first],
        registers=places.registers[first],
    )


def _kernel_change(pair: Pair, before: Side, after: Side, drift: float | None, options: DiffOptions) -> KernelChange:
    calls_b, calls_a = _calls(before, pair.before), _calls(after, pair.after)
    time = judge(
        before.place_ns(pair.before) if pair.before else None,
        after.place_ns(pair.after) if pair.after else None,
        drift=drift,
        calls=max(calls_b, calls_a),
        floors=options.floors,
    )
    row = KernelChange(
        phase=pair.phase,
        pairing=pair.pairing,
        before=pair.names_before,
        after=pair.names_after,
        calls_before=calls_b,
        calls_after=calls_a,
        time=time,
        shapes_before=_shapes(before, pair.before, pair.names_before),
        shapes_after=_shapes(after, pair.after, pair.names_after),
    )
    if pair.pairing == SAME and time.verdict not in (NEW, GONE) and counts_differ(row):
        return replace(row, time=replace(time, verdict=COUNT_CHANGED))
    return row


def _calls(side: Side, columns: Sequence[int]) -> float:
    """Launches of the places in a step."""
    return float(side.places.calls[list(columns)].sum())


def _shapes(side: Side, columns: Sequence[int], names: Sequence[str]) -> tuple[Shape, ...]:
    """The most frequent launch shape of each name."""
    places = side.places
    gpu = gpu_of(side.first)
    found = []
    for name in dict.fromkeys(names):
        seen = Counter(_key(places, i) for i in columns if places.name[i] == name)
        grid, block, registers = max(seen, key=lambda key: (seen[key], key))
        found.append(_shape(grid, block, registers, gpu[1] if gpu else None))
    return tuple(found)


def _key(places: Places, i: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(places.grid[i].tolist()), tuple(places.block[i].tolist()), int(places.registers[i])


def _shape(grid: tuple[int, ...], block: tuple[int, ...], registers: int, sm_count: int | None) -> Shape:
    blocks = int(np.prod(grid))
    fill = min(blocks, sm_count) / sm_count if sm_count and blocks else None
    return Shape(_text(grid), _text(block), blocks, registers, fill)


def _text(shape: tuple[int, ...]) -> str:
    used = list(shape)
    while len(used) > 1 and used[-1] == 1:
        used.pop()
    return "·".join(map(str, used))
