"""Small vectorised building blocks on sorted arrays; no trace knowledge."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelab.trace import I32, I64

U64 = NDArray[np.uint64]
Scalar = TypeVar("Scalar", bound=np.generic)


class Column(Protocol):
    """What can be asked for the values of some rows: an array, or values by the code of each row."""

    def __getitem__(self, rows: I64, /) -> NDArray[Any]: ...


@dataclass(frozen=True)
class ByCode:
    """A column of which each row has the value of its code."""

    values: NDArray[Any]
    codes: I32

    def __getitem__(self, rows: I64) -> NDArray[Any]:
        return self.values[self.codes[rows]]


def order_by(first: I64, *then: Column, group: NDArray[np.integer[Any]] | None = None) -> I64 | None:
    """Row order by `group`, in it by `first`, ties by the `then` columns in turn; None where rows are in that order.

    Fast where the rows are nearly in order and ties are rare, as in a trace.
    """
    order, equal = _by_time(first, group)
    if len(equal) and then:
        order = np.arange(len(first)) if order is None else order
        tied = np.union1d(equal, equal + 1)
        rows = order[tied]
        keys = [column[rows] for column in reversed(then)]
        order[tied] = rows[np.lexsort((*keys, first[rows], *([] if group is None else [group[rows]])))]
        if np.array_equal(rows, order[tied]) and rows_in_order(order):
            return None
    return order


def _by_time(first: I64, group: NDArray[np.integer[Any]] | None) -> tuple[I64 | None, I64]:
    """Order by group and `first` (None: as it is), and the places, in order, whose next one is equal."""
    apart = np.zeros(max(len(first) - 1, 0), bool) if group is None else group[1:] != group[:-1]
    if (first[1:] >= first[:-1])[~apart].all() and (group is None or (group[1:] >= group[:-1]).all()):
        return None, np.flatnonzero((first[1:] == first[:-1]) & ~apart)
    order = np.argsort(first, kind="stable")
    if group is not None:
        order = order[np.argsort(group[order], kind="stable")]
        apart = group[order][1:] != group[order][:-1]
    ordered = first[order]
    return order, np.flatnonzero((ordered[1:] == ordered[:-1]) & ~apart)


def stretches(rows: int, size: int) -> list[tuple[int, int]]:
    """So many rows in stretches [first, stop) of `size`, the last one shorter; there is at least one."""
    return list(pairwise([*range(0, max(rows, 1), size), rows]))


def rows_in_order(rows: I64) -> bool:
    """Whether `rows` counts up by one from 0."""
    return bool((rows == np.arange(len(rows))).all())


def rows_by(first: I64, *then: Column) -> I64:
    """The row order of `order_by`, written out where rows are in it already."""
    order = order_by(first, *then)
    return np.arange(len(first)) if order is None else order


def spread(values: NDArray[Scalar], codes: I32) -> NDArray[Scalar]:
    """The value of each row's code; one value that all rows share takes no memory and cannot be written to."""
    if len(values) and (values == values[0]).all():
        return np.broadcast_to(values[0], len(codes))
    return values[codes]


def in_order(column: NDArray[Scalar], order: I64 | None) -> NDArray[Scalar]:
    """The column in the order that `order_by` found; the column itself where that is None."""
    return column if order is None else column[order]


def group_starts(sorted_keys: NDArray[np.generic]) -> I64:
    """First row of every run of equal keys; `sorted_keys` must have equal keys side by side."""
    if len(sorted_keys) == 0:
        return np.zeros(0, np.int64)
    return np.concatenate(([0], np.flatnonzero(sorted_keys[1:] != sorted_keys[:-1]) + 1))


def group_sum(values: NDArray[np.int64 | np.bool_], starts: I64) -> I64:
    """Sum of each run that begins at `starts`; of booleans, how many are True."""
    return np.add.reduceat(values, starts, dtype=np.int64) if len(starts) else np.zeros(0, np.int64)


def as_stretch(rows: I64) -> I64 | slice:
    """The same rows as a slice where each follows the one before: what it takes of a column is no copy."""
    if len(rows) and int(rows[-1] - rows[0]) + 1 == len(rows) and (rows[1:] > rows[:-1]).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def rows_by_group(ids: NDArray[np.integer[Any]]) -> I64:
    """The rows of each group behind those of the one before, in their order; `ids` are small numbers from 0 on."""
    narrow = np.uint16 if len(ids) and int(ids.max()) <= np.iinfo(np.uint16).max else np.int64
    return np.argsort(ids.astype(narrow, copy=False), kind="stable")  # 16 bits are sorted by counting


def group_counts(starts: I64, rows: int) -> I64:
    """Length of each run that begins at `starts`, of `rows` rows in all."""
    return np.diff(np.append(starts, rows))


def marked(mask: NDArray[np.bool_]) -> NDArray[np.bool_] | slice:
    """The same rows as a slice where those that are marked follow each other."""
    if len(mask) == 0 or not mask.any():
        return mask
    first, stop = int(mask.argmax()), len(mask) - int(mask[::-1].argmax())
    return slice(first, stop) if mask[first:stop].all() else mask


def position_in_group(starts: I64, rows: int) -> I64:
    """Position (0 …) of each of `rows` rows within its run."""
    return np.arange(rows) - np.repeat(starts, group_counts(starts, rows))


def count_up_to(sorted_values: I64, asked: I64) -> I64:
    """How many of `sorted_values` are not above each value `asked`: fast where these are in order too, and more."""
    if len(sorted_values) >= len(asked) or not (asked[1:] >= asked[:-1]).all():
        return np.searchsorted(sorted_values, asked, side="right")
    counts_from = np.bincount(np.searchsorted(asked, sorted_values, side="left"), minlength=len(asked) + 1)
    return np.cumsum(counts_from[: len(asked)])


def lookup(keys_sorted: I64, keys: I64) -> I64:
    """Row of each key in `keys_sorted` (its first, when it occurs twice), -1 where it is missing."""
    if len(keys_sorted) == 0:
        return np.full(len(keys), -1, np.int64)
    at = np.searchsorted(keys_sorted, keys)
    at = np.minimum(at, len(keys_sorted) - 1)
    return np.where(keys_sorted[at] == keys, at, -1)


def first_row_of(keys: I64, asked: I64) -> I64:
    """First row with each key `asked` in `keys`, -1 where it is missing. Fast where both are nearly in order."""
    order = order_by(keys)
    at = lookup(in_order(keys, order), asked)
    return at if order is None else np.where(at >= 0, order[at], -1)


def group_ids(columns: Sequence[NDArray[np.integer[Any] | np.bool_]]) -> tuple[I64, I64]:
    """Dense group number of each row by all `columns`, in their lexicographic order, and the first row of every group.

    One column after the other joins the key, which is kept small: no sort where the values lie close together.
    """
    rows = len(columns[0])
    limit = min(_COUNTABLE, _COUNTABLE_PER_ROW * rows)
    ids, width = np.zeros(rows, np.int64), 1
    for column in columns:
        values, values_width = _from_zero(column, limit)
        if values_width == 1:
            continue
        if width * values_width > limit:
            ids, width = _densified(ids, width, limit)
        ids, width = ids * values_width + values, width * values_width
    ids, count = _densified(ids, width, limit)
    first = np.empty(count if rows else 0, np.int64)
    first[ids[::-1]] = np.arange(rows - 1, -1, -1)
    return ids, first


def distinct_pairs(groups: I64, items: I64) -> I64:
    """First position of each distinct (group, item), in their lexicographic order; neither is negative.

    Fast where the pairs ascend, as kernels launched one by one do, or equal ones stand side by side, as the kernels of
    one graph launch do.
    """
    at = np.arange(len(groups))
    same_group, further = groups[1:] == groups[:-1], items[1:] > items[:-1]
    if ((groups[1:] > groups[:-1]) | (same_group & further)).all():
        return at
    at = at[np.concatenate(([True], ~(same_group & (items[1:] == items[:-1]))))]
    few_groups, few_items = groups[at], items[at]
    if int(np.bincount(few_items).max()) > 1:
        return at[group_ids([few_groups, few_items])[1]]
    return at[np.lexsort((few_items, few_groups))]


_COUNTABLE = 1 << 22  # keys up to here are counted in a table of 32 MB
_COUNTABLE_PER_ROW = 8  # beyond it sorting the rows is faster than such a table


def _from_zero(column: NDArray[np.integer[Any] | np.bool_], limit: int) -> tuple[I64, int]:
    """The column as numbers 0 … width − 1 in the same order."""
    if len(column) == 0:
        return np.zeros(0, np.int64), 1
    low, high = int(column.min()), int(column.max())
    if high - low < limit:
        return column.astype(np.int64) - low, high - low + 1
    distinct, values = np.unique(column, return_inverse=True)
    return values.astype(np.int64), len(distinct)


def _densified(keys: I64, width: int, limit: int) -> tuple[I64, int]:
    """Keys below `width` as the dense numbers 0 … count − 1 in the same order, and how many there are."""
    if width == 1:
        return keys, 1
    if width > limit:
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
    return _mix(name.astype(np.int64, copy=False).view(np.uint64) * _ODD + position.view(np.uint64))


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mix(values: U64) -> U64:
    """SplitMix64 finaliser (Steele, Lea and Flood 2014): spreads neighbouring values over all 64 bits; in place."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values
