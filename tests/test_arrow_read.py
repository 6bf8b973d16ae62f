"""Directory and stream exports: the same numbers as SQLite, whatever types their columns have."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from called import called
from directory_export import tables_of, write_arrowdir, write_parquetdir, write_streams
from tiny_programs import eager

from tracelab.arrow_read import open_folder
from tracelab.errors import InputError
from tracelab.load import load_trace
from tracelab.nsys_tables import NVTX, RUNTIME, TableSpec
from tracelab.samples import FOLDER
from tracelab.table_source import NULL

CORPUS = os.environ.get("TRACELAB_CORPUS")
SAMPLES = ("kimi_graph_h200", "llama8b_fail_h200", "k3_graph_12_h200")


def _document(path: Path) -> dict[str, Any]:
    answer = called("report", path, "--format", "json")
    assert answer.code == 0, answer.err
    document: dict[str, Any] = json.loads(answer.out)
    return document


def _alike(path: Path) -> str:
    """The analysis as text, without the trace's path and the name of its format."""
    document = _document(path)
    del document["trace"]["path"], document["trace"]["format"]
    return json.dumps(document)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("small_as_text", [False, True])
def test_every_format_of_a_report_is_analysed_alike(name: str, small_as_text: bool, tmp_path: Path) -> None:
    source = FOLDER / f"{name}.sqlite"
    tables = tables_of(source, small_as_text=small_as_text)
    said = _alike(source)
    assert _alike(write_parquetdir(tables, tmp_path / "pq")) == said
    assert _alike(write_arrowdir(tables, tmp_path / "ar")) == said
    assert _alike(write_streams(tables, tmp_path / "one.arrow")) == said


def test_the_format_is_named(tmp_path: Path) -> None:
    tables = tables_of(eager().save(tmp_path))
    for made, name in (
        (write_parquetdir(tables, tmp_path / "pq"), "nsys-parquetdir"),
        (write_arrowdir(tables, tmp_path / "ar"), "nsys-arrowdir"),
        (write_streams(tables, tmp_path / "one.arrow"), "nsys-arrow"),
    ):
        assert _document(made)["trace"]["format"] == name


@pytest.mark.skipif(CORPUS is None, reason="no corpus")
@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_the_corpus_exports_have_their_known_numbers(kind: str) -> None:
    """36 kernels, sum 6 415 244 ns, span 6 457 677; all of them joined; nsys 2023.4.4."""
    trace = load_trace(Path(str(CORPUS)) / f"rtx3090_trt.{kind}")
    assert len(trace.ops) - int((trace.ops.kind != 0).sum()) == 36
    kernels = trace.ops.kind == 0
    assert int(trace.ops.duration_ns[kernels].sum()) == 6_415_244
    assert int(trace.ops.end[kernels].max() - trace.ops.start[kernels].min()) == 6_457_677
    assert int((trace.ops.call[kernels] >= 0).sum()) == 36
    assert trace.producer == "nsys 2023.4.4"


@pytest.mark.skipif(CORPUS is None, reason="no corpus")
def test_both_kinds_of_the_corpus_export_are_analysed_alike() -> None:
    folder = Path(str(CORPUS))
    assert _alike(folder / "rtx3090_trt.parquetdir") == _alike(folder / "rtx3090_trt.arrowdir")


def _source(tmp_path: Path, **columns: Any) -> Any:
    """A folder whose only event table is RUNTIME with these columns."""
    folder = tmp_path / "pq"
    tables = {"StringIds": pa.table({"id": [1], "value": ["x"]}), RUNTIME.name: pa.table(columns)}
    return open_folder(write_parquetdir(tables, folder))


def test_numbers_of_every_type_become_what_sqlite_gives(tmp_path: Path) -> None:
    """2^64 − 2 is −2 in SQLite; true is 1; the text "7 x" is cast to 7 and "x" to 0; 2.9 is cut to 2."""
    columns = {
        "start": pa.array([2**64 - 2, None, 5], pa.uint64()),
        "end": pa.array([True, False, None], pa.bool_()),
        "eventClass": pa.array(["7 x", "x", None], pa.string()),
        "globalTid": pa.array([2.9, float("nan"), None], pa.float64()),
        "correlationId": pa.array([None, None, None], pa.null()),
        "nameId": pa.array(["-3", "9" * 30, "4"], pa.large_string()).dictionary_encode(),
    }
    found = _source(tmp_path, **columns).ints(RUNTIME)
    expected = {
        "start": [-2, NULL, 5],
        "end": [1, 0, NULL],
        "eventClass": [7, 0, NULL],
        "globalTid": [2, NULL, NULL],
        "correlationId": [NULL] * 3,
        "nameId": [-3, np.iinfo(np.int64).max, 4],
        "returnValue": [NULL] * 3,  # a column that the file lacks
    }
    assert {name: column.tolist() for name, column in found.items()} == expected


def test_absent_tables_are_empty_and_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    source = _source(tmp_path, start=pa.array([1, 2]))
    assert {len(column) for column in source.ints(NVTX).values()} == {0}
    assert source.texts(NVTX, "text") == []
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 3], np.int32)), pa.py_buffer(b"a\xff\x00")]
    )
    folder = tmp_path / "other"
    write_arrowdir(
        {"StringIds": pa.table({"id": [1], "value": pa.array(["x"])}), "T": pa.table({"text": text})}, folder
    )
    with pytest.raises(InputError, match="the table T cannot be read"):  # the format forbids such text
        open_folder(folder).texts(TableSpec("T", (), ("text",)), "text")
    binary = pa.table({"text": pa.array([b"a\xff", None], pa.binary())})
    write_arrowdir({"StringIds": binary, "T": binary}, tmp_path / "third")
    assert open_folder(tmp_path / "third").texts(TableSpec("T", (), ("text",)), "text") == ["a�", None]


def test_a_file_that_claims_more_rows_than_it_can_hold_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "pq"
    write_parquetdir({"StringIds": pa.table({"id": [1], "value": ["x"]})}, folder)
    pq.write_table(pa.table({"start": pa.array(np.zeros(30_000_000, np.int64))}), folder / f"{RUNTIME.name}.parquet")
    with pytest.raises(InputError, match="it claims 30000000 rows in"):
        open_folder(folder).ints(RUNTIME)


@pytest.mark.parametrize("kind", ["ar", "one.arrow"])
def test_a_stream_that_claims_more_rows_than_it_can_hold_is_refused(kind: str, tmp_path: Path) -> None:
    """A column of the type null has no values, so a row of it takes no byte."""
    empty = pa.table({"start": pa.nulls(30_000_000)})
    write = {"ar": write_arrowdir, "one.arrow": write_streams}[kind]
    made = write({"StringIds": pa.table({"id": [1], "value": ["x"]}), RUNTIME.name: empty}, tmp_path / kind)
    answer = called("report", made)
    assert answer.code == 1
    assert "it claims 30000000 rows in" in answer.err and len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("kind", ["pq", "ar", "one.arrow"])
def test_damaged_files_get_one_sentence(kind: str, tmp_path: Path) -> None:
    tables = tables_of(eager().save(tmp_path))
    write = {"pq": write_parquetdir, "ar": write_arrowdir, "one.arrow": write_streams}[kind]
    made = write(tables, tmp_path / kind)
    file = made if made.is_file() else next(made.glob("CUPTI_ACTIVITY_KIND_KERNEL.*"))
    whole = file.read_bytes()
    for kept in (0, 1, 7, len(whole) // 3, len(whole) - 9):
        file.write_bytes(whole[:kept])
        answer = called("report", made)
        assert answer.code == 1, (kept, answer.out)
        assert answer.err.startswith("tracelab: ")
        assert "internal error" not in answer.err
        assert len(answer.err.splitlines()) == 1


def test_a_folder_of_another_kind_is_no_trace(tmp_path: Path) -> None:
    answer = called("report", tmp_path)
    assert answer.code == 1
    assert "a folder, not a trace" in answer.err


def test_a_run_folder_is_its_trace(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    eager().save(folder).rename(folder / "trace.sqlite")
    assert _document(folder)["trace"]["format"] == "nsys-sqlite"
