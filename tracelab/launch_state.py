"""Launch calls that left no GPU work although they returned 0: not failures, but a sign that rows are missing."""

import re
from collections.abc import Callable

import numpy as np

from tracelab.failures import is_graph_launch, is_launch
from tracelab.trace import I64, Bool, Trace

_CAPTURE_BEGIN = re.compile(r"^(cuda|cu|hip)StreamBeginCapture")
_CAPTURE_END = re.compile(r"^(cuda|cu|hip)StreamEndCapture")


def launches_without_work(trace: Trace) -> I64:
    """Rows of launch calls that returned 0 and have no GPU row, leaving out those that rightly have none.

    Between the begin and end of a stream capture, launches are recorded into a graph; at the edges of a trimmed
    window, before the first and after the last launch whose work was recorded, their work was cut.
    """
    return _silent(trace, is_launch)


def graph_launches_without_work(trace: Trace) -> I64:
    """Those of `launches_without_work` that replay a graph: their GPU time is missing from every sum."""
    return _silent(trace, is_graph_launch)


def _silent(trace: Trace, kind: Callable[[str], bool]) -> I64:
    ran = (trace.calls.return_value == 0) & (trace.first_op_of_call < 0)
    rows = np.flatnonzero(trace.calls_named(kind) & ran)
    return rows[~_captured(trace, rows) & ~_at_edge(trace, rows)] if len(rows) else rows


def _captured(trace: Trace, rows: I64) -> Bool:
    """Calls whose process is between stream begin- and end-capture, on any thread."""
    begins, ends = trace.calls_named(_CAPTURE_BEGIN.match), trace.calls_named(_CAPTURE_END.match)
    inside = np.zeros(len(rows), bool)
    for process in np.unique(trace.calls.process[rows]):
        mine = trace.calls.process == process
        opened = np.sort(trace.calls.start[mine & begins])
        closed = np.sort(trace.calls.end[mine & ends])
        asked = np.flatnonzero(trace.calls.process[rows] == process)
        time_ns = trace.calls.start[rows[asked]]
        depth = np.searchsorted(opened, time_ns, side="right") - np.searchsorted(closed, time_ns, side="left")
        inside[asked] = depth > 0
    return inside


def _at_edge(trace: Trace, rows: I64) -> Bool:
    """Calls before the first or after the last call of their process whose GPU work was recorded."""
    working = np.flatnonzero(trace.first_op_of_call >= 0)
    edge = np.ones(len(rows), bool)
    for process in np.unique(trace.calls.process[working]):
        times = trace.calls.start[working[trace.calls.process[working] == process]]
        asked = np.flatnonzero(trace.calls.process[rows] == process)
        start = trace.calls.start[rows[asked]]
        edge[asked] = (start < times.min()) | (start > times.max())
    return edge
