"""Directory and stream exports are read by stretches of rows: whatever these are, it is the same table."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from directory_export import tables_of, write_arrowdir, write_parquetdir, write_streams
from drawn_line import Told
from tiny_programs import eager

from tracelab import arrow_files, arrow_read, batches, load
from tracelab.arrow_columns import column_of
from tracelab.arrow_files import DAMAGE, ParquetFiles
from tracelab.arrow_read import ArrowTables, open_folder, open_streams
from tracelab.errors import InputError
from tracelab.nsys_load import load_nsys
from tracelab.nsys_tables import KERNEL, TableSpec
from tracelab.reading import watched
from tracelab.table_source import NULL

ROWS = 300
SPEC = TableSpec("T", ("a", "b", "lacking"), ("text",))
STRINGS = pa.table({"id": [1], "value": ["x"]})


def _table() -> Any:
    """a: 0 … 299 with a hole; b: three values, as unsigned numbers; text: five texts, one of 20 bytes, and none."""
    texts = ("", "é", "a word", "another word of 20 B", "a wore", None)
    return pa.table(
        {
            "a": pa.array([None if i == 77 else i for i in range(ROWS)], pa.int64()),
            "b": pa.array([2**64 - 1 - i * i % 3 for i in range(ROWS)], pa.uint64()),
            "text": pa.array([texts[i % 6] for i in range(ROWS)], pa.string()),
            "long": pa.array([texts[i % 5] for i in range(ROWS)], pa.large_string()),
            "null": pa.array([None] * ROWS, pa.string()),
        }
    )


def _parquet(folder: Path, table: Any, group_rows: int = 7) -> ArrowTables:
    folder.mkdir()
    for name, one in (("StringIds", STRINGS), ("T", table)):
        pq.write_table(one, folder / f"{name}.parquet", row_group_size=group_rows)
    return open_folder(folder)


def _arrowdir(folder: Path, table: Any) -> ArrowTables:
    return open_folder(write_arrowdir({"StringIds": STRINGS, "T": table}, folder))


def _streams(path: Path, table: Any) -> ArrowTables:
    return open_streams(write_streams({"StringIds": STRINGS, "T": table}, path))


KINDS = pytest.mark.parametrize("opened", [_parquet, _arrowdir, _streams])


@KINDS
@pytest.mark.parametrize("stretch_rows", [1, 20, 299, 300, 1 << 16])
def test_any_stretches_give_the_whole_table(
    opened: Callable[[Path, Any], ArrowTables], stretch_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_files, "_STRETCH_ROWS", stretch_rows)
    table = _table()
    source = opened(tmp_path / "made", table)
    a = [NULL if value is None else value for value in table.column("a").to_pylist()]
    b = [-1 - i * i % 3 for i in range(ROWS)]  # 2^64 − 1 − n is −1 − n in SQLite
    found, kinds = source.coded_ints(SPEC, ("a", "lacking"), ("b", "lacking"))
    assert (found["a"].tolist(), found["lacking"].tolist()) == (a, [NULL] * ROWS)
    assert (kinds["b"].tolist(), kinds["lacking"].tolist()) == (b, [NULL] * ROWS)
    assert kinds.distinct["b"].tolist() == [-2, -1]  # squares leave 0 or 1 when divided by 3
    assert {name: column.tolist() for name, column in source.ints(SPEC).items()}["a"] == a
    assert source.rows("T") == ROWS and source.rows("absent") == 0


@KINDS
@pytest.mark.parametrize("stretch_rows", [20, 1 << 16])
@pytest.mark.parametrize("column", ["text", "long", "null", "lacking"])
def test_texts_by_their_distinct_values_are_the_texts(
    opened: Callable[[Path, Any], ArrowTables],
    stretch_rows: int,
    column: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrow_files, "_STRETCH_ROWS", stretch_rows)
    table, asked = _table(), np.array([299, 0, 3, 3, 150])
    expected = table.column(column).to_pylist() if column in table.column_names else [None] * ROWS
    source = opened(tmp_path / "made", table)
    found = source.coded_texts(SPEC, column, asked)
    assert [found.texts[code] for code in found.codes] == [expected[row] for row in asked]
    assert source.texts(SPEC, column) == expected
    source.ahead_texts(SPEC, column)
    again = source.coded_texts(SPEC, column, asked)
    assert [again.texts[code] for code in again.codes] == [expected[row] for row in asked]


@KINDS
def test_a_table_without_rows_has_none(opened: Callable[[Path, Any], ArrowTables], tmp_path: Path) -> None:
    source = opened(tmp_path / "made", _table().slice(0, 0))
    found, kinds = source.coded_ints(SPEC, ("a", "lacking"), ("b", "lacking"))
    assert [column.tolist() for column in (*found.values(), *kinds.distinct.values())] == [[]] * 4
    assert len(kinds) == 0
    assert source.coded_texts(SPEC, "text", np.zeros(0, np.int64)).codes.tolist() == []


def test_stretches_are_whole_row_groups_of_enough_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of 7 rows, the last of 6: stretches of 21 rows are the first to reach 20; 14 of them and 6 rows more."""
    monkeypatch.setattr(arrow_files, "_STRETCH_ROWS", 20)
    _parquet(tmp_path / "pq", _table())
    parts = ParquetFiles({"T": tmp_path / "pq" / "T.parquet"}).stretches("T", ("a", "lacking"))
    edges = [(part.first, part.stop) for part in parts.stretches]
    assert edges == [*((first, first + 21) for first in range(0, 294, 21)), (294, 300)]
    assert parts.names == {"a"}
    assert [next(iter(part.read())).column("a").to_pylist()[0] for part in parts.stretches] == [
        first for first, _ in edges
    ]


def test_a_file_that_changed_meanwhile_is_damage(tmp_path: Path) -> None:
    """The description says 300 rows, the file of now has 10 of the same columns, and the last one is another."""
    tables = _parquet(tmp_path / "pq", _table(), group_rows=ROWS).tables
    (part,) = tables.stretches("T", ("a",)).stretches
    pq.write_table(_table().slice(0, 10), tmp_path / "pq" / "T.parquet")
    with pytest.raises(DAMAGE):
        list(part.read())
    assert tables.rows("T") == 10  # who asks anew is told what is there now


def test_the_rows_that_are_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes before the first look, so there is one, of both tables that were asked for ahead."""
    looked, told = Event(), list[Told]()

    def column_later(table: Any, name: str) -> Any:
        assert looked.wait(20)
        return column_of(table, name)

    def watch(*one: Any) -> None:
        told.append(one)
        looked.set()

    monkeypatch.setattr(arrow_files, "_STRETCH_ROWS", 20)
    monkeypatch.setattr(batches, "_BETWEEN_LOOKS_S", 0.0)
    monkeypatch.setattr(arrow_read, "column_of", column_later)
    source = _parquet(tmp_path / "pq", _table())
    with watched(watch):
        source.ahead((SPEC, ("a",), ("b",)), (SPEC, ("b",), ()))
        source.coded_ints(SPEC, ("a",), ("b",))
        source.coded_ints(SPEC, ("b",), ())
    assert told[0] == (0, 2 * ROWS, "rows", "reading")
    assert {one[1:] for one in told} == {(2 * ROWS, "rows", "reading")}
    assert [one[0] for one in told] == sorted(one[0] for one in told)


@pytest.mark.parametrize("rows", [(-1, 301), (299,), (2**40, 300 - 2**40)])
def test_row_groups_of_other_rows_than_the_file_are_damage(
    rows: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = _parquet(tmp_path / "pq", _table()).tables
    groups = [SimpleNamespace(num_rows=count) for count in rows]
    described = SimpleNamespace(num_rows=300, num_row_groups=len(groups), row_group=groups.__getitem__)
    monkeypatch.setattr(pq, "read_metadata", lambda _: described)
    with pytest.raises(DAMAGE, match="are not the rows of the file"):
        tables.stretches("T", ("a",))


@pytest.mark.parametrize("write", [write_parquetdir, write_arrowdir, write_streams])
def test_an_export_that_is_replaced_while_it_is_read_is_refused(
    write: Callable[[dict[str, Any], Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write(tables_of(eager().save(tmp_path)), tmp_path / "made")

    def replaced() -> None:
        file = made if made.is_file() else made / f"{KERNEL.name}{next(made.iterdir()).suffix}"
        (tmp_path / "new").write_bytes(file.read_bytes())
        (tmp_path / "new").rename(file)

    def meanwhile(*words: Any) -> Any:
        replaced()
        return load_nsys(*words)

    trace = load.load_trace(made)
    if made.is_dir():  # where launch shapes are read later
        replaced()
        with pytest.raises(InputError, match="changed while it was being read"):
            _ = trace.ops.shapes
    monkeypatch.setattr(load, "load_nsys", meanwhile)
    with pytest.raises(InputError, match="changed while it was being read"):
        load.load_trace(made)


def test_a_column_of_another_number_of_rows_than_its_group_is_damage(tmp_path: Path) -> None:
    _parquet(tmp_path / "pq", _table(), group_rows=ROWS)
    path = tmp_path / "pq" / "T.parquet"
    for rows, said in ((299, "299 rows were expected, more are there"), (301, "301 rows were expected, 300 are there")):
        with pytest.raises(DAMAGE, match=said):
            list(arrow_files.row_groups(path, pq.read_metadata(path), [0], ["a"], rows))
