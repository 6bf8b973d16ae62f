"""Damage in the structure of a table, one kind at a time: the decoder sees it and leaves the table to SQLite.

100 rows on some leaves of 512 bytes; and a file that changes between being opened and being read.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from two_readers import SPEC, assert_alike, by_pages, by_sqlite, is_decoded, made, outcome, values

from tracelab import large_tables
from tracelab.large_tables import LargeTables
from tracelab.sqlite_pages import Batch
from tracelab.sqlite_read import SqliteTables, open_readonly


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tables, "_LARGE_ROWS", 1)


ROWS = [(1000 + i, 70_000 + i, f"name {i:02d}") for i in range(100)]


def sound(path: Path) -> Path:
    return made(path, ROWS, "page_size = 512")


def cell_of(data: bytes | bytearray, row: int) -> int:
    """Where the cell of a row begins: 16 bytes of record, its row id, 4 bytes of types, 2 + 3 + 7 bytes of values."""
    wanted = bytes([16, row, 4, 2, 3, 13 + 2 * 7]) + (999 + row).to_bytes(2, "big")
    assert data.count(wanted) == 1
    return data.index(wanted)


def leaf_of(data: bytes | bytearray, row: int) -> int:
    return cell_of(data, row) // 512 * 512


def root_cells(data: bytes | bytearray) -> list[int]:
    """Where the cells of the root begin, page 2, which is an interior page: four bytes of a page, and its last row."""
    assert data[512] == 5
    return [512 + int.from_bytes(data[at : at + 2], "big") for at in range(524, 524 + 2 * data[516], 2)]


def in_cell(row: int, offset: int, value: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[cell_of(data, row) + offset] = value

    return change


def in_leaf(row: int, offset: int, more: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[leaf_of(data, row) + offset] += more

    return change


def exchange(places: Callable[[bytearray], tuple[int, int]], size: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        one, other = places(data)
        data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]

    return change


def key_of_the_root(more: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[root_cells(data)[1] + 4] += more

    return change


def twice(data: bytearray) -> None:
    """The second page below the root stands for the third as well."""
    _, one, other, *_ = root_cells(data)
    data[other : other + 4] = data[one : one + 4]


DAMAGE: dict[str, Callable[[bytearray], None]] = {
    "a row id that stands twice": in_cell(50, 1, 49),
    "a row id far ahead": in_cell(50, 1, 99),
    "a shorter record": in_cell(50, 0, 15),
    "a longer record": in_cell(50, 0, 17),
    "fewer types": in_cell(50, 2, 3),
    "more types": in_cell(50, 2, 5),
    "a wider integer": in_cell(50, 3, 3),
    "a float for an integer": in_cell(50, 4, 7),
    "a type that is reserved": in_cell(50, 3, 10),
    "a blob for a text": in_cell(50, 5, 26),
    "a text of another length": in_cell(50, 5, 25),
    "a row less on a leaf": in_leaf(50, 4, -1),
    "two pointers exchanged": exchange(lambda data: (leaf_of(data, 50) + 10, leaf_of(data, 50) + 14), 2),
    "two pages exchanged": exchange(lambda data: (leaf_of(data, 30), leaf_of(data, 70)), 512),
    "two children exchanged": exchange(lambda data: (root_cells(data)[0], root_cells(data)[2]), 4),
    "a child twice": twice,
    "a smaller key": key_of_the_root(-3),
    "a larger key": key_of_the_root(3),
}  # fmt: skip


def damage(path: Path, change: Callable[[bytearray], None]) -> Path:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("batch", [1, 30, 1000])
@pytest.mark.parametrize("what", DAMAGE)
def test_damage_of_the_structure_is_left_to_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, batch: int
) -> None:
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", batch)
    path = sound(tmp_path / "t.sqlite")
    assert is_decoded(path)
    damage(path, DAMAGE[what])
    assert outcome(by_pages, path) == outcome(by_sqlite, path)
    # What an interior page says of the last rows below it is needed only to divide the table.
    assert _decoded(path) == (what in ("a smaller key", "a larger key") and batch == 1000)


def _decoded(path: Path) -> bool:
    try:
        return is_decoded(path)
    except sqlite3.DatabaseError:  # there is no answer but SQLite's
        return False


@pytest.mark.parametrize("what", ["a shorter record", "a longer record", "fewer types", "a wider integer"])
def test_control_without_the_check_of_each_record_damage_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = damage(sound(tmp_path / "t.sqlite"), DAMAGE[what])
    assert outcome(by_pages, path) == outcome(by_sqlite, path)
    monkeypatch.setattr(Batch, "done", lambda _: None)
    assert _decoded(path)


def test_a_changed_value_is_no_damage(tmp_path: Path) -> None:
    """2 bytes of a and 3 of b exchanged for 3 and 2: the record is as long as before, and both read it alike."""
    path = damage(
        sound(tmp_path / "t.sqlite"), exchange(lambda data: (cell_of(data, 50) + 3, cell_of(data, 50) + 4), 1)
    )
    assert_alike(path, decoded=True)
    assert by_pages(path)["ints"]["a"][49] == 1049 << 8 | (70_049 >> 16)


@pytest.mark.parametrize(("row", "shown"), [(100, 60), (1, 40)])
def test_a_damaged_first_or_last_row_id_loses_no_rows(tmp_path: Path, row: int, shown: int) -> None:
    """The last row says it is row 60: SQLite finds rows 1 to 60 if asked for those, and 100 rows in the table."""
    path = damage(sound(tmp_path / "t.sqlite"), in_cell(row, 1, shown))
    assert by_sqlite(path)["rows"] == 100
    assert by_pages(path) == by_sqlite(path)


# A file that changes


CHANGES: dict[str, Callable[[Path], object]] = {
    "cut to nothing": lambda path: path.write_bytes(b""),
    "cut in a page": lambda path: path.write_bytes(path.read_bytes()[:2000]),
    "cut behind a page": lambda path: path.write_bytes(path.read_bytes()[:2048]),
    "overwritten": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "removed": Path.unlink,
    "moved": lambda path: path.rename(path.with_name("elsewhere")),
    "exchanged": lambda path: made(path, [(1, 2, "x")]),
}


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_a_file_that_changes_after_it_was_opened(tmp_path: Path, what: str, begun: bool) -> None:
    """Values of the file as it was, or an error of the database. `begun`: SQLite has read the schema before."""
    path = sound(tmp_path / "t.sqlite")
    expected = by_sqlite(path)

    def read(where: Path, _: object) -> object:
        with open_readonly(where) as connection:
            tables = LargeTables(connection)
            if begun:
                assert tables.table_names() == {"T"}
            CHANGES[what](where)
            return values(tables, SPEC)

    assert outcome(read, path) in (expected, "DatabaseError", "OperationalError", "InputError")


def test_a_file_that_is_exchanged_for_its_like_is_still_read(tmp_path: Path) -> None:
    """As SQLite does, which keeps the file open: small tables and large ones would else be of two files."""
    path = sound(tmp_path / "t.sqlite")
    other = made(tmp_path / "other.sqlite", [(a + 5, b, text) for a, b, text in ROWS], "page_size = 512")
    expected = by_sqlite(path)
    with open_readonly(path) as connection:
        tables = LargeTables(connection)
        other.replace(path)
        assert values(SqliteTables(connection), SPEC) == expected
        assert values(tables, SPEC) == expected
