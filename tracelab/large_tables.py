"""Large tables of a SQLite export, decoded from their pages on every core.

It gives exactly what `SqliteTables` gives, which reads all that is small or unusual. Batches of rows are taken apart as
they come, so that no table is held twice. Measured against the readers that there are: see `tests/bench/README.md`.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from tracelab.batches import Batches
from tracelab.coded_rows import CodedRows, code_batch, merged
from tracelab.coded_texts import code_texts, joined
from tracelab.nsys_tables import TableSpec
from tracelab.sqlite_pages import Batch, UnusualError, leaves, open_paged, rows_of
from tracelab.sqlite_read import FileConnection, SqliteTables, integers, open_readonly
from tracelab.table_source import Coded, Request, coded, missing
from tracelab.trace import I64

Found = TypeVar("Found")

_LARGE_ROWS = 20_000  # from here on this is faster
_BATCH_ROWS = 1 << 16  # the columns of a batch stay in a core's cache
_LEAST_ROW_BYTES = 2  # of a row in the file; ids that lie farther apart than the file can hold rows are damage
_DAMAGE = (UnusualError, IndexError, ValueError, OverflowError, MemoryError, OSError)


@dataclass(frozen=True)
class LargeTables(SqliteTables):
    """A SQLite export whose large tables are decoded from their pages."""

    connection: FileConnection
    _batches: Batches = field(default_factory=Batches)
    _counted: dict[str, int] = field(default_factory=dict)  # rows of the tables that were read
    _begun: dict[Request, "_Reading"] = field(default_factory=dict)
    _begun_texts: dict[tuple[str, str], "_TextReading"] = field(default_factory=dict)

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

    def ahead_texts(self, spec: TableSpec, column: str) -> None:
        """Begin to read what `coded_texts` will be asked for."""
        reading = self._begin_texts(spec, column)
        if reading is not None:
            self._begun_texts[spec.name, column] = reading

    def coded_texts(self, spec: TableSpec, column: str, rows: I64) -> Coded:
        """The texts of some rows, each distinct text once."""
        reading = self._begun_texts.pop((spec.name, column), None) or self._begin_texts(spec, column)
        parts = [] if reading is None else self._batches.waited(reading[1])
        known = [part for part in parts if part is not None]
        if reading is None or len(known) < len(parts) or not self._all_rows(reading[0]):
            return super().coded_texts(spec, column, rows)
        whole = joined(known)
        return Coded(whole.codes[rows], whole.texts)

    def give_up(self) -> None:
        """Read nothing more of what was begun: nobody will ask for it."""
        self._batches.give_up()

    def rows(self, table: str) -> int:
        """How many rows a table has; counted anew only where it was not read."""
        known = self._counted.get(table)
        return super().rows(table) if known is None else known

    def _columns(self, request: Request) -> tuple[dict[str, I64], CodedRows | None] | None:
        """The columns, and those together by their distinct rows; None for a table that SQLite itself must read."""
        reading = self._begun.pop(request, None) or self._begin(request)
        found = reading.result(self._batches) if reading is not None else None
        if reading is None or found is None or not self._all_rows(reading.table):
            return None
        self._counted[request[0].name] = reading.table.rows
        return found

    def _all_rows(self, table: "_Table") -> bool:
        """Whether no row was missed: where SQLite read a batch, the row ids that bound the table may be damaged."""
        return not table.left_to_sqlite or super().rows(table.name) == table.rows

    def _begin(self, request: Request) -> "_Reading | None":
        spec, columns, together = request
        table = self._table(spec)
        if table is None or not set(table.columns) & {*columns, *together}:
            return None
        there = [name for name in columns if name in table.columns]
        asked = tuple(name for name in dict.fromkeys((*columns, *together)) if name in table.columns)
        found = {name: np.empty(table.rows, np.int64) if name in there else missing(table.rows) for name in columns}

        def take(part: _Part) -> list[CodedRows]:
            """Put the columns of one batch in their place, and give those `together` by their distinct rows."""
            values = _integers(table, part, asked)
            for name in there:
                found[name][part.first - table.first_row : part.stop - table.first_row] = values[name]
            rows = part.stop - part.first
            return [code_batch({n: values.get(n, missing(rows)) for n in together}, rows)] if together else []

        return _Reading(table, found, self._begun_parts(table, take))

    def _begin_texts(self, spec: TableSpec, column: str) -> "_TextReading | None":
        table = self._table(spec)
        if table is None or column not in table.columns:
            return None
        return table, self._begun_parts(table, lambda part: _texts(table, part, column))

    def _begun_parts(self, table: "_Table", take: "Callable[[_Part], Found]") -> "list[Future[Found | None]]":
        """What `take` makes of every batch of the table; None where that failed."""

        def one(part: _Part) -> Found | None:
            try:
                return take(part)
            except (*_DAMAGE, sqlite3.Error):
                return None

        return self._batches.begin(one, table.parts)

    def _table(self, spec: TableSpec) -> "_Table | None":
        """A table that is large enough and of the kind that is decoded; None for any other."""
        try:
            (root,) = self.connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", (spec.name,)
            ).fetchone() or (0,)
            if not isinstance(root, int) or root < 1:
                return None
            low, high = (
                self.connection.execute(f'SELECT {end}(rowid) FROM "{spec.name}"').fetchone()[0]
                for end in ("min", "max")
            )
            declared = self.connection.execute(f'PRAGMA table_xinfo("{spec.name}")').fetchall()
        except sqlite3.Error:
            return None
        # A damaged file may have a column of the name `rowid` with anything in it, or row ids that lie far apart.
        if not isinstance(low, int) or not isinstance(high, int) or high - low < _LARGE_ROWS or low < 0:
            return None
        # A column that stands for the row id or is computed is not in the record; one may hide the row id.
        if any(primary or hidden or name.lower() == "rowid" for _, name, _, _, _, primary, hidden in declared):
            return None
        file = self.connection.file
        try:
            with open_paged(file, self.connection.inode) as paged:
                if (high - low) * _LEAST_ROW_BYTES > paged.pages * paged.page_bytes:
                    return None
                parts = [_Part(*part) for part in rows_of(leaves(paged, root, high), low, _BATCH_ROWS)]
        except _DAMAGE:
            return None
        return _Table(
            spec.name, file, self.connection.inode, tuple(str(row[1]) for row in declared), low, high - low + 1, parts
        )


@dataclass(frozen=True)
class _Part:
    """Some leaf pages of a table, and the row ids [first, stop) that stand on them."""

    pages: I64
    first: int
    stop: int


@dataclass(frozen=True)
class _Table:
    """Where a table is, and its columns in the order of the record."""

    name: str
    file: Path
    inode: tuple[int, int]
    columns: tuple[str, ...]
    first_row: int
    rows: int
    parts: list[_Part]
    left_to_sqlite: list[_Part] = field(default_factory=list)


_TextReading = tuple[_Table, "list[Future[Coded | None]]"]


@dataclass(frozen=True)
class _Reading:
    """A table that is being read: its columns, filled by the futures, each of which gives the coded rows of a batch."""

    table: _Table
    columns: dict[str, I64]
    parts: "list[Future[list[CodedRows] | None]]"

    def result(self, batches: Batches) -> tuple[dict[str, I64], CodedRows | None] | None:
        """Waits for the columns; None where a batch of them failed."""
        parts = batches.waited(self.parts)
        if any(part is None for part in parts):
            return None
        coded = [one for part in parts if part is not None for one in part]
        return self.columns, merged(coded) if coded else None


def _integers(table: _Table, part: _Part, names: Sequence[str]) -> dict[str, I64]:
    """Integer columns of one batch; read by SQLite where something in it is not decoded here."""
    try:
        with _batch(table, part) as batch:
            values = {}
            for name in table.columns:
                if name in names:
                    values[name] = batch.integers()
                else:
                    batch.skip()
        return values
    except _DAMAGE:
        with _reopened(table, part) as connection:
            values = integers(connection, table.name, names, (part.first, part.stop))
        _require(len(values[names[0]]), part)
        return values


def _texts(table: _Table, part: _Part, column: str) -> Coded:
    """A column of texts of one batch, likewise."""
    try:
        with _batch(table, part) as batch:
            for name in table.columns:
                if name == column:
                    found = code_texts(batch.texts())
                else:
                    batch.skip()
        return found
    except _DAMAGE:
        query = f'SELECT "{column}" FROM "{table.name}" WHERE rowid >= ? AND rowid < ? ORDER BY rowid'
        with _reopened(table, part) as connection:
            rows = connection.execute(query, (part.first, part.stop)).fetchall()
        _require(len(rows), part)
        return coded([None if value is None else str(value) for (value,) in rows], np.arange(len(rows)))


@contextmanager
def _batch(table: _Table, part: _Part) -> Iterator[Batch]:
    with open_paged(table.file, table.inode) as file:
        batch = Batch(file, part.pages, part.first)
        _require(len(batch), part)
        yield batch
        batch.done()


@contextmanager
def _reopened(table: _Table, part: _Part) -> Iterator[sqlite3.Connection]:
    table.left_to_sqlite.append(part)
    with open_readonly(table.file) as connection:
        if connection.inode != table.inode:
            raise UnusualError("another file has its name now")
        yield connection


def _require(rows: int, part: _Part) -> None:
    if rows != part.stop - part.first:
        raise UnusualError("row ids with holes")
