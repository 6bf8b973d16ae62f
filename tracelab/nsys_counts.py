"""How many rows the event tables of an nsys export hold, to be compared with what the profiler says it collected."""

from tracelab import nsys_tables as tables
from tracelab.table_source import TableSource
from tracelab.trace import EventCounts

_UNREAD = ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT")


def count_events(source: TableSource, kept_calls: int, return_codes: bool) -> EventCounts:
    """The row counts of `source`; `kept_calls` API calls were kept of it, and `return_codes` tells what they say."""
    calls = source.rows(tables.RUNTIME.name)
    return EventCounts(
        calls=calls,
        dropped_calls=calls - kept_calls,
        work=sum(source.rows(spec.name) for spec in (tables.KERNEL, tables.MEMCPY, tables.MEMSET)),
        graphs=source.rows(tables.GRAPH_TRACE.name),
        unread=sum(source.rows(name) for name in _UNREAD),
        marks=source.rows(tables.NVTX.name),
        return_codes=return_codes,
    )
