"""Does every kernel have its launch and every launch its kernels? Checks of one device's view."""

from collections.abc import Iterator

import numpy as np

from tracelab.failed_calls import failed_calls
from tracelab.launch_state import graph_launches_without_work, launches_without_work
from tracelab.result import Row
from tracelab.trace import GRAPH, I64, Bool, Trace
from tracelab.trust_checks import (
    GPU_ROWS,
    IDLE,
    WORK,
    calls_near_steps,
    counted,
    ops_near_steps,
    refused,
    when,
)
from tracelab.trust_result import TrustCheck
from tracelab.units import percent, time
from tracelab.view import View

_MOST = 0.5  # without the launch of this share of the GPU time there are no phases to speak of
_CALLS_OF_NSYS = "Trace cuda, and export the whole report, without --tables."
_CALLS_OF_PYTORCH = "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
_NODES = "Capture with --cuda-graph-trace=node."


def work_without_launch(view: View) -> Iterator[TrustCheck]:
    """GPU work whose launching call is not in the file: all of it, cut off by a trimmed window, or lost."""
    trace = view.trace
    rows = view.device_ops[trace.ops.call[view.device_ops] < 0]
    if len(rows) == 0:
        return
    if len(trace.calls) == 0:
        yield TrustCheck(
            "no-api-calls",
            "no API calls in the file",
            f"None of {counted(len(rows), 'row')} of GPU work has its launching call: the file holds no API calls.",
            limits=("kernels", *IDLE),
            refuses=("phases", "launches"),
            advice=_CALLS_OF_PYTORCH if trace.format == "kineto" else _CALLS_OF_NSYS,
            numbers={"rows": len(rows)},
        )
        return
    cut = _beyond_calls(trace, rows)
    if cut.any():
        yield _orphans(view, rows[cut], "cut-launches", "lies beyond the recorded calls (a trimmed window)")
    if not cut.all():
        yield _orphans(view, rows[~cut], "work-without-launch", "is not in the trace")


def _beyond_calls(trace: Trace, rows: I64) -> Bool:
    """Rows whose call came before the first or after the last recorded one: correlation ids count up, as calls do.

    Work that starts before the last recorded call was launched before it, whatever its id says.
    """
    ops, calls = trace.ops, trace.calls
    beyond = np.zeros(len(rows), bool)
    for process in np.unique(ops.process[rows]):
        mine, asked = calls.process == process, ops.process[rows] == process
        if mine.any():
            ids, last = calls.correlation[mine], calls.start[mine].max()
            after = (ops.correlation[rows] > ids.max()) & (ops.start[rows] > last)
            beyond |= asked & ((ops.correlation[rows] < ids.min()) | after)
    return beyond & (ops.correlation[rows] >= 0)


def _orphans(view: View, rows: I64, code: str, what: str) -> TrustCheck:
    ops = view.trace.ops
    near = ops_near_steps(view, rows)
    took, everything = int(ops.duration_ns[rows].sum()), int(ops.duration_ns[view.device_ops].sum())
    share = took / max(everything, 1)
    where = "" if near.any() else ", outside the steps"
    return TrustCheck(
        code,
        f"{counted(len(rows), 'row')} of GPU work without a launch",
        f"The launch of {counted(len(rows), 'row')} of GPU work {what}: {time(took)}, {percent(share)} of the GPU "
        f"time, {when(ops.start[rows])}{where}.",
        limits=WORK if near.any() else (),
        refuses=("phases",) if near.any() and share > _MOST else (),
        advice="This work is in no phase and in no step that a range marks.",
        numbers={"rows": len(rows), "time_ns": took, "share": share},
    )


def launches_without_rows(view: View) -> Iterator[TrustCheck]:
    """Launch calls without GPU work that are not known to have failed; replays of graphs, which hold steps, apart."""
    trace = view.trace
    replays = graph_launches_without_work(trace)
    if len(replays):
        yield _lost_replays(view, replays)
    rows = np.setdiff1d(launches_without_work(trace), replays)
    if len(rows) == 0:
        return
    near = int(calls_near_steps(view, rows).sum())
    launching = np.unique(trace.ops.call[view.ops])
    share = near / max(near + len(launching[launching >= 0]), 1)
    where = "" if near == len(rows) else f", {near} of them among the steps used"
    said = "returned 0 and left no GPU work" if trace.returns_known else "left no GPU work"
    why = "rows are missing" if trace.returns_known else "they failed, or rows are missing"
    yield TrustCheck(
        "launches-without-work",
        f"{counted(near, 'launch')} without GPU work",
        f"{counted(len(rows), 'launch call')} {said}, {when(trace.calls.start[rows])}{where}: {why}.",
        limits=GPU_ROWS if near else (),
        refuses=refused(share, GPU_ROWS),
        numbers={"launches": len(rows), "launches_near_steps": near},
    )


def _lost_replays(view: View, rows: I64) -> TrustCheck:
    near = int(calls_near_steps(view, rows).sum())
    return TrustCheck(
        "gpu-time-incomplete",
        f"{counted(len(rows), 'graph replay')} without GPU rows",
        f"{counted(len(rows), 'CUDA graph replay')} left no GPU rows, {when(view.trace.calls.start[rows])}: idle time "
        "cannot be told from work that was not recorded.",
        refuses=GPU_ROWS if near else IDLE,
        advice=_NODES,
        numbers={"replays": len(rows), "replays_near_steps": near},
    )


def whole_graphs(view: View) -> Iterator[TrustCheck]:
    """Replays traced as a whole: their kernels and the idle time between them are hidden."""
    ops = view.trace.ops
    rows = view.device_ops[ops.kind[view.device_ops] == GRAPH]
    if len(rows) == 0:
        return
    used = view.ops[ops.kind[view.ops] == GRAPH]
    share = int(ops.duration_ns[used].sum()) / max(int(ops.duration_ns[view.ops].sum()), 1)
    hidden = ("grids",) if len(used) and not view.is_kernel.any() else ()
    yield TrustCheck(
        "graph-level",
        "graphs are traced as a whole",
        f"{counted(len(rows), 'CUDA graph replay')} traced as a whole hide their kernels, and the gaps between those: "
        f"{percent(share)} of the GPU time of the steps used.",
        limits=GPU_ROWS if len(used) else (),
        refuses=hidden,
        advice=_NODES,
        numbers={"replays": len(rows), "replays_used": len(used), "share": share},
    )


def rows_twice(view: View) -> Iterator[TrustCheck]:
    """Rows of GPU work that stand in the file more than once."""
    ops, rows = view.trace.ops, view.device_ops
    columns = (ops.kind, ops.process, ops.stream, ops.correlation, ops.graph_node, ops.name, ops.start, ops.end)
    same = np.ones(max(len(rows) - 1, 0), bool)  # equal rows stand side by side: the order of `Ops` is by content
    for column in columns:
        same &= column[rows[1:]] == column[rows[:-1]]
    again = rows[1:][same]
    if len(again) == 0:
        return
    took = int(ops.duration_ns[again].sum())
    yield TrustCheck(
        "rows-twice",
        f"{counted(len(again), 'row')} stand there twice" if len(again) > 1 else "1 row stands there twice",
        f"{counted(len(again), 'row')} of GPU work ({time(took)}) repeat others to the last digit, "
        f"{when(ops.start[again])}: counts and sums are too high.",
        limits=("kernels", "phases", "grids"),
        advice="Export the report again.",
        numbers={"rows": len(again), "time_ns": took, "distinct_rows": len(rows) - len(again)},
    )


def failed_launches(view: View) -> Iterator[TrustCheck]:
    """Launches that failed, so that the steps did less than they should; errors after which nothing is certain."""
    rows = failed_calls(view)
    fatal = [row for row in rows if row["severity"] == "fatal"]
    if fatal:
        yield TrustCheck(
            "fatal-error",
            f"a fatal error ({fatal[0]['error']})",
            f"{_calls(fatal)} returned a fatal error, {fatal[0]['error']} ({fatal[0]['code']}): GPU work after it is "
            "not certain.",
            limits=GPU_ROWS,
            numbers={"calls": _count(fatal)},
        )
    failed = [row for row in rows if row["severity"] == "error" and row["launch"]]
    inside = _count([row for row in failed if row["step"] is not None or view.group.source == "whole-trace"])
    if failed:
        yield TrustCheck(
            "failed-launches",
            f"{counted(inside, 'launch')} of the steps failed",
            f"{_calls(failed)} failed, {inside} of them in steps: what they should have run is not there, and the "
            "steps took less time for it.",
            limits=WORK if inside else (),
            advice="tracelab launches names their phase and error.",
            numbers={"launches": _count(failed), "launches_in_steps": inside},
        )


def _count(rows: list[Row]) -> int:
    return sum(int(row["count"]) for row in rows)


def _calls(rows: list[Row]) -> str:
    return f"{counted(_count(rows), 'call')} ({', '.join(sorted({str(row['api']) for row in rows}))})"
