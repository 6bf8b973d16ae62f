"""Rows of a table by their distinct values: a million kernels are a few hundred different launches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelab.arrays import group_ids, stretches
from tracelab.pool import pool
from tracelab.trace import I32, I64, Bool

_BATCH_ROWS = 1 << 16  # rows that are coded together: their columns stay in a core's cache


@dataclass(frozen=True)
class CodedRows:
    """Some integer columns of a table: row i has the values `distinct[name][codes[i]]`.

    The distinct rows are in the lexicographic order of their columns.
    """

    codes: I32
    distinct: Mapping[str, I64]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, name: str) -> I64:
        """One whole column."""
        return self.distinct[name][self.codes]

    def kept(self, keep: Bool) -> "CodedRows":
        """The rows where `keep` is True, and only the distinct ones that are left among them."""
        if keep.all():
            return self
        codes = self.codes[keep]
        left = np.bincount(codes, minlength=self.count) > 0
        number = np.cumsum(left, dtype=np.int32) - np.int32(1)
        return CodedRows(number[codes], {name: values[left] for name, values in self.distinct.items()})

    @property
    def count(self) -> int:
        """How many distinct rows there are."""
        return next((len(values) for values in self.distinct.values()), 0)


def code_rows(columns: Callable[[int, int], Mapping[str, I64]], rows: int) -> CodedRows:
    """The columns of `rows` rows by their distinct rows; `columns` gives those of the rows [first, stop).

    Batches are taken on every core.
    """
    if rows <= _BATCH_ROWS:
        return code_batch(columns(0, rows), rows)
    edges = stretches(rows, _BATCH_ROWS)
    return merged(list(pool().map(lambda edge: code_batch(columns(*edge), edge[1] - edge[0]), edges)))


def code_batch(columns: Mapping[str, I64], rows: int) -> CodedRows:
    """The same for few rows at once."""
    if not columns:
        return CodedRows(np.zeros(rows, np.int32), {})
    codes, first = group_ids(list(columns.values()))
    return CodedRows(codes.astype(np.int32), {name: column[first] for name, column in columns.items()})


def merged(parts: Sequence[CodedRows]) -> CodedRows:
    """The rows of all parts, one behind the other; there is at least one part, and all have the same columns."""
    if len(parts) == 1:
        return parts[0]
    if not parts[0].distinct:
        return CodedRows(np.zeros(sum(map(len, parts)), np.int32), {})
    joined = {name: np.concatenate([part.distinct[name] for part in parts]) for name in parts[0].distinct}
    number, first = group_ids(list(joined.values()))
    number = number.astype(np.int32)
    codes, at, below = np.empty(sum(map(len, parts)), np.int32), 0, 0
    for part in parts:
        codes[at : at + len(part)] = number[below : below + part.count][part.codes]
        at, below = at + len(part), below + part.count
    return CodedRows(codes, {name: values[first] for name, values in joined.items()})


def totals(
    columns: Callable[[int, int], Mapping[str, I64]], values: Callable[[int, int], I64], rows: int
) -> tuple[Mapping[str, I64], I64, I64]:
    """The distinct rows of the columns, how many rows each stands for, and the sum of their `values`.

    Both are functions that give those of the rows [first, stop).
    """
    parts, counts, sums = [], [], []
    for edge in stretches(rows, _BATCH_ROWS):
        coded = code_batch(columns(*edge), edge[1] - edge[0])
        parts.append(CodedRows(np.arange(coded.count, dtype=np.int32), coded.distinct))
        counts.append(np.bincount(coded.codes, minlength=coded.count))
        sums.append(_summed(coded.codes, values(*edge), coded.count))
    whole = merged(parts)
    return (
        whole.distinct,
        _summed(whole.codes, np.concatenate(counts), whole.count),
        _summed(whole.codes, np.concatenate(sums), whole.count),
    )


def _summed(codes: I32, values: I64, count: int) -> I64:
    total = np.zeros(count, np.int64)
    np.add.at(total, codes, values)
    return total
