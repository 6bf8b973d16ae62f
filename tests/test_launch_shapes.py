"""Launch shapes are read when an analyzer asks for them: from the same file, once, of the rows that were kept."""

import gzip
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from called import called
from tiny_programs import eager
from tiny_trace import PLAIN, Shape, TinyTrace

from tracelab import large_tables, load, sqlite_read
from tracelab.errors import InputError
from tracelab.load import load_trace, read_shapes_ahead
from tracelab.nsys_shapes import Once
from tracelab.nsys_sqlite import load_nsys_sqlite
from tracelab.nsys_tables import KERNEL, SHAPE
from tracelab.registry import leaves
from tracelab.samples import FOLDER
from tracelab.sqlite_pages import Batch
from tracelab.trace import Shapes, Trace

READERS = pytest.mark.parametrize("large_rows", [1, 10**9], ids=["pages", "sqlite"])


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The columns of the kernel table whose values somebody reads, by either reader."""
    seen = set[str]()
    by_pages, by_sqlite = large_tables._integers, sqlite_read.integers

    def pages(table: Any, part: Any, names: Any) -> Any:
        seen.update(names if table.name == KERNEL.name else ())
        return by_pages(table, part, names)

    def asked(connection: Any, table: str, names: Any, row_ids: Any = None) -> Any:
        seen.update(names if table == KERNEL.name else ())
        return by_sqlite(connection, table, names, row_ids)

    monkeypatch.setattr(large_tables, "_integers", pages)
    monkeypatch.setattr(sqlite_read, "integers", asked)
    return seen


# Who asks for them


@READERS
@pytest.mark.parametrize("analyzer", leaves("analyzers"))
def test_only_who_needs_them_reads_their_columns(
    monkeypatch: pytest.MonkeyPatch, reading: set[str], analyzer: str, large_rows: int
) -> None:
    monkeypatch.setattr(large_tables, "_LARGE_ROWS", large_rows)
    assert called(analyzer, FOLDER / "kimi_graph_h200.sqlite", "--no-cache").code == 0
    assert {"start", "end", "demangledName"} <= reading
    assert reading & set(SHAPE) == (set(SHAPE) if analyzer == "grids" else set())


def test_the_report_reads_them_ahead(reading: set[str]) -> None:
    with patch.object(load, "read_shapes_ahead", wraps=read_shapes_ahead) as ahead:
        assert called("report", FOLDER / "kimi_graph_h200.sqlite", "--no-cache").code == 0
    assert ahead.call_count == 1 and set(SHAPE) <= reading


def test_pages_pass_over_the_columns_of_shapes(monkeypatch: pytest.MonkeyPatch, reading: set[str]) -> None:
    """So many columns are decoded in one batch of kernels as were asked for, and none of them before the shapes are."""
    decoded = list[int]()
    whole = Batch.integers

    def counted(self: Batch) -> Any:
        decoded.append(len(self))
        return whole(self)

    monkeypatch.setattr(Batch, "integers", counted)
    monkeypatch.setattr(large_tables, "_LARGE_ROWS", 1)
    trace = load_trace(FOLDER / "kimi_graph_h200.sqlite")
    kernels = 1106  # more rows than any other table of this file has
    assert decoded.count(kernels) == len(reading)
    before = len(reading)
    assert len(trace.ops.shapes.code) == len(trace.ops)
    assert (decoded.count(kernels), len(reading)) == (before + len(SHAPE), before + len(SHAPE))


def test_control_somebody_who_asks_is_seen(monkeypatch: pytest.MonkeyPatch, reading: set[str]) -> None:
    monkeypatch.setattr(load, "load_nsys_sqlite", _with_shapes(load_nsys_sqlite))
    called("gaps", FOLDER / "kimi_graph_h200.sqlite", "--no-cache")
    assert set(SHAPE) <= reading


def _with_shapes(whole: Any) -> Any:
    def loaded(*words: Any, **named: Any) -> Trace:
        trace: Trace = whole(*words, **named)
        trace.ops.read_shapes()
        return trace

    return loaded


# Of which rows

SHAPES = (
    Shape((9, 1, 1), (64, 1, 1), 16),
    PLAIN,
    Shape((1, 2, 3), (4, 5, 6), 7, 8),
    Shape((2**31, 1, 1), (1, 1, 1), 1),
)


def mixed() -> TinyTrace:
    """Kernels in no order, with copies between them, and one that ends before it starts, which is left out."""
    trace = TinyTrace()
    for i in (5, 2, 8, 1, 9, 3):
        trace.launch(10 * i, f"k{i}", 10 * i + 5, 10 * i + 8, shape=SHAPES[i % 4])
        if i % 2:
            trace.copy(10 * i + 1, 10 * i + 3)
    return trace.launch(3, "gone", 9, 8, shape=Shape((77, 7, 7)))


def rows_of(trace: Trace) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The name of each row and its grid, block, registers and shared memory."""
    shapes = trace.ops.shapes
    columns = [getattr(shapes, field.name) for field in fields(Shapes) if field.name != "code"]
    for name, code in zip(trace.ops.name, shapes.code, strict=True):
        yield trace.names[name], tuple(int(column[code]) for column in columns)


def expected_rows() -> list[tuple[str, tuple[int, ...]]]:
    """By start: kernel i stands at 10 i + 5, a copy, which has no shape, before it where i is odd."""
    rows = list[tuple[str, tuple[int, ...]]]()
    for i in (1, 2, 3, 5, 8, 9):
        shape = SHAPES[i % 4]
        grid = tuple(min(n, 2**31 - 1) for n in shape.grid)  # larger ones are damage, and cut to 32 bits
        rows += [("memcpy HtoD", (0,) * 9)] if i % 2 else []
        rows.append((f"k{i}", (*grid, *shape.block, shape.registers, 0, shape.shared)))
    return rows


@READERS
def test_each_row_has_its_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large_rows: int) -> None:
    monkeypatch.setattr(large_tables, "_LARGE_ROWS", large_rows)
    trace = load_trace(mixed().save(tmp_path))
    assert list(rows_of(trace)) == expected_rows()
    shapes = trace.ops.shapes
    columns = np.stack([getattr(shapes, field.name) for field in fields(Shapes) if field.name != "code"], axis=1)
    assert columns.tolist() == sorted(columns.tolist())  # in their order, each once
    assert len(np.unique(columns, axis=0)) == len(columns) == len(np.unique(shapes.code))


def test_control_shapes_in_the_order_of_the_file_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelab.nsys_shapes.in_order", lambda column, _: column)
    assert list(rows_of(load_trace(mixed().save(tmp_path)))) != expected_rows()


def test_every_shape_is_that_of_a_row(tmp_path: Path) -> None:
    """`Shapes` holds each different launch once: three kernels of one shape are one."""
    shapes = load_trace(eager(1).save(tmp_path)).ops.shapes
    assert shapes.code.tolist() == [0, 0, 0]
    assert shapes.grid_x.tolist() == [132]


# A file that changes


def changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE {KERNEL.name} SET gridX = 5")
        db.commit()


CHANGES: dict[str, Any] = {
    "changed": changed,
    "touched": Path.touch,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "exchanged": lambda path: eager(5).save(path),
    "removed": Path.unlink,
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_file_that_changed_meanwhile_is_one_sentence(tmp_path: Path, what: str) -> None:
    path = eager().save(tmp_path / "t.sqlite")
    trace = load_trace(path)
    CHANGES[what](path)
    with pytest.raises(InputError, match=f"^{path}: .*run the command again\\.$") as caught:
        trace.ops.read_shapes()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", ["grids", "report", "gaps"])
def test_the_command_says_so_if_it_needs_them(tmp_path: Path, command: str) -> None:
    path = eager().save(tmp_path / "t.sqlite")
    whole = load.load_trace

    def then_changed(*words: Any) -> Trace:
        trace = whole(*words)
        changed(path)
        return trace

    with patch.object(load, "load_trace", then_changed):
        answer = called(command, path, "--no-cache")
    if command == "gaps":
        assert (answer.code, answer.err) == (0, "")
    else:
        assert (answer.code, answer.out) == (1, "")
        assert answer.err == f"tracelab: {path}: changed while it was being analysed; run the command again.\n"


def test_more_kernels_than_before_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the state of the file does not tell: then the number of rows does."""
    path = eager(3).save(tmp_path / "t.sqlite")
    monkeypatch.setattr("tracelab.nsys_sqlite.file_identity", lambda _: ())
    trace = load_trace(path)
    eager(4).save(path)
    with pytest.raises(InputError, match="The trace changed while it was being read; run the command again"):
        trace.ops.read_shapes()


def test_what_does_not_stay_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packed trace, whose copy is removed after loading, and one with a pending log."""
    monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "cache"))
    path = eager().save(tmp_path / "t.sqlite")
    expected = list(rows_of(load_trace(path)))
    packed = tmp_path / "t.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE other (a)")
        db.commit()
        traces = [load_trace(packed), load_trace(path)]
    for file in tmp_path.glob("t.sqlite*"):
        file.unlink()
    assert [list(rows_of(trace)) for trace in traces] == [expected] * 2


# Once


def test_they_are_read_once_whoever_asks_first() -> None:
    found, asked = Shapes(*[np.zeros(0, np.int32)] * 10), list[int]()

    def read() -> Shapes:
        asked.append(1)
        if len(asked) == 1:
            raise InputError("not yet")
        return found

    once = Once(read)
    with pytest.raises(InputError):
        once()
    with ThreadPoolExecutor(8) as pool:  # a failure is not remembered, an answer is
        assert all(one is found for one in pool.map(lambda _: once(), range(50)))
    assert len(asked) == 2


def test_reading_ahead_keeps_its_error_for_who_wants_them(tmp_path: Path) -> None:
    path = eager().save(tmp_path / "t.sqlite")
    trace = load_trace(path)
    path.unlink()
    read_shapes_ahead(trace)
    with pytest.raises(InputError):
        trace.ops.read_shapes()
