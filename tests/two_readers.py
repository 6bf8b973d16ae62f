"""Databases made row by row, and what two readers say of them: SQLite's own module, and the decoder of pages."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np

from tracelab import large_tables, sqlite_read
from tracelab.errors import InputError
from tracelab.large_tables import LargeTables
from tracelab.nsys_tables import TableSpec
from tracelab.sqlite_read import SqliteTables, open_readonly

SPEC = TableSpec("T", ("a", "b", "lacking"), ("text",))
Rows = Sequence[tuple[Any, ...]]
Values = Mapping[str, Any]
_RESERVED_AT, _CONTENT_AT = 20, 105  # in the file header: reserved bytes of a page; where cells begin on page 1


@contextmanager
def written(path: Path, *pragmas: str, reserved: int = 0) -> Iterator[sqlite3.Connection]:
    """A new database that SQLite writes; `pragmas` come before anything is in it."""
    path.unlink(missing_ok=True)
    if reserved:
        _reserve(path, pragmas, reserved)
    with closing(sqlite3.connect(path)) as db:
        for pragma in (*pragmas, "synchronous = OFF", "journal_mode = OFF"):
            db.execute(f"PRAGMA {pragma}")
        yield db
        db.commit()


def _reserve(path: Path, pragmas: Sequence[str], reserved: int) -> None:
    """An empty database whose pages end with bytes that are not SQLite's."""
    with written(path, *pragmas) as db:
        db.execute("PRAGMA user_version = 1")  # only now there is a page
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    data[_RESERVED_AT] = reserved
    data[_CONTENT_AT : _CONTENT_AT + 2] = (size - reserved).to_bytes(2, "big")
    path.write_bytes(data)


def made(path: Path, rows: Rows, *pragmas: str, declared: str = "a, b, text", reserved: int = 0) -> Path:
    """A database with the table T of these rows."""
    with written(path, *pragmas, reserved=reserved) as db:
        db.execute(f"CREATE TABLE T ({declared})")
        filled(db, "T", rows)
    return path


def filled(db: sqlite3.Connection, table: str, rows: Rows) -> None:
    """Put rows in a table."""
    if rows:
        db.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(rows[0]))})', rows)


def values(tables: SqliteTables, spec: TableSpec = SPEC) -> Values:
    """Everything a reader says of a table: integers in both ways, texts, and how many rows."""
    whole = tables.ints(spec)
    alone, coded = tables.coded_ints(spec, spec.ints[:1], spec.ints[1:])
    assert {column.dtype for column in (*whole.values(), *alone.values())} <= {np.dtype(np.int64)}
    rows = np.arange(tables.rows(spec.name))
    return {
        "ints": {name: column.tolist() for name, column in whole.items()},
        "alone": {name: column.tolist() for name, column in alone.items()},
        "coded": {name: coded[name].tolist() for name in spec.ints[1:]},
        "distinct": {name: column.tolist() for name, column in coded.distinct.items()},
        "texts": {name: _texts(tables, spec, name, rows) for name in spec.texts},
        "some": {name: _texts(tables, spec, name, rows[::-3]) for name in spec.texts},
        "rows": len(rows),
    }


def _texts(tables: SqliteTables, spec: TableSpec, column: str, rows: Any) -> list[str | None]:
    found = tables.coded_texts(spec, column, rows)
    return [found.texts[code] for code in found.codes]


def by_sqlite(path: Path, spec: TableSpec = SPEC) -> Values:
    """What SQLite's own module reads."""
    with open_readonly(path) as connection:
        return values(SqliteTables(connection), spec)


def by_pages(path: Path, spec: TableSpec = SPEC) -> Values:
    """What the reader of large tables says, by whichever way."""
    with open_readonly(path) as connection:
        return values(LargeTables(connection), spec)


@contextmanager
def only_pages() -> Iterator[None]:
    """Inside, SQLite's module must read no value."""
    patches = (
        patch.object(large_tables, "open_readonly", _refused),
        patch.object(sqlite_read, "integers", _refused),
        patch.object(SqliteTables, "texts", _refused),
    )
    with patches[0], patches[1], patches[2]:
        yield


def _refused(*_: object) -> NoReturn:
    raise AssertionError("SQLite's module was asked")


def assert_alike(path: Path, spec: TableSpec = SPEC, *, decoded: bool | None = None) -> None:
    """Both readers say the same; `decoded`: the pages alone were enough (True), or were not (False)."""
    expected = by_sqlite(path, spec)
    assert by_pages(path, spec) == expected
    if decoded is not None:
        assert is_decoded(path, spec) == decoded


def is_decoded(path: Path, spec: TableSpec = SPEC) -> bool:
    """Whether every value of the table is read from its pages."""
    with open_readonly(path) as connection:
        tables = LargeTables(connection)
        try:
            with only_pages():
                values(tables, spec)
        except AssertionError as refused:
            assert "was asked" in str(refused)
            return False
    return True


def outcome(read: Any, path: Path, spec: TableSpec = SPEC) -> Values | str:
    """The values, or which of the errors a damaged file may give."""
    try:
        found: Values = read(path, spec)
    except (sqlite3.DatabaseError, InputError, UnicodeDecodeError) as error:
        return type(error).__name__
    return found
