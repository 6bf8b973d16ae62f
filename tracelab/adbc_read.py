"""Large tables of a SQLite export, read in row ranges on every core by the Arrow driver of SQLite.

It gives exactly what `SqliteTables` gives, which reads all that is small or odd: a table without row ids, a column
whose values are no integers. Batches of rows are taken apart as they come, so that no table is held twice.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from tracelab.coded_rows import CodedRows, code_batch, merged
from tracelab.nsys_tables import TableSpec
from tracelab.sqlite_read import SqliteTables, present_columns
from tracelab.table_source import NULL, Coded, Request
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
    _begun: dict[Request, "_Reading"] = field(default_factory=dict)

    def ints(self, spec: TableSpec) -> dict[str, I64]:
        """The integer columns of `spec`."""
        found = self._columns((spec, spec.ints, ()))
        return super().ints(spec) if found is None else found[0]

    def coded_ints(
        self, spec: TableSpec, columns: Sequence[str], together: Sequence[str]
    ) -> tuple[dict[str, I64], CodedRows]:
        """Integer columns of `spec`, those of `together` by their distinct rows."""
        found = self._columns((spec, tuple(columns), tuple(together)))
        if found is None or found[1] is None:
            return super().coded_ints(spec, columns, together)
        return found[0], found[1]

    def ahead(self, *requests: Request) -> None:
        """Begin to read what `coded_ints` will be asked for."""
        for request in requests:
            reading = self._begin(request)
            if reading is not None:
                self._begun[request] = reading

    def coded_texts(self, spec: TableSpec, column: str) -> Coded:
        """One text column by its distinct values."""
        there = column in present_columns(self.connection, spec)
        ranges = self._ranges(spec) if there else None
        parts = [] if ranges is None else [part.result() for part in self._read(spec, [column], ranges, _texts)]
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return super().coded_texts(spec, column)
        return _merged(known)

    def rows(self, table: str) -> int:
        """How many rows a table has; counted anew only where it was not read."""
        known = self._counted.get(table)
        return super().rows(table) if known is None else known

    def _columns(self, request: Request) -> tuple[dict[str, I64], CodedRows | None] | None:
        """The columns, and those together by their distinct rows; None for a table that the driver cannot read."""
        reading = self._begun.pop(request, None) or self._begin(request)
        found = reading.result() if reading is not None else None
        if reading is not None and found is not None:
            self._counted[request[0].name] = reading.rows
        return found

    def _begin(self, request: Request) -> "_Reading | None":
        spec, columns, together = request
        present = present_columns(self.connection, spec)
        wanted = [name for name in (*columns, *together) if name in present]
        ranges = self._ranges(spec) if wanted else None
        if ranges is None:
            return None
        rows = ranges[-1].stop - ranges[0].start
        found = {name: np.empty(rows, np.int64) if name in present else _missing(rows) for name in columns}
        targets = {name: column for name, column in found.items() if name in present}
        coded = {name: name in present for name in together}
        take = partial(_taken, ranges[0].start, targets, coded)
        return _Reading(rows, found, self._read(spec, wanted, ranges, take))

    def _read(
        self,
        spec: TableSpec,
        columns: Sequence[str],
        ranges: Sequence[range],
        use: Callable[[range, Iterator[Any]], Found | None],
    ) -> "list[Future[Found | None]]":
        """What `use` makes of each range's Arrow batches, in order; None for a range that the driver cannot read."""
        names = ", ".join(f'"{name}"' for name in columns)
        file = self.connection.execute("PRAGMA database_list").fetchone()[2]

        def one(part: range) -> Found | None:
            import pyarrow as pa
            from adbc_driver_manager import Error

            bounds = f"rowid >= {part.start} AND rowid < {part.stop}"
            try:
                return use(part, _batches(file, f'SELECT {names} FROM "{spec.name}" WHERE {bounds} ORDER BY rowid'))
            except (Error, pa.ArrowException, OSError):
                return None  # values of several types: SQLite itself casts them

        return [_pool().submit(one, part) for part in ranges]

    def _ranges(self, spec: TableSpec) -> list[range] | None:
        """Ranges of row ids, about alike; None for a table that is small or whose row ids cannot be without holes."""
        try:
            low, high = (
                self.connection.execute(f'SELECT {end}(rowid) FROM "{spec.name}"').fetchone()[0]
                for end in ("min", "max")
            )
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


@dataclass(frozen=True)
class _Reading:
    """A table that is being read: its columns, filled by the futures, each of which gives the coded rows of a range."""

    rows: int
    columns: dict[str, I64]
    parts: "list[Future[list[CodedRows] | None]]"

    def result(self) -> tuple[dict[str, I64], CodedRows | None] | None:
        """Waits for the columns; None where the driver could not read them."""
        parts = [part.result() for part in self.parts]
        if any(part is None for part in parts):
            return None
        coded = [one for part in parts if part is not None for one in part]
        return self.columns, merged(coded) if coded else None


def _taken(
    first: int, targets: dict[str, I64], coded: dict[str, bool], part: range, batches: Iterator[Any]
) -> list[CodedRows] | None:
    """Copy the batches of one range to their place, and give the columns `coded` by their distinct rows.

    `coded` tells of each whether the table has it; one that it lacks is missing in every row.
    """
    at, taken = part.start - first, []
    for batch in batches:
        if not _all_integers(batch):
            return None
        stop = at + len(batch)
        for name, target in targets.items():
            target[at:stop] = _values(batch.column(name))
        if coded:
            lacking = _missing(len(batch))
            taken.append(code_batch({n: _values(batch.column(n)) if there else lacking for n, there in coded.items()}))
        at = stop
    return taken if at == part.stop - first else None


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1)


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
    missing: I64 = np.broadcast_to(np.int64(NULL), rows)
    return missing


def _values(column: Any) -> I64:
    values: I64 = np.asarray(column.fill_null(NULL) if column.null_count else column)
    return values


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
