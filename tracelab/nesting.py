"""Which NVTX range is innermost at a given time on a given thread: vectorised, for nested and overlapping ranges.

Ranges come outer before inner (thread, start, descending end). `parent[i]` is the nearest earlier range of the same
thread that ends no sooner, found by pointer jumping: every range between i and its candidate ends before i does, so the
candidate of a failed candidate is the next one to try. The innermost range open at t is reached from the last range
started by t by climbing parents until one is still open.
"""

from dataclasses import dataclass

import numpy as np

from tracelab.arrays import count_up_to, group_starts, rows_by_group
from tracelab.trace import ABSENT, I32, I64, Bool, Ranges


@dataclass(frozen=True)
class Forest:
    """Some rows of `Ranges` with their nesting. `rows` are row numbers of the full table; `parent` indexes `rows`."""

    rows: I64
    start: I64
    end: I64
    thread: I32
    parent: I64

    def innermost(self, thread: I32, time_ns: I64) -> I64:
        """Row of the full table that is innermost at each (thread, time), ABSENT where no range is open."""
        if len(self.rows) == 0:
            return np.full(len(time_ns), ABSENT, np.int64)
        at = self._last_started(thread, time_ns)
        asked = np.flatnonzero((self.end[at] < time_ns) & (at >= 0))
        while len(asked):
            above = self.parent[at[asked]]
            at[asked] = above
            asked = asked[(self.end[above] < time_ns[asked]) & (above >= 0)]
        return np.where(at >= 0, self.rows[at], ABSENT)

    def parent_rows(self, total: int) -> I64:
        """Parent of every row of the full table of `total` rows, as a row of that table; ABSENT for the rest."""
        full = np.full(total, ABSENT, np.int64)
        inner = self.parent >= 0
        full[self.rows[inner]] = self.rows[self.parent[inner]]
        return full

    def _last_started(self, thread: I32, time_ns: I64) -> I64:
        """Position of the last range of the thread that has started by each time, ABSENT before its first."""
        if len(thread) and (thread == thread[0]).all():
            return self._begun(int(thread[0]), time_ns)
        at = np.full(len(time_ns), ABSENT, np.int64)
        order = rows_by_group(thread)
        starts = group_starts(thread[order])
        for rows in np.split(order, starts[1:]) if len(order) else []:
            at[rows] = self._begun(int(thread[rows[0]]), time_ns[rows])
        return at

    def _begun(self, thread: int, time_ns: I64) -> I64:
        """The same for times of one thread."""
        first, last = np.searchsorted(self.thread, [thread, thread + 1])
        begun = count_up_to(self.start[first:last], time_ns)
        return np.where(begun > 0, first - 1 + begun, ABSENT)


def build_forest(ranges: Ranges, keep: Bool) -> Forest:
    """Nesting of the ranges where `keep` is True."""
    rows = np.flatnonzero(keep)
    end, thread = ranges.end[rows], ranges.thread[rows]
    return Forest(rows, ranges.start[rows], end, thread, _parents(end, thread))


def _parents(end: I64, thread: I32) -> I64:
    candidate = np.arange(len(end), dtype=np.int64) - 1
    unsettled = np.arange(len(end), dtype=np.int64)
    while len(unsettled):
        at = candidate[unsettled]
        foreign = (at >= 0) & (thread[at] != thread[unsettled])
        candidate[unsettled[foreign]] = ABSENT
        inside = ~foreign & (at >= 0) & (end[at] < end[unsettled])
        unsettled = unsettled[inside]
        candidate[unsettled] = candidate[at[inside]]
    return candidate
