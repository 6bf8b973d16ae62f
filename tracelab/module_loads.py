"""Modules loaded or code compiled inside the analysed window: time that a warmed-up program does not spend."""

import numpy as np

from tracelab.failures import is_module_load
from tracelab.result import Finding
from tracelab.step_table import USED
from tracelab.steps import step_of_calls
from tracelab.trace import I64
from tracelab.units import time as format_time
from tracelab.view import View

_NAMED = 3


def module_load_finding(view: View) -> Finding | None:
    """A finding where a step loaded modules; it promises no time, since such steps are left out when others remain."""
    calls = view.trace.calls
    rows = np.flatnonzero(view.trace.calls_named(is_module_load))
    step = step_of_calls(view.trace, view.group, rows)
    inside = rows[np.isin(step, view.table.step)]
    if len(inside) == 0:
        return None
    hit = np.flatnonzero(np.isin(view.table.step, step))
    counted = "1 call" if len(inside) == 1 else f"{len(inside)} calls"
    took = format_time(int((calls.end[inside] - calls.start[inside]).sum()))
    title = f"Modules were loaded or compiled inside {_steps(view, hit)}: {counted}, {took} of host time."
    left_out = not (view.table.reason[hit] == USED).any()
    said = "Left out of the statistics." if left_out else "Warm up before the window, or load modules eagerly."
    return Finding("module-load", title, said)


def _steps(view: View, hit: I64) -> str:
    if len(hit) > _NAMED:
        return f"{len(hit)} of {len(view.table)} steps"
    return ", ".join(f"step {int(step)}" for step in view.table.step[hit])
