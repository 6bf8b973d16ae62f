"""Unions, complements and even shares of time intervals, in whole ns, without loops over intervals."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import group_counts, group_starts
from tracelab.errors import InputError
from tracelab.trace import I64, SUM_LIMIT_NS, Bool

Codes = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Timeline:
    """The union of intervals as disjoint blocks in order; touching intervals are one block.

    `first` and `last` are the rows (of the input) that begin and end each block.
    """

    start: I64
    end: I64
    first: I64
    last: I64

    @cached_property
    def before(self) -> I64:
        """Covered ns before each block."""
        covered = self.end - self.start
        before: I64 = np.cumsum(covered) - covered
        return before

    def covered(self, from_ns: I64, to_ns: I64) -> I64:
        """Covered time inside each [from, to)."""
        return self._covered_until(to_ns) - self._covered_until(from_ns)

    def _covered_until(self, time_ns: I64) -> I64:
        if len(self.start) == 0:
            return np.zeros(len(time_ns), np.int64)
        at = np.searchsorted(self.start, time_ns, side="right") - 1
        block = np.maximum(at, 0)
        inside = np.minimum(time_ns, self.end[block]) - self.start[block]
        return np.where(at >= 0, self.before[block] + inside, 0)


def union(start: I64, end: I64) -> Timeline:
    """Union of [start, end), sorted by start. Empty intervals cover nothing, but may begin or end a block."""
    if len(start) == 0:
        none = np.zeros(0, np.int64)
        return Timeline(none, none, none, none)
    reach = np.maximum.accumulate(end)
    first = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(start[1:] > reach[:-1]) + 1))
    alone = len(first) == len(start)  # nothing touches anything: every interval is a block
    block_start, block_end = (start, end) if alone else (start[first], reach[np.append(first[1:], len(start)) - 1])
    return Timeline(block_start, block_end, first, first if alone else _enders(end, first, block_end))


def _enders(end: I64, first: I64, block_end: I64) -> I64:
    """The row that ends each block: the first one to reach its end."""
    last = first.copy()
    counts = group_counts(first, len(end))
    several = np.flatnonzero(counts > 1)
    inside = np.flatnonzero(np.repeat(counts > 1, counts))  # rows of the blocks that have more than one
    block = np.repeat(np.arange(len(several)), counts[several])
    reached = end[inside] == block_end[several][block]
    last[several] = inside[reached][group_starts(block[reached])]
    return last


def shift_apart(group: Codes, start: I64, end: I64) -> tuple[I64, I64]:
    """Move each group of intervals onto a stretch of time of its own; `group` is sorted, `start` within a group.

    Raises InputError where the stretches together are longer than an int64 can count, as only damaged times are.
    """
    if len(group) == 0:
        return start, end
    first = group_starts(group)
    lowest = np.minimum.reduceat(start, first)
    extent = np.maximum.reduceat(end, first) - lowest + 1
    require_countable(extent)
    offset = np.concatenate(([0], np.cumsum(extent)[:-1])) - lowest
    moved = np.repeat(offset, group_counts(first, len(group)))
    return start + moved, end + moved


def require_countable(lengths_ns: I64) -> None:
    """Raise InputError where stretches of time together are longer than an int64 can count: only damaged times are."""
    if float(lengths_ns.sum(dtype=np.float64)) > SUM_LIMIT_NS:
        raise InputError("The times of this trace are damaged: they reach over centuries; export the report again.")


def are_apart(group: Codes, start: I64, end: I64) -> bool:
    """Whether no interval begins before another of its group has ended; sorted by group and start."""
    return not ((start[1:] < end[:-1]) & (group[1:] == group[:-1])).any()


def outermost(group: Codes, start: I64, end: I64) -> Bool:
    """Which intervals do not lie inside an earlier one of their group; sorted by group, start and descending end."""
    _, right, reach = _reached(group, start, end)
    outer: Bool = right > reach
    return outer


def start_past_earlier(group: Codes, start: I64, end: I64) -> I64:
    """First ns of each interval past the ends, themselves included, of those before it in its group."""
    left, _, reach = _reached(group, start, end)
    past: I64 = start + np.maximum(reach + 1 - left, 0)
    return past


def new_coverage(group: Codes, start: I64, end: I64) -> I64:
    """Time that each interval adds to the union of those before it in its group; sums to the union per group."""
    if are_apart(group, start, end):
        return end - start
    left, right, reach = _reached(group, start, end)
    added: I64 = np.maximum(right - np.maximum(left, reach), 0)
    return added


def _reached(group: Codes, start: I64, end: I64) -> tuple[I64, I64, I64]:
    """Starts and ends with the groups shifted apart, and the latest end before each: below a group's first start."""
    left, right = shift_apart(group, start, end)
    return left, right, np.concatenate((left[:1] - 1, np.maximum.accumulate(right)[:-1]))


def even_shares(group: I64, start: I64, end: I64) -> NDArray[np.float64]:
    """Time of each interval when every instant is split evenly among the intervals of its group active then (ns)."""
    if are_apart(group, start, end):
        return (end - start).astype(np.float64)
    left, right = shift_apart(group, start, end)
    return _weighted(left, right, lambda active: np.divide(1.0, active, out=np.zeros(len(active)), where=active > 0))


def time_alone(group: I64, start: I64, end: I64) -> NDArray[np.float64]:
    """Time of each interval in which no other of its group is active (ns)."""
    alone = (end - start).astype(np.float64)
    if are_apart(group, start, end):
        return alone
    left, right = shift_apart(group, start, end)
    meets = np.zeros(len(left), bool)
    meets[1:] = left[1:] < np.maximum.accumulate(right)[:-1]
    meets[:-1] |= left[1:] < right[:-1]
    rows = np.flatnonzero(meets)
    if len(rows):
        alone[rows] = _weighted(left[rows], right[rows], lambda active: (active == 1).astype(np.float64))
    return alone


def _weighted(left: I64, right: I64, weight: Callable[[I64], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Time of each interval, every instant weighted by how many are active then."""
    times = np.concatenate((left, right))
    change = np.concatenate((np.ones(len(left), np.int64), np.full(len(right), -1, np.int64)))
    order = np.argsort(times, kind="stable")
    times, active = times[order], np.cumsum(change[order])
    passed = np.concatenate(([0.0], np.cumsum(np.diff(times) * weight(active[:-1]))))
    place = np.empty(len(order), np.int64)  # of each time in order; between equal times nothing passes
    place[order] = np.arange(len(order))
    return passed[place[len(left) :]] - passed[place[: len(left)]]


def largest_remainder(values: NDArray[np.float64], total: int) -> I64:
    """Whole numbers near `values` that add up to `total`: the largest fractions are rounded up first."""
    floors = np.floor(values).astype(np.int64)
    missing = total - int(floors.sum())
    if len(values) and missing:
        order = np.argsort(-(values - floors), kind="stable")
        each, extra = divmod(missing, len(values))
        floors += each
        floors[order[:extra]] += 1
    return floors
