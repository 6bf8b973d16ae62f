"""Directory and stream exports of nsys as tables: parquetdir, arrowdir and the one-file arrow export.

They hold what SQLite holds, with unsigned integers, booleans and, in old versions, numbers kept as text; all of it is
read as SQLite would give it, so that every format of one report is analysed alike.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from tracelab.arrow_values import values
from tracelab.coded_rows import CodedRows, code_rows
from tracelab.coded_texts import joined
from tracelab.errors import InputError
from tracelab.nsys_tables import TableSpec
from tracelab.table_source import NULL, Coded, Request, coded, missing
from tracelab.trace import I64

_TABLE_NAME = b"table_name"  # the schema's metadata by which nsys names a table
_INTEGER = re.compile(r"\s*([+-]?)0*([0-9]{0,20})")  # 20 digits are more than an integer has
# A row of a trace holds at least two times of its own. A file that claims far more rows than bytes holds none of them.
_ROWS_PER_BYTE = 4
_ALWAYS_ALLOWED_ROWS = 1 << 20
_DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)  # the last: a damaged name of a column


@dataclass(frozen=True)
class ArrowTables:
    """An export as a TableSource: `read` gives the wanted columns of a table (None: all that there are)."""

    path: Path
    format: str
    kind: str
    names: frozenset[str]
    read: Callable[[str, tuple[str, ...]], Any]

    def table_names(self) -> set[str]:
        """Names of all tables."""
        return set(self.names)

    def ints(self, spec: TableSpec) -> dict[str, I64]:
        """The integer columns of `spec`; unsigned values wrap, booleans are 0 and 1, text is cast as SQLite does."""
        table = self._table(spec, spec.ints)
        return {name: _column(table, name) for name in spec.ints}

    def rows(self, table: str) -> int:
        """How many rows a table has; 0 where there is none."""
        return int(self._table(TableSpec(table, ()), ()).num_rows)

    def coded_ints(
        self, spec: TableSpec, columns: Sequence[str], together: Sequence[str]
    ) -> tuple[dict[str, I64], CodedRows]:
        """Integer columns of `spec`, those of `together` by their distinct rows."""
        table = self._table(spec, (*columns, *together))
        rows = table.num_rows
        return {name: _column(table, name) for name in columns}, code_rows(partial(_slice, table, together), rows)

    def ahead(self, *requests: Request) -> None:
        """Nothing: this source reads when it is asked."""

    def ahead_texts(self, spec: TableSpec, column: str) -> None:
        """Nothing: this source reads when it is asked."""

    def texts(self, spec: TableSpec, column: str) -> list[str | None]:
        """One text column; all None where the table lacks it."""
        table = self._table(spec, (column,))
        if column not in table.column_names:
            return [None] * table.num_rows
        return _texts(table.column(column))

    def coded_texts(self, spec: TableSpec, column: str, rows: I64) -> Coded:
        """The texts of some rows, each distinct text once."""
        table = self._table(spec, (column,))
        texts = table.column(column) if column in table.column_names else None
        if texts is None or not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            return coded(self.texts(spec, column), rows)
        whole = joined([_coded_texts(chunk) for chunk in texts.chunks])
        return Coded(whole.codes[rows], whole.texts)

    def _table(self, spec: TableSpec, columns: tuple[str, ...]) -> Any:
        if spec.name not in self.names:
            return pa.table({})
        try:
            return self.read(spec.name, columns)
        except _DAMAGE as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"{self.path}: the table {spec.name} cannot be read ({reason}); export it again."
            ) from error


def open_folder(path: Path) -> ArrowTables:
    """A folder of TABLE.parquet or TABLE.arrow files, whichever kind its StringIds is."""
    for suffix, name in ((".parquet", "parquetdir"), (".arrow", "arrowdir")):
        if (path / f"StringIds{suffix}").is_file():
            files = {file.name.removesuffix(suffix): file for file in path.glob(f"*{suffix}")}
            one = _parquet if suffix == ".parquet" else _stream_file
            reader = _Files(files, one)
            return ArrowTables(path, f"nsys-{name}", f"a folder of {suffix} files", frozenset(files), reader.read)
    raise InputError(f"{path}: a folder, not a trace; give a SQLite export, a parquetdir, an arrowdir or a .nsys-rep.")


def open_streams(path: Path) -> ArrowTables:
    """The one-file arrow export: one Arrow stream for each table, one behind the other."""
    streams = _Streams(path)
    return ArrowTables(path, "nsys-arrow", "an Arrow stream", frozenset(streams.tables), streams.read)


@dataclass(frozen=True)
class _Files:
    files: Mapping[str, Path]
    one: Callable[[Path, tuple[str, ...]], Any]

    def read(self, name: str, columns: tuple[str, ...]) -> Any:
        return self.one(self.files[name], columns)


def _mapped(path: Path) -> Any:
    return pa.memory_map(os.fsencode(path))  # as bytes: the name of a file may be no UTF-8


def _parquet(path: Path, columns: tuple[str, ...]) -> Any:
    with _mapped(path) as source, pq.ParquetFile(source) as file:
        rows, size = file.metadata.num_rows, path.stat().st_size
        if rows > max(_ALWAYS_ALLOWED_ROWS, size * _ROWS_PER_BYTE):
            raise pa.ArrowInvalid(f"it claims {rows} rows in {size} bytes")
        _require_distinct(file.schema_arrow.names)
        wanted = [name for name in columns if name in file.schema_arrow.names]
        table = file.read(columns=wanted or file.schema_arrow.names[:1])
    return _checked(table)


def _stream_file(path: Path, columns: tuple[str, ...]) -> Any:
    with _mapped(path) as file, ipc.open_stream(file) as reader:
        table = reader.read_all()
    return _chosen(table, columns)


def _chosen(table: Any, columns: tuple[str, ...]) -> Any:
    _require_distinct(table.column_names)
    wanted = [name for name in columns if name in table.column_names]
    return _checked(table.select(wanted or table.column_names[:1]))


def _require_distinct(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise pa.ArrowInvalid("two of its columns have the same name")


def _checked(table: Any) -> Any:
    """Offsets of damaged text columns may point anywhere; without this check reading them could crash."""
    table.validate(full=True)
    return table


@dataclass(frozen=True)
class _Streams:
    """All tables of a one-file export, read once: a stream must be read to find where the next one begins."""

    path: Path

    @cached_property
    def tables(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            found.update(self._all())
        except _DAMAGE as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"{self.path}: a damaged Arrow stream ({reason}); export it again.") from error
        return found

    def _all(self) -> Iterator[tuple[str, Any]]:
        with _mapped(self.path) as file:
            while file.tell() < file.size():
                with ipc.open_stream(file) as reader:
                    name = (reader.schema.metadata or {}).get(_TABLE_NAME, b"").decode("utf-8", "replace")
                    yield name, reader.read_all()

    def read(self, name: str, columns: tuple[str, ...]) -> Any:
        return _chosen(self.tables[name], columns)


def _slice(table: Any, names: Sequence[str], first: int, stop: int) -> dict[str, I64]:
    part = table.slice(first, stop - first)
    return {name: _column(part, name) for name in names}


def _column(table: Any, name: str) -> I64:
    """A column as integers, all missing where the table lacks it."""
    if name not in table.column_names:
        return missing(int(table.num_rows))
    return _ints(table.column(name))


def _ints(column: Any) -> I64:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(column), NULL, np.int64)
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.uint8()), pa.uint8()
    if pa.types.is_integer(kind):
        return _from_integers(column, np.dtype(str(kind)))
    if pa.types.is_floating(kind):
        return _from_floats(np.asarray(column.cast(pa.float64()).fill_null(np.nan)))
    return _from_texts(_texts(column))


def _from_integers(column: Any, kind: np.dtype[Any]) -> I64:
    """Straight from Arrow's memory: pyarrow's own way to numpy imports pandas, which takes longer than all the rest."""
    found, at = np.empty(len(column), np.int64), 0
    for chunk in column.chunks:
        stop = at + len(chunk)
        values(chunk, kind, found[at:stop], NULL)
        at = stop
    return found


def _from_floats(values: np.ndarray[Any, np.dtype[np.float64]]) -> I64:
    inside = np.abs(values) < 2.0**63  # neither NaN nor beyond an integer
    return np.where(inside, np.where(inside, values, 0.0).astype(np.int64), NULL)


def _from_texts(values: list[str | None]) -> I64:
    """The leading integer of each text, 0 where there is none: what a CAST of SQLite gives."""
    limits = np.iinfo(np.int64)
    found = np.full(len(values), NULL, np.int64)
    for i, value in enumerate(values):
        if value is not None:
            sign, digits = _INTEGER.match(value).groups()  # type: ignore[union-attr]  # it matches every text
            found[i] = min(max(int(f"{sign}{digits or 0}"), limits.min), limits.max)
    return found


def _coded_texts(chunk: Any) -> Coded:
    """An array of texts by its distinct values; bytes that are no UTF-8 are replaced, as everywhere."""
    encoded = chunk.cast(pa.large_binary()).dictionary_encode()
    texts = [text.decode("utf-8", "replace") for text in encoded.dictionary.to_pylist()]
    codes = np.empty(len(chunk), np.int32)
    values(encoded.indices, np.dtype(np.int32), codes, len(texts))
    return Coded(codes, [*texts, None])


def _texts(column: Any) -> list[str | None]:
    """The values as text; bytes that are no UTF-8 are replaced, as everywhere."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    if pa.types.is_null(kind):
        return [None] * len(column)
    return [_text(value) for value in column.to_pylist()]


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
