"""What an nsys export is to the loader: named tables of typed columns, whatever kind of file keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tracelab.coded_rows import CodedRows
from tracelab.nsys_tables import TableSpec
from tracelab.trace import I32, I64, TIME_LIMIT_NS, Bool

NULL = int(np.iinfo(np.int64).min)  # stands for a missing value: no time, id or size of a trace is -2^63


Request = tuple[TableSpec, tuple[str, ...], tuple[str, ...]]  # what `coded_ints` takes


def missing(rows: int) -> I64:
    """A column without values; it takes no memory and cannot be written to."""
    found: I64 = np.broadcast_to(np.int64(NULL), rows)
    return found


class TableSource(Protocol):
    """The tables of one export. A table or column that it lacks reads as empty or as all missing.

    `format` is its name for scripts, `kind` for sentences.
    """

    @property
    def format(self) -> str: ...

    @property
    def kind(self) -> str: ...

    def table_names(self) -> set[str]:
        """Names of all tables."""
        ...

    def ints(self, spec: TableSpec) -> dict[str, I64]:
        """The integer columns of `spec` as int64 arrays of one length, in row order; missing values as `NULL`.

        Unsigned 64-bit values above 2^63 wrap around, as SQLite keeps them.
        """
        ...

    def rows(self, table: str) -> int:
        """How many rows a table has; 0 where there is no such table."""
        ...

    def coded_ints(
        self, spec: TableSpec, columns: Sequence[str], together: Sequence[str]
    ) -> tuple[dict[str, I64], CodedRows]:
        """Integer columns of `spec` as `ints` gives them: `columns` one by one, `together` by their distinct rows."""
        ...

    def ahead(self, *requests: Request) -> None:
        """Say what `coded_ints` will be asked for, so that a source that can do so reads it meanwhile."""
        ...

    def ahead_texts(self, spec: TableSpec, column: str) -> None:
        """The same of `coded_texts`."""
        ...

    def texts(self, spec: TableSpec, column: str) -> list[str | None]:
        """One text column in row order."""
        ...

    def coded_texts(self, spec: TableSpec, column: str, rows: I64) -> "Coded":
        """The texts of some rows of a column, in their order, each distinct text once."""
        ...


@dataclass(frozen=True)
class Coded:
    """A text column: `codes[i]` is the place of row i's text in `texts`, in which a text may stand that no row has."""

    codes: I32
    texts: Sequence[str | None]


def coded(texts: Sequence[str | None], rows: I64) -> Coded:
    """The given rows of a list of texts by their distinct values."""
    at = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    return Coded(np.fromiter(map(at.__getitem__, texts), np.int32, count=len(texts))[rows], list(at))


def timed(column: I64) -> Bool:
    """Which values are times: not missing, and within any capture."""
    return (column >= -TIME_LIMIT_NS) & (column <= TIME_LIMIT_NS)
