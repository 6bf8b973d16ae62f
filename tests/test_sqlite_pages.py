"""Databases of every kind: those that exporters write are decoded from their pages, any other SQLite itself reads."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from two_readers import SPEC, assert_alike, by_pages, by_sqlite, filled, is_decoded, made, outcome, values, written

from tracelab import large_tables
from tracelab.large_tables import LargeTables
from tracelab.nsys_tables import TableSpec
from tracelab.sqlite_pages import Batch
from tracelab.sqlite_read import open_readonly

ROWS = [(i * 37 % 300 - 40, None if i % 5 == 0 else 1 << (i % 62), f"name {i % 7}") for i in range(300)]


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tables, "_LARGE_ROWS", 1)


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path


# What is decoded


@pytest.mark.parametrize("batch", [1, 7, 1 << 16])
@pytest.mark.parametrize("reserved", [0, 8, 32])
@pytest.mark.parametrize("page_size", [512, 1024, 4096, 65536])
def test_page_sizes_and_reserved_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_size: int, reserved: int, batch: int
) -> None:
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", batch)
    path = made(tmp_path / "t.sqlite", ROWS, f"page_size = {page_size}", reserved=reserved)
    head = path.read_bytes()[:100]
    assert (int.from_bytes(head[16:18], "big"), head[20]) == (page_size % 65535, reserved)
    assert_alike(path, decoded=True)


@pytest.mark.parametrize(
    "pragma", ["auto_vacuum = FULL", "auto_vacuum = INCREMENTAL", "secure_delete = ON", "legacy_file_format = ON"]
)
def test_kinds_of_files(tmp_path: Path, pragma: str) -> None:
    path = made(tmp_path / "t.sqlite", ROWS, "page_size = 512", pragma)
    assert_alike(path, decoded=True)


def levels(path: Path, table: str = "T") -> int:
    """How many pages a way from the root of a table to its first leaf has, looked at byte by byte."""
    data, number = path.read_bytes(), 1
    size = int.from_bytes(data[16:18], "big")
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    while data[at := (page - 1) * size] == 5:
        cell = at + int.from_bytes(data[at + 12 : at + 14], "big")
        page, number = int.from_bytes(data[cell : cell + 4], "big"), number + 1
    assert data[at] == 13
    return number


@pytest.mark.parametrize(("rows", "expected"), [(9, 1), (100, 2), (3000, 3)])
def test_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, expected: int) -> None:
    """A row has about 30 bytes with its pointer: some 15 on a page, below 60 to an interior one, so 3000 need three."""
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", 100)
    path = made(tmp_path / "t.sqlite", [(1 << 40, i, "sixteen letters.") for i in range(rows)], "page_size = 512")
    assert levels(path) == expected
    assert_alike(path, decoded=True)


def test_tables_interleaved_page_by_page_behind_free_pages(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with written(path, "page_size = 512") as db:
        db.execute("CREATE TABLE gone (text)")
        filled(db, "gone", [("x" * 300,)] * 40)
        for name in ("U", "T"):
            db.execute(f"CREATE TABLE {name} (a, b, text)")
        db.execute("DROP TABLE gone")  # its pages are used last first, so those of the others do not ascend
        for row in ROWS:
            filled(db, "T", [row])
            filled(db, "U", [(row[1], row[0], "u" * 30)])
    assert_alike(path, decoded=True)
    assert_alike(path, TableSpec("U", ("b", "a"), ("text",)), decoded=True)


@pytest.mark.parametrize("name", ["two words", "select", "a-b", "Ünïcode", "1st", "it's", "a.b", "[x]"])
def test_names_that_need_quotes(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.sqlite"
    with written(path) as db:
        db.execute(f'CREATE TABLE "{name}" (a, "{name}")')
        filled(db, name, [(i, f"t{i}") for i in range(50)])
    assert_alike(path, TableSpec(name, ("a",), (name,)), decoded=True)


DECODED_AFTER = {
    "an index": ["CREATE INDEX by_a ON T (a, text)", "CREATE INDEX by_all ON T (b, a, text)"],
    "a later table": ["CREATE TABLE later AS SELECT * FROM T"],
    "rows put in again": ["DELETE FROM T WHERE rowid % 3 = 0", "INSERT INTO T (rowid, a, b, text) "
                          "SELECT value, value, -value, 'again' FROM (WITH RECURSIVE n(value) AS "
                          "(SELECT 3 UNION ALL SELECT value + 3 FROM n WHERE value < 300) SELECT * FROM n)"],
    "rows that grew": ["UPDATE T SET text = text || ' and forty more bytes, which make it move' WHERE rowid % 4 = 1"],
    "rows that shrank": ["UPDATE T SET text = NULL, b = 0 WHERE rowid BETWEEN 50 AND 250"],
    "no first rows": ["DELETE FROM T WHERE rowid <= 123"],
    "no last rows": ["DELETE FROM T WHERE rowid > 123"],
    "row ids from 0": ["UPDATE T SET rowid = rowid - 1000", "UPDATE T SET rowid = rowid + 999"],
    "row ids of seven bytes": [f"UPDATE T SET rowid = rowid + {1 << 48}"],
    "another order": ["VACUUM"],
    "a renamed column": ["ALTER TABLE T RENAME COLUMN b TO lacking"],
    "a dropped column": ["ALTER TABLE T DROP COLUMN a"],
}  # fmt: skip


@pytest.mark.parametrize("what", DECODED_AFTER)
def test_what_stays_decoded(tmp_path: Path, what: str) -> None:
    path = changed(made(tmp_path / "t.sqlite", ROWS, "page_size = 512"), *DECODED_AFTER[what])
    assert_alike(path, decoded=True)


# What SQLite reads

LEFT_TO_SQLITE = {
    "a hole": ["DELETE FROM T WHERE rowid = 100"],
    "a hole between pages": ["DELETE FROM T WHERE rowid BETWEEN 90 AND 200"],
    "row ids below 0": ["UPDATE T SET rowid = rowid - 1000"],
    "row ids around 0": ["UPDATE T SET rowid = -rowid WHERE rowid < 3"],
    "row ids of eight bytes": [f"UPDATE T SET rowid = rowid + {1 << 57}"],
    "row ids of nine bytes": [f"UPDATE T SET rowid = rowid + {(1 << 63) - 1000}"],
    "a far row": [f"INSERT INTO T (rowid, a, b, text) VALUES ({1 << 62}, 1, 2, 'far')"],
    "an added column": ["ALTER TABLE T ADD COLUMN lacking INTEGER"],
    "an added column with a default": ["ALTER TABLE T ADD COLUMN lacking INTEGER DEFAULT 77"],
    "an added text": ["ALTER TABLE T RENAME COLUMN text TO old", "ALTER TABLE T ADD COLUMN text DEFAULT 'given'"],
    "a virtual column": ["ALTER TABLE T ADD COLUMN lacking AS (a + 1)"],
    "rows of both kinds": ["ALTER TABLE T ADD COLUMN lacking DEFAULT 5", "INSERT INTO T SELECT a, b, text, a FROM T"],
    "a view": ["ALTER TABLE T RENAME TO U", "CREATE VIEW T AS SELECT b AS a, a AS b, text FROM U"],
    "an empty view": ["DROP TABLE T", "CREATE VIEW T AS SELECT 1 AS a, 2 AS b, 'x' AS text WHERE 0"],
    "no rows": ["DELETE FROM T"],
    "one row": ["DELETE FROM T WHERE rowid > 1"],
}


@pytest.mark.parametrize("batch", [16, 1 << 16])
@pytest.mark.parametrize("what", LEFT_TO_SQLITE)
def test_what_sqlite_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, batch: int) -> None:
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", batch)
    path = changed(made(tmp_path / "t.sqlite", ROWS, "page_size = 512"), *LEFT_TO_SQLITE[what])
    assert outcome(by_pages, path) == outcome(by_sqlite, path)
    assert not _decoded(path)


def _decoded(path: Path) -> bool:
    try:
        return is_decoded(path)
    except sqlite3.DatabaseError:  # SQLite's answer too
        return False


@pytest.mark.parametrize(
    "declared",
    [
        "a INTEGER PRIMARY KEY, b, text",
        "a, b, text TEXT, PRIMARY KEY (a, b, text)",
        "a INTEGER PRIMARY KEY DESC, b, text",
        "a, b AS (a + 1) VIRTUAL, text",
        "a, b AS (a + 1) STORED, text",
        "a INTEGER PRIMARY KEY, b, text) WITHOUT ROWID --",
        "a INTEGER PRIMARY KEY, rowid, text, b) WITHOUT ROWID --",
    ],
)
def test_declarations_that_sqlite_reads(tmp_path: Path, declared: str) -> None:
    path = tmp_path / "t.sqlite"
    with written(path, "page_size = 512") as db:
        db.execute(f"CREATE TABLE T ({declared}\n)" if "--" not in declared else f"CREATE TABLE T ({declared}")
        db.executemany("INSERT INTO T (a, text) VALUES (?, ?)", [(3 * i + 1, f"t{i % 3}") for i in range(200)])
    assert outcome(by_pages, path) == outcome(by_sqlite, path)
    assert not _decoded(path)


@pytest.mark.parametrize("odd", [1, "7"])
def test_a_column_of_the_name_rowid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: object) -> None:
    """`ORDER BY rowid` is by that column, here from the last row to the first; pages have the rows in their own order.

    With one odd value SQLite is asked for a part of the rows, by that column: others than those of the pages.
    """
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", 30)
    rows = [(200 - i, i, i, f"t{i}") for i in range(200)]
    rows[3] = (197, odd, 3, "t3")  # type: ignore[assignment]
    assert_alike(made(tmp_path / "t.sqlite", rows, "page_size = 512", declared="rowid INTEGER, a, b, text"))


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    rows = [(i, i, "größer 日本 🙂" if i % 2 else None) for i in range(100)]
    path = made(tmp_path / "t.sqlite", rows, f"encoding = '{encoding}'")
    assert_alike(path, decoded=False)
    assert by_pages(path)["texts"]["text"][1] == "größer 日本 🙂"


def test_a_log_that_is_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows in it count: pages are read from the settled copy, not from the file without them."""
    monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE T (a, b, text)")
        filled(db, "T", ROWS)
        db.commit()
        assert path.with_name("t.sqlite-wal").stat().st_size > 0
        assert by_pages(path)["ints"]["a"] == [row[0] for row in ROWS]
        assert_alike(path, decoded=True)


@pytest.mark.parametrize("name", ["a b%3f?#.sqlite", "ü'\".sqlite", "file:t.sqlite", "new\nline.sqlite"])
def test_names_of_files(tmp_path: Path, name: str) -> None:
    assert_alike(made(tmp_path / name, ROWS), decoded=True)


def test_a_name_of_a_file_that_is_no_text(tmp_path: Path) -> None:
    assert_alike(made(tmp_path / os.fsdecode(b"x\xff.sqlite"), ROWS))


def test_two_files_whose_names_are_shown_alike(tmp_path: Path) -> None:
    path = made(tmp_path / os.fsdecode(b"x\xff.sqlite"), ROWS)
    made(tmp_path / "x\ufffd.sqlite", [(a + 1, b, text) for a, b, text in ROWS])
    assert_alike(path)


# Negative controls


def test_control_only_pages_refuses_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same table counts as decoded, or not where its pages are refused."""
    path = made(tmp_path / "t.sqlite", ROWS)
    assert is_decoded(path)
    monkeypatch.setattr(large_tables, "_LARGE_ROWS", 10_000)
    assert not is_decoded(path)


def test_control_a_wrong_value_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = made(tmp_path / "t.sqlite", ROWS), Batch.integers
    expected = by_sqlite(path)
    with open_readonly(path) as connection:
        assert values(LargeTables(connection), SPEC) == expected
        monkeypatch.setattr(Batch, "integers", lambda self: whole(self) + 1)
        assert values(LargeTables(connection), SPEC) != expected


def test_control_without_the_check_of_each_record_old_rows_are_misread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows from before the column was added have no value of it: the byte behind their types is their first value,
    here 2 to 6, which is the type of an integer too."""
    path = made(tmp_path / "t.sqlite", [(2 + i % 5, i, "t") for i in range(100)])
    changed(path, *LEFT_TO_SQLITE["an added column with a default"])
    assert_alike(path)
    monkeypatch.setattr(Batch, "done", lambda _: None)
    with pytest.raises(AssertionError):
        assert_alike(path)
