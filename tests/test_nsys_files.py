"""Files that are no trace, broken files, and what reading leaves behind: one sentence, and nothing."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from asking import ask, document, view
from tiny_programs import eager
from tiny_schema import H200
from tiny_trace import KERNEL, LAUNCH, STRINGS, Thread, TinyTrace

from tracelab.errors import InputError
from tracelab.load import load_trace

OTHER = Thread(pid=200, tid=200)


def sentence(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        ask(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_pitfall_c13_a_path_that_does_not_exist_leaves_no_file(tmp_path: Path) -> None:
    assert "no such file" in sentence(tmp_path / "mistyped.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    path.touch()
    assert "empty file" in sentence(path)


def test_not_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    path.write_text("SQLite, but not really")
    assert "no export of a kind that is known" in sentence(path)


def test_a_folder(tmp_path: Path) -> None:
    assert "a folder" in sentence(tmp_path)
    (tmp_path / "StringIds.parquet").touch()
    assert "an incomplete export" in sentence(tmp_path)
    (tmp_path / "TARGET_INFO_GPU.parquet").touch()
    assert "the table StringIds cannot be read" in sentence(tmp_path)


@pytest.mark.parametrize("kept", [16, 60, 100, 1000, 4096, 5000, 9000, 20_000])
def test_truncated_file(tmp_path: Path, kept: int) -> None:
    whole = eager(20).save(tmp_path)
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole.read_bytes()[:kept])
    assert whole.stat().st_size > kept
    sentence(path)


@pytest.mark.parametrize("seed", range(12))
def test_a_page_of_noise_is_never_a_traceback(tmp_path: Path, seed: int) -> None:
    path = eager(40).save(tmp_path)
    body = bytearray(path.read_bytes())
    at = 4096 * (1 + seed * (len(body) // 4096 - 1) // 12)
    body[at : at + 4096] = bytes((i * 31 + seed) % 256 for i in range(4096))
    path.write_bytes(body)
    with contextlib.suppress(InputError):
        document(path)
    assert path.read_bytes() == bytes(body)


def test_another_programs_database(tmp_path: Path) -> None:
    path = tmp_path / "app.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE users (id INTEGER)")
    assert "not an nsys export" in sentence(path)


def test_half_written_export(tmp_path: Path) -> None:
    trace = TinyTrace(gpu=None).without("ANALYSIS_DETAILS", "META_DATA_EXPORT")
    trace.string("kernel")
    assert "incomplete export" in sentence(trace.save(tmp_path))


def test_a_view_in_place_of_a_table_is_read_too(tmp_path: Path) -> None:
    trace = eager().sql(f"ALTER TABLE {KERNEL} RENAME TO k").sql(f"CREATE VIEW {KERNEL} AS SELECT rowid, * FROM k")
    assert document(trace.save(tmp_path))["trace"]["kernels"] == 9


def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    trace = eager().sql(f"UPDATE {STRINGS} SET value = CAST(x'67ff65' AS TEXT) WHERE value = 'gemm'")
    names = load_trace(trace.save(tmp_path)).names
    assert "g�e" in names


def test_pitfall_c2_launches_without_any_kernel(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(100):
        trace.call(i * 10, i * 10 + 5, LAUNCH)
    path = trace.save(tmp_path)
    first = sentence(path)
    assert "100" in first
    trace.row(KERNEL)
    present = trace.sql(f"DELETE FROM {KERNEL}").save(tmp_path)  # the table is there with no row
    assert sentence(present) == first


def wal_database(folder: Path) -> Path:
    """An export whose last kernel stands in the -wal file only."""
    source = eager().save(folder)
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL} WHERE rowid = 1")
        connection.commit()
        target = folder / "input"
        target.mkdir()
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{source}{suffix}", target / f"trace.sqlite{suffix}")
    return target / "trace.sqlite"


def test_a_pending_wal_is_read_and_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACELAB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = wal_database(tmp_path)
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    assert before["trace.sqlite-wal"]
    assert len(load_trace(path).ops) == 10
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


def test_a_wal_header_alone_leaves_nothing_beside(tmp_path: Path) -> None:
    path = eager().save(tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert len(load_trace(path).ops) == 9
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_names_that_a_uri_would_misread(tmp_path: Path) -> None:
    path = eager().save(tmp_path / "run #1 50% a?b.sqlite")
    assert len(load_trace(path).ops) == 9


def test_a_read_only_folder_is_enough(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    path = eager().save(folder)
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert len(load_trace(path).ops) == 9
    finally:
        folder.chmod(0o755)


def two_gpus(**columns: int) -> TinyTrace:
    """Two GPUs, named apart by their SM count; ordinal 0 of the process runs the work."""
    trace = TinyTrace(gpu=None)
    for number in (0, 1):
        trace.gpu(**{**H200, "id": number, "smCount": 100 + number, "cuDevice": columns.get(f"cuda{number}", 0)})
    return trace.launch(0, "k", 10, 20, device=0)


def test_devices_are_mapped_by_the_declared_ordinal(tmp_path: Path) -> None:
    found = load_trace(two_gpus(cuda0=0, cuda1=1).cuda_device(1, 0).cuda_device(0, 1).save(tmp_path))
    assert [gpu.sm_count for gpu in found.devices] == [101]
    assert found.notes == ()


def test_devices_are_mapped_per_process(tmp_path: Path) -> None:
    trace = two_gpus(cuda0=0, cuda1=1).cuda_device(0, 0).cuda_device(1, 0, pid=200)
    found = load_trace(trace.launch(0, "k", 30, 40, on=OTHER, device=0).save(tmp_path))
    assert [found.devices[int(d)].sm_count for d in found.ops.device] == [100, 101]


def test_devices_are_mapped_by_their_ordinal_in_the_table(tmp_path: Path) -> None:
    found = load_trace(two_gpus(cuda0=1, cuda1=0).save(tmp_path))
    assert [gpu.sm_count for gpu in found.devices] == [101]


def test_devices_that_share_an_ordinal_are_guessed_and_said(tmp_path: Path) -> None:
    found = load_trace(two_gpus(cuda0=0, cuda1=0).save(tmp_path))
    assert [gpu.id for gpu in found.devices] == [0]
    assert [code for code, _ in found.notes] == ["device-mapping"]


def test_no_gpu_table_is_said(tmp_path: Path) -> None:
    trace = TinyTrace(gpu=None).launch(0, "k", 10, 20)
    assert "no-gpu-info" in {w["code"] for w in document(trace.save(tmp_path))["trace"]["warnings"]}


def test_gpus_of_the_oldest_exports(tmp_path: Path) -> None:
    trace = TinyTrace(gpu=None).launch(0, "k", 10, 20)
    trace.row("TARGET_INFO_CUDA_GPU", id=0, name="Quadro", numMultiprocessors=72, globalMemoryBandwidth=672_000_000,
              computeCapabilityMajor=7, computeCapabilityMinor=5)  # fmt: skip
    machine = view(trace.save(tmp_path)).machine
    assert (machine.sm_count, machine.bandwidth_bytes_per_s) == (72, 672e9)  # stated in kB/s


def test_display_adapters_are_no_gpus(tmp_path: Path) -> None:
    trace = TinyTrace(gpu=None).gpu(id=0, name="Basic Render Driver", smCount=0, cuDevice=0)
    found = load_trace(trace.gpu(**{**H200, "id": 1}).launch(0, "k", 10, 20).save(tmp_path))
    assert [gpu.name for gpu in found.devices] == ["NVIDIA H200"]
    assert found.notes == ()
