"""Times of every used step, as samples: step, busy time, phases, and each place in the step where a kernel stands."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import group_ids, group_starts, mix_hash, position_in_group
from tracelab.families import classify
from tracelab.intervals import new_coverage
from tracelab.step_table import launch_order
from tracelab.trace import I32, I64
from tracelab.view import View

F64 = NDArray[np.float64]

# Places are told apart where more than this share of the used steps run the same kernels in order; of two halves,
# which one counts would be chance, and other on the other side of a comparison.
_MOST = 0.5
_ONE_SEQUENCE = 0.5


@dataclass(frozen=True)
class Places:
    """The places of one step where kernels stand, in launch order; all columns have one entry per place.

    A place has a phase, the run of that phase it belongs to (0 for the first time the step enters the phase), a kernel
    name and its family. `time_ns` has shape [steps, places]. `behind_ns` is the same, counting a kernel from the end of
    the one before it on its stream: a dependent launch that starts early waits for that one. `calls` is how many
    launches of a step a place stands for: 1, or where the steps do not run one sequence the mean number of launches of
    that name and phase (`ordered` is then False). Launch shapes are those of one step: x, y, z in `grid` and `block`,
    shape [places, 3]; 0 for a whole graph.
    """

    ordered: bool
    phase: tuple[str, ...]
    run: tuple[int, ...]
    name: tuple[str, ...]
    family: tuple[str, ...]
    calls: F64
    time_ns: F64
    behind_ns: F64
    grid: I64
    block: I64
    registers: I64

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class StepSamples:
    """Samples in ns of one device's used steps, in their order.

    `step_ns` are periods where there are any, so that it may be shorter than the others. `phases` are busy times with
    overlaps shared evenly, of every phase with GPU work. `in_graph`: CUDA graphs launched most of the kernels.
    """

    step_ns: F64
    busy_ns: F64
    phases: Mapping[str, F64]
    places: Places
    in_graph: bool = False


def step_samples(view: View) -> StepSamples:
    """The samples of all used steps of `view`."""
    code = view.of_ops(view.phases.op_phase)
    cells = code.astype(np.int64) * view.steps_used + view.op_step
    count = len(view.phases.names)
    busy = np.bincount(cells, weights=view.shares_ns, minlength=count * view.steps_used).reshape(count, -1)
    present = np.flatnonzero(np.bincount(code, minlength=count)) if view.steps_used else np.zeros(0, np.int64)
    return StepSamples(
        step_ns=view.step_ns.astype(np.float64),
        busy_ns=view.busy_ns.astype(np.float64),
        phases={view.phase_name(int(p)): busy[p] for p in present},
        places=_places(view),
        in_graph=bool((view.trace.ops.graph_node[view.ops] >= 0).mean() > _MOST) if len(view.ops) else False,
    )


@dataclass(frozen=True)
class _Sequence:
    """Kernels and whole graphs of the used steps by step and launch: rows of `Ops`, their step, phase, position in the
    step, and their time behind the one before (ns)."""

    rows: I64
    step: I64
    phase: I32
    position: I64
    behind_ns: I64


def _places(view: View) -> Places:
    sequence = _in_launch_order(view)
    same = _most_common(view, sequence)
    if len(same) <= _ONE_SEQUENCE * view.steps_used:
        return _by_name(view, sequence)
    return _by_position(view, sequence, same)


def _in_launch_order(view: View) -> _Sequence:
    table, trace = view.table, view.trace
    order = launch_order(trace, table)
    order = order[trace.ops.computes[table.ops[order]] & np.isin(table.op_row[order], view.used)]
    rows, step = table.ops[order], np.searchsorted(view.used, table.op_row[order])
    position = position_in_group(group_starts(step), len(step))
    return _Sequence(rows, step, view.phases.op_phase[rows], position, _behind_ns(view, rows, step))


def _behind_ns(view: View, rows: I64, step: I64) -> I64:
    """Time of each row from the end of the one before it on its stream."""
    ops = view.trace.ops
    stream, _ = group_ids([step, ops.process[rows], ops.stream[rows]])
    order = np.lexsort((ops.start[rows], stream))
    own = np.empty(len(rows), np.int64)
    own[order] = new_coverage(stream[order], ops.start[rows[order]], ops.end[rows[order]])
    return own


def _most_common(view: View, sequence: _Sequence) -> I64:
    """The used steps that run the most common sequence of kernels and phases."""
    both = view.trace.ops.name[sequence.rows].astype(np.int64) * len(view.phases.names) + sequence.phase
    total = np.zeros(view.steps_used, np.uint64)
    np.add.at(total, sequence.step, mix_hash(both, sequence.position))
    values, counts = np.unique(total, return_counts=True)
    return np.flatnonzero(total == values[np.argmax(counts)]) if len(values) else np.zeros(0, np.int64)


def _by_position(view: View, sequence: _Sequence, steps: I64) -> Places:
    inside = np.isin(sequence.step, steps)
    rows = sequence.rows[inside].reshape(len(steps), -1)
    example = rows[len(steps) // 2]  # grids may grow with the context: those of a step in the middle
    phase = view.phases.op_phase[example]
    return _table(
        view,
        example,
        ordered=True,
        run=_runs(phase),
        calls=np.ones(len(example)),
        time_ns=view.trace.ops.duration_ns[rows].astype(np.float64),
        behind_ns=sequence.behind_ns[inside].reshape(rows.shape).astype(np.float64),
    )


def _by_name(view: View, sequence: _Sequence) -> Places:
    """One place for each phase and name, by their texts: captures of one program then have the same places."""
    ops = view.trace.ops
    group, first = group_ids([ops.name[sequence.rows], sequence.phase])
    texts = [
        (view.phase_name(int(phase)), view.trace.names[int(name)])
        for phase, name in zip(sequence.phase[first], ops.name[sequence.rows[first]], strict=True)
    ]
    order = sorted(range(len(first)), key=lambda i: texts[i])
    rank = np.argsort(order) if order else np.zeros(0, np.int64)
    place, count = rank[group], len(first)
    cells = sequence.step * count + place
    shape = (view.steps_used, count)
    total = np.bincount(cells, weights=ops.duration_ns[sequence.rows], minlength=shape[0] * count).reshape(shape)
    behind = np.bincount(cells, weights=sequence.behind_ns, minlength=shape[0] * count).reshape(shape)
    return _table(
        view,
        sequence.rows[first[order]],
        ordered=False,
        run=np.zeros(count, np.int64),
        calls=np.bincount(place, minlength=count) / max(view.steps_used, 1),
        time_ns=total.astype(np.float64),
        behind_ns=behind.astype(np.float64),
    )


def _runs(phase: I32) -> I64:
    """For each place the how-many-eth time the step enters its phase."""
    run = np.zeros(len(phase), np.int64)
    for code in np.unique(phase):
        mine = np.flatnonzero(phase == code)
        run[mine] = np.concatenate(([0], np.cumsum(np.diff(mine) > 1)))
    return run


def _table(view: View, example: I64, *, ordered: bool, run: I64, calls: F64, time_ns: F64, behind_ns: F64) -> Places:
    ops = view.trace.ops
    names = tuple(view.trace.names[int(code)] for code in ops.name[example])
    shape = ops.shapes.code[example]
    distinct = list(dict.fromkeys(names))
    family = dict(zip(distinct, classify(distinct).families, strict=True))
    return Places(
        ordered=ordered,
        phase=tuple(view.phase_name(int(code)) for code in view.phases.op_phase[example]),
        run=tuple(int(number) for number in run),
        name=names,
        family=tuple(family[name] for name in names),
        calls=calls,
        time_ns=time_ns,
        behind_ns=behind_ns,
        grid=ops.shapes.grid(shape),
        block=ops.shapes.block(shape),
        registers=ops.shapes.registers[shape].astype(np.int64),
    )
