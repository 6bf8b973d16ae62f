"""API calls that returned an error, each with its phase, step and process."""

import numpy as np

from tracelab.failures import error_name, is_launch, judge
from tracelab.result import Row
from tracelab.trace import ABSENT, I64, Trace
from tracelab.view import View

_SHOWN = ("warning", "error", "fatal")


def failed_calls(view: View) -> list[Row]:
    """Rows by phase, step, process, call and code, most severe first, then by time; harmless codes are left out."""
    trace = view.trace
    rows = _outermost(trace, np.flatnonzero(trace.calls.return_value != 0))
    last_work = int(trace.ops.start.max()) if len(trace.ops) else 0
    tally: dict[tuple[str, str, int, str, int, str, bool], int] = {}
    for row in rows[np.argsort(trace.calls.start[rows], kind="stable")].tolist():
        name, code = trace.names[int(trace.calls.name[row])], int(trace.calls.return_value[row])
        driver = int(trace.calls.driver[row])
        severity = judge(name, code, driver, after_last_work=bool(trace.calls.start[row] > last_work))
        if severity in _SHOWN:
            pid = trace.pid(int(trace.calls.process[row]))
            key = (_phase(view, row), _step(view, row), pid, name, code, severity, is_launch(name))
            tally[key] = tally.get(key, 0) + 1
    ranked = sorted(tally.items(), key=lambda item: -_SHOWN.index(item[0][5]))  # then in the order they happened
    return [
        {"phase": phase, "step": step, "process": pid, "api": api, "code": code, "error": error_name(code),
         "severity": severity, "count": count, "launch": launch}
        for (phase, step, pid, api, code, severity, launch), count in ranked
    ]  # fmt: skip


def _outermost(trace: Trace, rows: I64) -> I64:
    """One of the rows of a failure that shows both as a runtime call and as the driver call inside it."""
    order = np.lexsort((-trace.calls.end[rows], trace.calls.start[rows], trace.calls.thread[rows]))
    rows = rows[order]
    keep = np.ones(len(rows), bool)
    thread, end = trace.calls.thread[rows], trace.calls.end[rows]
    inside = (thread[1:] == thread[:-1]) & (trace.calls.start[rows][1:] < end[:-1]) & (end[1:] <= end[:-1])
    keep[1:] = ~inside
    return rows[keep]


def _phase(view: View, row: int) -> str:
    return view.phase_name(int(view.phases.call_phase[row]))


def _step(view: View, row: int) -> str:
    trace, marked = view.trace, view.steps.nvtx
    if marked is not None:
        step_range = int(marked.call_range[row])
        return "" if step_range == ABSENT else trace.names[int(trace.ranges.name[step_range])]
    group = view.group
    start, process = int(trace.calls.start[row]), int(trace.calls.process[row])
    if group.source == "whole-trace":
        return ""
    hit = np.flatnonzero((group.process == process) & (group.host_start <= start) & (start < group.host_end))
    return group.names[int(hit[0])] if len(hit) else ""
