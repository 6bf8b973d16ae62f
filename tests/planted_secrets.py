"""A real recording with secrets planted wherever an export can hold one, and searches for them in a copy."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

TOKEN = "sk-live-51Hq8zTtR0nO"
# What stands where, by a word that stands nowhere else.
ENVIRONMENT = {
    "API_TOKEN": TOKEN,
    "CUSTOMER": "acme-corp-internal",
    "HOME": "/home/wilhelmina/project",
    "USER": "wilhelmina",
    "HOSTNAME": "dgx-node-17.cluster.example.org",
    "DOOR_PASSPHRASE": "open sesame now",
    "LD_LIBRARY_PATH": "/opt/hidden-lib/lib:/srv/second-lib/lib64",
    "DATABASE_URL": "postgres://dbadmin:s3cr3tpw@db.example.net:5432/x",
    "NOTES": "first line\nsecond-line-note",
}
ARGUMENTS = ("/home/wilhelmina/project/serve_customer.py", "--data=/srv/models/quokka", "--password", "hunters", "-x9")
SECRETS = (
    TOKEN, "acme-corp-internal", "/home/wilhelmina", "wilhelmina", "dgx-node-17", "example.org", "open sesame now",
    "hidden-lib", "second-lib", "dbadmin", "s3cr3tpw", "db.example.net", "second-line-note", "serve_customer", "quokka",
    "hunters", "zebra-daemon", "unused-string-secret", "foreign-table-secret", "odd-table-secret", "odd_column_secret",
    "unknown-column-secret", "freed-page-secret", "comment-secret", "index_secret", "view-secret", "trigger-secret",
    "default-secret", "output-secret", "output-file-secret", "thread-secret", "thread-row-secret", "json-secret",
    "diagnostic-secret", "message-of-nsys-secret", "text-for-number-secret", "blob-secret", "enum-secret",
    "GPU-fade-0123", "0000:ab:00.0", "state-secret", "setting-secret", "export-file-secret", "library-secret",
    "ENUM_UNKNOWN_SECRET",
)  # fmt: skip


def plant(sample: Path, target: Path) -> Path:
    """A copy of the bundled recording `sample` at `target`, in which every one of SECRETS stands."""
    shutil.copyfile(sample, target)
    with closing(sqlite3.connect(target)) as database:
        database.execute("PRAGMA secure_delete = OFF")
        database.executescript(_SCRIPT)
        process = database.execute("SELECT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
        environment = "\n".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        values = [("DeviceEnvironment", environment), ("HostName", ENVIRONMENT["HOSTNAME"]), ("Odd", b"\xff\xfe\0\xc3")]
        database.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'state-secret', ?, 0, ?)", values)
        rows = [(f"PROCESS_0:ENVIRONMENT_VARIABLE_{i}", f"{k}={v}") for i, (k, v) in enumerate(ENVIRONMENT.items())]
        rows += [(f"PROCESS_0:ARGUMENT_{i}", argument) for i, argument in enumerate(ARGUMENTS)]
        database.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", rows)
        _plant_names(database, process)
        database.execute("UPDATE TARGET_INFO_GPU SET uuid = 'GPU-fade-0123', busLocation = '0000:ab:00.0'")
        database.execute("INSERT INTO PROFILER_OVERHEAD (start, end, globalTid, nameId) VALUES (0, 1, ?, 990006)",
                         (process,))  # fmt: skip
        database.commit()
        database.execute("DELETE FROM customers WHERE name LIKE 'freed%'")
        database.commit()
    return target


def _plant_names(database: sqlite3.Connection, process: int) -> None:
    texts = [
        (59, f"prefill for {TOKEN}", None, None),
        (59, "acme-corp-internal/decode by wilhelmina", None, None),
        (59, "load /srv/models/quokka/shard-1 on dgx-node-17 as hunters", None, '{"k": "json-secret"}'),
        (59, None, 990002, None),
        (39, "thread-secret", None, None),
    ]
    database.executemany(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId, jsonText) "
        f"VALUES (1, 2, ?, ?, ?, {process + 1}, 0, ?)",
        texts,
    )
    database.executemany(
        "INSERT INTO StringIds VALUES (?, ?)",
        [
            (990001, "unused-string-secret"),
            (990002, f"range of s3cr3tpw and open sesame now and {TOKEN}"),
            (990003, "output-secret: loss 0.1\n" + "x" * 200_000),
            (990004, "/var/tmp/output-file-secret/pid_1_stdout.log"),
            (990005, "thread-row-secret"),
            (990006, "dlopen(/opt/hidden-lib/lib/library-secret.so)"),
        ],
    )


ODD_TABLE = 'x"; DROP TABLE StringIds; --'
_SCRIPT = """
ALTER TABLE NVTX_EVENTS ADD COLUMN jsonText TEXT;
ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN futureColumn TEXT;
ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN "odd_column_secret"" FROM x; --" TEXT;
UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET futureColumn = 'unknown-column-secret';
UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET launchType = 'text-for-number-secret' WHERE rowid = 2;
UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET launchType = x'626c6f622d736563726574' WHERE rowid = 3;
UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridId = 9223372036854775807, localMemoryTotal = -9223372036854775808;
CREATE TABLE TARGET_INFO_SYSTEM_ENV
    (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT /* comment-secret */);
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'state-secret', 'NvDriverVersion', 205, '580.159.04');
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
INSERT INTO PROCESSES VALUES (1, 1, 'zebra-daemon');
CREATE TABLE ANALYSIS_FILE (id INTEGER, filename TEXT, contentId INTEGER, globalPid INTEGER);
INSERT INTO ANALYSIS_FILE VALUES (1, '/var/tmp/output-file-secret', 990003, 1);
CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER);
INSERT INTO ProcessStreams VALUES (1, 990004, 990003);
CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
INSERT INTO ThreadNames VALUES (990005, 1, 1);
CREATE TABLE customers (name TEXT DEFAULT 'default-secret', note TEXT);
INSERT INTO customers VALUES ('foreign-table-secret', NULL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
    INSERT INTO customers SELECT 'freed-page-secret ' || i, 'freed' FROM n;
CREATE TABLE "x""; DROP TABLE StringIds; --" (a TEXT);
INSERT INTO "x""; DROP TABLE StringIds; --" VALUES ('odd-table-secret');
CREATE TABLE ENUM_UNKNOWN_SECRET (id INTEGER, name TEXT, label TEXT);
INSERT INTO ENUM_UNKNOWN_SECRET VALUES (1, 'enum-secret', 'enum-secret');
CREATE INDEX index_secret ON customers (name);
CREATE VIEW hidden AS SELECT 'view-secret' AS x;
CREATE TRIGGER fires AFTER INSERT ON customers BEGIN SELECT 'trigger-secret'; END;
ANALYZE;
INSERT INTO DIAGNOSTIC_EVENT (severity, text) VALUES (2, 'Cannot read diagnostic-secret'),
    (1, 'Number of message-of-nsys-secret events collected: 3.');
INSERT INTO META_DATA_CAPTURE VALUES ('CUDA_GRAPH_TRACE_OPTIONS:MODE', 'setting-secret');
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_OUTPUT_FILE', 'export-file-secret.sqlite');
"""


def bytes_of(copy: Path) -> bytes:
    """Every byte of a file or of the files of a folder; of Parquet, which is compressed, the values in clear too."""
    files = [copy] if copy.is_file() else sorted(path for path in copy.rglob("*") if path.is_file())
    return b"\n".join(part for file in files for part in (file.name.encode(), file.read_bytes(), *_in_clear(file)))


def _in_clear(file: Path) -> Iterator[bytes]:
    if file.suffix == ".parquet":
        table = pq.read_table(file)
        yield str(table.schema).encode()
        for column in table.columns:
            yield "\n".join(map(_printed, column.to_pylist())).encode()


def _printed(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def left_in(copy: Path, secrets: tuple[str, ...] = SECRETS) -> list[str]:
    """The secrets that stand in a copy, as they are or as a blob of UTF-16."""
    data = bytes_of(copy)
    return [s for s in secrets if s.encode() in data or s.encode("utf-16-le") in data]


def table_of(file: Path) -> Any:
    """A table of a folder export."""
    if file.suffix == ".parquet":
        return pq.read_table(file)
    with pa.memory_map(str(file)) as mapped, ipc.open_stream(mapped) as reader:
        return reader.read_all()
