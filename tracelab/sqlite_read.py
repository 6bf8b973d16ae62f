"""Columnar reading of a SQLite file that is never changed: no lock, no journal, nothing written beside it."""

import contextlib
import os
import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from urllib.parse import quote

import numpy as np

from tracelab.capture.settled import settled
from tracelab.coded_rows import CodedRows, code_rows
from tracelab.errors import InputError
from tracelab.nsys_tables import TableSpec
from tracelab.table_source import NULL, Coded, Request, coded, missing
from tracelab.trace import I64

# Reading a whole export takes SQLite 0.4 to 0.6 steps of its machine for each byte of the file. A view can be endless.
_STEPS_PER_BYTE = 50
_ALWAYS_ALLOWED_STEPS = 50_000_000
_STEPS_BETWEEN_LOOKS = 1_000_000


@dataclass(frozen=True)
class SqliteTables:
    """An open SQLite export as a TableSource."""

    connection: sqlite3.Connection
    format: str = "nsys-sqlite"
    kind: str = "a SQLite file"

    def table_names(self) -> set[str]:
        """Names of all tables and views."""
        rows = self.connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        return {str(row[0]) for row in rows}

    def ints(self, spec: TableSpec) -> dict[str, I64]:
        """The integer columns of `spec`, text and blobs cast as SQLite casts them."""
        present = present_columns(self.connection, spec)
        wanted = [name for name in spec.ints if name in present]
        if not wanted:
            rows = count_rows(self.connection, spec) if present else 0
            return {name: missing(rows) for name in spec.ints}
        columns = integers(self.connection, spec.name, wanted)
        rows = len(columns[wanted[0]])
        lacking = {name: missing(rows) for name in spec.ints if name not in present}
        return columns | lacking

    def rows(self, table: str) -> int:
        """How many rows a table or view has; 0 where there is none."""
        spec = TableSpec(table, ())
        return count_rows(self.connection, spec) if present_columns(self.connection, spec) else 0

    def coded_ints(
        self, spec: TableSpec, columns: Sequence[str], together: Sequence[str]
    ) -> tuple[dict[str, I64], CodedRows]:
        """Integer columns of `spec`, those of `together` by their distinct rows."""
        found = self.ints(TableSpec(spec.name, (*columns, *together)))
        rows = len(next(iter(found.values())))
        return (
            {name: found[name] for name in columns},
            code_rows(lambda first, stop: {name: found[name][first:stop] for name in together}, rows),
        )

    def ahead(self, *requests: Request) -> None:
        """Nothing: this source reads when it is asked."""

    def ahead_texts(self, spec: TableSpec, column: str) -> None:
        """Nothing: this source reads when it is asked."""

    def texts(self, spec: TableSpec, column: str) -> list[str | None]:
        """One text column in row order; all None where the file lacks the column."""
        present = present_columns(self.connection, spec)
        if column not in present:
            return [None] * (count_rows(self.connection, spec) if present else 0)
        rows = self.connection.execute(f'SELECT "{column}" FROM "{spec.name}" ORDER BY rowid')
        return [None if value is None else str(value) for (value,) in rows]

    def coded_texts(self, spec: TableSpec, column: str, rows: I64) -> Coded:
        """The texts of some rows, each distinct text once."""
        return coded(self.texts(spec, column), rows)


class FileConnection(sqlite3.Connection):
    """A connection that knows which file it reads: SQLite tells its name as text, which not every name is."""

    file: Path
    inode: tuple[int, int]


def inode(file: Path) -> tuple[int, int]:
    """Device and inode of a file: the same as long as it is the same file."""
    seen = file.stat()
    return seen.st_dev, seen.st_ino


@contextlib.contextmanager
def open_readonly(path: Path) -> Iterator[FileConnection]:
    """Open `path` read-only and immutable; a database with a pending WAL is copied to the cache folder first."""
    with contextlib.ExitStack() as opened:
        try:
            file = opened.enter_context(settled(path))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}: its write-ahead log {path.name}-wal cannot be read ({error}).") from error
        try:
            uri = f"file:{quote(os.fsencode(file))}?mode=ro&immutable=1"
            connection = sqlite3.connect(uri, uri=True, factory=FileConnection)
            connection.file, connection.inode = file, inode(file)
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be opened ({error}).") from error
        opened.callback(connection.close)
        connection.text_factory = _decode
        connection.set_progress_handler(_patience(file), _STEPS_BETWEEN_LOOKS)
        yield connection


def integers(
    connection: sqlite3.Connection, table: str, names: Sequence[str], row_ids: tuple[int, int] | None = None
) -> dict[str, I64]:
    """Integer columns that a table has, of all rows or of those with row ids [first, stop)."""
    plain = ", ".join(f'coalesce("{name}", {NULL})' for name in names)
    try:
        flat = _flat(connection, table, plain, row_ids)
    except (TypeError, ValueError, OverflowError):  # text or a blob where a number belongs
        cast = ", ".join(f'coalesce(CAST("{name}" AS INTEGER), {NULL})' for name in names)
        flat = _flat(connection, table, cast, row_ids)
    matrix = flat.reshape(-1, len(names))
    return {name: np.ascontiguousarray(matrix[:, i]) for i, name in enumerate(names)}


def _flat(connection: sqlite3.Connection, table: str, columns: str, row_ids: tuple[int, int] | None) -> I64:
    where, values = ("", ()) if row_ids is None else ("WHERE rowid >= ? AND rowid < ?", row_ids)
    rows = connection.execute(f'SELECT {columns} FROM "{table}" {where} ORDER BY rowid', values)
    # An array of this kind takes integers alone, where numpy would ask Python what the text `1_000` is.
    return np.frombuffer(array("q", chain.from_iterable(rows)), np.int64)


def present_columns(connection: sqlite3.Connection, spec: TableSpec) -> set[str]:
    """The columns that a table or view has; none where there is no such table."""
    return {str(row[1]) for row in connection.execute(f'PRAGMA table_info("{spec.name}")')}


def count_rows(connection: sqlite3.Connection, spec: TableSpec) -> int:
    return int(connection.execute(f'SELECT count(*) FROM "{spec.name}"').fetchone()[0])


def _patience(path: Path) -> Callable[[], bool]:
    """What SQLite asks from time to time while it reads: True, "stop", once that took longer than the file can take."""
    looks = count()
    most = (_ALWAYS_ALLOWED_STEPS + _STEPS_PER_BYTE * path.stat().st_size) // _STEPS_BETWEEN_LOOKS
    return lambda: next(looks) > most


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
