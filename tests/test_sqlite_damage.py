"""Damaged files: values or an error of the database, never anything else; and values that SQLite reads too.

A damaged byte inside a value changes what both readers say. Where it lies in the structure of a page, the decoder must
notice and leave the table to SQLite. Only files that SQLite reads without error are compared; cells that begin outside
their page are not, because SQLite then reads whatever lies behind the page in memory.
"""

import random
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from two_readers import SPEC, Values, by_pages, filled, outcome, values, written

from tracelab import large_tables
from tracelab.sqlite_pages import Batch
from tracelab.sqlite_read import SqliteTables, open_readonly

SEED, CASES = 20_240_611, 500
_INTEGERS = (None, 0, 1, -5, 300, 1 << 40, 1 << 62)
# Rows and page size: one leaf, a root with few leaves, one with many, and a page that holds all.
_BASES = ((12, 512), (60, 512), (200, 1024), (400, 512), (60, 4096))


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tables, "_LARGE_ROWS", 1)
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", 16)


@cache
def base(number: int) -> tuple[bytes, int]:
    """A sound database with two tables that grew together, and its page size."""
    count, size = _BASES[number]
    rng = random.Random(number)
    with TemporaryDirectory() as folder:
        path = Path(folder, "base.sqlite")
        with written(path, f"page_size = {size}", f"auto_vacuum = {number % 2}") as db:
            db.execute("CREATE TABLE U (a, b)")
            db.execute("CREATE TABLE T (a INTEGER, b INT, text TEXT)")
            for i in range(count):
                text = rng.choice((None, "x" * rng.randint(0, 60), f"name{i % 5}"))
                filled(db, "T", [(rng.choice(_INTEGERS), rng.choice(_INTEGERS), text)])
                filled(db, "U", [(i, "u" * 20)] * (i % 3 == 0))
        return path.read_bytes(), size


def damaged(rng: random.Random) -> tuple[bytes, str]:
    """One damaged database, and what was done to it."""
    data, size = base(rng.randrange(len(_BASES)))
    changed, change = bytearray(data), rng.choice((_cut, _page, _cell, _cell, _byte, _byte, _byte, _byte))
    said = [change(changed, size, rng) for _ in range(rng.choice((1, 1, 1, 2)))]
    return bytes(changed), ", ".join(said)


def _cut(data: bytearray, _: int, rng: random.Random) -> str:
    del data[rng.randrange(max(len(data), 1)) :]
    return f"cut to {len(data)}"


def _page(data: bytearray, size: int, rng: random.Random) -> str:
    """A page copied over another, exchanged with it, or lost."""
    one, other = (slice(at * size, at * size + size) for at in (rng.randrange(len(data) // size) for _ in range(2)))
    was, kind = data[other], rng.choice(("copied", "exchanged", "lost"))
    data[other] = bytes(size) if kind == "lost" else data[one]
    if kind == "exchanged":
        data[one] = was
    return f"page {kind}: {one.start // size + 1}, {other.start // size + 1}"


def _cell(data: bytearray, size: int, rng: random.Random) -> str:
    """A byte at the beginning of a cell: its length, its row id, the types of its values, the page below it."""
    pages = [at for at in range(size, len(data), size) if data[at] in (5, 13) and data[at + 4]]
    if not pages:
        return _byte(data, size, rng)
    page = rng.choice(pages)
    pointer = page + (12 if data[page] == 5 else 8) + 2 * rng.randrange(data[page + 4])
    return _set(data, page + int.from_bytes(data[pointer : pointer + 2], "big") + rng.randrange(9), rng)


def _byte(data: bytearray, size: int, rng: random.Random) -> str:
    """Any byte, or one at the beginning of a page."""
    page = rng.randrange(max(len(data) // size, 1)) * size
    return _set(data, page + rng.randrange(rng.choice((40, size))), rng)


def _set(data: bytearray, at: int, rng: random.Random) -> str:
    if at >= len(data):
        return "nothing"
    was = data[at]
    near = ((was + 1) % 256, (was - 1) % 256, was ^ 1 << rng.randrange(8), was | 128)
    data[at] = rng.choice((*near, rng.randrange(256), 0, 255, 5, 13))
    return f"byte {at}: {was} to {data[at]}"


def with_cells_checked(path: Path) -> Values | str:
    """What SQLite reads, or its error, when it also looks whether each cell lies on its page."""

    def checked(where: Path, _: object) -> Values:
        with open_readonly(where) as connection:
            connection.execute("PRAGMA cell_size_check = ON")
            return values(SqliteTables(connection), SPEC)

    return outcome(checked, path)


def compared(path: Path) -> str:
    """What came of one damaged file; any exception but those of a damaged file goes through."""
    expected, found = with_cells_checked(path), outcome(by_pages, path)
    if isinstance(expected, str):
        return "an error" if isinstance(found, str) else "values where SQLite gives up"
    if found == expected:
        return "alike"
    return "different"


def came_of(path: Path, cases: int) -> "Counter[str]":
    """How often each outcome came of that many cases, with what was done in those that differ."""
    rng, seen = random.Random(SEED), Counter[str]()
    for number in range(cases):
        data, said = damaged(rng)
        path.write_bytes(data)
        came = compared(path)
        seen[f"different: case {number}, {said}" if came == "different" else came] += 1
    return seen


def test_damage_gives_values_or_an_error_of_the_database(tmp_path: Path) -> None:
    seen = came_of(tmp_path / "t.sqlite", CASES)
    assert not [came for came in seen if came.startswith("different:")]
    assert seen["alike"] > CASES / 2 and seen["an error"] > CASES / 10, seen  # both happen, and often


def test_control_damage_that_the_decoder_believes_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch, "done", lambda _: None)
    assert [came for came in came_of(tmp_path / "t.sqlite", 150) if came.startswith("different:")]
