"""Exports whose times are UTC (`nsys export --ts-normalize=true`): they are read as times from the first event.

Only columns of times are touched, so that every span stays what it is to the nanosecond.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelab import nsys_tables as tables
from tracelab.coded_rows import CodedRows
from tracelab.event_clock import Clock
from tracelab.nsys_tables import TableSpec
from tracelab.table_source import NULL, Coded, Request, TableSource, timed
from tracelab.trace import I64, TIME_LIMIT_NS

# Times of day since 1970, in ns: from September 2001 to January 2065. Nothing else in an export is as far from 0.
_FIRST_UTC_NS, _LAST_UTC_NS = 10**18, 3 * 10**18
_TIMES = ("start", "end")
_TIMED_TABLES = (tables.KERNEL, tables.RUNTIME, tables.NVTX)


@dataclass(frozen=True)
class FromFirstEvent:
    """The tables of `utc` with `origin_ns` taken off every time that lies beyond any capture."""

    utc: TableSource
    origin_ns: int

    @property
    def format(self) -> str:
        """That of the export itself."""
        return self.utc.format

    @property
    def kind(self) -> str:
        """That of the export itself."""
        return self.utc.kind

    def table_names(self) -> set[str]:
        """Names of all tables."""
        return self.utc.table_names()

    def ints(self, spec: TableSpec) -> dict[str, I64]:
        """The integer columns of `spec`, its times moved."""
        columns = self.utc.ints(spec)
        return {name: self._moved(column) if name in _TIMES else column for name, column in columns.items()}

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return self.utc.rows(table)

    def coded_ints(
        self, spec: TableSpec, columns: Sequence[str], together: Sequence[str]
    ) -> tuple[dict[str, I64], CodedRows]:
        """The same, those of `together` by their distinct rows; no times are among these."""
        found, coded = self.utc.coded_ints(spec, columns, together)
        return {name: self._moved(column) if name in _TIMES else column for name, column in found.items()}, coded

    def ahead(self, *requests: Request) -> None:
        """Says so to the export itself."""
        self.utc.ahead(*requests)

    def ahead_texts(self, spec: TableSpec, column: str) -> None:
        """Says so to the export itself."""
        self.utc.ahead_texts(spec, column)

    def texts(self, spec: TableSpec, column: str) -> list[str | None]:
        """One text column in row order."""
        return self.utc.texts(spec, column)

    def coded_texts(self, spec: TableSpec, column: str, rows: I64) -> Coded:
        """The texts of some rows, each distinct text once."""
        return self.utc.coded_texts(spec, column, rows)

    def _moved(self, column: I64) -> I64:
        return np.where(column > TIME_LIMIT_NS, column - self.origin_ns, column)


def from_first_event(source: TableSource) -> FromFirstEvent | None:
    """The source with times from its first event on, if its times are UTC; None if they are not, or all damaged."""
    starts = [source.ints(TableSpec(spec.name, ("start",)))["start"] for spec in _TIMED_TABLES]
    known = np.concatenate([column[column != NULL] for column in starts])
    if timed(known).any():
        return None
    utc = known[(known >= _FIRST_UTC_NS) & (known <= _LAST_UTC_NS)]
    if len(utc) == 0:
        return None
    return FromFirstEvent(source, Clock.of([utc]).origin_ns)
