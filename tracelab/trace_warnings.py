"""What a reader must know about the input before trusting the numbers, each with a stable code."""

from collections.abc import Iterator, Sequence

import numpy as np

from tracelab.launch_state import graph_launches_without_work, launches_without_work
from tracelab.no_kernels import likely_cause
from tracelab.silent_processes import said_of_cuda, silent_processes
from tracelab.trace import GRAPH, KERNEL, Trace
from tracelab.view import View

Note = tuple[str, str]


def trace_warnings(trace: Trace, views: Sequence[View]) -> list[Note]:
    """Warnings about the whole trace, then about its devices."""
    told = any(view.facts.gpu for view in views)
    notes = [note for note in trace.notes if not (told and note[0] == "no-gpu-info")]
    found = [*notes, *_rows(trace), *_launches(trace), *_processes(trace)]
    for view in views:
        found += [note for note in _device(view) if note not in found]
    return found


def _rows(trace: Trace) -> Iterator[Note]:
    if trace.loss.untimed:
        yield "untimed-work", f"{trace.loss.untimed} rows of GPU work have no usable time and are left out of all sums."
    if trace.loss.inverted:
        yield "inverted-work", f"{trace.loss.inverted} rows of GPU work end before they start and are left out."
    orphans = int((trace.ops.call < 0).sum())
    if orphans and not trace.mixes_processes:
        yield "no-launch-row", f"{orphans} rows of GPU work have no launching call in the trace; they are in no phase."
    if (trace.ops.kind == GRAPH).any():
        replays = int((trace.ops.kind == GRAPH).sum())
        yield (
            "graph-level",
            f"{replays} CUDA graph replays were traced as a whole, so the kernels inside them are not in the trace; "
            "capture with --cuda-graph-trace=node to see them.",
        )
    open_ranges = int(trace.ranges.open.sum())
    if open_ranges:
        yield "open-ranges", f"{open_ranges} NVTX ranges never ended; they count until the end of the capture."


def _launches(trace: Trace) -> Iterator[Note]:
    replays = graph_launches_without_work(trace)
    if len(replays):
        yield (
            "gpu-time-incomplete",
            f"GPU time is incomplete: {len(replays)} CUDA graph replays left no GPU rows, so idle time cannot be told.",
        )
    silent = len(launches_without_work(trace)) - len(replays)
    if silent > 0:
        yield (
            "launches-without-work",
            f"{silent} launch calls {_silence(trace)}",
        )


def _silence(trace: Trace) -> str:
    if trace.returns_known:
        return "returned 0 but have no GPU work in the trace: not failures, but rows are missing."
    return "have no GPU work in the trace: they failed, or rows are missing; the trace does not say which."


def _processes(trace: Trace) -> Iterator[Note]:
    """Ranks or workers whose work is missing: the rest of the trace looks healthy."""
    silent = silent_processes(trace)
    if not silent.pids:
        return
    several = "processes" if len(silent.pids) > 1 else "process"
    found = f"{len(silent.pids)} {several} ({silent.shown}) made {silent.launch_calls} launch calls, "
    found += "and none of their GPU work is in the trace"
    if trace.format == "kineto":
        yield "process-without-work", f"{found}."
        return
    said = said_of_cuda(trace)
    cause = likely_cause([d.text for d in trace.diagnostics], only_graphs=silent.only_graphs)
    yield "process-without-work", f"{found}{f' (nsys says: {said})' if said else ''}; {cause}."


def _device(view: View) -> Iterator[Note]:
    early = _early(view)
    if early:
        yield "clock", f"{early} rows of GPU work start before their launching call; the clocks were not aligned."
    floor = view.floor
    if floor.ns is not None and view.steps_used and floor.ns > int(np.median(view.busy_ns)) > 0:
        yield (
            "mbu-above-1",
            "The floor is above the GPU time: check parameters, dtype and steps per range, or the data sits in L2.",
        )
    if view.trace.workload is not None and not view.floor.phases and view.floor.why_not:
        yield "workload-record", f"The workload record gives no floor: {view.floor.why_not}."


def _early(view: View) -> int:
    ops, calls = view.trace.ops, view.trace.calls
    if len(calls) == 0:
        return 0
    early = (ops.start < calls.start[ops.call]) & (ops.call >= 0) & (ops.kind == KERNEL)
    return int(early[view.device_ops].sum())
