"""What changed traces brought to light, each as the smallest file that shows it."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from asking import ask, document
from called import called
from directory_export import tables_of, write_arrowdir, write_parquetdir, write_streams
from tiny_trace import TinyTrace

from tracelab import sqlite_read
from tracelab.analysis import report
from tracelab.errors import InputError
from tracelab.load import load_trace
from tracelab.registry import leaves, load
from tracelab.trace import TIME_LIMIT_NS

KERNEL, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"


def plain(kernels: int = 3) -> TinyTrace:
    """A few steps of one kernel of 10 ns, the first at 20."""
    trace = TinyTrace()
    for i in range(kernels):
        trace.range(f"step {i}", 100 * i, 100 * i + 50).launch(100 * i, f"k{i}", 100 * i + 20, 100 * i + 30)
    return trace


def with_record(text: str) -> TinyTrace:
    return plain().sql(f"INSERT INTO {NVTX} (start, eventType, text) VALUES (1, 34, '{text}')")


@pytest.mark.parametrize("columns", ["id, id AS start", "id AS other"])
def test_a_view_without_end_is_given_up(columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_read, "_ALWAYS_ALLOWED_STEPS", 1_000_000)
    rows = "WITH c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c) SELECT"
    trace = plain().sql(f"CREATE VIEW CUDA_GRAPH_EVENTS AS {rows} {columns} FROM c")
    with pytest.raises(InputError, match="not a readable SQLite export"):
        load_trace(trace.save(tmp_path))


def test_control_a_table_is_read_with_as_little_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_read, "_ALWAYS_ALLOWED_STEPS", 1_000_000)
    assert len(load_trace(plain(2_000).save(tmp_path)).ops) == 2_000


def test_times_that_add_up_to_centuries_are_refused(tmp_path: Path) -> None:
    """1025 kernels of 2^52 ns are more than 2^62; 1000 are not. The limit of one time is 2^52 itself."""
    for kernels, refused in ((1_000, False), (1_025, True)):
        path = plain(kernels).sql(f"UPDATE {KERNEL} SET start = 0, end = {TIME_LIMIT_NS}").save(tmp_path)
        if refused:
            with pytest.raises(InputError, match="add up to centuries"):
                load_trace(path)
        else:
            assert document(path)["trace"]["kernel_sum_ns"] == 1_000 << 52


def test_steps_that_reach_over_centuries_are_refused(tmp_path: Path) -> None:
    """Two kernels of 1 ns in each of 600 steps, 2^53 ns apart: the spans add up to more than 2^62."""
    trace = TinyTrace()
    for i in range(600):
        trace.range(f"step {i}", 100 * i, 100 * i + 50)
        trace.launch(100 * i + 1, "a", -TIME_LIMIT_NS, 1 - TIME_LIMIT_NS)
        trace.launch(100 * i + 9, "b", TIME_LIMIT_NS - 1, TIME_LIMIT_NS)
    with pytest.raises(InputError, match="centuries"):
        document(trace.save(tmp_path))


@pytest.mark.parametrize("depth", [30, 100_000])
def test_a_record_that_nests_too_deep_is_ignored(depth: int, tmp_path: Path) -> None:
    said = document(with_record('{"tracelab.workload": 1, "x": ' + "[" * depth + "]" * depth + "}").save(tmp_path))
    assert said["trace"]["workload"] is None
    assert "workload-record" in {warning["code"] for warning in said["trace"]["warnings"]}


def test_control_a_record_with_a_few_levels_is_kept(tmp_path: Path) -> None:
    assert document(with_record('{"tracelab.workload": 1, "x": [[[1]]]}').save(tmp_path))["trace"]["workload"]["x"]


def test_half_a_character_can_be_written(tmp_path: Path) -> None:
    analysis = ask(with_record('{"tracelab.workload": 1, "model": "\\ud800"}').save(tmp_path))
    text = load(leaves("reports")["json"]).render(report(analysis), full_names=True, width=None, color=False)
    assert json.loads(text.encode())["trace"]["workload"]["model"] == "\ud800"


@pytest.mark.parametrize("key", ["bytes_per_step", "flops_per_step", "params", "batch", "tokens_per_step"])
@pytest.mark.parametrize("number", ["9" * 400, "1e29", "1e300"])
def test_numbers_beyond_all_measure_give_no_floor(key: str, number: str, tmp_path: Path) -> None:
    path = with_record(f'{{"tracelab.workload": 1, "{key}": {number}}}').save(tmp_path)
    assert called("report", path).code == 0
    assert "floor_ns" not in document(path)["results"]["mbu"]["metrics"]


@pytest.mark.parametrize("count", ["²", "9" * 400, "9" * 5000])
def test_a_number_of_sms_that_is_none(count: str, tmp_path: Path) -> None:
    facts = json.dumps([{"name": "x", "smCount": count}])
    trace = plain().sql("DROP TABLE TARGET_INFO_GPU").sql("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name, value)")
    path = trace.sql(f"INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('GpuInfo', '{facts}')").save(tmp_path)
    assert document(path)["trace"]["gpus"][0]["sm_count"] is None


def test_a_name_of_a_megabyte_is_cut_and_told_apart(tmp_path: Path) -> None:
    trace = plain().sql("UPDATE StringIds SET value = printf('%.*c', 1000000, 'x') || value WHERE value LIKE 'k%'")
    names = load_trace(trace.save(tmp_path)).names
    assert max(map(len, names)) == 1 << 14
    assert sum(name.startswith("xxx") for name in names) == 3


def test_a_damaged_log_is_a_sentence(tmp_path: Path) -> None:
    path = plain().save(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("DELETE FROM StringIds")
        shutil.copyfile(f"{path}-wal", tmp_path / "log")
        data = path.read_bytes()
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(data[:5000])  # cut: the log's pages belong to a file that is longer
    shutil.copyfile(tmp_path / "log", f"{copy}-wal")
    with pytest.raises(InputError, match=r"copy\.sqlite"):
        load_trace(copy)


def test_a_damaged_name_of_a_table_is_a_sentence(tmp_path: Path) -> None:
    path = plain().save(tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = 'CREATE', name = CAST(x'80ff' AS TEXT) WHERE name = ?", (KERNEL,))
    with pytest.raises(InputError, match="not a readable SQLite export"):
        load_trace(path)


def _zstd(source: Path, target: Path) -> Path:
    with pa.OSFile(str(target), "wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(source.read_bytes())
    return target


@pytest.mark.parametrize("write", [write_parquetdir, write_arrowdir, write_streams, _zstd, shutil.copyfile])
def test_a_file_whose_name_is_no_utf8(write: Callable[[object, Path], Path], tmp_path: Path) -> None:
    source = plain().save(tmp_path)
    given = tables_of(source) if write in (write_parquetdir, write_arrowdir, write_streams) else source
    path = write(given, tmp_path / "export").rename(tmp_path / os.fsdecode(b"\xff.export"))
    answer = called("report", path, "--format", "json")
    assert json.loads(answer.out.encode())["trace"]["kernels"] == 3


def test_a_name_in_an_error_is_escaped(tmp_path: Path) -> None:
    answer = called("report", tmp_path / "\x1b[31m\n")
    assert (answer.code, answer.err) == (1, f"tracelab: {tmp_path}/\\x1b[31m\\n: no such file.\n")


@pytest.mark.parametrize("write", [write_parquetdir, write_arrowdir, write_streams])
def test_two_columns_of_one_name_are_refused(write: Callable[[object, Path], Path], tmp_path: Path) -> None:
    tables = tables_of(plain().save(tmp_path))
    tables[KERNEL] = tables[KERNEL].append_column("start", tables[KERNEL].column("end"))
    with pytest.raises(InputError, match="two of its columns have the same name"):
        load_trace(write(tables, tmp_path / "export"))


@pytest.mark.parametrize(
    ("text", "number"), [("9" * 5000, 2**63 - 1), ("-" + "9" * 5000, -(2**63)), ("0" * 5000 + "7", 7), ("٣", 0)]
)
def test_texts_in_place_of_numbers_are_read_as_sqlite_reads_them(text: str, number: int, tmp_path: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        assert db.execute("SELECT CAST(? AS INTEGER)", (text,)).fetchone() == (number,)
    tables = tables_of(plain(1).save(tmp_path))
    at = tables[KERNEL].schema.get_field_index("streamId")
    tables[KERNEL] = tables[KERNEL].set_column(at, "streamId", pa.array([text]))
    assert load_trace(write_parquetdir(tables, tmp_path / "export")).ops.stream.tolist() == [number]


def test_a_damaged_name_of_a_column_is_a_sentence(tmp_path: Path) -> None:
    folder = write_arrowdir(tables_of(plain().save(tmp_path)), tmp_path / "export")
    file = folder / f"{KERNEL}.arrow"
    file.write_bytes(file.read_bytes().replace(b"streamId", b"stream\xff\xfe"))
    with pytest.raises(InputError, match=f"the table {KERNEL} cannot be read"):
        load_trace(folder)
