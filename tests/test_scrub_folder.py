"""Scrubbing a parquetdir or an arrowdir: types survive, metadata does not, damage is one sentence."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import document
from directory_export import tables_of, write_arrowdir, write_parquetdir
from fake_nsys import HOME, TOKEN, make_export
from planted_secrets import bytes_of, left_in, table_of

from tracelab.capture import scrub_folder
from tracelab.capture.redact import Redactor
from tracelab.capture.scrub import scrub
from tracelab.capture.scrub_secrets import Secrets
from tracelab.errors import InputError
from tracelab.samples import FOLDER

KINDS = {"parquetdir": (write_parquetdir, ".parquet"), "arrowdir": (write_arrowdir, ".arrow")}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)
SAMPLE = FOLDER / "failed_launch_h200.sqlite"


def small(tmp_path: Path) -> dict[str, Any]:
    """The tables of a small export, of which only two kernels, one range and their strings are left."""
    tables = tables_of(make_export(tmp_path / "full.sqlite"))
    return {name: tables[name] for name in ("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS")}


def scrubbed(tmp_path: Path, kind: str, tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of the scrubbed copy of a folder with these tables."""
    write, suffix = KINDS[kind]
    scrub(write(tables, tmp_path / "full"), tmp_path / "copy")
    return {path.stem: table_of(path) for path in (tmp_path / "copy").glob(f"*{suffix}")}


@EACH_KIND
def test_kept_rows_and_columns(tmp_path: Path, kind: str) -> None:
    tables = scrubbed(tmp_path, kind, tables_of(make_export(tmp_path / "full.sqlite")))
    assert "OSRT_API" not in tables and "PROCESSES" not in tables
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"].to_pydict()
    assert (kernels["end"], kernels["shortName"]) == ([20, 45, None], [1, 1, 1])  # a text where a number belongs
    assert "futureColumn" not in kernels
    names = dict(zip(*tables["StringIds"].to_pydict().values(), strict=True))
    assert names == {
        1: "gemm_kernel", 2: "cudaLaunchKernel_v7000", 3: "dlopen(library)", 4: "void run<lambda at (path):12>",
        8: "TensorRT:/conv1/Conv + /relu/Relu",
    }  # fmt: skip
    assert tables["META_DATA_CAPTURE"].to_pylist() == [
        {"name": "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": "Node"}
    ]
    assert tables["TARGET_INFO_GPU"].to_pylist()[0]["uuid"] == ""
    assert tables["DIAGNOSTIC_EVENT"].column("text").to_pylist()[1] == "(removed)"
    assert left_in(tmp_path / "copy", (TOKEN, HOME, "alice", "gpu-node-17", "my_private_server", "GPU-1234")) == []


@EACH_KIND
def test_unsigned_and_dictionary_types_are_read_alike(tmp_path: Path, kind: str) -> None:
    tables = small(tmp_path)
    rows = tables["CUPTI_ACTIVITY_KIND_KERNEL"].num_rows
    high = np.full(rows, 0xFE00_0000_0100_0000, np.uint64)  # the hardware id of a process may have its highest bit set
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"].drop_columns(["globalPid", "correlationId", "deviceId"])
    kernels = kernels.append_column("globalPid", pa.array(high))
    kernels = kernels.append_column("correlationId", pa.array(["1", None, "3x"]))  # numbers as text: 2023.4.4
    kernels = kernels.append_column("deviceId", pa.array([0, 1, None], pa.uint32()).dictionary_encode())
    kernels = kernels.append_column("launchType", pa.array([True, False, None]))
    ranges = tables["NVTX_EVENTS"].set_column(3, "text", tables["NVTX_EVENTS"].column("text").dictionary_encode())
    written = tables | {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "NVTX_EVENTS": ranges}
    found = scrubbed(tmp_path, kind, written)
    kept = found["CUPTI_ACTIVITY_KIND_KERNEL"].to_pydict()
    assert kept["globalPid"] == [0xFE00_0000_0100_0000] * rows
    assert kept["correlationId"] == [1, None, None]
    assert (kept["deviceId"], kept["launchType"]) == ([0, 1, None], [True, False, None])
    assert found["NVTX_EVENTS"].column("text").to_pylist()[0] == "decode_fast step 1"


@EACH_KIND
def test_no_metadata_and_no_other_file_is_copied(tmp_path: Path, kind: str) -> None:
    write, suffix = KINDS[kind]
    tables = small(tmp_path)
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    field = pa.field("start", pa.int64(), metadata={"desc": "field-secret"})
    kernels = kernels.set_column(0, field, kernels.column(0)).replace_schema_metadata({"owner": "schema-secret"})
    # The file without its name in the schema, as pyarrow would write it.
    folder = write(tables, tmp_path / "full")
    if kind == "parquetdir":
        pq.write_table(kernels, folder / f"CUPTI_ACTIVITY_KIND_KERNEL{suffix}")
    else:
        with pa.ipc.new_stream(folder / f"CUPTI_ACTIVITY_KIND_KERNEL{suffix}", kernels.schema) as writer:
            writer.write_table(kernels)
    (folder / "notes.txt").write_text("file-secret")
    (folder / "deeper").mkdir()
    secrets = ("field-secret", "schema-secret", "file-secret", "notes.txt", "deeper")
    assert set(left_in(folder, secrets)) == {"field-secret", "schema-secret", "file-secret", "notes.txt"}
    done = scrub(folder, tmp_path / "copy")
    assert left_in(tmp_path / "copy", secrets) == []
    assert [(t.name, t.left_out) for t in done.tables] == [("deeper", None), ("notes.txt", None)]
    files = list((tmp_path / "copy").iterdir())
    assert {path.name for path in files} == {f"{name}{suffix}" for name in tables}
    assert [table_of(path).schema.metadata for path in files] == [None] * len(files)


def test_what_stands_in_memory_under_a_null_is_not_copied(tmp_path: Path) -> None:
    tables = small(tmp_path)
    hidden = int.from_bytes(b"hid-secr", "little")
    values = pa.py_buffer(np.array([1, hidden, 3], np.int64).tobytes())
    column = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x05"), values])  # the second row is null
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = tables["CUPTI_ACTIVITY_KIND_KERNEL"].append_column("gridId", column)
    found = scrubbed(tmp_path, "arrowdir", tables)
    assert b"hid-secr" in bytes_of(tmp_path / "full") and b"hid-secr" not in bytes_of(tmp_path / "copy")
    assert found["CUPTI_ACTIVITY_KIND_KERNEL"].column("gridId").to_pylist() == [1, None, 3]


@EACH_KIND
def test_texts_that_are_no_utf8_and_huge_ones(tmp_path: Path, kind: str) -> None:
    tables = small(tmp_path)
    odd = [f"K\xf6ln {TOKEN}".encode("latin-1"), b"x" * 3_000_000 + b" /home/a/b"]
    ids = pa.array([1, 4], pa.int32())
    strings = pa.array(odd, pa.binary())
    tables["StringIds"] = pa.table({"id": ids, "value": strings if kind == "parquetdir" else strings.view(pa.string())})
    tables["META_DATA_CAPTURE"] = pa.table({"name": ["TOKEN"], "value": [TOKEN]})
    found = scrubbed(tmp_path, kind, tables)
    assert found["StringIds"].column("value").to_pylist() == ["K\N{REPLACEMENT CHARACTER}ln (removed)",
                                                              "x" * 3_000_000 + " (path)"]  # fmt: skip


@EACH_KIND
def test_tables_without_rows_and_ranges_without_a_kind(tmp_path: Path, kind: str) -> None:
    tables = small(tmp_path)
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"] = pa.table({"start": pa.array([], pa.int64()), "nameId": pa.nulls(0)})
    tables["NVTX_EVENTS"] = tables["NVTX_EVENTS"].drop_columns(["eventType"])
    found = scrubbed(tmp_path, kind, tables)
    assert found["CUPTI_ACTIVITY_KIND_RUNTIME"].column_names == ["start", "nameId"]
    assert set(found["NVTX_EVENTS"].column("text").to_pylist()) == {None}  # any of them may name a thread


@EACH_KIND
def test_the_copy_is_whole_and_readable_and_the_source_as_it_was(tmp_path: Path, kind: str) -> None:
    write, _ = KINDS[kind]
    source = write(tables_of(SAMPLE), tmp_path / "full")
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    scrub(source, tmp_path / "copy")
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "copy").iterdir()} == {0o644}
    assert {path.name for path in tmp_path.iterdir()} == {"full", "copy"}
    assert document(tmp_path / "copy") == document(source)


@EACH_KIND
@pytest.mark.parametrize("table", ["StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "ENUM_NSYS_EVENT_TYPE"])
def test_a_damaged_table_is_one_sentence_and_leaves_nothing(tmp_path: Path, kind: str, table: str) -> None:
    write, suffix = KINDS[kind]
    folder = write(tables_of(SAMPLE), tmp_path / "full")
    file = folder / f"{table}{suffix}"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError, match=f"{table}{suffix} cannot be scrubbed: damaged") as caught:
        scrub(folder, tmp_path / "copy")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_more_rows_than_bytes_are_not_believed(tmp_path: Path) -> None:
    folder = write_parquetdir(small(tmp_path), tmp_path / "full")
    rows = (1 << 20) + 1  # one more than any file may claim; a column of nulls takes no space
    pq.write_table(pa.table({"start": pa.nulls(rows, pa.int64())}), folder / "CUPTI_ACTIVITY_KIND_MEMSET.parquet")
    with pytest.raises(InputError, match=r"MEMSET\.parquet cannot be scrubbed"):
        scrub(folder, tmp_path / "copy")


@EACH_KIND
def test_a_half_written_folder_is_refused(tmp_path: Path, kind: str) -> None:
    tables = {"StringIds": small(tmp_path)["StringIds"]}
    with pytest.raises(InputError, match="an incomplete export"):
        scrubbed(tmp_path, kind, tables)


@EACH_KIND
def test_a_value_that_would_stay_refuses_the_copy(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Secrets(strong=frozenset({"gemm_kernel"}))
    monkeypatch.setattr(scrub_folder, "find_secrets", lambda _: found)
    monkeypatch.setattr(Redactor, "_clean", lambda _self, text, _says: text)
    with pytest.raises(InputError, match="would still hold 2 values"):  # that one, and the key in a range by its shape
        scrubbed(tmp_path, kind, small(tmp_path))
    assert not (tmp_path / "copy").exists()


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_arrowdir(small(tmp_path), tmp_path / "full")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa.ipc.RecordBatchStreamWriter, "write_table", full)
    with pytest.raises(InputError, match=r"copy cannot be written \(No space left on device\)"):
        scrub(folder, tmp_path / "copy")
    assert {path.name for path in tmp_path.iterdir()} == {"full", "full.sqlite"}


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    shutil.copyfile(SAMPLE, tmp_path / "full" / "other.sqlite")
    with pytest.raises(InputError, match="is a folder without an export"):
        scrub(tmp_path / "full", tmp_path / "copy")
