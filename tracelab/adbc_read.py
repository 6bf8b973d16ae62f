"""Large tables of a SQLite export, read in row ranges on every core by the Arrow driver of SQLite.

It gives exactly what `SqliteTables` gives, which reads all that is small or odd: a table without row ids, a column
whose values are no integers. Batches of rows are taken apart as they come, so that no table is held twice.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from tracelab.coded_rows import CodedRows, code_batch, merged
from tracelab.nsys_tables import TableSpec
from tracelab.sqlite_read import SqliteTables, present_columns
from tracelab.table_source import NULL, Coded
from tracelab.trace import I64

Found = TypeVar("Found")

_LARGE_ROWS = 100_000  # from here on the driver's start and pyarrow's import (0.2 s) pay
_RANGES_PER_CORE = 2
_MOST_RANGES = 16
_BATCH_ROWS = "65536"
_LEAST_ROW_BYTES = 2  # of a row in the file; ids that lie farther apart than the file can hold rows are damage


@dataclass(frozen=True)
class LargeTables(SqliteTables):
    """A SQLite export whose large tables are read by the Arrow driver."""

    _counted: dict[str, int] = field(default_factory=dict)  # rows of the tables that were read

    def ints(self, spec: TableSpec) -> dict[str, I64]:
        """The integer columns of `spec`."""
        found = self._columns(spec, spec.ints, ())
        return super().ints(spec) if found is None else found[0]

    def coded_ints(
        self, spec: TableSpec, columns: Sequence[str], together: Sequence[str]
    ) -> tuple[dict[str, I64], CodedRows]:
        """Integer columns of `spec`, those of `together` by their distinct rows."""
        found = self._columns(spec, columns, together)
        if found is None or found[1] is None:
            return super().coded_ints(spec, columns, together)
        return found[0], found[1]

    def coded_texts(self, spec: TableSpec, column: str) -> Coded:
        """One text column by its distinct values."""
        there = column in present_columns(self.connection, spec)
        ranges = self._ranges(spec) if there else None
        parts = [] if ranges is None else self._read(spec, [column], ranges, _texts)
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return super().coded_texts(spec, column)
        return _merged(known)

    def rows(self, table: str) -> int:
        """How many rows a table has; counted anew only where it was not read."""
        known = self._counted.get(table)
        return super().rows(table) if known is None else known

    def _columns(
        self, spec: TableSpec, columns: Sequence[str], together: Sequence[str]
    ) -> tuple[dict[str, I64], CodedRows | None] | None:
        """The columns, and those of `together` by their distinct rows; None for a table that the driver cannot read."""
        present = present_columns(self.connection, spec)
        wanted = [name for name in (*columns, *together) if name in present]
        ranges = self._ranges(spec) if wanted else None
        if ranges is None:
            return None
        first, rows = ranges[0].start, ranges[-1].stop - ranges[0].start
        found = {name: np.empty(rows, np.int64) if name in present else _missing(rows) for name in columns}
        coded = [name for name in together if name in present]

        def take(part: range, batches: Iterator[Any]) -> list[CodedRows] | None:
            place = part.start - first
            taken: list[CodedRows] = []
            for batch in batches:
                if not _all_integers(batch):
                    return None
                stop = place + len(batch)
                for name in columns:
                    if name in present:
                        _copy(batch.column(name), found[name][place:stop])
                if together:
                    taken.append(_code(batch, coded, together))
                place = stop
            return taken if place == part.stop - first else None

        parts = self._read(spec, wanted, ranges, take)
        if any(part is None for part in parts):
            return None
        self._counted[spec.name] = rows
        return found, merged([one for part in parts if part is not None for one in part]) if together else None

    def _read(
        self,
        spec: TableSpec,
        columns: Sequence[str],
        ranges: Sequence[range],
        use: Callable[[range, Iterator[Any]], Found | None],
    ) -> list[Found | None]:
        """What `use` makes of each range's Arrow batches, in order; None for a range that the driver cannot read."""
        import pyarrow as pa
        from adbc_driver_manager import Error

        names = ", ".join(f'"{name}"' for name in columns)
        file = self.connection.execute("PRAGMA database_list").fetchone()[2]

        def one(part: range) -> Found | None:
            bounds = f"rowid >= {part.start} AND rowid < {part.stop}"
            try:
                return use(part, _batches(file, f'SELECT {names} FROM "{spec.name}" WHERE {bounds} ORDER BY rowid'))
            except (Error, pa.ArrowException, OSError):
                return None  # values of several types: SQLite itself casts them

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return list(pool.map(one, ranges))

    def _ranges(self, spec: TableSpec) -> list[range] | None:
        """Ranges of row ids, about alike; None for a table that is small or whose row ids cannot be without holes."""
        try:
            low, high = self.connection.execute(f'SELECT min(rowid), max(rowid) FROM "{spec.name}"').fetchone()
            pages, page_bytes = (
                self.connection.execute(f"PRAGMA {n}").fetchone()[0] for n in ("page_count", "page_size")
            )
        except sqlite3.Error:
            return None
        # A damaged file may have a column of that name with anything in it, or a few row ids that lie far apart.
        if not isinstance(low, int) or not isinstance(high, int) or high - low < _LARGE_ROWS:
            return None
        if (high - low) * _LEAST_ROW_BYTES > pages * page_bytes:
            return None
        parts = min((os.cpu_count() or 1) * _RANGES_PER_CORE, _MOST_RANGES)
        edges = [low + (high + 1 - low) * i // parts for i in range(parts + 1)]
        return [range(start, stop) for start, stop in pairwise(edges)]


def _batches(file: str, query: str) -> Iterator[Any]:
    from adbc_driver_sqlite import dbapi

    with (
        dbapi.connect(f"file:{quote(os.fsencode(file))}?mode=ro&immutable=1") as connection,
        connection.cursor() as cursor,
    ):
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
        cursor.execute(query)
        yield from cursor.fetch_record_batch()


def _all_integers(batch: Any) -> bool:
    import pyarrow as pa

    return all(pa.types.is_int64(kind) for kind in batch.schema.types)


def _missing(rows: int) -> I64:
    return np.full(rows, NULL, np.int64)


def _copy(column: Any, target: I64) -> None:
    target[:] = _values(column)


def _values(column: Any) -> I64:
    values: I64 = np.asarray(column.fill_null(NULL) if column.null_count else column)
    return values


def _code(batch: Any, present: Sequence[str], together: Sequence[str]) -> CodedRows:
    """The columns `together` of one batch; those that the table lacks are missing in every row."""
    lacking = np.full(len(batch), NULL, np.int64)
    return code_batch({name: _values(batch.column(name)) if name in present else lacking for name in together})


def _texts(part: range, batches: Iterator[Any]) -> Coded | None:
    """A column of texts by its distinct values; bytes that are no UTF-8 are replaced, as everywhere."""
    found = [_coded(batch.column(0)) for batch in batches]
    known = [one for one in found if one is not None]
    whole = _merged(known) if known and len(known) == len(found) else None
    return whole if whole is not None and len(whole.codes) == len(part) else None


def _coded(column: Any) -> Coded | None:
    import pyarrow as pa

    if pa.types.is_int64(column.type) and column.null_count == len(column):
        return Coded(np.zeros(len(column), np.int32), [None])
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    coded = column.cast(pa.large_binary()).dictionary_encode()
    values = [value.decode("utf-8", "replace") for value in coded.dictionary.to_pylist()]
    codes = np.asarray(coded.indices.fill_null(len(values))).astype(np.int32)
    return Coded(codes, [*values, None])


def _merged(parts: Sequence[Coded]) -> Coded:
    """One column of several, each distinct text once."""
    at: dict[str | None, int] = {}
    codes = [np.array([at.setdefault(text, len(at)) for text in part.texts], np.int32)[part.codes] for part in parts]
    return Coded(np.concatenate(codes), list(at))
