"""On every real export: the analysis of the copy is that of the original, and nothing of the machine is in it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from asking import document
from planted_secrets import bytes_of, table_of

from tracelab.capture.scrub import scrub
from tracelab.capture.scrub_schema import TABLES
from tracelab.commands.scrub import _read_columns
from tracelab.errors import InputError, TracelabError
from tracelab.samples import FOLDER

CORPUS = os.environ.get("TRACELAB_CORPUS")
HALF_WRITTEN = "half_written_export"
EXPORTS = [
    path
    for path in sorted(Path(CORPUS).iterdir() if CORPUS else [])
    if path.suffix in (".sqlite", ".parquetdir", ".arrowdir") and path.stem != HALF_WRITTEN
]
SAMPLES = sorted(FOLDER.glob("*.sqlite"))
ON_CORPUS = pytest.mark.skipif(not EXPORTS, reason="TRACELAB_CORPUS is not set")
# What a copy may say of the machine although its source's environment says it too.
PUBLIC = {"NvDriverVersion", "CudaDriverVersion"}


def answer(path: Path) -> dict[str, Any] | tuple[str, str]:
    """The report as JSON; the sentence for a trace that cannot be analysed."""
    try:
        return document(path)
    except TracelabError as error:
        return type(error).__name__, str(error).replace(str(path), "TRACE")


@pytest.mark.parametrize("source", [*EXPORTS, *SAMPLES], ids=lambda path: path.name)
def test_copy_and_original_are_analysed_alike(source: Path, tmp_path: Path) -> None:
    scrub(source, tmp_path / "full")
    slim = scrub(source, tmp_path / "slim", _read_columns())
    before = answer(source)
    assert answer(tmp_path / "full") == before
    assert answer(tmp_path / "slim") == before
    assert slim.copy_bytes == sum(len(data) for data in raw(tmp_path / "slim")) < slim.source_bytes


def raw(copy: Path) -> Iterator[bytes]:
    yield from ([copy.read_bytes()] if copy.is_file() else (path.read_bytes() for path in copy.iterdir()))


def test_control_a_different_trace_is_seen(tmp_path: Path) -> None:
    source = FOLDER / "failed_launch_h200.sqlite"
    scrub(source, tmp_path / "full")
    with closing(sqlite3.connect(tmp_path / "full")) as database:
        database.execute('UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + 1 WHERE rowid = 1')
        database.commit()
    assert answer(tmp_path / "full") != answer(source)


def values(source: Path, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table as text, read without any code of the scrub; none where the table or a column is absent."""
    if source.is_file():
        with closing(sqlite3.connect(f"file:{source}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda value: value.decode("utf-8", "replace")
            try:
                return database.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
            except sqlite3.OperationalError:
                return []
    file = source / f"{table}{source.suffix.removesuffix('dir')}"
    if not file.exists():
        return []
    rows = table_of(file).to_pylist()
    return [tuple(row[column] for column in columns) for row in rows]


def private(source: Path) -> set[str]:
    """What an original says of its machine and user: long enough to be no accident where it is found."""
    found = {value for name, value in values(source, "TARGET_INFO_SYSTEM_ENV", "name", "value") if name not in PUBLIC}
    found |= {value for name, value in values(source, "META_DATA_CAPTURE", "name", "value") if "=" in str(value)}
    found |= {
        value
        for name, value in values(source, "META_DATA_CAPTURE", "name", "value")
        if any(word in name for word in ("ENVIRONMENT", "ARGUMENT", "COMMAND", "DEVICE_ID"))
    }
    for table, column in (
        ("PROCESSES", "name"), ("TARGET_INFO_GPU", "uuid"), ("TARGET_INFO_GPU", "busLocation"),
        ("ANALYSIS_FILE", "filename"), ("TARGET_INFO_SYSTEM_ENV", "devStateName"),
        ("TARGET_INFO_SESSION_START_TIME", "utcTime"), ("TARGET_INFO_SESSION_START_TIME", "localTime"),
    ):  # fmt: skip
        found |= {value for (value,) in values(source, table, column)}
    strings: dict[Any, Any] = dict(values(source, "StringIds", "id", "value"))
    for table, column in (("ProcessStreams", "contentId"), ("ProcessStreams", "filenameId"), ("ThreadNames", "nameId")):
        found |= {strings.get(number) for (number,) in values(source, table, column)}
    return {str(value) for value in found if value is not None and len(str(value)) >= 6}


def kept_names(copy: Path) -> str:
    """Kernels, calls and ranges, which a copy keeps as they are called, and its lists of words of nsys."""
    tables = [("StringIds", "value"), ("NVTX_EVENTS", "text")]
    tables += [(table, column) for table in TABLES if table.startswith("ENUM_") for column in ("name", "label")]
    return "\n".join(str(value) for table, column in tables for (value,) in values(copy, table, column))


@ON_CORPUS
@pytest.mark.parametrize("source", EXPORTS, ids=lambda path: path.name)
def test_nothing_of_the_machine_is_in_any_byte(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / f"copy{source.suffix}"
    scrub(source, copy)
    data, names = bytes_of(copy), kept_names(copy)
    secrets = private(source)
    # A process may be called as its kernel is, and a word such as `python` may stand in a name.
    assert {secret for secret in secrets if secret.encode() in data and secret not in names} == set()
    plain = {secret for secret in secrets if secret in names}
    assert all(secret.isidentifier() for secret in plain), plain


@ON_CORPUS
def test_control_the_originals_hold_what_is_searched_for() -> None:
    held = {source.name for source in EXPORTS if any(s.encode() in bytes_of(source) for s in private(source))}
    assert held == {source.name for source in EXPORTS}


@pytest.mark.skipif(not CORPUS, reason="TRACELAB_CORPUS is not set")
def test_the_half_written_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is an incomplete export: its exporter stopped"):
        scrub(Path(CORPUS or "") / f"{HALF_WRITTEN}.sqlite", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
