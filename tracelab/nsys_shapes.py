"""Launch shapes of an nsys export: read only for an analyzer that asks for them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock

import numpy as np

from tracelab import nsys_tables as tables
from tracelab.arrays import in_order
from tracelab.coded_rows import CodedRows, merged
from tracelab.errors import InputError
from tracelab.table_source import TableSource
from tracelab.trace import I64, Bool, Shapes

Reopened = Callable[[], AbstractContextManager[TableSource]]  # the tables of a trace, after its loader is done
Placed = Callable[[Bool, I64 | None], Callable[[], Shapes]]  # from the rows that were kept, and their order

_INT32_MAX = int(np.iinfo(np.int32).max)


def reader_of_shapes(source: TableSource, again: Reopened | None) -> Placed:
    """Makes the reader: one that asks the tables when it is called, or without `again` one that has done so."""

    def reader(keep: Bool, order: I64 | None) -> Callable[[], Shapes]:
        if again is not None:
            return Once(partial(_read_again, again, keep, order))
        shapes = _read(source, keep, order)
        return lambda: shapes

    return reader


class Once:
    """Reads when it is first called, whichever thread calls it, and then remembers; a failure is not remembered."""

    def __init__(self, read: Callable[[], Shapes]) -> None:
        self._read, self._lock = read, Lock()
        self._found: Shapes | None = None

    def __call__(self) -> Shapes:
        with self._lock:
            if self._found is None:
                self._found = self._read()
            return self._found


def _read_again(again: Reopened, keep: Bool, order: I64 | None) -> Shapes:
    with again() as source:
        return _read(source, keep, order)


def _read(source: TableSource, keep: Bool, order: I64 | None) -> Shapes:
    """Launch shapes of the rows that `keep` marks of the file's GPU work, in their `order`; kernels come first."""
    _, kernels = source.coded_ints(tables.KERNEL, (), tables.SHAPE)
    if len(kernels) > len(keep):
        raise InputError("The trace changed while it was being read; run the command again.")
    launched = {name: np.clip(column, 0, _INT32_MAX) for name, column in kernels.distinct.items()}
    rows = len(keep) - len(kernels)
    others = CodedRows(np.zeros(rows, np.int32), {name: np.zeros(min(rows, 1), np.int64) for name in tables.SHAPE})
    whole = merged([CodedRows(kernels.codes, launched), others]).kept(keep)
    columns = [column.astype(np.int32) for column in whole.distinct.values()]
    return Shapes(in_order(whole.codes, order), *columns)
