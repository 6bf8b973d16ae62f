"""Scrubbing: everything that identifies or unlocks is gone, everything an analysis needs is there."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fake_nsys import HOME, TOKEN, make_export

from tracelab import nsys_load
from tracelab.capture import scrub_schema
from tracelab.capture.redact import Redactor
from tracelab.capture.scrub import scrub
from tracelab.capture.scrub_plan import Scrubbed
from tracelab.capture.scrub_secrets import Secrets
from tracelab.capture.scrub_values import clean_property
from tracelab.errors import InputError
from tracelab.load import load_trace

CORPUS = os.environ.get("TRACELAB_CORPUS")
# All but one that its exporter left half-written, which is refused.
CORPUS_FILES = [path for path in sorted(Path(CORPUS).glob("*.sqlite")) if "half" not in path.name] if CORPUS else []


@pytest.fixture
def scrubbed(tmp_path: Path) -> tuple[Path, Scrubbed]:
    target = tmp_path / "shared.sqlite"
    return target, scrub(make_export(tmp_path / "full.sqlite"), target)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = lambda value: value.decode("utf-8", "replace")
        return database.execute(query).fetchall()


@pytest.mark.parametrize(
    "secret",
    [TOKEN, HOME, "alice", "gpu-node-17", "my_private_server", "GPU-1234", "1b:00.0", "/dev/nvidia0", "example.org"],
)
def test_no_byte_of_a_secret_is_left(scrubbed: tuple[Path, Scrubbed], secret: str) -> None:
    assert secret.encode() not in scrubbed[0].read_bytes()


def test_events_are_kept(scrubbed: tuple[Path, Scrubbed]) -> None:
    path, _ = scrubbed
    assert rows(path, "SELECT start, end, shortName FROM CUPTI_ACTIVITY_KIND_KERNEL") == [
        (10, 20, 1),
        (30, 45, 1),
        (50, None, 1),  # a text where a number belongs is dropped
    ]
    assert rows(path, "SELECT nameId, returnValue FROM CUPTI_ACTIVITY_KIND_RUNTIME") == [(2, 0)]
    assert rows(path, "SELECT name, smCount, uuid FROM TARGET_INFO_GPU") == [("NVIDIA H200", 132, "")]
    assert rows(path, "SELECT label FROM ENUM_CUDA_MEMCPY_OPER") == [("Host-to-Device",)]


def test_names_are_kept_but_for_paths_and_secrets(scrubbed: tuple[Path, Scrubbed]) -> None:
    names = dict(rows(scrubbed[0], "SELECT id, value FROM StringIds"))
    assert names[1] == "gemm_kernel"
    assert names[3] == "dlopen(library)"
    assert names[4] == "void run<lambda at (path):12>"
    assert names[8] == "TensorRT:/conv1/Conv + /relu/Relu"
    assert set(names) == {1, 2, 3, 4, 8}  # only strings that a kept row points to


def test_ranges_and_workload_record_are_kept(scrubbed: tuple[Path, Scrubbed]) -> None:
    texts = [row[0] for row in rows(scrubbed[0], "SELECT text FROM NVTX_EVENTS")]
    assert texts[0] == "decode_fast step 1"  # MODE=decode_fast: what a program may call its code by is no secret
    assert texts[1:3] == ["tracelab", '{"tracelab.workload":1,"name":"x","model":"org/model-8b","params":8e9}']
    assert texts[3] == "load (path) and (removed)"
    assert texts[5] is None  # a thread's name


def test_only_harmless_settings_and_messages_are_kept(scrubbed: tuple[Path, Scrubbed]) -> None:
    path, _ = scrubbed
    assert rows(path, "SELECT value FROM META_DATA_CAPTURE") == [("Node",)]
    assert rows(path, "SELECT name FROM META_DATA_EXPORT") == [("EXPORT_SCHEMA_VERSION",)]
    texts = [row[0] for row in rows(path, "SELECT text FROM DIAGNOSTIC_EVENT")]
    assert texts == ["Number of CUDA events collected: \t3.", "(removed)"]


VERSIONS = [("NvDriverVersion", "580.159.04"), ("CudaDriverVersion", "13000")]
SYSTEM_ENV = "(globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT)"


def with_system_env(path: Path, pairs: Sequence[tuple[str, str | bytes]], deleted: str = "") -> Path:
    """An export whose system table has all its columns and these rows; `deleted` leaves its bytes in a freed page."""
    make_export(path)
    with closing(sqlite3.connect(path)) as database:
        ((environment,),) = database.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV").fetchall()
        database.execute("DROP TABLE TARGET_INFO_SYSTEM_ENV")
        database.execute(f"CREATE TABLE TARGET_INFO_SYSTEM_ENV {SYSTEM_ENV}")
        fill = "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (281474976710656, ?, CAST(? AS TEXT), 205, CAST(? AS TEXT))"
        # A state and a property name of the user's, and an environment that is no valid text.
        database.execute(fill, ("state-of-alice", "DeviceEnvironment", environment.encode() + b"\0CITY=K\xf6ln-secret"))
        database.executemany(fill, [("state-of-alice", name, value) for name, value in pairs])
        database.execute(fill, ("", "Deleted", deleted * 2000))
        database.commit()
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Deleted'")
        database.commit()
    return path


def test_of_the_system_table_two_versions_stay_and_every_secret_goes(tmp_path: Path) -> None:
    beside = [("OsDescription", "Ubuntu of alice"), ("NvDriverVersionOfAlice", "1.2"), ("Serial", "7777.8888")]
    source = with_system_env(tmp_path / "full.sqlite", [*VERSIONS, *beside], deleted="freed-secret")
    secrets = [TOKEN.encode(), HOME.encode(), b"gpu-node-17", b"decode_fast\0", b"K\xf6ln-secret", b"state-of-alice",
               b"Ubuntu of", b"OfAlice", b"7777.8888", b"DeviceEnvironment", b"freed-secret"]  # fmt: skip
    before = source.read_bytes()
    assert [secret for secret in secrets if secret not in before] == []  # the search would find each
    done = scrub(source, tmp_path / "shared.sqlite")
    after = (tmp_path / "shared.sqlite").read_bytes()
    assert [secret for secret in secrets if secret in after] == []
    assert rows(tmp_path / "shared.sqlite", "SELECT * FROM TARGET_INFO_SYSTEM_ENV") == VERSIONS
    assert {f"TARGET_INFO_SYSTEM_ENV.{column}" for column in ("globalVid", "devStateName", "nameEnum")} <= set(
        done.columns
    )


@pytest.mark.parametrize("slim", [False, True])
def test_the_driver_survives_a_scrub(tmp_path: Path, slim: bool) -> None:
    source = with_system_env(tmp_path / "full.sqlite", [*VERSIONS])
    scrub(source, tmp_path / "shared.sqlite", {"TARGET_INFO_SYSTEM_ENV": ("name", "value")} if slim else None)
    drivers = [load_trace(tmp_path / name).driver for name in ("full.sqlite", "shared.sqlite")]
    assert drivers == ["580.159.04", "580.159.04"]


@pytest.mark.parametrize(
    "value",
    ["", "driver-of-bob", "580.159.04 bob", "580.159.04\n", "580.159.04\0bob", "bob 580", "580.", "580..1", "v580.1",
     "1234567890123456", "1.2.3.4.5", "٣.٤"],
)  # fmt: skip
def test_a_driver_that_is_no_version_is_dropped(tmp_path: Path, value: str) -> None:
    assert clean_property("NvDriverVersion", "580.159.04") == "580.159.04"
    assert clean_property("NvDriverVersion", value) is None
    source = with_system_env(tmp_path / "full.sqlite", [("NvDriverVersion", value.encode()), VERSIONS[1]])
    scrub(source, tmp_path / "shared.sqlite")
    assert rows(tmp_path / "shared.sqlite", "SELECT * FROM TARGET_INFO_SYSTEM_ENV") == VERSIONS[1:]
    assert b"bob" not in (tmp_path / "shared.sqlite").read_bytes()


def test_a_driver_that_is_a_credential_is_dropped(tmp_path: Path) -> None:
    pairs = [*VERSIONS, ("DeviceEnvironment", "DOOR_KEY=580.159.04")]
    scrub(with_system_env(tmp_path / "full.sqlite", pairs), tmp_path / "shared.sqlite")
    assert rows(tmp_path / "shared.sqlite", "SELECT * FROM TARGET_INFO_SYSTEM_ENV") == VERSIONS[1:]
    assert b"580.159.04" not in (tmp_path / "shared.sqlite").read_bytes()


def test_what_was_removed_is_listed(scrubbed: tuple[Path, Scrubbed]) -> None:
    _, done = scrubbed
    assert [(table.name, table.left_out) for table in done.tables] == [("OSRT_API", 1), ("PROCESSES", 1)]
    assert [(table.name, table.left_out, table.rows) for table in done.rows] == [
        ("StringIds", 4, 9),
        ("META_DATA_CAPTURE", 3, 4),
        ("META_DATA_EXPORT", 1, 2),
        ("TARGET_INFO_SYSTEM_ENV", 1, 1),
    ]
    assert done.redacted_texts == 4  # two names, one range, one message
    assert {"CUPTI_ACTIVITY_KIND_KERNEL.futureColumn", "NVTX_EVENTS.jsonText", "TARGET_INFO_GPU.uuid"} <= set(
        done.columns
    )


def test_only_the_named_columns_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "slim.sqlite"
    only = {"CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "shortName", "futureColumn"), "PROCESSES": ("name",)}
    scrub(make_export(tmp_path / "full.sqlite"), target, only)
    names = {row[0] for row in rows(target, "SELECT name FROM sqlite_master")}
    assert names == {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"}  # asking for a table does not make it harmless
    columns = [row[0] for row in rows(target, "SELECT name FROM pragma_table_info('CUPTI_ACTIVITY_KIND_KERNEL')")]
    assert columns == ["start", "end", "shortName"]
    assert rows(target, "SELECT * FROM StringIds") == [(1, "gemm_kernel")]


@pytest.mark.parametrize(
    ("secrets", "said"), [(("gemm_kernel",), "2 values"), (("gemm_kernel", "decode_"), "3 values")]
)
def test_a_value_that_would_stay_refuses_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secrets: tuple[str, ...], said: str
) -> None:
    found = Secrets(strong=frozenset(secrets))  # and a range holds a key, which is found by its shape
    monkeypatch.setattr("tracelab.capture.scrub_sqlite.find_secrets", lambda _: found)
    monkeypatch.setattr(Redactor, "_clean", lambda _self, text, _says: text)
    with pytest.raises(InputError, match=f"would still hold {said} of the environment"):
        scrub(make_export(tmp_path / "full.sqlite"), tmp_path / "shared.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["full.sqlite"]


def test_the_scrub_and_the_loader_agree_on_what_is_half_written() -> None:
    assert set(nsys_load._FINISHED) == scrub_schema.FINISHED


def test_source_is_not_changed_and_mode_is_readable(tmp_path: Path) -> None:
    source = make_export(tmp_path / "full.sqlite")
    before = (source.read_bytes(), source.stat().st_mtime_ns)
    scrub(source, tmp_path / "shared.sqlite")
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before
    assert {path.name for path in tmp_path.iterdir()} == {"full.sqlite", "shared.sqlite"}
    assert (tmp_path / "shared.sqlite").stat().st_mode & 0o777 == 0o644


def test_pending_log_is_read_without_touching_it(tmp_path: Path) -> None:
    source = make_export(tmp_path / "full.sqlite")
    with closing(sqlite3.connect(source)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 25 WHERE start = 10")
        database.commit()
        log = (tmp_path / "full.sqlite-wal").read_bytes()
        scrub(source, tmp_path / "shared.sqlite")
        assert (tmp_path / "full.sqlite-wal").read_bytes() == log
    assert rows(tmp_path / "shared.sqlite", "SELECT end FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start = 10") == [(25,)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"not a database" * 99, "no nsys export that can be scrubbed: of another kind"),
        (b"", "no nsys export that can be scrubbed: it is empty"),
        (b"SQLite format 3\0" + b"\x07" * 999, r"damaged \(SQLITE_NOTADB\)"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    source = tmp_path / "x.sqlite"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(InputError, match=message):
        scrub(source, tmp_path / "shared.sqlite")
    assert not (tmp_path / "shared.sqlite").exists()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("attn/ffn", "attn/ffn"),
        ("a / b", "a / b"),
        ("/layers.0/self_attn/MatMul", "/layers.0/self_attn/MatMul"),
        ("/home/me/MatMul", "(path)"),
        ("file:///srv/models/a.bin", "file://(path)"),
        ("C:\\Users\\me\\x.cu", "(path)"),
        ("~/.cache/x", "~(path)"),
    ],
)
def test_what_counts_as_a_path(text: str, clean: str) -> None:
    assert Redactor(Secrets()).name(text.encode()) == clean


FEWER_ROWS = {"StringIds", "META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SYSTEM_ENV"}


def driver(path: Path) -> str | None:
    """The driver of a trace; None where it cannot be loaded, as a half-written export."""
    try:
        return load_trace(path).driver
    except InputError:
        return None


@pytest.mark.skipif(not CORPUS_FILES, reason="TRACELAB_CORPUS is not set")
@pytest.mark.parametrize("source", CORPUS_FILES, ids=lambda path: path.stem)
def test_real_exports_keep_their_numbers_and_lose_the_rest(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "shared.sqlite"
    done = scrub(source, target)
    before = {row[0] for row in rows(source, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    after = {row[0] for row in rows(target, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert after == before - {table.name for table in done.tables}
    for table in sorted(after - FEWER_ROWS):
        query = f'SELECT count(*) FROM "{table}"'
        assert rows(target, query) == rows(source, query), table
    for table in after & {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"}:
        name = "demangledName" if table.endswith("KERNEL") else "nameId"
        query = (
            f"SELECT sum(end - start), count(DISTINCT value) FROM {table} LEFT JOIN StringIds ON StringIds.id = {name}"
        )
        assert rows(target, query) == rows(source, query), table
    assert leftovers(source, target) == set()
    assert driver(target) == driver(source)
    assert (driver(source) is None) == ("TARGET_INFO_SYSTEM_ENV" not in before)


def leftovers(source: Path, target: Path) -> set[str]:
    """Process names and values of the system's description that stand in the copy."""
    tables = {row[0] for row in rows(source, "SELECT name FROM sqlite_master")}
    values: set[str] = set()
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        query = "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name NOT IN ('NvDriverVersion', 'CudaDriverVersion')"
        values |= {str(row[0]) for row in rows(source, query)}
    if "PROCESSES" in tables:
        values |= {str(row[0]) for row in rows(source, "SELECT name FROM PROCESSES")}
    kept = " ".join(str(row[0]) for row in rows(target, "SELECT value FROM StringIds"))
    content = target.read_bytes()
    return {value for value in values if len(value) >= 6 and value.encode() in content and value not in kept}
