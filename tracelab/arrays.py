"""Small vectorised building blocks on sorted arrays; no trace knowledge."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.trace import I64

U64 = NDArray[np.uint64]


def order_by(first: I64, *then: NDArray[np.generic]) -> I64:
    """Row order by `first`, ties by the `then` columns in turn. Fast where ties are rare."""
    order = np.argsort(first, kind="stable")
    ordered = first[order]
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(equal) == 0 or not then:
        return order
    tied = np.union1d(equal, equal + 1)
    rows = order[tied]
    order[tied] = rows[np.lexsort((*(column[rows] for column in reversed(then)), first[rows]))]
    return order


def group_starts(sorted_keys: NDArray[np.generic]) -> I64:
    """First row of every run of equal keys; `sorted_keys` must have equal keys side by side."""
    if len(sorted_keys) == 0:
        return np.zeros(0, np.int64)
    return np.concatenate(([0], np.flatnonzero(sorted_keys[1:] != sorted_keys[:-1]) + 1))


def group_sum(values: NDArray[np.int64], starts: I64) -> I64:
    """Sum of each run that begins at `starts`."""
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0, np.int64)


def group_counts(starts: I64, rows: int) -> I64:
    """Length of each run that begins at `starts`, of `rows` rows in all."""
    return np.diff(np.append(starts, rows))


def position_in_group(starts: I64, rows: int) -> I64:
    """Position (0 …) of each of `rows` rows within its run."""
    return np.arange(rows) - np.repeat(starts, group_counts(starts, rows))


def lookup(keys_sorted: I64, keys: I64) -> I64:
    """Row of each key in `keys_sorted` (its first, when it occurs twice), -1 where it is missing."""
    if len(keys_sorted) == 0:
        return np.full(len(keys), -1, np.int64)
    at = np.searchsorted(keys_sorted, keys)
    at = np.minimum(at, len(keys_sorted) - 1)
    return np.where(keys_sorted[at] == keys, at, -1)


def group_ids(columns: Sequence[NDArray[np.integer[Any] | np.bool_]]) -> tuple[I64, I64]:
    """Dense group number of each row by all `columns`, in their lexicographic order, and the first row of every group.

    One column after the other joins the key, which stays dense: no sort where the values lie close together.
    """
    rows = len(columns[0])
    ids, count = np.zeros(rows, np.int64), 1
    for column in columns:
        values, width = _dense(column)
        ids, count = _densified(ids * width + values, count * width)
    first = np.empty(count if rows else 0, np.int64)
    first[ids[::-1]] = np.arange(rows - 1, -1, -1)
    return ids, first


_COUNTABLE = 1 << 22  # keys up to here are counted in a table of 32 MB


def _dense(column: NDArray[np.integer[Any] | np.bool_]) -> tuple[I64, int]:
    """The column as numbers 0 … width − 1 in the same order."""
    if len(column) == 0:
        return np.zeros(0, np.int64), 1
    low, high = int(column.min()), int(column.max())
    if high - low < _COUNTABLE:
        return column.astype(np.int64) - low, high - low + 1
    distinct, values = np.unique(column, return_inverse=True)
    return values.astype(np.int64), len(distinct)


def _densified(keys: I64, width: int) -> tuple[I64, int]:
    """Keys below `width` as the dense numbers 0 … count − 1 in the same order, and how many there are."""
    if width > _COUNTABLE:
        distinct, ids = np.unique(keys, return_inverse=True)
        return ids.astype(np.int64), len(distinct)
    present = np.bincount(keys, minlength=width) > 0
    number = np.cumsum(present) - 1
    return number[keys], int(present.sum())


def median_int(values: NDArray[np.int64]) -> int:
    """Median of integers; of an even count the lower of the two middle values' mean, rounded down to whole ns."""
    return int(np.floor(np.median(values))) if len(values) else 0


def mix_hash(name: I64, position: I64) -> U64:
    """A hash of each (name code, position); summed over a sequence, it identifies the sequence."""
    return _mix(name.astype(np.uint64) * _ODD + position.astype(np.uint64))


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mix(values: U64) -> U64:
    """SplitMix64 finaliser (Steele, Lea and Flood 2014): spreads neighbouring values over all 64 bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
