"""Large tables of a SQLite export, read in row ranges on every core by the Arrow driver of SQLite.

It gives exactly what `SqliteTables` gives, which reads all that is small or odd: a table without row ids, a column
whose values are no integers.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from tracelab.nsys_tables import TableSpec
from tracelab.sqlite_read import SqliteTables, count_rows, present_columns
from tracelab.table_source import NULL, Coded
from tracelab.trace import I64

Found = TypeVar("Found")

_LARGE_ROWS = 100_000  # from here on the driver's start and pyarrow's import (0.2 s) pay
_RANGES_PER_CORE = 2
_MOST_RANGES = 16
_BATCH_ROWS = "65536"


@dataclass(frozen=True)
class LargeTables(SqliteTables):
    """A SQLite export whose large tables are read by the Arrow driver."""

    def ints(self, spec: TableSpec) -> dict[str, I64]:
        """The integer columns of `spec`."""
        wanted = [name for name in spec.ints if name in present_columns(self.connection, spec)]
        ranges = self._ranges(spec) if wanted else None
        if ranges is None:
            return super().ints(spec)
        first, rows = ranges[0].start, ranges[-1].stop - ranges[0].start
        found = {name: np.empty(rows, np.int64) for name in wanted}

        def fill(part: range, table: Any) -> bool:
            """Copy one range into its place, so that no more than the ranges being read are held twice."""
            place = slice(part.start - first, part.stop - first)
            return len(table) == len(part) and all(_copied(table.column(n), found[n][place]) for n in wanted)

        if not all(self._read(spec, wanted, ranges, fill)):
            return super().ints(spec)
        return {name: found[name] if name in found else np.full(rows, NULL, np.int64) for name in spec.ints}

    def coded_texts(self, spec: TableSpec, column: str) -> Coded:
        """One text column by its distinct values."""
        there = column in present_columns(self.connection, spec)
        ranges = self._ranges(spec) if there else None
        parts = (
            [] if ranges is None else self._read(spec, [column], ranges, lambda _, table: _coded(table.column(column)))
        )
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return super().coded_texts(spec, column)
        return _merged(known)

    def _read(
        self,
        spec: TableSpec,
        columns: Sequence[str],
        ranges: Sequence[range],
        use: Callable[[range, Any], Found | None],
    ) -> list[Found | None]:
        """What `use` makes of each range's Arrow table, in order; None for a range that the driver cannot read."""
        import pyarrow as pa
        from adbc_driver_manager import Error

        names = ", ".join(f'"{name}"' for name in columns)
        file = self.connection.execute("PRAGMA database_list").fetchone()[2]

        def one(part: range) -> Found | None:
            bounds = f"rowid >= {part.start} AND rowid < {part.stop}"
            try:
                return use(part, _fetch(file, f'SELECT {names} FROM "{spec.name}" WHERE {bounds} ORDER BY rowid'))
            except (Error, pa.ArrowException, OSError):
                return None  # values of several types: SQLite itself casts them

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return list(pool.map(one, ranges))

    def _ranges(self, spec: TableSpec) -> list[range] | None:
        """Ranges of row ids, about alike; None for a table that is small or lacks row ids without holes."""
        try:
            low, high = self.connection.execute(f'SELECT min(rowid), max(rowid) FROM "{spec.name}"').fetchone()
        except sqlite3.Error:
            return None
        # A damaged file may have a column of that name with anything in it, or a few row ids that lie far apart.
        if not isinstance(low, int) or not isinstance(high, int) or high - low < _LARGE_ROWS:
            return None
        if count_rows(self.connection, spec) != high - low + 1:
            return None
        parts = min((os.cpu_count() or 1) * _RANGES_PER_CORE, _MOST_RANGES)
        edges = [low + (high + 1 - low) * i // parts for i in range(parts + 1)]
        return [range(start, stop) for start, stop in pairwise(edges)]


def _fetch(file: str, query: str) -> Any:
    from adbc_driver_sqlite import dbapi

    with (
        dbapi.connect(f"file:{quote(os.fsencode(file))}?mode=ro&immutable=1") as connection,
        connection.cursor() as cursor,
    ):
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
        cursor.execute(query)
        return cursor.fetch_arrow_table()


def _copied(column: Any, target: I64) -> bool:
    """Copy a column of integers to `target`; False for any other column."""
    import pyarrow as pa

    if not pa.types.is_int64(column.type):
        return False
    target[:] = NULL if column.null_count == len(column) else np.asarray(column.fill_null(NULL))
    return True


def _coded(column: Any) -> Coded | None:
    """A column of texts by its distinct values; bytes that are no UTF-8 are replaced, as everywhere."""
    import pyarrow as pa

    if pa.types.is_int64(column.type) and column.null_count == len(column):
        return Coded(np.zeros(len(column), np.int32), [None])
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    whole = column.cast(pa.large_binary()).combine_chunks()
    coded = (pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole).dictionary_encode()
    values = [value.decode("utf-8", "replace") for value in coded.dictionary.to_pylist()]
    codes = np.asarray(coded.indices.fill_null(len(values))).astype(np.int32)
    return Coded(codes, [*values, None])


def _merged(parts: Sequence[Coded]) -> Coded:
    """One column of several, each distinct text once."""
    at: dict[str | None, int] = {}
    codes = [np.array([at.setdefault(text, len(at)) for text in part.texts], np.int32)[part.codes] for part in parts]
    return Coded(np.concatenate(codes), list(at))
