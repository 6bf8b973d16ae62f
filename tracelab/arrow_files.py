"""Files of directory and stream exports: which columns and rows they hold, read whole or by stretches of rows."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from tracelab.arrays import stretches
from tracelab.capture.identity import Identity, file_identity
from tracelab.errors import InputError

DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)  # the last: a damaged name of a column

_TABLE_NAME = b"table_name"  # the schema's metadata by which nsys names a table
# A row of a trace holds at least two times of its own. A file that claims far more rows than bytes holds none of them.
_ROWS_PER_BYTE = 4
_ALWAYS_ALLOWED_ROWS = 1 << 20
_STRETCH_ROWS = 1 << 16  # so many rows of the wanted columns stay in a core's cache


@dataclass(frozen=True)
class Stretch:
    """The rows [first, stop) of a table, and what reads the wanted columns of them, piece by piece."""

    first: int
    stop: int
    read: Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Stretches:
    """Some columns of a table: the names of those that it has, how many rows, and at least one stretch of them."""

    names: frozenset[str]
    rows: int
    stretches: Sequence[Stretch]


class Tables(Protocol):
    """Tables by their names; all of it may raise one of DAMAGE."""

    def rows(self, name: str) -> int:
        """How many rows a table has."""
        ...

    def stretches(self, name: str, columns: Sequence[str]) -> Stretches:
        """The wanted columns that a table has, to be read stretch by stretch, on any thread.

        Of a table that has none of them any one, for the number of rows.
        """
        ...


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files by the names of their tables."""

    files: Mapping[str, Path]
    _known: dict[Identity | None, Any] = field(default_factory=dict)  # what describes a file, of each that was read

    def rows(self, name: str) -> int:
        """How many rows a table has, by its description alone."""
        return int(self._described(name).num_rows)

    def stretches(self, name: str, columns: Sequence[str]) -> Stretches:
        """Whole row groups: nsys 2023 writes 2048 rows in each, nsys 2025 a million."""
        path, described = self.files[name], self._described(name)
        wanted = _wanted(_names(described), columns)
        found, first, stop, groups = [], 0, 0, list[int]()
        for group in range(described.num_row_groups):
            groups.append(group)
            stop += described.row_group(group).num_rows
            if stop - first >= _STRETCH_ROWS or group + 1 == described.num_row_groups:
                found.append(Stretch(first, stop, partial(row_groups, path, described, groups, wanted, stop - first)))
                first, groups = stop, []
        none = Stretch(0, 0, partial(row_groups, path, described, [], wanted, 0))
        return Stretches(frozenset(wanted), stop, found or [none])

    def _described(self, name: str) -> Any:
        path = self.files[name]
        file = file_identity(path)
        if file not in self._known:
            self._known[file] = self._describe(path)
        return self._known[file]

    @staticmethod
    def _describe(path: Path) -> Any:
        with _opened(path) as source:
            described = pq.read_metadata(source)
        _require_plausible(described.num_rows, path.stat().st_size)
        rows = [described.row_group(group).num_rows for group in range(described.num_row_groups)]
        if min(rows, default=0) < 0 or sum(rows) != described.num_rows:
            raise pa.ArrowInvalid("the rows of its row groups are not the rows of the file")
        _require_distinct(_names(described))
        return described


@dataclass(frozen=True)
class StreamFiles:
    """Files of one Arrow stream each by the names of their tables."""

    files: Mapping[str, Path]

    def rows(self, name: str) -> int:
        """How many rows a table has."""
        return int(self._whole(name).num_rows)

    def stretches(self, name: str, columns: Sequence[str]) -> Stretches:
        """Parts of the mapped file."""
        return _stretches_of(self._whole(name), columns)

    def _whole(self, name: str) -> Any:
        with _mapped(self.files[name]) as file:
            return _stream(file)[1]


@dataclass(frozen=True)
class Streams:
    """All tables of a one-file export, read once: a stream must be read to find where the next one begins."""

    path: Path

    @cached_property
    def tables(self) -> dict[str, Any]:
        """Every table by its name. Raises InputError for a damaged file."""
        found: dict[str, Any] = {}
        try:
            found.update(self._all())
        except DAMAGE as error:
            raise InputError(f"{self.path}: a damaged Arrow stream ({reason(error)}); export it again.") from error
        return found

    def _all(self) -> Iterator[tuple[str, Any]]:
        with _mapped(self.path) as file:
            while file.tell() < file.size():
                yield _stream(file)

    def rows(self, name: str) -> int:
        """How many rows a table has."""
        return int(self.tables[name].num_rows)

    def stretches(self, name: str, columns: Sequence[str]) -> Stretches:
        """Parts of the mapped file."""
        return _stretches_of(self.tables[name], columns)


def reason(error: BaseException) -> str:
    """Why a table cannot be read, in one line."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _opened(path: Path) -> Any:
    """Read, not mapped, which takes as long: a file that is cut meanwhile is an error, not the end of tracelab."""
    return pa.OSFile(os.fsencode(path))


def _mapped(path: Path) -> Any:
    return pa.memory_map(os.fsencode(path))  # as bytes: the name of a file may be no UTF-8


def _stream(file: Any) -> tuple[str, Any]:
    """The table that begins here, and the name that nsys gave it."""
    with ipc.open_stream(file) as reader:
        table = reader.read_all()
    _require_plausible(table.num_rows, file.size())
    return (table.schema.metadata or {}).get(_TABLE_NAME, b"").decode("utf-8", "replace"), table


def _require_plausible(rows: int, size: int) -> None:
    """Rows without columns, or of columns without values, take no room: any number of them could be claimed."""
    if rows > max(_ALWAYS_ALLOWED_ROWS, size * _ROWS_PER_BYTE):
        raise pa.ArrowInvalid(f"it claims {rows} rows in {size} bytes")


def _names(described: Any) -> list[str]:
    return list(described.schema.to_arrow_schema().names)


def _wanted(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(columns) if name in names] or list(names[:1])


def row_groups(path: Path, described: Any, groups: Sequence[int], columns: Sequence[str], rows: int) -> Iterator[Any]:
    """Some row groups of a file, which have so many rows together, in pieces; there is at least one piece.

    Raises one of DAMAGE where they have another number of rows.
    """
    read = 0
    with _opened(path) as source, pq.ParquetFile(source, metadata=described) as file:
        for batch in file.iter_batches(_STRETCH_ROWS, row_groups=groups, columns=columns, use_threads=False):
            read += batch.num_rows
            if read > rows:
                break
            yield _checked(pa.Table.from_batches([batch]))
        if not rows:
            yield file.schema_arrow.empty_table().select(columns)
    if read != rows:
        raise pa.ArrowInvalid(f"{rows} rows were expected, {'more' if read > rows else read} are there")


def _stretches_of(table: Any, columns: Sequence[str]) -> Stretches:
    _require_distinct(table.column_names)
    chosen = _checked(table.select(_wanted(table.column_names, columns)))
    edges = stretches(chosen.num_rows, _STRETCH_ROWS)
    found = [Stretch(first, stop, partial(_slices, chosen, first, stop - first)) for first, stop in edges]
    return Stretches(frozenset(chosen.column_names), chosen.num_rows, found)


def _slices(table: Any, first: int, rows: int) -> Iterator[Any]:
    yield table.slice(first, rows)  # so many rows and no more: a table without columns would have them


def _require_distinct(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise pa.ArrowInvalid("two of its columns have the same name")


def _checked(table: Any) -> Any:
    """Offsets of damaged text columns may point anywhere; without this check reading them could crash."""
    table.validate(full=True)
    return table
