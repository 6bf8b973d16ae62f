"""The kernel rows of a diff: each place before and after, with its verdict."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tracelab.compare.comparable import gpu_of
from tracelab.compare.noise import ControlDrift, drift_for, judge
from tracelab.compare.options import DiffOptions
from tracelab.compare.pairing import Pair, pair_places
from tracelab.compare.rows import SAME_COUNT, with_failures
from tracelab.compare.side import Side
from tracelab.difference import (
    COUNT_CHANGED,
    GONE,
    IMPROVEMENT,
    INCONCLUSIVE,
    NEUTRAL,
    NEW,
    REGRESSION,
    SAME,
    Change,
    KernelChange,
    Shape,
)
from tracelab.step_samples import F64, Places
from tracelab.units import times


def kernel_changes(
    before: Side, after: Side, controls: Sequence[ControlDrift], options: DiffOptions
) -> list[KernelChange]:
    """All kernels by phase and place, the largest change first."""
    one, other = _alike_ordered(before, after)
    rows = []
    for pair in pair_places(one.places, other.places):
        row = _kernel_change(pair, one, other, drift_for(pair.phase, controls), options)
        time = with_failures(row.time, before.failing_in(pair.phase), after.failing_in(pair.phase))
        rows.append(replace(row, time=time))
    return sorted(rows, key=lambda row: (-abs(row.time.delta_ns), row.phase, row.before, row.after))


def counts_differ(row: KernelChange) -> bool:
    """Whether a step launches the kernel more or less often than before."""
    return abs(row.calls_after - row.calls_before) > SAME_COUNT * max(row.calls_after, row.calls_before)


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
    return Places(
        ordered=False,
        phase=tuple(phase for phase, _ in groups),
        run=(0,) * len(groups),
        name=tuple(name for _, name in groups),
        family=tuple(places.family[i] for i in first),
        calls=np.array([places.calls[columns].sum() for columns in groups.values()]),
        time_ns=_summed(places.time_ns, groups.values()),
        behind_ns=_summed(places.behind_ns, groups.values()),
        grid=places.grid[first],
        block=places.block[first],
        registers=places.registers[first],
    )


def _summed(times: F64, groups: Iterable[list[int]]) -> F64:
    columns = [times[:, group].sum(axis=1) for group in groups]
    return np.stack(columns, axis=1) if columns else times


def _kernel_change(pair: Pair, before: Side, after: Side, drift: float | None, options: DiffOptions) -> KernelChange:
    calls_b, calls_a = _calls(before, pair.before), _calls(after, pair.after)
    whole, behind = (
        judge(
            before.place_ns(pair.before, behind=behind) if pair.before else None,
            after.place_ns(pair.after, behind=behind) if pair.after else None,
            drift=drift,
            calls=max(calls_b, calls_a),
            floors=options.floors,
        )
        for behind in (False, True)
    )
    time = _agreed(whole, behind)
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


def _agreed(whole: Change, behind: Change) -> Change:
    """The change of a kernel's time. A kernel that waits in its own time for the one before it (a dependent launch) is
    slower or faster only if it is so behind that one, too."""
    if whole.verdict == behind.verdict or whole.verdict not in (REGRESSION, IMPROVEMENT, NEUTRAL):
        return whole
    spent = times(behind.before_ns or 0.0, behind.after_ns or 0.0)
    remark = f"of its time it runs {spent[0]} → {spent[1]} behind the kernel before it, and waits the rest"
    opposite = {whole.verdict, behind.verdict} == {REGRESSION, IMPROVEMENT}
    return replace(whole, verdict=INCONCLUSIVE if opposite else NEUTRAL, remark=remark)


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
