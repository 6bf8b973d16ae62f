"""Pages are decoded to what SQLite's own module reads, value for value, or left to that."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from directory_export import tables_of, write_parquetdir

from tracelab import batches, large_tables
from tracelab.large_tables import LargeTables
from tracelab.load import load_trace
from tracelab.nsys_tables import KERNEL, NVTX, RUNTIME, STRINGS, TableSpec
from tracelab.samples import FOLDER
from tracelab.sqlite_pages import Batch
from tracelab.sqlite_read import SqliteTables, open_readonly
from tracelab.table_source import NULL
from tracelab.trace import I64

SPEC = TableSpec("T", ("a", "b", "lacking"), ("text",))


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tables, "_LARGE_ROWS", 1)


@contextmanager
def _both(path: Path) -> Iterator[tuple[LargeTables, SqliteTables]]:
    with open_readonly(path) as connection:
        yield LargeTables(connection), SqliteTables(connection)


def _assert_alike(large: LargeTables, plain: SqliteTables, spec: TableSpec) -> None:
    mine, its = large.ints(spec), plain.ints(spec)
    assert list(mine) == list(its)
    for name in its:
        assert mine[name].dtype == its[name].dtype == np.int64
        np.testing.assert_array_equal(mine[name], its[name], err_msg=f"{spec.name}.{name}")
    alone, coded = large.coded_ints(spec, spec.ints[:1], spec.ints[1:])
    for name in spec.ints:
        found = alone[name] if name in alone else coded[name]
        np.testing.assert_array_equal(found, its[name], err_msg=f"{spec.name}.{name} by distinct rows")
    assert large.rows(spec.name) == plain.rows(spec.name)
    everything = np.arange(large.rows(spec.name))
    for column, rows in [(column, rows) for column in spec.texts for rows in (everything, everything[::7])]:
        one, other = large.coded_texts(spec, column, rows), plain.coded_texts(spec, column, rows)
        assert [one.texts[code] for code in one.codes] == [other.texts[code] for code in other.codes]


def _made(tmp_path: Path, rows: list[tuple[Any, ...]], declared: str = "a, b, text") -> Path:
    path = tmp_path / "made.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE T ({declared})")
        db.executemany("INSERT INTO T VALUES (?, ?, ?)", rows)
        db.commit()
    return path


@pytest.mark.parametrize("name", ["llama8b_eager_b1", "kimi_graph", "k3_graph_12", "failed_launch", "mla_sweep"])
def test_recordings_are_read_alike(name: str) -> None:
    with _both(FOLDER / f"{name}_h200.sqlite") as (large, plain):
        for spec in (KERNEL, RUNTIME, NVTX, STRINGS):
            _assert_alike(large, plain, spec)


def test_pages_are_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a decoder that gives 0 for every integer makes the comparison fail. Where it loses a row it is
    not believed, and SQLite's module reads the table."""
    whole = Batch.integers

    def zeros(self: Batch) -> I64:
        return np.zeros_like(whole(self))

    with _both(FOLDER / "kimi_graph_h200.sqlite") as (large, plain):
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "integers", zeros)
            with pytest.raises(AssertionError):
                _assert_alike(large, plain, RUNTIME)
        monkeypatch.setattr(Batch, "__len__", lambda self: len(self._end) - 1)
        _assert_alike(large, plain, RUNTIME)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3],
        [None, None, None],
        [None, 5, None],
        [-(2**63) + 1, 2**63 - 1, 0],
        [1, "7", 3],  # text in a column of integers: cast by SQLite
        [1, "x", None],
        [1, 2.9, 3],
        [b"12", 1, 2],
        [1.0, 2.0, 3.0],
    ],
)
def test_values_of_any_type(values: list[Any], tmp_path: Path) -> None:
    rows = [(value, i, f"t{i % 2}") for i, value in enumerate(values * 50)]
    with _both(_made(tmp_path, rows)) as (large, plain):
        _assert_alike(large, plain, SPEC)


def test_another_type_in_a_later_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite reads the batch in which something else than an integer stands."""
    monkeypatch.setattr(large_tables, "_BATCH_ROWS", 4)
    for later in ("9", 2.5, b"1", None):
        rows = [(i, 1, "t") for i in range(64)] + [(later, 1, "t")] * 3
        path = _made(tmp_path, rows)
        with _both(path) as (large, plain):
            _assert_alike(large, plain, SPEC)
        path.unlink()


def test_texts_with_nulls_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = _made(tmp_path, [(i, i, None if i % 3 else "name") for i in range(30)])
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE T SET text = CAST(x'61ff' AS TEXT) WHERE rowid = 7")
        db.commit()
    with _both(path) as (large, plain):
        _assert_alike(large, plain, SPEC)
        assert "a\N{REPLACEMENT CHARACTER}" in large.coded_texts(SPEC, "text", np.arange(30)).texts


def test_row_ids_with_holes_and_absent_tables(tmp_path: Path) -> None:
    path = _made(tmp_path, [(i, i, "t") for i in range(200)])
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM T WHERE a BETWEEN 20 AND 160")
        db.execute("INSERT INTO T (rowid, a, b, text) VALUES (-5, 1, 1, 'first'), (99999999, 2, 2, 'last')")
        db.commit()
    with _both(path) as (large, plain):
        _assert_alike(large, plain, SPEC)
        assert large.ints(TableSpec("absent", ("a",)))["a"].tolist() == []
        assert large.ints(SPEC)["lacking"].tolist() == [NULL] * len(large.ints(SPEC)["a"])


class _Waiting:
    """Threads that never come to what they were given."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, *_: object) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]


@pytest.mark.parametrize("folder", [False, True])
def test_an_interrupt_leaves_nothing_to_be_read(folder: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At its end Python waits for all that its threads were given: of ten million kernels that would be seconds."""
    trace = FOLDER / "kimi_graph_h200.sqlite"
    trace = write_parquetdir(tables_of(trace), tmp_path / "pq") if folder else trace
    waiting = _Waiting()
    monkeypatch.setattr(batches, "pool", lambda: waiting)
    monkeypatch.setattr(batches, "wait", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_trace(trace)
    assert waiting.futures and all(future.cancelled() for future in waiting.futures)


def _interrupt(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt
