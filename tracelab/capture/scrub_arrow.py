"""Tables of a parquetdir or an arrowdir, read and written in batches for the scrub.

Types are kept where they are numbers, dictionaries become plain columns, texts become strings.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from tracelab.errors import InputError

_BATCH_ROWS = 1 << 17
# A row of a trace holds at least two times of its own. A file that claims far more rows than bytes holds none of them.
_ROWS_PER_BYTE = 4
_ALWAYS_ALLOWED_ROWS = 1 << 20
_NUMBER = re.compile(rb"[+-]?[0-9]{1,20}")
_DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError)
_LIMITS = np.iinfo(np.int64)

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Ids = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class TableFile:
    """One table of a folder: its name, its file, and its columns, those of which there are two left out."""

    name: str
    path: Path
    columns: tuple[str, ...]

    @property
    def is_parquet(self) -> bool:
        """True for Parquet, False for an Arrow stream."""
        return self.path.suffix == ".parquet"

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of those of `columns` that there are, at least one; raises InputError for a damaged file."""
        wanted = [column for column in self.columns if column in columns]
        with _damage_named(self.path):
            for batch in self._read(wanted):
                chosen = pa.record_batch([_as_bytes(batch.column(name)) for name in wanted], wanted)
                chosen.validate(full=True)  # offsets of damaged texts may point anywhere
                yield chosen

    def rows(self) -> int:
        """How many rows the table has."""
        with _damage_named(self.path):
            if self.is_parquet:
                return int(pq.read_metadata(self.path).num_rows)
            return sum(batch.num_rows for batch in self._read([]))

    def _read(self, wanted: list[str]) -> Iterator[Any]:
        if self.is_parquet:
            with pq.ParquetFile(self.path) as file:
                rows = file.metadata.num_rows
                if rows > max(_ALWAYS_ALLOWED_ROWS, self.path.stat().st_size * _ROWS_PER_BYTE):
                    raise pa.ArrowInvalid("it claims more rows than it can hold")
                yield from _one_at_least(file.iter_batches(_BATCH_ROWS, columns=wanted), file.schema_arrow)
            return
        with pa.memory_map(str(self.path)) as file, ipc.open_stream(file) as reader:
            yield from _one_at_least(reader, reader.schema)


def table_files(folder: Path) -> dict[str, TableFile]:
    """The tables of a parquetdir or an arrowdir, whichever kind its StringIds is; raises InputError for damage."""
    suffix = ".parquet" if (folder / "StringIds.parquet").is_file() else ".arrow"
    files = sorted(path for path in folder.glob(f"*{suffix}") if path.is_file())
    return {path.stem: TableFile(path.stem, path, _column_names(path)) for path in files}


@contextlib.contextmanager
def writer(path: Path, is_parquet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that appends rows, given by column, to the new file `path`; all calls give the same columns."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("xb"))
        opened: list[Any] = []

        def write(arrays: dict[str, Any]) -> None:
            table = pa.table(arrays)
            if not opened:
                # The schema of Arrow is left out of a Parquet file: nothing but the columns is written.
                new = pq.ParquetWriter(file, table.schema, store_schema=False) if is_parquet else None
                opened.append(stack.enter_context(new or ipc.new_stream(file, table.schema)))
            opened[0].write_table(table)

        yield write


def numbers(column: Any, hidden: Mask | None = None) -> Any:
    """The column as numbers of its own type, null where it holds none, and where `hidden` says so.

    Texts that are nothing but an integer are numbers too: old versions wrote some columns so.
    """
    column = _plain(column)
    kind = column.type
    if pa.types.is_null(kind):
        return column
    if _is_text(kind):
        column, kind = _parsed(column), pa.int64()
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return pa.nulls(len(column), pa.int64())
    absent = np.asarray(column.is_null())
    # Written anew: what stands in memory under a null is copied nowhere.
    values = np.asarray(column.fill_null(pa.scalar(0).cast(kind)))
    return pa.array(values, kind, mask=absent if hidden is None else absent | hidden)


def integers(column: Any) -> tuple[Ids, Mask]:
    """The values of a column of numbers as int64, unsigned ones wrapped, and which of them are there."""
    known = np.asarray(column.is_valid())
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64), known
    values = np.asarray(column.fill_null(pa.scalar(0).cast(column.type)))
    if pa.types.is_floating(column.type):
        known = known & (np.abs(values) < -float(_LIMITS.min))
        values = np.where(known, values, 0)
    return values.astype(np.int64), known


def texts(column: Any) -> list[bytes | None]:
    """The bytes of each text, also of those that are no UTF-8; numbers in a column of texts as they are printed."""
    column = _plain(column)
    if _is_text(column.type):
        found: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
        return found
    simple = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return [str(value).encode() if simple and value is not None else None for value in column.to_pylist()]


def text_array(values: Sequence[str | None]) -> Any:
    """A column of texts, of any total length."""
    return pa.array(values, pa.large_string())


def _one_at_least(batches: Iterable[Any], schema: Any) -> Iterator[Any]:
    empty = True
    for batch in batches:
        empty = False
        yield batch
    if empty:
        yield pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        # Only the kind of the error: its own sentence may quote what stands in the file.
        raise InputError(
            f"{path} cannot be scrubbed: damaged or not to be read ({type(error).__name__}); export the report again"
        ) from error


def _column_names(path: Path) -> tuple[str, ...]:
    with _damage_named(path):
        if path.suffix == ".parquet":
            names = pq.read_schema(path).names
        else:
            with pa.memory_map(str(path)) as file, ipc.open_stream(file) as reader:
                names = reader.schema.names
        return tuple(name for name in names if names.count(name) == 1)


def _as_bytes(column: Any) -> Any:
    """Texts as the bytes that they are, since they need not be UTF-8."""
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    return column.view(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _is_text(kind: Any) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _parsed(column: Any) -> Any:
    found = [int(text) if text is not None and _NUMBER.fullmatch(text) else None for text in texts(column)]
    return pa.array([None if n is None else min(max(n, _LIMITS.min), _LIMITS.max) for n in found], pa.int64())
