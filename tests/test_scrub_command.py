"""`tracelab scrub`: what it prints, what it refuses, and that it never prints what it took out."""

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from directory_export import tables_of, write_parquetdir
from fake_nsys import make_export, make_nsys
from planted_secrets import SECRETS, plant
from tiny_trace import TinyTrace

from tracelab import nsys_gpus, nsys_tables
from tracelab.capture.scrub_schema import STRINGS, TABLES
from tracelab.commands import scrub
from tracelab.errors import InputError, UsageError
from tracelab.load import load_trace
from tracelab.samples import FOLDER

SAMPLE = FOLDER / "failed_launch_h200.sqlite"


def called(trace: Path | None, output: Path | None, **changed: Any) -> None:
    """The command itself, with the defaults of its options."""
    scrub.run(**{p.name: p.default for p in scrub.PARAMETERS} | {"trace": trace, "output": output} | changed)


def test_the_list_is_short_and_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_export(tmp_path / "full.sqlite")
    called(source, tmp_path / "shared.sqlite")
    size, before = (tmp_path / "shared.sqlite").stat().st_size, source.stat().st_size
    assert capsys.readouterr().out == (
        f"{tmp_path}/shared.sqlite: all that is known to be harmless, {size / 1000:.1f} kB of {before / 1000:.1f} kB\n"
        "\n"
        "tables left out\n"
        "  OSRT_API   1 row\n"
        "  PROCESSES  1 row\n"
        "\n"
        "rows left out\n"
        "  StringIds               4 of 9\n"
        "  META_DATA_CAPTURE       3 of 4\n"
        "  META_DATA_EXPORT        1 of 2\n"
        "  TARGET_INFO_SYSTEM_ENV  1 of 1\n"
        "\n"
        "columns left out or blanked\n"
        "  TARGET_INFO_GPU              busLocation, uuid, ctrlDevPath\n"
        "  CUPTI_ACTIVITY_KIND_KERNEL   futureColumn\n"
        "  CUPTI_ACTIVITY_KIND_RUNTIME  callchainId\n"
        "  NVTX_EVENTS                  jsonText\n"
        "\n"
        "4 texts kept with a path, a secret or the user's words in a message taken out\n"
        "ranges and kernels keep their names: read them through before you share the copy\n"
    )


def test_long_lists_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "full.sqlite"
    shutil.copyfile(SAMPLE, source)
    with closing(sqlite3.connect(source)) as database:
        for number in range(14):
            database.execute(f"CREATE TABLE OTHER_{number:02d} AS SELECT 1 AS a UNION SELECT 2")
            database.execute(f"ALTER TABLE NVTX_EVENTS ADD COLUMN more{number:02d} TEXT")
        database.execute("CREATE TABLE EMPTY_ONE (a)")
        database.execute("CREATE VIEW LOOKS AS SELECT 1")
        database.commit()
    called(source, tmp_path / "shared.sqlite")
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("tables left out")
    assert lines[first + 1] == "  OTHER_00  2 rows"
    assert lines[first + 10 : first + 13] == ["  OTHER_09  2 rows", "  and 7 more: --format json names them", ""]
    assert "  NVTX_EVENTS      more00, more01, more02, more03, more04, more05, 8 more" in lines


@pytest.mark.parametrize("format", ["terminal", "json"])
def test_no_removed_value_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str) -> None:
    called(plant(SAMPLE, tmp_path / "full.sqlite"), tmp_path / "shared.sqlite", format=format)
    printed = capsys.readouterr().out
    names = ("ENUM_UNKNOWN_SECRET", "odd_column_secret")  # of a table and of a column
    assert [secret for secret in SECRETS if secret in printed and secret not in names] == []
    assert "\x1b" not in printed


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_export(tmp_path / "full.sqlite")
    called(source, tmp_path / "shared.sqlite", format="json", slim=True)
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "tracelab.scrub/1"
    assert document["source"] == {"path": str(source), "size_bytes": source.stat().st_size}
    size = (tmp_path / "shared.sqlite").stat().st_size
    assert document["copy"] == {"path": str(tmp_path / "shared.sqlite"), "size_bytes": size, "slim": True}
    removed = document["removed"]
    assert {"name": "ENUM_CUDA_MEMCPY_OPER", "removed_rows": 1, "rows": 1} in removed["tables"]
    assert {"name": "META_DATA_CAPTURE", "removed_rows": 3, "rows": 4} in removed["rows"]
    assert "CUPTI_ACTIVITY_KIND_KERNEL.mangledName" in removed["columns"]
    assert document["redacted_texts"] == 4


def test_slim_keeps_what_the_loader_reads_and_nothing_else(tmp_path: Path) -> None:
    called(SAMPLE, tmp_path / "slim.sqlite", slim=True)
    with closing(sqlite3.connect(tmp_path / "slim.sqlite")) as database:
        tables = [str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        kept = {t: {row[1] for row in database.execute(f"PRAGMA table_info({t})")} for t in tables}
    read = {spec.name: {*spec.ints, *spec.texts} for spec in vars(nsys_tables).values() if hasattr(spec, "ints")}
    assert {table: columns - read[table] for table, columns in kept.items()} == {name: set() for name in kept}
    assert {"CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", STRINGS, "TARGET_INFO_GPU"} <= kept.keys()


def test_all_that_the_loader_reads_may_be_copied() -> None:
    # Else the copy of some export would be analysed otherwise than its original.
    specs = [*vars(nsys_tables).values(), *vars(nsys_gpus).values()]
    read = {spec.name: {*spec.ints, *spec.texts} for spec in specs if isinstance(spec, nsys_tables.TableSpec)}
    assert "TARGET_INFO_CUDA_GPU" in read
    assert {table: set(columns) for table, columns in scrub._read_columns().items()} == read
    del read[STRINGS]
    assert [(table, columns - {*TABLES[table].columns}) for table, columns in read.items()] == [
        (t, set()) for t in read
    ]


def refused(tmp_path: Path, trace: Path | None, output: Path | None, **changed: Any) -> str:
    """The usage error of a call that changes nothing."""
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(UsageError) as caught:
        called(trace, output, **changed)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    return str(caught.value)


def test_targets_that_are_refused(tmp_path: Path) -> None:
    source = make_export(tmp_path / "full.sqlite")
    folder = write_parquetdir(tables_of(source), tmp_path / "full.parquetdir")
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "inside").symlink_to(folder)
    there = tmp_path / "there.sqlite"
    there.write_bytes(b"mine")
    assert "would overwrite the trace" in refused(tmp_path, source, source)
    assert "would overwrite the trace" in refused(tmp_path, source, tmp_path / "link")
    assert "would overwrite the trace" in refused(tmp_path, source, tmp_path / "full.sqlite-wal")
    assert "would overwrite the trace" in refused(tmp_path, folder, folder)
    assert "exists already and is never overwritten" in refused(tmp_path, source, there)
    assert "exists already" in refused(tmp_path, source, tmp_path / "dangling")
    assert "lies inside the trace" in refused(tmp_path, folder, folder / "copy")
    assert "lies inside the trace" in refused(tmp_path, folder, tmp_path / "inside" / "copy")
    assert "there is no folder" in refused(tmp_path, source, tmp_path / "missing" / "copy.sqlite")
    assert there.read_bytes() == b"mine"


def test_other_usage_errors(tmp_path: Path) -> None:
    source = make_export(tmp_path / "full.sqlite")
    assert "tracelab scrub TRACE -o OUT" in refused(tmp_path, source, None)
    assert "tracelab scrub TRACE -o OUT" in refused(tmp_path, None, tmp_path / "x")
    assert "'yaml' is none of terminal, json" in refused(tmp_path, source, tmp_path / "x", format="yaml")


def test_a_report_is_exported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "trace.nsys-rep").write_text("report")
    nsys = make_nsys(tmp_path / "nsys", export=make_export(tmp_path / "export"))
    called(tmp_path / "trace.nsys-rep", tmp_path / "shared.sqlite", nsys=str(nsys))
    assert (tmp_path / "shared.sqlite").read_bytes().startswith(b"SQLite format 3")
    with pytest.raises(InputError, match=r"trace\.nsys-rep can only be read by nsys itself"):
        monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "other"))
        called(tmp_path / "trace.nsys-rep", tmp_path / "again.sqlite", nsys=str(tmp_path / "no-nsys"))


def test_a_run_folder_is_told_from_an_export(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    make_export(tmp_path / "run" / "trace.sqlite")
    with pytest.raises(InputError, match=r"is a run folder; give the export in it, .*run/trace\.sqlite"):
        called(tmp_path / "run", tmp_path / "shared.sqlite")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[: len(data) // 2], "SQLITE_CORRUPT"),
        (lambda data: data[:16], "SQLITE_NOTADB"),
        # A definition that is none, in bytes that are no text: SQLite quotes it in its own sentence.
        (lambda data: data.replace(b'CREATE TABLE "NVTX', b'CREATE \xffABLE "NVTX'), "UnicodeDecodeError"),
        (lambda data: data.replace(b'CREATE TABLE "NVTX', b'CREATE ABLE  "NVTX'), "SQLITE_CORRUPT"),
    ],
)
def test_a_damaged_database_is_one_sentence(tmp_path: Path, damage: Callable[[bytes], bytes], said: str) -> None:
    (tmp_path / "full.sqlite").write_bytes(damage(SAMPLE.read_bytes()))
    with pytest.raises(InputError) as caught:
        called(tmp_path / "full.sqlite", tmp_path / "shared.sqlite")
    assert str(caught.value) == (
        f"{tmp_path}/full.sqlite cannot be scrubbed: damaged ({said}); export the report again"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["full.sqlite"]


_CALL = """
import resource, sys
from pathlib import Path
from tracelab.commands import scrub
from tracelab.errors import TracelabError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    scrub.run(trace=Path(sys.argv[1]), output=Path(sys.argv[2]), slim=False, format="json", nsys=None)
except TracelabError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("kind", ["sqlite", "parquetdir"])
@pytest.mark.parametrize(("limit", "code"), [(8192, 1), (resource.RLIM_INFINITY, 0)])
def test_no_room_for_the_copy(tmp_path: Path, kind: str, limit: int, code: int) -> None:
    source = tmp_path / "full"
    if kind == "sqlite":
        shutil.copyfile(SAMPLE, source)
    else:
        write_parquetdir(tables_of(SAMPLE), source)
    command = [sys.executable, "-c", _CALL, str(source), str(tmp_path / "copy"), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."}, check=False)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == code  # one sentence, or nothing
    assert {path.name for path in tmp_path.iterdir()} == ({"full"} if code else {"full", "copy"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(InputError, match=r"cannot be written \(Permission denied\)"):
        called(SAMPLE, tmp_path / "locked" / "copy")


def test_a_path_that_is_no_utf8_is_no_damage(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9 %41")
    folder.mkdir()
    source = TinyTrace().launch(0, "a", 10, 20).save(folder)
    called(source, folder / "copy.sqlite")
    assert len(load_trace(folder / "copy.sqlite").ops) == 1
