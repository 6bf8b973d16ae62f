"""Steps that nobody marked: by graph launch, else by the period of the kernel-name sequence, else the whole trace."""

from dataclasses import dataclass

import numpy as np

from tracelab.arrays import group_starts, rows_by
from tracelab.attribution import Launches, launched_gpu_ns, work_in_ranges
from tracelab.failures import is_host_wait
from tracelab.periods import boundaries, find_loop
from tracelab.trace import ABSENT, I32, I64, KERNEL, Trace

_MAIN_SHARE = 0.5  # a graph makes the steps if it holds this share of the GPU time
_NOT_A_SIDELINE = 0.1  # … and any loop must hold this much, or the whole trace says more
_NEARLY_ALL = 0.95  # an inner range with this share of the busiest range's work is preferred: it names the loop
_FOREVER_NS = 1 << 61


@dataclass(frozen=True)
class Inferred:
    """Steps of one process: `pattern` names the rule, `source` its kind; windows are host times [start, end)."""

    source: str
    pattern: str
    process: int
    start: I64
    end: I64
    op_rows: I64
    op_step: I32
    inside_range: int


@dataclass(frozen=True)
class _Sequence:
    """GPU work of one process in launch order: op rows, the host time that orders them, and their calls."""

    ops: I64
    key: I64


def infer_steps(trace: Trace, launched: Launches) -> list[Inferred]:
    """The steps of each process, looked for inside the range with most GPU work; empty if no process has a loop."""
    found = []
    for process in np.unique(trace.ops.process):
        inside = _busiest_range(trace, launched, int(process))
        sequence = _sequence(trace, int(process), inside)
        steps = _by_graph(trace, sequence, int(process), inside) or _by_period(trace, sequence, int(process), inside)
        if steps is not None and _matters(trace, int(process), steps):
            found.append(steps)
    return found


def _matters(trace: Trace, process: int, steps: Inferred) -> bool:
    everything = int(_computing_ns(trace, np.flatnonzero(trace.ops.process == process)).sum())
    return int(_computing_ns(trace, steps.op_rows).sum()) >= _NOT_A_SIDELINE * everything


def _computing_ns(trace: Trace, rows: I64) -> I64:
    """GPU time of kernels and graphs, 0 for copies: loading the weights may take longer than the whole loop."""
    return np.where(trace.ops.computes[rows], trace.ops.duration_ns[rows], 0)


def whole_trace(trace: Trace) -> Inferred:
    """One step that holds all GPU work of every process."""
    rows = np.arange(len(trace.ops), dtype=np.int64)
    ends = np.array([_FOREVER_NS], np.int64)
    return Inferred(
        "whole-trace", "whole trace", ABSENT, -ends, ends, rows, np.zeros(len(rows), np.int32), ABSENT
    )  # fmt: skip


def _busiest_range(trace: Trace, launched: Launches, process: int) -> int:
    meant = ~trace.framework_domain[trace.ranges.domain]
    rows = np.flatnonzero((trace.thread_process[trace.ranges.thread] == process) & meant)
    if len(rows) == 0:
        return ABSENT
    work = work_in_ranges(trace, rows, launched.rows, launched_gpu_ns(trace)[launched.rows])
    best = int(work.max())
    if best <= 0:
        return ABSENT
    near = np.flatnonzero(work >= _NEARLY_ALL * best)
    length = trace.ranges.end[rows[near]] - trace.ranges.start[rows[near]]
    return int(rows[near[np.argmin(length)]])


def _sequence(trace: Trace, process: int, inside: int) -> _Sequence:
    ops = np.flatnonzero(trace.ops.process == process)
    key = trace.launched_ns(ops)
    if inside != ABSENT:
        kept = (key >= trace.ranges.start[inside]) & (key <= trace.ranges.end[inside])
        ops, key = ops[kept], key[kept]
    order = rows_by(key, trace.ops.graph_node[ops], trace.ops.start[ops])
    return _Sequence(ops[order], key[order])


def _by_graph(trace: Trace, sequence: _Sequence, process: int, inside: int) -> Inferred | None:
    ops, key = sequence.ops, sequence.key
    node = trace.ops.graph_node[ops]
    duration = _computing_ns(trace, ops)
    in_graph = (node >= 0) & (trace.ops.call[ops] >= 0)
    if duration[in_graph].sum() < _MAIN_SHARE * duration.sum() or not in_graph.any():
        return None
    rows = np.flatnonzero(in_graph)
    first = rows[group_starts(trace.ops.call[ops[rows]])]
    if len(first) < 2:
        return None
    graph = node[first] >> 32
    waits = _waits(trace, process)
    marks = _marks(waits, key[first])
    loop = find_loop(graph, marks)
    starts = boundaries(graph, loop, _pauses(trace, ops[first], key[first]), marks) if loop else np.arange(len(first))
    length = loop.length if loop else 1
    ends = _ends(key[first], starts, length, waits, _limit(trace, inside))
    label = "CUDA graph launch" if length == 1 else f"{length} CUDA graph launches"
    return _windows("graph-launch", label, process, sequence, key[first[starts]], ends, inside)


def _by_period(trace: Trace, sequence: _Sequence, process: int, inside: int) -> Inferred | None:
    is_kernel = trace.ops.kind[sequence.ops] == KERNEL
    kernels, key = sequence.ops[is_kernel], sequence.key[is_kernel]
    symbols = trace.ops.name[kernels].astype(np.int64)
    waits = _waits(trace, process)
    marks = _marks(waits, key)
    loop = find_loop(symbols, marks)
    if loop is None:
        return None
    starts = boundaries(symbols, loop, _pauses(trace, kernels, key), marks)
    ends = _ends(key, starts, loop.length, waits, _limit(trace, inside))
    label = "period of 1 kernel" if loop.length == 1 else f"period of {loop.length} kernels"
    return _windows("period", label, process, sequence, key[starts], ends, inside)


def _windows(
    source: str, label: str, process: int, sequence: _Sequence, start: I64, end: I64, inside: int
) -> Inferred | None:
    if len(start) < 2:
        return None
    at = np.searchsorted(start, sequence.key, side="right") - 1
    held = (at >= 0) & (sequence.key < end[np.maximum(at, 0)])
    return Inferred(source, label, process, start, end, sequence.ops[held], at[held].astype(np.int32), inside)


def _limit(trace: Trace, inside: int) -> int:
    return int(trace.ranges.end[inside]) + 1 if inside != ABSENT else _FOREVER_NS


def _ends(key: I64, starts: I64, length: int, waits: I64, limit: int) -> I64:
    """Host time at which each step ends: where the next one begins. A step that none follows ends when the host next
    comes back from a wait, and at most twice the usual time after its last launch: what comes later is not its work."""
    last, following = key[starts + length - 1], np.append(key, limit)[starts + length]
    followed = np.isin(starts + length, starts)
    usual = int(np.median((following - last)[followed])) if followed.any() else 0
    waited = np.append(waits, limit)[np.searchsorted(waits, last, side="left")]
    return np.where(followed, following, np.minimum(following, np.minimum(waited, last + 2 * usual) + 1))


def _waits(trace: Trace, process: int) -> I64:
    """Times at which the host of one process came back from a wait for the GPU, sorted."""
    rows = np.flatnonzero((trace.calls.process == process) & trace.calls_named(is_host_wait))
    return np.sort(trace.calls.end[rows])


def _marks(waits: I64, key: I64) -> I64:
    """Positions in `key` before which the host waited for the GPU, sorted and distinct."""
    return np.unique(np.searchsorted(key, waits, side="left"))


def _pauses(trace: Trace, ops: I64, key: I64) -> I64:
    """Host time between the end of the previous launching call and each op's own launching call; never negative."""
    call = trace.ops.call[ops]
    end = np.where(call >= 0, trace.calls.end[call] if len(trace.calls) else 0, key)
    pause = np.zeros(len(ops), np.int64)
    pause[1:] = np.maximum(key[1:] - end[:-1], 0)
    return pause
