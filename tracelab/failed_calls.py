"""API calls that returned an error, each with its phase, step and process."""

import numpy as np

from tracelab.arrays import group_ids
from tracelab.failures import error_name, is_launch, judge
from tracelab.intervals import outermost
from tracelab.result import Row
from tracelab.steps import step_of_calls
from tracelab.trace import ABSENT, I64, Trace
from tracelab.view import View

_SHOWN = ("warning", "error", "fatal")


def failed_calls(view: View) -> list[Row]:
    """Rows by phase, step, process, call and code, most severe first, then by time; harmless codes are left out."""
    trace, calls = view.trace, view.trace.calls
    rows = _outermost(trace, np.flatnonzero(calls.return_value != 0))
    severity = _severities(trace, rows)
    rows, severity = rows[severity >= 0], severity[severity >= 0]
    step = _steps(view, rows)
    group, first = group_ids([calls.process[rows], view.phases.call_phase[rows], step, calls.name[rows],
                              calls.return_value[rows]])  # fmt: skip
    counts = np.bincount(group)
    ranked = sorted(range(len(first)), key=lambda g: (-severity[first[g]], calls.start[rows[first[g]]]))
    return [
        _row(view, int(rows[first[g]]), int(step[first[g]]), int(severity[first[g]]), int(counts[g])) for g in ranked
    ]


def _row(view: View, row: int, step: int, severity: int, count: int) -> Row:
    trace = view.trace
    api, code = trace.names[int(trace.calls.name[row])], int(trace.calls.return_value[row])
    return {
        "phase": view.phase_name(int(view.phases.call_phase[row])),
        "step": _step_name(view, step),
        "process": trace.pid(int(trace.calls.process[row])),
        "api": api,
        "code": code,
        "error": error_name(code),
        "severity": _SHOWN[severity],
        "count": count,
        "launch": is_launch(api),
    }


def _severities(trace: Trace, rows: I64) -> I64:
    """Index into _SHOWN of each failure, -1 for a harmless one; each kind of failure is judged once."""
    calls = trace.calls
    late = calls.start[rows] > (int(trace.ops.start.max()) if len(trace.ops) else 0)
    group, first = group_ids([calls.name[rows], calls.return_value[rows], calls.driver[rows], late])
    judged = [
        judge(
            trace.names[int(calls.name[rows[i]])],
            int(calls.return_value[rows[i]]),
            int(calls.driver[rows[i]]),
            after_last_work=bool(late[i]),
        )
        for i in first
    ]
    return np.array([_SHOWN.index(said) if said in _SHOWN else -1 for said in judged], np.int64)[group]


def _outermost(trace: Trace, rows: I64) -> I64:
    """One of the rows of a failure that shows both as a runtime call and as driver calls inside it; by start."""
    order = np.lexsort((-trace.calls.end[rows], trace.calls.start[rows], trace.calls.thread[rows]))
    rows = rows[order]
    keep = outermost(trace.calls.thread[rows], trace.calls.start[rows], trace.calls.end[rows])
    return rows[keep][np.argsort(trace.calls.start[rows[keep]], kind="stable")]


def _steps(view: View, rows: I64) -> I64:
    """Range row of the step of each failure (NVTX steps), else the step's number in its group; ABSENT outside."""
    if view.steps.nvtx is not None:
        return view.steps.nvtx.call_range[rows]
    return step_of_calls(view.trace, view.group, rows).astype(np.int64)


def _step_name(view: View, step: int) -> str | None:
    if step == ABSENT:
        return None
    if view.steps.nvtx is not None:
        return view.trace.names[int(view.trace.ranges.name[step])]
    return view.group.names[step]
