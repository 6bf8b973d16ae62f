"""Reads the kernels and the API calls of a SQLite trace with one reader, to a NumPy array of int64 for every column.

python tests/bench/read_with.py READER FILE.sqlite    prints the seconds without the start of Python, the rows, and a
check sum that all readers must agree on. What a reader needs is imported by name: only the environment that
`readers.py` makes has all of it.
"""

import dataclasses
import multiprocessing
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from plain import present

from tracelab.large_tables import LargeTables
from tracelab.nsys_tables import KERNEL, RUNTIME, TableSpec
from tracelab.sqlite_read import open_readonly

_NULL = int(np.iinfo(np.int64).min)
_RANGES, _CORES = 4, 2  # as tracelab divides a table on two cores
_BATCH_ROWS = "65536"
_CHECKED_BITS = 0xFFFF_FFFF


@dataclass(frozen=True)
class Part:
    """What is read: columns of a table of a file, or of the rows that `where` names."""

    file: str
    table: str
    names: tuple[str, ...]
    where: str = ""

    @property
    def query(self) -> str:
        """The values as they are."""
        return self._select(f'"{name}"' for name in self.names)

    @property
    def filled(self) -> str:
        """The values, with a number where there is none."""
        return self._select(f'coalesce("{name}", {_NULL})' for name in self.names)

    def _select(self, columns: Any) -> str:
        return f"SELECT {', '.join(columns)} FROM {self.table}{self.where}"


Columns = list[npt.NDArray[np.int64]]


def _fetchall(part: Part) -> Columns:
    rows = np.array(_open(part.file).execute(part.filled).fetchall(), np.int64)
    return [np.ascontiguousarray(column) for column in rows.T]


def _fromiter(part: Part) -> Columns:
    flat = np.fromiter(chain.from_iterable(_open(part.file).execute(part.filled)), np.int64)
    return [np.ascontiguousarray(column) for column in flat.reshape(-1, len(part.names)).T]


def _fromiter_processes(part: Part) -> Columns:
    with multiprocessing.get_context("spawn").Pool(_CORES) as pool:  # each sends its arrays back
        return _joined(pool.map(_fromiter, _ranges(part, _CORES)))


def _adbc(part: Part) -> Columns:
    dbapi = import_module("adbc_driver_sqlite.dbapi")
    with dbapi.connect(f"file:{part.file}?mode=ro&immutable=1") as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
        cursor.execute(part.query)
        return _arrays(cursor.fetch_arrow_table())


def _adbc_below(part: Part) -> Columns:
    """Without ADBC's DB-API and pyarrow's conversions, both of which import pandas where it is installed."""
    manager, arrow = import_module("adbc_driver_manager"), import_module("pyarrow")
    driver = import_module("adbc_driver_sqlite")._driver_path()
    database = manager.AdbcDatabase(driver=driver, uri=f"file:{part.file}?mode=ro&immutable=1")
    with database, manager.AdbcConnection(database) as connection, manager.AdbcStatement(connection) as statement:
        statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
        statement.set_sql_query(part.query)
        stream, _ = statement.execute_query()
        table = arrow.RecordBatchReader._import_from_c(stream.address).read_all()
    return [np.concatenate([_values(chunk) for chunk in column.chunks]) for column in table.columns]


def _values(chunk: Any) -> npt.NDArray[np.int64]:
    """A chunk of 64-bit integers from Arrow's buffers (Arrow columnar format: a bitmap of what is there, values)."""
    there, numbers = chunk.buffers()
    values = np.frombuffer(numbers, np.int64, len(chunk), chunk.offset * 8)
    if not chunk.null_count:
        return values
    bits = np.unpackbits(np.frombuffer(there, np.uint8), bitorder="little")[chunk.offset : chunk.offset + len(chunk)]
    return np.where(bits == 1, values, _NULL)


def _in_ranges(part: Part, read: Callable[[Part], Columns]) -> Columns:
    with ThreadPoolExecutor(_CORES) as pool:
        return _joined(list(pool.map(read, _ranges(part, _RANGES))))


def _duckdb(part: Part, *, packaged: bool) -> Columns:
    connection = import_module("duckdb").connect()
    if packaged:
        import_module("duckdb_extensions").import_extension("sqlite_scanner", con=connection)
    else:
        connection.execute("INSTALL sqlite_scanner")  # as DuckDB does by itself: by a download
    connection.execute("LOAD sqlite_scanner")
    connection.execute(f"ATTACH '{part.file}' AS trace (TYPE sqlite, READ_ONLY)")
    named = dataclasses.replace(part, table=f"trace.{part.table}")
    return _arrays(connection.execute(named.query).fetch_arrow_table())


def _connectorx(part: Part, **options: Any) -> Columns:
    read_sql = import_module("connectorx").read_sql
    return _arrays(read_sql(f"sqlite://{part.file}", part.query, return_type="arrow", **options))


def _polars(part: Part, *, engine: str) -> Columns:
    frame = import_module("polars").read_database_uri(part.query, f"sqlite:///{part.file}", engine=engine)
    return _arrays(frame.to_arrow())


def _pandas(part: Part) -> Columns:
    # Plain NumPy columns with gaps would be floats, which large ids do not survive.
    frame = import_module("pandas").read_sql(part.query, _open(part.file), dtype_backend="numpy_nullable")
    return [frame[name].fillna(_NULL).to_numpy(np.int64) for name in frame]


def _pages(part: Part) -> Columns:
    with open_readonly(Path(part.file)) as connection:
        found = LargeTables(connection).ints(TableSpec(part.table, part.names))
    return [found[name] for name in part.names]


READERS: dict[str, Callable[[Part], Columns]] = {
    "sqlite3 fetchall": _fetchall,
    "sqlite3 numpy.fromiter": _fromiter,
    "the same, 2 processes": _fromiter_processes,
    "ADBC": _adbc,
    "ADBC, 4 ranges, 2 threads": partial(_in_ranges, read=_adbc),
    "the same without pandas": partial(_in_ranges, read=_adbc_below),
    "DuckDB, its own download": partial(_duckdb, packaged=False),
    "DuckDB, extension of PyPI": partial(_duckdb, packaged=True),
    "ConnectorX": _connectorx,
    "ConnectorX, 4 partitions": partial(_connectorx, partition_on="correlationId", partition_num=_RANGES),
    "Polars with ADBC": partial(_polars, engine="adbc"),
    "Polars with ConnectorX": partial(_polars, engine="connectorx"),
    "pandas": _pandas,
    "tracelab, from the pages": _pages,
}


def _open(file: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)


def _ranges(part: Part, count: int) -> list[Part]:
    """Row ranges, alike for a table whose row ids have no holes."""
    last = int(_open(part.file).execute(f"SELECT max(rowid) FROM {part.table}").fetchone()[0])
    edges = [1 + last * i // count for i in range(count + 1)]
    bounds = (f" WHERE rowid >= {low} AND rowid < {high} ORDER BY rowid" for low, high in pairwise(edges))
    return [dataclasses.replace(part, where=where) for where in bounds]


def _joined(parts: list[Columns]) -> Columns:
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def _arrays(table: Any) -> Columns:
    return [_array(column) for column in table.columns]


def _array(column: Any) -> npt.NDArray[np.int64]:
    if column.null_count == len(column):
        return np.full(len(column), _NULL, np.int64)
    return np.asarray(column.fill_null(_NULL) if column.null_count else column).astype(np.int64, copy=False)


def _part(file: str, spec: TableSpec) -> Part:
    return Part(file, spec.name, tuple(present(_open(file), spec)))


def main() -> None:
    """Command line."""
    read, file = READERS[sys.argv[1]], str(Path(sys.argv[2]).resolve())
    parts = [_part(file, spec) for spec in (KERNEL, RUNTIME)]
    began = time.perf_counter()
    tables = [read(part) for part in parts]
    seconds = time.perf_counter() - began
    check = sum(int(column.sum()) for columns in tables for column in columns) & _CHECKED_BITS
    print(f"{seconds:.2f} {sum(len(columns[0]) for columns in tables)} {check}")


if __name__ == "__main__":
    main()
