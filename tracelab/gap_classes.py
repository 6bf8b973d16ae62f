"""Every idle nanosecond of a device, with the reason it was idle (DESIGN section 2, nsys reference section 9.1).

A gap is the time between two blocks of GPU work of any process on the device. N is the op that ends it. First match
wins: overlap with profiler overhead on N's launching thread; the host came back from a wait and then launched (sync);
the launch was made or still running when the gap began (launch); N was queued before (dependency). N without a launch
row is unknown. Ops of one replay share one launch, so gaps inside a replay are dependencies.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelab.arrays import count_up_to, rows_in_order
from tracelab.failures import is_host_wait
from tracelab.intervals import Timeline, union
from tracelab.trace import I64, U8, Trace

CLASSES = ("launch", "sync", "dependency", "profiler", "unknown")
LAUNCH, SYNC, DEPENDENCY, PROFILER, UNKNOWN = range(len(CLASSES))
HOST_LATE = [LAUNCH, SYNC]  # idle time for which the host is to blame


@dataclass(frozen=True)
class Gaps:
    """Gaps in order, times in ns. A gap is of at most two classes: its `cause`, and for `profiler_ns` the profiler.

    `before` and `after` are the rows of `Ops` that end before and begin after each gap.
    """

    start: I64
    end: I64
    before: I64
    after: I64
    cause: U8
    profiler_ns: I64

    def of_class(self, code: int) -> tuple[I64, I64]:
        """Numbers of the gaps that are of a class, in order, and the time of each in it."""
        if code == PROFILER:
            rows = np.flatnonzero(self.profiler_ns)
            return rows, self.profiler_ns[rows]
        rows = np.flatnonzero(self.cause == code)
        return rows, self.end[rows] - self.start[rows] - self.profiler_ns[rows]

    def within(self, from_ns: I64, to_ns: I64) -> I64:
        """Idle time by class inside each [from, to); shape [len(CLASSES), windows]. Windows cut no gap in two."""
        first, last = self._inside(from_ns, to_ns)
        inside = [
            total[np.searchsorted(rows, last)] - total[np.searchsorted(rows, first)] for rows, total in self._running
        ]
        return np.stack(inside)

    def rows_within(self, from_ns: I64, to_ns: I64) -> I64:
        """Numbers of the gaps inside any of the windows, in order."""
        return _covered_rows(*self._inside(from_ns, to_ns), len(self.start))

    @cached_property
    def _running(self) -> list[tuple[I64, I64]]:
        """The gaps of each class, and its idle time before each of them and after the last."""
        parts = [self.of_class(code) for code in range(len(CLASSES))]
        return [(rows, np.concatenate((np.zeros(1, np.int64), np.cumsum(time_ns)))) for rows, time_ns in parts]

    def _inside(self, from_ns: I64, to_ns: I64) -> tuple[I64, I64]:
        """Numbers [first, last) of the gaps that lie wholly inside each window."""
        first = np.searchsorted(self.start, from_ns, side="left")
        return first, np.maximum(np.searchsorted(self.end, to_ns, side="right"), first)


def _covered_rows(first: I64, last: I64, rows: int) -> I64:
    """Numbers below `rows` that lie in any [first, last), in order."""
    change = np.zeros(rows + 1, np.int32)
    np.add.at(change, first, 1)
    np.add.at(change, last, -1)
    return np.flatnonzero(np.cumsum(change, dtype=np.int32)[:-1])


def classify_gaps(trace: Trace, timeline: Timeline, rows: I64) -> Gaps:
    """Gaps between the blocks of `timeline`, which was made of the op rows `rows`."""
    start, end = timeline.end[:-1], timeline.start[1:]
    before, after = timeline.last[:-1], timeline.first[1:]
    if not rows_in_order(rows):
        before, after = rows[before], rows[after]
    cause = np.full(len(start), UNKNOWN, np.uint8)
    profiler = np.zeros(len(start), np.int64)
    known = np.flatnonzero(trace.ops.call[after] >= 0)
    if len(known) == len(start):
        cause, profiler = _causes(trace, start, after), _profiler_ns(trace, start, end, after)
    elif len(known):
        cause[known] = _causes(trace, start[known], after[known])
        profiler[known] = _profiler_ns(trace, start[known], end[known], after[known])
    return Gaps(start, end, before, after, cause, profiler)


def _causes(trace: Trace, gap_start: I64, after: I64) -> U8:
    call = trace.ops.call[after]
    late = (trace.calls.start[call] >= gap_start) | (trace.calls.end[call] > gap_start)
    late &= trace.first_op_of_call[call] == after  # inside a replay nothing is launched
    cause = np.where(late, LAUNCH, DEPENDENCY).astype(np.uint8)
    asked = np.flatnonzero(late)
    cause[asked[_last_wait_end(trace, call[asked]) > gap_start[asked]]] = SYNC
    return cause


def _last_wait_end(trace: Trace, call: I64) -> I64:
    """End of the last host wait on the launching thread that was over when each call started; very early if none."""
    rows = np.flatnonzero(trace.calls_named(is_host_wait))
    found = np.full(len(call), np.iinfo(np.int64).min, np.int64)
    thread, start = trace.calls.thread[call], trace.calls.start[call]
    for code in np.unique(trace.calls.thread[rows]):
        ends = np.sort(trace.calls.end[rows[trace.calls.thread[rows] == code]])
        mine = thread == code
        asked = slice(None) if mine.all() else np.flatnonzero(mine)
        over = count_up_to(ends, start[asked])
        found[asked] = np.where(over > 0, ends[np.maximum(over, 1) - 1], found[asked])
    return found


def _profiler_ns(trace: Trace, start: I64, end: I64, after: I64) -> I64:
    """Part of each gap that profiler overhead on the launching thread covers; flushes stop every thread."""
    total = np.zeros(len(start), np.int64)
    log = trace.overheads
    if len(log) == 0:
        return total
    flushes = np.array(["flush" in trace.names[code].lower() for code in log.name.tolist()], bool)
    anywhere = union(log.start, log.end)
    first = np.searchsorted(end, anywhere.start, side="right")
    rows = _covered_rows(first, np.maximum(np.searchsorted(start, anywhere.end, side="left"), first), len(start))
    thread = trace.calls.thread[trace.ops.call[after[rows]]]
    for code in np.unique(thread):
        mine = (log.thread == code) | (flushes & (log.process == trace.thread_process[code]))
        busy = union(log.start[mine], log.end[mine])
        asked = rows[thread == code]
        total[asked] = busy.covered(start[asked], end[asked])
    return total
