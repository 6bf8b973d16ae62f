"""Loads an nsys export into the trace model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tracelab import nsys_tables as tables
from tracelab.arrays import ByCode, in_order, order_by, rows_by, spread
from tracelab.coded_rows import CodedRows
from tracelab.errors import InputError
from tracelab.failures import strip_version
from tracelab.kernel_names import escape
from tracelab.nsys_clock import from_first_event
from tracelab.nsys_counts import count_events
from tracelab.nsys_gpus import device_map, read_driver, read_gpus
from tracelab.nsys_nvtx import NVTX_COLUMNS, Marks, RawRanges, read_nvtx
from tracelab.nsys_ops import KERNEL_COLUMNS, RawOps, link_calls, read_ops
from tracelab.nsys_raw import Identities, Names, read_strings
from tracelab.nsys_shapes import Reopened, reader_of_shapes
from tracelab.table_source import NULL, TableSource, timed
from tracelab.trace import ABSENT, I32, I64, SUM_LIMIT_NS, Calls, Diagnostic, GraphNodes, Overheads, Trace

Columns = dict[str, I64]

# Without these a SQLite file is no finished export: every exporter writes StringIds first and the target's description
# or the recorded events after it (seen: an exporter that stopped with an error leaves StringIds and ProcessStreams).
_FINISHED = ("TARGET_INFO_GPU", "ANALYSIS_DETAILS", tables.SYSTEM_ENV.name, tables.KERNEL.name, tables.RUNTIME.name)

_NEWEST_SCHEMA = 3  # major versions seen: 2 (nsys 2022.1) and 3 (nsys 2022.4 to 2026.2)


def load_nsys(source: TableSource, path: Path, again: Reopened | None) -> Trace:
    """The trace in the tables of `source`, named `path`. Raises InputError for no nsys export, or an unfinished one.

    What not every analyzer needs is read when it is asked for, with `again`; without it, at once.
    """
    _require_export(source, path)
    names = Names(read_strings(source))
    raw = _read(source, names)
    if len(raw.ops.columns["start"]) + len(raw.calls["start"]) == 0:  # no time is one of a capture: are they UTC?
        moved = from_first_event(source)
        if moved is not None:
            names = Names(read_strings(moved))
            return _trace(moved, names, _read(moved, names), path, again)
    return _trace(source, names, raw, path, again)


def _require_export(source: TableSource, path: Path) -> None:
    present = source.table_names()
    if tables.STRINGS.name not in present:
        raise InputError(f"{path}: {source.kind}, but not an nsys export (it has no table StringIds).")
    if not present.intersection(_FINISHED):
        raise InputError(
            f"{path}: an incomplete export: the exporter stopped before it wrote any event table, so nothing can be "
            "said of the run; export the report again with an nsys at least as new as the one that recorded it."
        )


@dataclass(frozen=True)
class _Raw:
    """Every event table as read, in file order, with provisional name codes.

    `call_kinds` has class, thread, return value and name of each call.
    """

    ops: RawOps
    ranges: RawRanges
    marks: Marks
    calls: Columns
    call_kinds: CodedRows
    overheads: Columns
    overhead_names: I32
    nodes: Columns


_CALL_COLUMNS = (
    tables.RUNTIME, ("start", "end", "correlationId"), ("eventClass", "globalTid", "nameId", "returnValue"),
)  # fmt: skip


def _read(source: TableSource, names: Names) -> _Raw:
    source.ahead(_CALL_COLUMNS, KERNEL_COLUMNS, NVTX_COLUMNS)
    source.ahead_texts(tables.NVTX, "text")
    calls, kinds = _read_calls(source, names)
    ops = read_ops(source, names)
    ranges, marks = read_nvtx(source, names)
    overheads = source.ints(tables.OVERHEAD)
    return _Raw(
        ops=ops,
        ranges=ranges,
        marks=marks,
        calls=calls,
        call_kinds=kinds,
        overhead_names=names.by_id(overheads.pop("nameId")),
        overheads=overheads,
        nodes=_graph_nodes(source),
    )


def _identities(raw: _Raw) -> Identities:
    identities = Identities()
    with_threads = (raw.call_kinds.distinct, raw.ranges.kinds.distinct, raw.overheads, raw.nodes)
    identities.collect(
        threads=[table["globalTid"] for table in with_threads], processes=[raw.ops.places.distinct["globalPid"]]
    )
    return identities


def _trace(source: TableSource, names: Names, raw: _Raw, path: Path, again: Reopened | None) -> Trace:
    identities, sort = _identities(raw), names.finish()
    calls = _calls(raw.calls, raw.call_kinds, sort, identities)
    _require_summable(raw.ops, path)
    gpus, notes = read_gpus(source)
    devices, op_device, mapping_notes = device_map(source, gpus, raw.ops, identities)
    ops = link_calls(raw.ops.finish(sort, identities, op_device, reader_of_shapes(source, again)), calls)
    return Trace(
        path=str(path),
        format=source.format,
        producer=_producer(source),
        ops=ops,
        calls=calls,
        ranges=raw.ranges.finish(sort, identities, last_ns=_last_ns(ops.end, calls.end)),
        overheads=_overheads(raw.overheads, sort(raw.overhead_names), identities),
        graph_nodes=_nodes(raw.nodes, identities),
        names=names.final,
        domains=raw.ranges.domains,
        processes=identities.processes,
        threads=identities.threads,
        thread_process=identities.thread_process,
        devices=devices,
        diagnostics=tuple(_diagnostics(source, identities)),
        workload=raw.marks.workload,
        graph_mode=_graph_mode(source),
        loss=raw.ops.loss,
        notes=(*_schema_notes(source), *notes, *mapping_notes, *raw.ranges.notes, *raw.marks.notes),
        driver=read_driver(source),
        events=count_events(source, len(calls), bool((raw.call_kinds.distinct["returnValue"] != NULL).any())),
    )


def _require_summable(ops: RawOps, path: Path) -> None:
    total_ns = (ops.columns["end"] - ops.columns["start"]).sum(dtype=np.float64)
    if total_ns > SUM_LIMIT_NS:
        raise InputError(f"{path}: the times of its GPU work are damaged: they add up to centuries; export it again.")


def _read_calls(source: TableSource, names: Names) -> tuple[Columns, CodedRows]:
    raw, coded = source.coded_ints(*_CALL_COLUMNS)
    # Class 67 repeats a call for its backtrace (same correlation id, return value 0 even if the call failed).
    event_class = coded.distinct["eventClass"]
    api = (event_class == 0) | (event_class == 1) | (event_class == NULL)
    keep = api[coded.codes] & timed(raw["start"]) & (raw["end"] != NULL)
    coded = coded.kept(keep)
    given = dict(coded.distinct)
    given["name"] = names.by_id(given.pop("nameId"), strip_version).astype(np.int64)
    columns = raw if keep.all() else {name: column[keep] for name, column in raw.items()}
    return columns, CodedRows(coded.codes, given)


def _plausible_end(start: I64, end: I64) -> I64:
    """Ends that lie after their start and within any capture; damaged ones become the start."""
    return np.where((end < start) | ~timed(end), start, end)


def _calls(raw: Columns, kinds: CodedRows, sort: Callable[[I32], I32], identities: Identities) -> Calls:
    kind = kinds.distinct
    thread, name = identities.thread_codes(kind["globalTid"]), sort(kind["name"].astype(np.int32))
    end = _plausible_end(raw["start"], raw["end"])
    order = order_by(raw["start"], end, ByCode(thread, kinds.codes), raw["correlationId"], ByCode(name, kinds.codes))
    code = in_order(kinds.codes, order)
    returned = kind["returnValue"]
    return Calls(
        start=in_order(raw["start"], order),
        end=in_order(end, order),
        process=spread(identities.thread_process[thread], code),
        thread=spread(thread, code),
        correlation=in_order(raw["correlationId"], order),
        name=spread(name, code),
        return_value=spread(np.where(returned == NULL, 0, returned), code),
        driver=spread(kind["eventClass"] == 1, code),
    )


def _overheads(raw: Columns, names: I32, identities: Identities) -> Overheads:
    keep = timed(raw["start"]) & timed(raw["end"]) & (raw["end"] > raw["start"])
    thread = identities.thread_codes(raw["globalTid"])[keep]
    start, end, name = raw["start"][keep], raw["end"][keep], names[keep]
    order = rows_by(start, end, thread, name)
    process = identities.thread_process[thread]
    return Overheads(start[order], end[order], process[order], thread[order], name[order])


def _graph_nodes(source: TableSource) -> Columns:
    new, old = source.ints(tables.GRAPH_NODES), source.ints(tables.GRAPH_NODES_OLD)
    both = {name: np.concatenate((new[name], old[name])) for name in new}
    keep = (both["graphNodeId"] != NULL) & timed(both["start"])
    return {name: column[keep] for name, column in both.items()}


def _nodes(raw: Columns, identities: Identities) -> GraphNodes:
    thread = identities.thread_codes(raw["globalTid"])
    origin = raw["originalGraphNodeId"]
    origin = np.where((origin == NULL) | (origin == 0), ABSENT, origin)
    order = rows_by(raw["start"], raw["graphNodeId"], origin, thread)
    return GraphNodes(raw["start"][order], thread[order], raw["graphNodeId"][order], origin[order])


def _last_ns(*ends: I64) -> int:
    return max((int(column.max()) for column in ends if len(column)), default=0)


def _pairs(source: TableSource, *specs: tables.TableSpec) -> dict[str, str]:
    found: dict[str, str] = {}
    for spec in specs:
        keys, values = source.texts(spec, "name"), source.texts(spec, "value")
        found.update((k, v) for k, v in zip(keys, values, strict=True) if k and v)
    return found


def _producer(source: TableSource) -> str | None:
    version = _pairs(source, tables.EXPORT_META_OLD, tables.EXPORT_META).get("EXPORT_PRODUCT_VERSION")
    return f"nsys {'.'.join(version.split('.')[:3])}" if version else None


def _schema_notes(source: TableSource) -> tuple[tuple[str, str], ...]:
    """A warning where the export says that its schema is of a major version newer than those seen."""
    said = _pairs(source, tables.EXPORT_META_OLD, tables.EXPORT_META).get("EXPORT_SCHEMA_VERSION", "")[:20]
    major = said.partition(".")[0]
    if not major.isdecimal() or int(major) <= _NEWEST_SCHEMA:
        return ()
    return (
        (
            "schema",
            f"The export says schema {escape(said)}, which is newer than {_NEWEST_SCHEMA}, the newest known: tables "
            "are read by the names of their columns, and what has been renamed is missed.",
        ),
    )


def _graph_mode(source: TableSource) -> str | None:
    facts = _pairs(source, tables.CAPTURE_META)
    modes = [value for key, value in sorted(facts.items()) if key.endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE")]
    return modes[0].lower() if modes else None


def _diagnostics(source: TableSource, identities: Identities) -> Iterable[Diagnostic]:
    numbers = source.ints(tables.DIAGNOSTICS)
    texts = source.texts(tables.DIAGNOSTICS, "text")
    for severity, pid, text in zip(numbers["severity"], numbers["globalPid"], texts, strict=True):
        yield Diagnostic(int(severity), text or "", identities.process_code(int(pid)))
