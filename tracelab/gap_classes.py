"""Every idle nanosecond of a device, with the reason it was idle (DESIGN section 2, nsys reference section 9.1).

A gap is the time between two blocks of GPU work of any process on the device. N is the op that ends it. First match
wins: overlap with profiler overhead on N's launching thread; the host came back from a wait and then launched (sync);
the launch was made or still running when the gap began (launch); N was queued before (dependency). N without a launch
row is unknown. Ops of one replay share one launch, so gaps inside a replay are dependencies.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelab.failures import is_host_wait
from tracelab.intervals import Timeline, union
from tracelab.trace import I64, U8, Trace

CLASSES = ("launch", "sync", "dependency", "profiler", "unknown")
LAUNCH, SYNC, DEPENDENCY, PROFILER, UNKNOWN = range(len(CLASSES))
HOST_LATE = [LAUNCH, SYNC]  # idle time for which the host is to blame


@dataclass(frozen=True)
class Gaps:
    """Gaps in order. `by_class[c]` is the time of each gap in class c (ns); a gap has at most two: one and profiler.

    `before` and `after` are the rows of `Ops` that end before and begin after each gap; `cause` its class without the
    profiler.
    """

    start: I64
    end: I64
    before: I64
    after: I64
    cause: U8
    by_class: I64  # shape [len(CLASSES), gaps]

    def within(self, from_ns: I64, to_ns: I64) -> I64:
        """Idle time by class inside each [from, to); shape [len(CLASSES), windows]. Windows cut no gap in two."""
        first, last = self._inside(from_ns, to_ns)
        return self._running[:, last] - self._running[:, first]

    def rows_within(self, from_ns: I64, to_ns: I64) -> I64:
        """Numbers of the gaps inside any of the windows, in order."""
        inside = np.zeros(len(self.start) + 1, np.int64)
        first, last = self._inside(from_ns, to_ns)
        np.add.at(inside, first, 1)
        np.add.at(inside, last, -1)
        return np.flatnonzero(np.cumsum(inside)[:-1] > 0)

    @cached_property
    def _running(self) -> I64:
        """Idle time by class in all gaps before each; shape [len(CLASSES), gaps + 1]."""
        return np.concatenate((np.zeros((len(CLASSES), 1), np.int64), np.cumsum(self.by_class, axis=1)), axis=1)

    def _inside(self, from_ns: I64, to_ns: I64) -> tuple[I64, I64]:
        """Numbers [first, last) of the gaps that lie wholly inside each window."""
        first = np.searchsorted(self.start, from_ns, side="left")
        return first, np.maximum(np.searchsorted(self.end, to_ns, side="right"), first)


def classify_gaps(trace: Trace, timeline: Timeline, rows: I64) -> Gaps:
    """Gaps between the blocks of `timeline`, which was made of the op rows `rows`."""
    start, end = timeline.end[:-1], timeline.start[1:]
    before, after = rows[timeline.last[:-1]], rows[timeline.first[1:]]
    call = trace.ops.call[after]
    known = call >= 0
    cause = np.full(len(start), UNKNOWN, np.uint8)
    cause[known] = _causes(trace, start[known], after[known])
    profiler = np.zeros(len(start), np.int64)
    profiler[known] = _profiler_ns(trace, start[known], end[known], call[known])
    by_class = np.zeros((len(CLASSES), len(start)), np.int64)
    by_class[PROFILER] = profiler
    by_class[cause, np.arange(len(start))] += end - start - profiler
    return Gaps(start, end, before, after, cause, by_class)


def _causes(trace: Trace, gap_start: I64, after: I64) -> U8:
    call = trace.ops.call[after]
    late = (trace.calls.start[call] >= gap_start) | (trace.calls.end[call] > gap_start)
    inside_replay = trace.first_op_of_call[call] != after
    waited = _last_wait_end(trace, call) > gap_start
    cause = np.where(late, np.where(waited, SYNC, LAUNCH), DEPENDENCY)
    return np.where(inside_replay, DEPENDENCY, cause).astype(np.uint8)


def _last_wait_end(trace: Trace, call: I64) -> I64:
    """End of the last host wait on the launching thread that was over when each call started; very early if none."""
    rows = np.flatnonzero(trace.calls_named(is_host_wait))
    found = np.full(len(call), np.iinfo(np.int64).min, np.int64)
    thread = trace.calls.thread[call]
    for code in np.unique(trace.calls.thread[rows]):
        ends = np.sort(trace.calls.end[rows[trace.calls.thread[rows] == code]])
        asked = np.flatnonzero(thread == code)
        at = np.searchsorted(ends, trace.calls.start[call[asked]], side="right") - 1
        found[asked] = np.where(at >= 0, ends[np.maximum(at, 0)], found[asked])
    return found


def _profiler_ns(trace: Trace, start: I64, end: I64, call: I64) -> I64:
    """Part of each gap that profiler overhead on the launching thread covers; flushes stop every thread."""
    flushes = np.array(["flush" in name.lower() for name in trace.names], bool)
    log = trace.overheads
    total = np.zeros(len(start), np.int64)
    thread = trace.calls.thread[call]
    if len(log) == 0:
        return total
    for code in np.unique(thread):
        mine = (log.thread == code) | (flushes[log.name] & (log.process == trace.thread_process[code]))
        busy = union(log.start[mine], log.end[mine])
        asked = np.flatnonzero(thread == code)
        total[asked] = busy.covered(start[asked], end[asked])
    return total
