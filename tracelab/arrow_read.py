"""Directory and stream exports of nsys as tables: parquetdir, arrowdir and the one-file arrow export.

They hold what SQLite holds, with unsigned integers, booleans and, in old versions, numbers kept as text; all of it is
read as SQLite would give it, so that every format of one report is analysed alike.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from tracelab.arrow_columns import coded_texts_of, column_of, texts_of
from tracelab.arrow_files import DAMAGE, ParquetFiles, StreamFiles, Streams, Stretch, Stretches, Tables, reason
from tracelab.batches import Batches
from tracelab.coded_rows import CodedRows, code_batch, merged
from tracelab.coded_texts import joined
from tracelab.errors import InputError
from tracelab.nsys_tables import TableSpec
from tracelab.table_source import Coded, Request, missing
from tracelab.trace import I64

# Columns that are filled by the futures, each of which gives the coded rows of a stretch.
_Reading = tuple[dict[str, I64], "list[Future[CodedRows]]"]

_NO_TABLE = Stretches(frozenset(), 0, [Stretch(0, 0, lambda: [pa.table({})])])


@dataclass(frozen=True)
class ArrowTables:
    """An export as a TableSource."""

    path: Path
    format: str
    kind: str
    names: frozenset[str]
    tables: Tables
    _batches: Batches = field(default_factory=Batches)
    _begun: dict[Request, _Reading] = field(default_factory=dict)
    _begun_texts: "dict[tuple[str, str], list[Future[Coded]]]" = field(default_factory=dict)

    def table_names(self) -> set[str]:
        """Names of all tables."""
        return set(self.names)

    def ints(self, spec: TableSpec) -> dict[str, I64]:
        """The integer columns of `spec`; unsigned values wrap, booleans are 0 and 1, text is cast as SQLite does."""
        return self.coded_ints(spec, spec.ints, ())[0]

    def rows(self, table: str) -> int:
        """How many rows a table has; 0 where there is none."""
        with self._readable(table):
            return self.tables.rows(table) if table in self.names else 0

    def coded_ints(
        self, spec: TableSpec, columns: Sequence[str], together: Sequence[str]
    ) -> tuple[dict[str, I64], CodedRows]:
        """Integer columns of `spec`, those of `together` by their distinct rows."""
        request = (spec, tuple(columns), tuple(together))
        with self._readable(spec.name):
            begun = self._begun.pop(request, None) or self._begin(request)
            return begun[0], merged(self._batches.waited(begun[1]))

    def ahead(self, *requests: Request) -> None:
        """Begin to read what `coded_ints` will be asked for."""
        for request in requests:
            with suppress(*DAMAGE):  # who asks for it will meet the same error
                self._begun[request] = self._begin(request)

    def ahead_texts(self, spec: TableSpec, column: str) -> None:
        """Begin to read what `coded_texts` will be asked for."""
        with suppress(*DAMAGE):
            self._begun_texts[spec.name, column] = self._begin_texts(spec, column)

    def coded_texts(self, spec: TableSpec, column: str, rows: I64) -> Coded:
        """The texts of some rows, each distinct text once."""
        with self._readable(spec.name):
            begun = self._begun_texts.pop((spec.name, column), None) or self._begin_texts(spec, column)
            whole = joined(self._batches.waited(begun))
            return Coded(whole.codes[rows], whole.texts)

    def give_up(self) -> None:
        """Read nothing more of what was begun: nobody will ask for it."""
        self._batches.give_up()

    def texts(self, spec: TableSpec, column: str) -> list[str | None]:
        """One text column; all None where the table lacks it."""
        with self._readable(spec.name):
            tables = [table for part in self._stretches(spec, (column,)).stretches for table in part.read()]
            return [text for table in tables for text in texts_of(table, column)]

    def _begin(self, request: Request) -> _Reading:
        spec, columns, together = request
        parts = self._stretches(spec, (*columns, *together))
        there = [name for name in columns if name in parts.names]
        found = {name: np.empty(parts.rows, np.int64) if name in there else missing(parts.rows) for name in columns}

        def take(stretch: Stretch) -> CodedRows:
            """Put the columns of one stretch in their place, and give those `together` by their distinct rows."""
            pieces, at = [], stretch.first
            for table in stretch.read():
                rows = table.num_rows
                for name in there:
                    found[name][at : at + rows] = column_of(table, name)
                pieces.append(code_batch({name: column_of(table, name) for name in together}, rows))
                at += rows
            return merged(pieces)

        return found, self._batches.begin(take, parts.stretches)

    def _begin_texts(self, spec: TableSpec, column: str) -> "list[Future[Coded]]":
        def take(stretch: Stretch) -> Coded:
            return joined([coded_texts_of(table, column) for table in stretch.read()])

        return self._batches.begin(take, self._stretches(spec, (column,)).stretches)

    def _stretches(self, spec: TableSpec, columns: tuple[str, ...]) -> Stretches:
        return self.tables.stretches(spec.name, columns) if spec.name in self.names else _NO_TABLE

    @contextmanager
    def _readable(self, table: str) -> Iterator[None]:
        try:
            yield
        except DAMAGE as error:
            raise InputError(
                f"{self.path}: the table {table} cannot be read ({reason(error)}); export it again."
            ) from error


def open_folder(path: Path) -> ArrowTables:
    """A folder of TABLE.parquet or TABLE.arrow files, whichever kind its StringIds is."""
    for suffix, name in ((".parquet", "parquetdir"), (".arrow", "arrowdir")):
        if (path / f"StringIds{suffix}").is_file():
            files = {file.name.removesuffix(suffix): file for file in path.glob(f"*{suffix}")}
            tables = ParquetFiles(files) if suffix == ".parquet" else StreamFiles(files)
            return ArrowTables(path, f"nsys-{name}", f"a folder of {suffix} files", frozenset(files), tables)
    raise InputError(f"{path}: a folder, not a trace; give a SQLite export, a parquetdir, an arrowdir or a .nsys-rep.")


def open_streams(path: Path) -> ArrowTables:
    """The one-file arrow export: one Arrow stream for each table, one behind the other."""
    streams = Streams(path)
    return ArrowTables(path, "nsys-arrow", "an Arrow stream", frozenset(streams.tables), streams)
