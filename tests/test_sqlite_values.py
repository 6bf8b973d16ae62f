"""Values of every type and size, wherever they stand in a table: pages or not, they are those that SQLite reads."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from two_readers import assert_alike, by_pages, made, written

from tracelab import large_tables, sqlite_pages
from tracelab.nsys_tables import TableSpec
from tracelab.sqlite_pages import Batch
from tracelab.table_source import NULL

BOUNDED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WIDTHS = (1, 2, 3, 4, 6, 8)  # bytes of integers in a record
EDGES = sorted({edge for w in WIDTHS for half in (1 << 8 * w - 1,) for edge in (-half, -half + 1, half - 1)} - {NULL})
INTEGER = st.one_of(st.sampled_from((0, 1, -1, 2)), st.sampled_from(EDGES), st.integers(-(2**63) + 1, 2**63 - 1))
ORDINARY = st.tuples(st.none() | INTEGER, st.none() | INTEGER, st.none() | st.binary(max_size=70))
# As text of a number only what Python and SQLite read alike.
ODD_NUMBER = st.one_of(
    st.floats(allow_nan=True), st.text("0123456789 .e+-x", max_size=24), st.binary(max_size=3), st.just("9" * 30)
)
ODD_TEXT = st.one_of(st.floats(), st.integers(-9, 9), st.sampled_from((3000, 5000, 70_000)).map(lambda n: b"t" * n))
ODD = st.one_of(
    st.tuples(ODD_NUMBER, INTEGER, st.just(b"t")), st.tuples(INTEGER, ODD_NUMBER, st.just(b"t")),
    st.tuples(INTEGER, INTEGER, ODD_TEXT),
)  # fmt: skip
Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tables, "_LARGE_ROWS", 1)


def stored(path: Path, rows: Sequence[Row], declared: str, page_size: int) -> Path:
    """The table T, its texts given as the bytes they have."""
    with written(path, f"page_size = {page_size}") as db:
        db.execute(f"CREATE TABLE T ({declared})")
        for row in rows:
            text = "CAST(? AS TEXT)" if isinstance(row[2], bytes) else "?"
            db.execute(f"INSERT INTO T VALUES (?, ?, {text})", row)
    return path


DECLARED = st.sampled_from(
    ("a, b, text", "a INTEGER, b INT, text TEXT", "a BIGINT, b NUMERIC, text", "a INTEGER NOT NULL ON CONFLICT REPLACE "
     "DEFAULT 7, b REAL, text VARCHAR(9)", "a ANY, b BLOB, text TEXT COLLATE NOCASE")
)  # fmt: skip


@BOUNDED
@given(
    st.lists(ORDINARY, min_size=1, max_size=8), st.integers(2, 150), DECLARED,
    st.sampled_from((512, 1024, 4096, 65536)), st.sampled_from((1, 3, 20, 1 << 16)),
)  # fmt: skip
def test_integers_and_texts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, some: list[Row], count: int, declared: str, page: int, batch: int
) -> None:
    """Whole numbers in a REAL column stand as integers too, if they have few enough digits; others are floats."""
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", batch)
    path = stored(tmp_path / "t.sqlite", [some[i % len(some)] for i in range(count)], declared, page)
    assert_alike(path, decoded=None if "REAL" in declared else True)


@BOUNDED
@given(
    st.lists(ORDINARY, min_size=1, max_size=5), st.lists(st.tuples(st.integers(0, 99), ODD), min_size=1, max_size=3),
    DECLARED, st.sampled_from((512, 4096, 65536)), st.sampled_from((1, 7, 1 << 16)),
)  # fmt: skip
def test_odd_values_among_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, some: list[Row], odd: list[tuple[int, Row]], declared: str,
    page: int, batch: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", batch)
    rows = [some[i % len(some)] for i in range(100)]
    for at, row in odd:
        rows[at] = row
    assert_alike(stored(tmp_path / "t.sqlite", rows, declared, page))


@pytest.mark.parametrize("value", [0, 1, None, *EDGES])
def test_a_column_of_one_value_and_one_of_every_width(tmp_path: Path, value: int | None) -> None:
    """All rows of one type are read in one go; the other column has every type there is."""
    every = [None, 0, 1, *EDGES]
    rows = [(value, every[i % len(every)], None) for i in range(200)]
    path = made(tmp_path / "t.sqlite", rows, "page_size = 1024")
    assert_alike(path, decoded=True)
    assert by_pages(path)["ints"]["a"] == [NULL if value is None else value] * 200


@pytest.mark.parametrize("value", [-(2**63), "7", " 7 ", "x", "", 2.9, -2.9, 1e300, float("inf"), b"12", b"", "1e3"])
@pytest.mark.parametrize("at", [0, 50, 99])
def test_one_odd_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: object, at: int) -> None:
    """-2^63 stands for a missing value in both ways of reading, and is the only one of these that is decoded."""
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", 10)
    rows: list[Row] = [(i, i, "t") for i in range(100)]
    rows[at] = (value, 5, "t")
    assert_alike(made(tmp_path / "t.sqlite", rows, "page_size = 512"), decoded=value == NULL)


@pytest.mark.parametrize(("text", "cast"), [("1_000", 1), ("１２", 0)])
@pytest.mark.parametrize("other", ["7", "x"])
def test_texts_that_python_and_sqlite_read_differently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cast: int, other: str
) -> None:
    """SQLite casts a whole table once a text in it is no number to Python, a batch only for one in it."""
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", 10)
    path = made(tmp_path / "t.sqlite", [(text, 1, "t")] * 50 + [(other, 1, "t")], "page_size = 512")
    assert_alike(path)
    assert by_pages(path)["ints"]["a"][0] == cast


# Sizes of texts. A page of 512 keeps records of up to 512 - 35 = 477 bytes, of 4096 up to 4061, of 65536 up to 65501.
# The record of (2, 300, text): 4 or 5 bytes of types (a text from 58 bytes on has a type of two), 1 + 2 of integers.


@pytest.mark.parametrize(
    ("page", "size", "decoded"),
    [
        (512, 0, True), (512, 57, True), (512, 58, True), (512, 63, True), (512, 64, True),
        (512, 469, True),  # 5 + 3 + 469 = 477
        (512, 470, False), (512, 4000, False), (512, 100_000, False),
        (4096, 4000, True), (4096, 4053, True), (4096, 4054, False), (4096, 5000, False), (4096, 100_000, False),
        (65536, 4000, True), (65536, 5000, True),
        (65536, 8185, True),  # 13 + 2 · 8185 = 16383, the largest type of two bytes
        (65536, 8186, False), (65536, 65_000, False), (65536, 100_000, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [0, 31, 59])
def test_sizes_of_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int, size: int, decoded: bool, at: int
) -> None:
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", 16)
    rows = [(2, 300, f"t{i % 3}") for i in range(60)]
    rows[at] = (2, 300, "é" * (size // 2) + "x" * (size % 2))
    assert_alike(made(tmp_path / "t.sqlite", rows, f"page_size = {page}"), decoded=decoded)


@pytest.mark.parametrize("distinct", [1, 3, 400])
@pytest.mark.parametrize("size", [8, 9, 16, 40])
@pytest.mark.parametrize("front", [True, False])
def test_texts_that_differ_at_one_end(tmp_path: Path, distinct: int, size: int, front: bool) -> None:
    ends = [f"{i % distinct:03d}" for i in range(400)]
    rows = [(i, i, end + "s" * (size - 3) if front else "s" * (size - 3) + end) for i, end in enumerate(ends)]
    path = made(tmp_path / "t.sqlite", rows)
    assert_alike(path, decoded=True)
    assert len(set(by_pages(path)["texts"]["text"])) == distinct


@pytest.mark.parametrize(("columns", "decoded"), [(126, True), (127, False)])
def test_records_of_many_columns(tmp_path: Path, columns: int, decoded: bool) -> None:
    """126 types and the byte that counts them are 127: one more needs a longer count, which is not decoded."""
    names = [f"c{i}" for i in range(columns - 1)]
    with written(tmp_path / "t.sqlite") as db:
        db.execute(f"CREATE TABLE T ({', '.join(names)}, text)")
        marks = ", ".join("?" * columns)
        db.executemany(f"INSERT INTO T VALUES ({marks})", [[*range(i, i + columns - 1), "t"] for i in range(90)])
    assert_alike(tmp_path / "t.sqlite", TableSpec("T", (names[-1], names[0]), ("text",)), decoded=decoded)


def test_texts_that_are_shown_alike(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are replaced, so two texts may be shown alike; one with a zero byte is not cut there."""
    texts = [b"a\xff", b"a\xfe", b"a\x00b", b"a", b"", None, b"\xef\xbb\xbfa", b"\xed\xa0\x80"]
    path = stored(tmp_path / "t.sqlite", [(i, i, texts[i % 8]) for i in range(40)], "a, b, text", 512)
    assert_alike(path, decoded=True)
    shown = by_pages(path)["texts"]["text"][:8]
    assert shown[:6] == ["a\ufffd", "a\ufffd", "a\0b", "a", "", None]


# Negative controls


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the sign of integers": lambda patch: patch.setattr(sqlite_pages, "_SHIFTS", np.minimum(sqlite_pages._SHIFTS, 47)),
    "missing values": lambda patch: patch.setattr(sqlite_pages, "NULL", 0),
    "the size of 6 bytes": lambda patch: patch.setattr(
        sqlite_pages, "_SIZES", np.where(np.arange(128) == 5, 5, sqlite_pages._SIZES).astype(np.uint8)
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BREAKS)
def test_control_what_is_misread_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Of a wrong size the check of the record's length keeps anybody from believing it; the control takes that away."""
    rows = [((None, 0, *EDGES)[i % (len(EDGES) + 2)], i, f"t{i}") for i in range(100)]
    path = made(tmp_path / "t.sqlite", rows)
    assert_alike(path, decoded=True)
    BREAKS[what](monkeypatch)
    if what == "the size of 6 bytes":
        assert_alike(path, decoded=False)
        monkeypatch.setattr(Batch, "done", lambda _: None)
    with pytest.raises(AssertionError):
        assert_alike(path)


def test_a_record_on_several_pages_would_end_beyond_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """478 bytes, 39 of them on the page: refused for their number, and if that were not looked at, for their end."""
    path = made(tmp_path / "t.sqlite", [(2, 300, "x" * 470)] * 20, "page_size = 512")
    assert_alike(path, decoded=False)
    monkeypatch.setattr(sqlite_pages, "_MIN_LEFT_BYTES", 0)
    assert_alike(path, decoded=False)
