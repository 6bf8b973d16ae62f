"""Modules loaded or code compiled inside the analysed window: time that a warmed-up program does not spend."""

import numpy as np

from tracelab.failures import is_module_load
from tracelab.result import Finding
from tracelab.step_table import USED
from tracelab.units import time as format_time
from tracelab.view import View


def module_load_finding(view: View) -> Finding | None:
    """A finding where a step loaded modules; it promises no time, since such steps are left out when others remain."""
    rows = np.flatnonzero(view.trace.calls_named(is_module_load))
    if len(rows) == 0 or len(view.table) == 0 or view.group.source == "whole-trace":
        return None
    steps = view.table.step
    first = np.searchsorted(view.trace.calls.start[rows], view.group.host_start[steps])
    last = np.searchsorted(view.trace.calls.start[rows], view.group.host_end[steps])
    hit = np.flatnonzero(last > first)
    if len(hit) == 0:
        return None
    host_ns = int((view.trace.calls.end[rows] - view.trace.calls.start[rows]).sum())
    names = ", ".join(view.group.names[int(steps[i])] for i in hit[:3])
    more = f" and {len(hit) - 3} more" if len(hit) > 3 else ""
    calls = "1 call" if len(rows) == 1 else f"{len(rows)} calls"
    took = format_time(host_ns)
    title = f"Modules were loaded or compiled inside {names}{more}: {calls}, {took} of host time."
    left_out = np.isin(view.table.reason[hit], (USED,)).sum() == 0
    said = "Left out of the statistics." if left_out else "Warm up before the window, or load modules eagerly."
    return Finding("module-load", title, said)
