"""The other kinds of export made from a SQLite one, with the types that nsys gives their columns."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

# Unsigned where SQLite has signed integers (nsys 2023.4.4 and 2025.3: reference section 6).
_UNSIGNED = {
    "globalPid", "globalTid", "endGlobalTid", "graphNodeId", "originalGraphNodeId", "streamId", "contextId", "domainId",
    "nameId", "demangledName", "shortName", "mangledName",
}  # fmt: skip
_SMALL = {"correlationId", "deviceId", "eventType", "eventClass", "returnValue", "textId"}


def tables_of(source: Path, *, small_as_text: bool = False) -> dict[str, Any]:
    """Every table of a SQLite export as an Arrow table; old versions kept some numbers as text."""
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: _table(db, name, small_as_text) for name in names}


def write_parquetdir(tables: dict[str, Any], folder: Path) -> Path:
    """One Parquet file for each table."""
    folder.mkdir()
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def write_arrowdir(tables: dict[str, Any], folder: Path) -> Path:
    """One Arrow stream file for each table."""
    folder.mkdir()
    for name, table in tables.items():
        (folder / f"{name}.arrow").write_bytes(_stream(name, table))
    return folder


def write_streams(tables: dict[str, Any], path: Path) -> Path:
    """All tables as Arrow streams in one file."""
    path.write_bytes(b"".join(_stream(name, table) for name, table in tables.items()))
    return path


def _stream(name: str, table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    named = table.replace_schema_metadata({"table_name": name})
    with ipc.new_stream(sink, named.schema) as writer:
        writer.write_table(named)
    return bytes(sink.getvalue().to_pybytes())


def _table(db: sqlite3.Connection, name: str, small_as_text: bool) -> Any:
    columns = [(str(row[1]), str(row[2]).upper()) for row in db.execute(f'PRAGMA table_info("{name}")')]
    rows = db.execute(f'SELECT * FROM "{name}"').fetchall()
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = [
        _array(column, kind, list(given), small_as_text) for (column, kind), given in zip(columns, values, strict=True)
    ]
    return pa.table(arrays, names=[column for column, _ in columns])


def _array(column: str, kind: str, values: list[Any], small_as_text: bool) -> Any:
    if kind in ("TEXT", "") or any(isinstance(value, str) for value in values):
        return pa.array([None if v is None else str(v) for v in values], pa.string())
    if kind == "REAL":
        return pa.array(values, pa.float64())
    if column in _SMALL and small_as_text:
        return pa.array([None if v is None else str(v) for v in values], pa.large_string())
    if column in _UNSIGNED:
        return pa.array([None if v is None else v & 0xFFFFFFFFFFFFFFFF for v in values], pa.uint64())
    if column in _SMALL:
        return pa.array(values, pa.uint32())
    return pa.array(values, pa.int64())
