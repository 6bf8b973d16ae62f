"""NVTX ranges, domains and the workload record of an nsys export."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelab import nsys_tables as tables
from tracelab.arrays import group_ids
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


@dataclass(frozen=True)
class RawRanges:
    """Ranges as read, in file order; `duration_ns` is the length of the capture, where the file says it."""

    columns: dict[str, I64]
    names: I32
    domain: I32
    domains: tuple[str, ...]
    duration_ns: int | None
    notes: tuple[tuple[str, str], ...]

    def finish(self, sort: Callable[[I32], I32], identities: Identities, last_ns: int) -> Ranges:
        """Final codes, order and ends. A range that never ended lasts until the last event and is marked open."""
        start, end = self.columns["start"], self.columns["end"]
        is_open = (end == NULL) | (end == (self.duration_ns if self.duration_ns is not None else NULL))
        closed = end[~is_open]
        last = max(last_ns, int(closed.max(initial=last_ns)), int(start.max(initial=last_ns)))
        end = np.where(end == NULL, last, end)
        thread, names = identities.thread_codes(self.columns["globalTid"]), sort(self.names)
        kind = np.where(np.isin(self.columns["eventType"], tables.NVTX_PUSH_POP), PUSH_POP, START_END)
        order = np.lexsort((names, -end, start, thread))
        return Ranges(
            start=start[order],
            end=end[order],
            thread=thread[order],
            name=names[order],
            domain=self.domain[order],
            kind=kind[order].astype(np.uint8),
            open=is_open[order],
        )


@dataclass(frozen=True)
class Marks:
    """The workload record, if a program emitted one, and what was wrong with those that could not be read."""

    workload: Mapping[str, Any] | None
    notes: tuple[tuple[str, str], ...]


def read_nvtx(source: TableSource, names: Names) -> tuple[RawRanges, Marks]:
    """Ranges of every domain, and the workload record."""
    raw = source.ints(tables.NVTX)
    codes = _names(source, names, raw["textId"])
    return _ranges(source, raw, codes, names), _marks(raw, codes, names)


def _ranges(source: TableSource, raw: dict[str, I64], codes: I32, names: Names) -> RawRanges:
    is_range = np.isin(raw["eventType"], tables.NVTX_PUSH_POP + tables.NVTX_START_END) & timed(raw["start"])
    inverted = is_range & (raw["end"] != NULL) & ((raw["end"] < raw["start"]) | ~timed(raw["end"]))
    keep = is_range & ~inverted
    domain, domains = _domains(raw, codes, names)
    notes: tuple[tuple[str, str], ...] = ()
    if inverted.any():
        notes = (("inverted-ranges", f"{int(inverted.sum())} NVTX ranges end before they start and were left out."),)
    duration = source.ints(tables.DETAILS)["duration"]
    duration_ns = int(duration[0]) if len(duration) and duration[0] != NULL else None
    columns = {name: raw[name][keep] for name in ("start", "end", "eventType", "globalTid")}
    return RawRanges(columns, codes[keep], domain[keep], domains, duration_ns, notes)


def _marks(raw: dict[str, I64], codes: I32, names: Names) -> Marks:
    """The workload record is an NVTX mark whose text is JSON with the key `tracelab.workload`."""
    marked = np.unique(codes[raw["eventType"] == tables.NVTX_MARK])
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


def _names(source: TableSource, names: Names, text_ids: I64) -> I32:
    """The string of the id, else the text: 2019 exports wrote the id 0, which is no name, in place of NULL."""
    codes = names.by_id(text_ids)
    unnamed = codes == names.by_text([None])[0]
    if not unnamed.any():
        return codes
    direct = names.by_coded(source.coded_texts(tables.NVTX, "text"))
    return np.where(unnamed, direct, codes).astype(np.int32)


def _domains(raw: dict[str, I64], codes: I32, names: Names) -> tuple[I32, tuple[str, ...]]:
    """Domain code of each row and the domains' names; code 0 is the default domain, named by the empty string."""
    ids = np.where(raw["domainId"] == NULL, 0, raw["domainId"])
    owner = raw["globalTid"] & PROCESS_BITS
    created = np.flatnonzero(raw["eventType"] == tables.NVTX_DOMAIN)
    named = {
        (int(owner[row]), int(ids[row])): text for row, text in zip(created, names.texts(codes[created]), strict=True)
    }
    pair, rows = group_ids([owner, ids])
    labels = ["" if ids[r] == 0 else named.get((int(owner[r]), int(ids[r])), f"domain {ids[r]}") for r in rows]
    operator = _operators(codes, names) & (ids == 0)
    domains = ("", *sorted({*labels, *([TORCH_DOMAIN] if operator.any() else [])} - {""}))
    found = np.array([domains.index(label) for label in labels], np.int32)[pair]
    return np.where(operator, domains.index(TORCH_DOMAIN), found).astype(np.int32) if operator.any() else found, domains


def _operators(codes: I32, names: Names) -> Bool:
    """Rows that PyTorch named after its operators and compiled regions: they stand around and inside the user's own."""
    unique, inverse = np.unique(codes, return_inverse=True)
    named = np.array([bool(_OPERATOR.match(text)) for text in names.texts(unique)], bool)
    return named[inverse] if len(codes) else np.zeros(0, bool)
