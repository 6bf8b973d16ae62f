"""Modules loaded or code compiled inside the analysed window: time that a warmed-up program does not spend."""

import numpy as np

from tracelab.failures import is_module_load
from tracelab.intervals import outermost
from tracelab.result import Finding
from tracelab.step_table import USED
from tracelab.steps import step_of_calls
from tracelab.trace import I32, I64, Bool
from tracelab.units import time as format_time
from tracelab.view import View

_NAMED = 3


def module_load_finding(view: View) -> Finding | None:
    """A finding where a step loaded modules; it promises no time, since such steps are left out when others remain."""
    calls = view.trace.calls
    rows = np.flatnonzero(view.trace.calls_named(is_module_load))
    step = step_of_calls(view.trace, view.group, rows)
    inside = _outer(view, rows[_in_steps(view, rows, step)])
    if len(inside) == 0:
        return None
    hit = np.flatnonzero(np.isin(view.table.step, step))
    counted = "1 call" if len(inside) == 1 else f"{len(inside)} calls"
    took = format_time(int((calls.end[inside] - calls.start[inside]).sum()))
    whole = view.group.source == "whole-trace"
    where = "between the first and the last GPU work" if whole else f"inside {_steps(view, hit)}"
    title = f"Modules were loaded or compiled {where}: {counted}, {took} of host time."
    left_out = len(hit) > 0 and not (view.table.reason[hit] == USED).any()
    said = "Left out of the statistics." if left_out else "Warm up before the window, or load modules eagerly."
    return Finding("module-load", title, said)


def _in_steps(view: View, rows: I64, step: I32) -> Bool:
    if view.group.source != "whole-trace":
        return np.isin(step, view.table.step)
    if len(view.device_ops) == 0:  # all of the device's work lies outside the window
        return np.zeros(len(rows), bool)
    ops, start = view.trace.ops, view.trace.calls.start[rows]
    inside: Bool = (start > ops.start[view.device_ops[0]]) & (start < ops.end[view.device_ops].max())
    return inside


def _outer(view: View, rows: I64) -> I64:
    """The rows without calls inside other calls: a runtime call may show the driver call that it makes."""
    calls = view.trace.calls
    rows = rows[np.lexsort((-calls.end[rows], calls.start[rows], calls.thread[rows]))]
    return rows[outermost(calls.thread[rows], calls.start[rows], calls.end[rows])]


def _steps(view: View, hit: I64) -> str:
    if len(hit) > _NAMED:
        return f"{len(hit)} of {len(view.table)} steps"
    return ", ".join(f"step {int(step)}" for step in view.table.step[hit])
