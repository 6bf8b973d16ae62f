"""What an nsys export is to the loader: named tables of typed columns, whatever kind of file keeps them."""

from typing import Protocol

import numpy as np

from tracelab.nsys_tables import TableSpec
from tracelab.trace import I64, TIME_LIMIT_NS, Bool

NULL = int(np.iinfo(np.int64).min)  # stands for a missing value: no time, id or size of a trace is -2^63


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

    def texts(self, spec: TableSpec, column: str) -> list[str | None]:
        """One text column in row order."""
        ...


def timed(column: I64) -> Bool:
    """Which values are times: not missing, and within any capture."""
    return (column >= -TIME_LIMIT_NS) & (column <= TIME_LIMIT_NS)
