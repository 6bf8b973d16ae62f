"""The parquetdir export of a SQLite trace, as nsys writes it: one TABLE.parquet for every table, with its types.

python tests/bench/parquetdir.py SOURCE.sqlite FOLDER
"""

import argparse
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_GROUP_ROWS = 1 << 20  # of one row group at most, with SNAPPY: nsys 2025.3 (2023.4.4: 2048, uncompressed)
_FETCHED_ROWS = 1 << 17  # held as objects of Python at a time
# Types of nsys 2025.3 where they are no int64: SQLite has signed integers only.
_UINT64 = {
    "contextId", "streamId", "globalPid", "globalTid", "globalVid", "endGlobalTid", "demangledName", "shortName",
    "mangledName", "nameId", "graphNodeId", "originalGraphNodeId", "greenContextId", "rangeId", "category", "domainId",
    "uint64Value", "totalMemory", "memoryBandwidth", "duration",
}  # fmt: skip
_UINT32 = {
    "correlationId", "deviceId", "eventClass", "eventType", "textId", "returnValue", "launchType", "cacheConfig",
    "registersPerThread", "sharedMemoryExecuted", "sharedMemoryLimitConfig",
}  # fmt: skip
_INT32 = {
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory",
    "localMemoryPerThread", "localMemoryTotal", "cuDevice",
}  # fmt: skip


def write_parquetdir(source: Path, folder: Path) -> None:
    """Write every table of `source` to `folder`, which must not exist yet."""
    folder.mkdir()
    with closing(sqlite3.connect(f"file:{source}?mode=ro&immutable=1", uri=True)) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            _write(db, name, folder / f"{name}.parquet")


def _write(db: sqlite3.Connection, name: str, target: Path) -> None:
    schema = pa.schema([_field(str(row[1]), str(row[2])) for row in db.execute(f'PRAGMA table_info("{name}")')])
    cursor = db.execute(f'SELECT * FROM "{name}" ORDER BY rowid')
    parts = [schema.empty_table()]
    while rows := cursor.fetchmany(_FETCHED_ROWS):
        columns = [
            pa.array(map(_unsigned, values) if field.type == pa.uint64() else values, field.type)
            for field, values in zip(schema, zip(*rows, strict=True), strict=True)
        ]
        parts.append(pa.table(columns, schema))
    pq.write_table(pa.concat_tables(parts), target, compression="SNAPPY", row_group_size=_GROUP_ROWS)


def _field(name: str, declared: str) -> Any:
    if declared.upper() in ("", "TEXT"):
        return pa.field(name, pa.string())
    if declared.upper() == "REAL":
        return pa.field(name, pa.float64())
    narrow = pa.uint32() if name in _UINT32 else pa.int32() if name in _INT32 else pa.int64()
    return pa.field(name, pa.uint64() if name in _UINT64 else narrow)


def _unsigned(value: int | None) -> int | None:
    return None if value is None else value & 0xFFFF_FFFF_FFFF_FFFF


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    write_parquetdir(options.source, options.folder)


if __name__ == "__main__":
    main()
