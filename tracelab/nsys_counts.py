"""How many rows the event tables of an nsys export hold, to be compared with what the profiler says it collected."""

from tracelab import nsys_tables as tables
from tracelab.nsys_tables import TableSpec
from tracelab.table_source import NULL, TableSource
from tracelab.trace import I64, EventCounts

# A column that no table has: its length is the number of rows, and nothing of the table is read.
_NO_COLUMN = "(none)"
_UNREAD = ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT")


def count_events(source: TableSource, calls: dict[str, I64]) -> EventCounts:
    """The row counts of `source`; `calls` are the columns of the API calls that were kept of it."""
    rows = _rows(source, tables.RUNTIME.name)
    return EventCounts(
        calls=rows,
        dropped_calls=rows - len(calls["start"]),
        work=sum(_rows(source, spec.name) for spec in (tables.KERNEL, tables.MEMCPY, tables.MEMSET)),
        graphs=_rows(source, tables.GRAPH_TRACE.name),
        unread=sum(_rows(source, name) for name in _UNREAD),
        marks=_rows(source, tables.NVTX.name),
        return_codes=bool((calls["returnValue"] != NULL).any()),
    )


def _rows(source: TableSource, table: str) -> int:
    return len(source.ints(TableSpec(table, (_NO_COLUMN,)))[_NO_COLUMN])
