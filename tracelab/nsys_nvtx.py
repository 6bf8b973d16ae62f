"""NVTX ranges, domains and the workload record of an nsys export."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelab import nsys_tables as tables
from tracelab.arrays import group_ids, in_order, order_by
from tracelab.coded_rows import CodedRows
from tracelab.nsys_raw import PROCESS_BITS, Identities, Names
from tracelab.table_source import NULL, TableSource, timed
from tracelab.trace import I32, I64, PUSH_POP, START_END, TORCH_DOMAIN, Bool, Ranges

_RECORD_KEY = "tracelab.workload"
_MOST_LEVELS = 20  # of a record; what nests a thousand deep could not be written into a report
# What torch.autograd.profiler.emit_nvtx and torch.compile mark in the default domain (PyTorch 1.x to 2.x: c10/ATen
# operator namespaces, torch/_dynamo, torch/_inductor).
_OPERATOR = re.compile(
    r"(aten|torch|autograd|prims?|c10d|_c10d_functional|inductor|quantized)::\w"
    r"|Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction|TorchDynamo Cache Lookup|Pregraph bytecode"
)


NVTX_COLUMNS = (tables.NVTX, ("start", "end"), ("eventType", "globalTid", "domainId", "textId"))


@dataclass(frozen=True)
class RawRanges:
    """Ranges as read, in file order: `kinds` has event type, thread and domain code of each, `names` its name.

    `duration_ns` is the length of the capture, where the file says it.
    """

    columns: dict[str, I64]
    kinds: CodedRows
    names: I32
    domains: tuple[str, ...]
    duration_ns: int | None
    notes: tuple[tuple[str, str], ...]

    def finish(self, sort: Callable[[I32], I32], identities: Identities, last_ns: int) -> Ranges:
        """Final codes, order and ends. A range that never ended lasts until the last event and is marked open."""
        start, end, kinds = self.columns["start"], self.columns["end"], self.kinds.distinct
        is_open = (end == NULL) | (end == (self.duration_ns if self.duration_ns is not None else NULL))
        if is_open.any():
            closed = end[~is_open]
            last = max(last_ns, int(closed.max(initial=last_ns)), int(start.max(initial=last_ns)))
            end = np.where(end == NULL, last, end)
        threads, names = identities.thread_codes(kinds["globalTid"]), sort(self.names)
        thread = threads[self.kinds.codes]
        order = order_by(start, -end, names, group=thread)
        code = in_order(self.kinds.codes, order)
        kind = np.where(np.isin(kinds["eventType"], tables.NVTX_PUSH_POP), PUSH_POP, START_END).astype(np.uint8)
        return Ranges(
            start=in_order(start, order),
            end=in_order(end, order),
            thread=in_order(thread, order),
            name=in_order(names, order),
            domain=kinds["domain"].astype(np.int32)[code],
            kind=kind[code],
            open=in_order(is_open, order),
        )


@dataclass(frozen=True)
class Marks:
    """The workload record, if a program emitted one, and what was wrong with those that could not be read."""

    workload: Mapping[str, Any] | None
    notes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Events:
    """All rows of NVTX_EVENTS: times, the other columns by their distinct rows, and provisional name codes."""

    columns: dict[str, I64]
    kinds: CodedRows
    names: I32

    def of_type(self, *types: int) -> Bool:
        """Which rows are of one of these event types."""
        found: Bool = np.isin(self.kinds.distinct["eventType"], types)[self.kinds.codes]
        return found


def read_nvtx(source: TableSource, names: Names) -> tuple[RawRanges, Marks]:
    """Ranges of every domain, and the workload record."""
    columns, kinds = source.coded_ints(*NVTX_COLUMNS)
    events = _Events(columns, kinds, _names(source, names, kinds))
    return _ranges(source, events, names), _marks(events, names)


def _ranges(source: TableSource, events: _Events, names: Names) -> RawRanges:
    start, end = events.columns["start"], events.columns["end"]
    is_range = events.of_type(*tables.NVTX_PUSH_POP, *tables.NVTX_START_END) & timed(start)
    inverted = is_range & (end != NULL) & ((end < start) | ~timed(end))
    keep = is_range & ~inverted
    kinds, domains = _domains(events, names)
    notes: tuple[tuple[str, str], ...] = ()
    if inverted.any():
        notes = (("inverted-ranges", f"{int(inverted.sum())} NVTX ranges end before they start and were left out."),)
    duration = source.ints(tables.DETAILS)["duration"]
    duration_ns = int(duration[0]) if len(duration) and duration[0] != NULL else None
    columns = {"start": start[keep], "end": end[keep]}
    return RawRanges(columns, kinds.kept(keep), events.names[keep], domains, duration_ns, notes)


def _marks(events: _Events, names: Names) -> Marks:
    """The workload record is an NVTX mark whose text is JSON with the key `tracelab.workload`."""
    marked = np.unique(events.names[events.of_type(tables.NVTX_MARK)])
    texts = sorted(text for text in names.texts(marked) if _RECORD_KEY in text)
    records = [record for record in map(_parse, texts) if record is not None]
    notes = [] if len(records) == len(texts) else [("workload-record", "A workload record is not valid JSON; ignored.")]
    if len(records) > 1:
        notes.append(("workload-record", f"{len(records)} different workload records; the first is used."))
    return Marks(records[0] if records else None, tuple(notes))


def _parse(text: str) -> Mapping[str, Any] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    known = isinstance(record, dict) and _RECORD_KEY in record
    return record if known and not _deeper(record, _MOST_LEVELS) else None


def _deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested more than `levels` deep."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_deeper(item, levels - 1) for item in inside)


def _names(source: TableSource, names: Names, kinds: CodedRows) -> I32:
    """The string of the id, else the text: 2019 exports wrote the id 0, which is no name, in place of NULL."""
    by_kind = names.by_id(kinds.distinct["textId"])
    unnamed = by_kind == names.by_text([None])[0]
    codes, rows = by_kind[kinds.codes], np.flatnonzero(unnamed[kinds.codes])
    if len(rows):
        codes[rows] = names.by_coded(source.coded_texts(tables.NVTX, "text", rows))
    return codes


def _domains(events: _Events, names: Names) -> tuple[CodedRows, tuple[str, ...]]:
    """The kinds with the domain code of each, and the domains' names; code 0 is the default one, the empty string.

    Rows of the default domain that PyTorch named after its operators are of a domain of their own, so that rows of one
    kind may be of two.
    """
    kinds = events.kinds
    given = kinds.distinct
    ids = np.where(given["domainId"] == NULL, 0, given["domainId"])
    owner = given["globalTid"] & PROCESS_BITS
    named = _domain_names(events, owner, ids, names)
    pair, rows = group_ids([owner, ids])
    labels = ["" if ids[r] == 0 else named.get((int(owner[r]), int(ids[r])), f"domain {ids[r]}") for r in rows]
    operator = _operators(events.names, names) & (ids == 0)[kinds.codes]
    domains = ("", *sorted({*labels, *([TORCH_DOMAIN] if operator.any() else [])} - {""}))
    found = np.array([domains.index(label) for label in labels], np.int64)[pair]
    columns = {"eventType": given["eventType"], "globalTid": given["globalTid"], "domain": found}
    if not operator.any():
        return CodedRows(kinds.codes, columns), domains
    # Each kind twice: as it is, and as an operator.
    doubled = {name: np.repeat(values, 2) for name, values in columns.items()}
    doubled["domain"][1::2] = domains.index(TORCH_DOMAIN)
    return CodedRows(kinds.codes * 2 + operator, doubled), domains


def _domain_names(events: _Events, owner: I64, ids: I64, names: Names) -> dict[tuple[int, int], str]:
    """Name of each (process, domain id): the last one given to it."""
    created = np.flatnonzero(events.of_type(tables.NVTX_DOMAIN))
    kind = events.kinds.codes[created]
    texts = names.texts(events.names[created])
    return dict(zip(zip(owner[kind].tolist(), ids[kind].tolist(), strict=True), texts, strict=True))


def _operators(codes: I32, names: Names) -> Bool:
    """Rows that PyTorch named after its operators and compiled regions: they stand around and inside the user's own."""
    used = np.flatnonzero(np.bincount(codes))
    named = np.zeros(int(used[-1]) + 1 if len(used) else 0, bool)
    named[used] = [bool(_OPERATOR.match(text)) for text in names.texts(used.astype(np.int32))]
    return named[codes]
