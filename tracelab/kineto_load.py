"""Loads a trace of the PyTorch profiler (Kineto's Chrome JSON) into the trace model.

Times are ns from the first event that is kept; the file's own clock has an arbitrary origin. Annotations of the user
are ranges of the default domain, operators of torch those of the domain `torch`. Kineto writes no return codes, no
nodes of graphs under construction and no workload record.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tracelab.arrays import rows_by
from tracelab.errors import InputError
from tracelab.event_clock import Clock
from tracelab.failures import is_graph_launch, strip_version
from tracelab.kineto_gpus import describes_gpus, gpu_of
from tracelab.kineto_identity import Identities, identities
from tracelab.kineto_ops import Work, read_work
from tracelab.kineto_read import KinetoFile
from tracelab.kineto_rows import FRAMEWORK, RawTables, read_rows
from tracelab.table_source import NULL, timed
from tracelab.trace import (
    I32,
    I64,
    MIXED_PROCESSES,
    PUSH_POP,
    TORCH_DOMAIN,
    Bool,
    Calls,
    EventCounts,
    GraphNodes,
    Overheads,
    Ranges,
    Trace,
)

_NO_GPU = ("no-gpu-info", "The trace does not describe its GPU; give --gpu NAME for limits and bandwidth.")
_VERSIONS = ("torch_version", "pytorch_version")
_NOTHING = np.zeros(0, np.int64)
_NO_NODES = GraphNodes(_NOTHING, np.zeros(0, np.int32), _NOTHING, _NOTHING)
_HIP_GRAPH_LAUNCH = "hipGraphLaunch"


def load_kineto(path: Path) -> Trace:
    """Load `path`, compressed with gzip or not. Damage is read around, counted and told in `Trace.notes`.

    Raises InputError where the file cannot be read, is empty, or has no array of events.
    """
    file = KinetoFile(path)
    try:
        rows = read_rows(file.events())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if not file.has_events:
        raise InputError(f"{path}: {_no_events(file)}; export the profile again.")
    return _trace(path, file, rows)


def _no_events(file: KinetoFile) -> str:
    if file.complete:
        return 'JSON, but no trace of the PyTorch profiler (it has no "traceEvents")'
    return "it ends before its first event, or what stands before that cannot be read"


def _trace(path: Path, file: KinetoFile, rows: RawTables) -> Trace:
    codes, names = _names(rows)
    clock = Clock.of([rows.ops["start"], rows.calls["start"], rows.ranges["start"], rows.overheads["start"]])
    hosts = np.union1d(rows.calls["thread"], rows.ranges["thread"]).tolist()
    who = identities(rows.threads, hosts)
    calls, repeated = _calls(rows.calls, codes, who, clock)
    replays = np.array([is_graph_launch(name) or name == _HIP_GRAPH_LAUNCH for name in names], bool)
    work = read_work(rows.ops, codes[rows.ops["name"]], calls, replays[calls.name], clock)
    ranges, inverted = _ranges(rows.ranges, codes, who, clock, _last_ns(work.ops.end, calls.end))
    return Trace(
        path=str(path),
        format="kineto",
        producer=_producer(file.metadata),
        ops=work.ops,
        calls=calls,
        ranges=ranges,
        overheads=_overheads(rows.overheads, codes, who, clock),
        graph_nodes=_NO_NODES,
        names=names,
        domains=("", TORCH_DOMAIN),
        processes=who.processes,
        threads=who.threads,
        thread_process=who.thread_process,
        devices=tuple(gpu_of(ordinal, file.metadata) for ordinal in work.ordinals),
        diagnostics=(),
        workload=None,
        graph_mode=None,
        loss=work.loss,
        notes=tuple(_notes(file, rows, work, inverted)),
        driver=_driver(file.metadata),
        events=_counts(rows, calls, repeated),
    )


def _names(rows: RawTables) -> tuple[I32, tuple[str, ...]]:
    """Final code of each provisional name code, and the names in order; API calls lose their version suffix."""
    called = set(rows.calls["name"].tolist())
    texts = [strip_version(name) if code in called else name for name, code in rows.names.items()]
    names = tuple(sorted(set(texts)))
    at = {name: code for code, name in enumerate(names)}
    return np.array([at[text] for text in texts], np.int32), names


def _calls(raw: dict[str, I64], codes: I32, who: Identities, clock: Clock) -> tuple[Calls, int]:
    """Calls by start, and how many were left out: driver calls that repeat a runtime call of the same id."""
    start = clock.shifted(raw["start"])
    keep = timed(start)
    thread = who.thread[raw["thread"]]
    process = who.thread_process[thread]
    keep &= ~_repeats(process, raw, keep)
    end = start + np.where(raw["dur"] > 0, raw["dur"], 0)
    end = np.where(timed(end), end, start)
    order = np.flatnonzero(keep)
    driver, name = raw["driver"] == 1, codes[raw["name"]]
    order = order[rows_by(start[keep], end[keep], thread[keep], raw["correlation"][keep], name[keep], driver[keep])]
    calls = Calls(
        start=start[order],
        end=end[order],
        process=process[order],
        thread=thread[order],
        correlation=np.maximum(raw["correlation"][order], 0),
        name=name[order],
        return_value=np.zeros(len(order), np.int64),
        driver=driver[order],
    )
    return calls, len(keep) - len(order)


def _repeats(process: I32, raw: dict[str, I64], usable: Bool) -> Bool:
    """Driver calls whose correlation id a runtime call of their process has: the same launch, seen from inside."""
    key = (process.astype(np.int64) << 32) | (raw["correlation"] & 0xFFFFFFFF)
    told = usable & (raw["correlation"] > 0)
    outer = np.unique(key[told & (raw["driver"] == 0)])
    repeats: Bool = told & (raw["driver"] == 1) & np.isin(key, outer)
    return repeats


def _ranges(raw: dict[str, I64], codes: I32, who: Identities, clock: Clock, last_ns: int) -> tuple[Ranges, int]:
    """Ranges, outer before inner, and how many were left out since they end before they start, or never began.

    A range that never ended lasts until the last event.
    """
    start = clock.shifted(raw["start"])
    is_open = raw["dur"] == NULL
    end = np.where(is_open, start, start + raw["dur"])
    keep = timed(start) & timed(end) & (end >= start)
    last = max(last_ns, _last_ns(end[keep]))
    end = np.where(is_open, last, end)
    thread, name = who.thread[raw["thread"]], codes[raw["name"]]
    order = np.flatnonzero(keep)
    order = order[np.lexsort((raw["domain"][order], name[order], -end[order], start[order], thread[order]))]
    ranges = Ranges(
        start=start[order],
        end=end[order],
        thread=thread[order],
        name=name[order],
        domain=(raw["domain"][order] == FRAMEWORK).astype(np.int32),
        kind=np.full(len(order), PUSH_POP, np.uint8),
        open=is_open[order],
    )
    return ranges, len(keep) - len(order)


def _overheads(raw: dict[str, I64], codes: I32, who: Identities, clock: Clock) -> Overheads:
    start = clock.shifted(raw["start"])
    end = start + np.maximum(raw["dur"], 0)
    keep = timed(start) & timed(end) & (end > start)
    start, end = start[keep], end[keep]
    thread, name = who.thread[raw["thread"][keep]], codes[raw["name"][keep]]
    order = rows_by(start, end, thread, name)
    return Overheads(start[order], end[order], who.thread_process[thread][order], thread[order], name[order])


def _last_ns(*ends: I64) -> int:
    return max((int(column.max()) for column in ends if len(column)), default=0)


def _producer(metadata: Mapping[str, Any]) -> str | None:
    """The PyTorch profiler where the file has a key that only Kineto writes, with torch's version if it is told."""
    if not metadata.keys() & {"schemaVersion", "deviceProperties", "trace_id", *_VERSIONS}:
        return None
    versions = [metadata[key] for key in _VERSIONS if isinstance(metadata.get(key), str)]
    return " ".join(["PyTorch profiler", *(f"(torch {version})" for version in versions[:1])])


def _driver(metadata: Mapping[str, Any]) -> str | None:
    """The CUDA version that the driver supports, the only thing Kineto says of it: 12040 is CUDA 12.4."""
    version = metadata.get("cuda_driver_version")
    if type(version) is not int or not 1000 <= version < 1_000_000:
        return None
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def _counts(rows: RawTables, calls: Calls, repeated: int) -> EventCounts:
    return EventCounts(
        calls=len(calls) + repeated,
        dropped_calls=repeated,
        work=len(rows.ops["kind"]),
        graphs=0,
        unread=0,
        marks=len(rows.ranges["start"]),
        return_codes=False,
    )


def _notes(file: KinetoFile, rows: RawTables, work: Work, inverted: int) -> Iterator[tuple[str, str]]:
    yield from _damage(file, rows)
    if inverted:
        yield "inverted-ranges", f"{inverted} ranges end before they start, or have no usable time, and were left out."
    if work.ambiguous:
        yield (
            MIXED_PROCESSES,
            f"{work.ambiguous} rows of GPU work could belong to launches of several processes, which count their "
            "launches alike; they are in no phase. Give the trace of one process.",
        )
    if not describes_gpus(file.metadata):
        yield _NO_GPU


def _damage(file: KinetoFile, rows: RawTables) -> Iterator[tuple[str, str]]:
    counts = (
        (file.skipped_events + rows.unusable, "event", "lost"),
        (file.unread_bytes, "byte", "passed over"),
        (file.replaced, "character", "not valid UTF-8"),
    )
    said = ", ".join(f"{count} {what}{'' if count == 1 else 's'} {how}" for count, what, how in counts if count)
    if not file.complete:
        more = f" ({said})" if said else ""
        yield "truncated-file", f"The file ends before its closing bracket{more}; what came after is not in any number."
    elif said:
        yield "damaged-file", f"The file is damaged ({said}); what is lost is not in any number."
