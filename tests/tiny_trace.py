"""Small nsys SQLite exports built row by row: real table and column names (schema of nsys 2025.3), times in ns.

Every method returns the trace, so a test reads as one sentence; `save` writes the file. A table without rows is absent,
as in a lazy export. What a test does not say is plain: one process, one thread, one H200, one stream.
"""

import contextlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from tiny_schema import H200, META, SCHEMA

US = 1_000
MS = 1_000_000

KERNEL, MEMCPY, MEMSET = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
GRAPH_TRACE, RUNTIME = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX, NODES, STRINGS = "NVTX_EVENTS", "CUDA_GRAPH_NODE_EVENTS", "StringIds"

LAUNCH, GRAPH_LAUNCH, SYNC = "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000", "cudaStreamSynchronize_v3020"
_VM = 1 << 48


class Thread(NamedTuple):
    """One thread of one process, as nsys packs them: hw 8 bits, vm 8, pid 24, tid 24; stored signed."""

    pid: int = 100
    tid: int = 100
    hw: int = 0

    @property
    def global_tid(self) -> int:
        return _signed(self.hw << 56 | _VM | self.pid << 24 | self.tid)

    @property
    def global_pid(self) -> int:
        return _signed(self.hw << 56 | _VM | self.pid << 24)


MAIN = Thread()


class Shape(NamedTuple):
    """Launch shape of a kernel; shared memory in bytes."""

    grid: tuple[int, int, int] = (132, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    registers: int = 32
    shared: int = 0


PLAIN = Shape()


class TinyTrace:
    """Rows of an export under construction; `gpu` is the row of its one GPU, None for no GPU table."""

    def __init__(self, gpu: Mapping[str, Any] | None = H200) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {STRINGS: [], "ANALYSIS_DETAILS": [], META: []}
        self._strings: dict[str, int] = {}
        self._correlation: dict[tuple[int, int], int] = {}
        self._dropped: set[str] = set()
        self._statements: list[str] = []
        self.row(META, name="EXPORT_PRODUCT_VERSION", value="2025.3.2.367")
        if gpu is not None:
            self.gpu(**gpu)

    # GPU work and calls

    def launch(self, at: int, name: str, start: int, end: int, *, on: Thread = MAIN, api: str = LAUNCH,
               api_ns: int = 5, **kernel: Any) -> Self:  # fmt: skip
        """A launching call at `at` and its kernel."""
        self.call(at, at + api_ns, api, on=on)
        return self.kernel(name, start, end, on=on, **kernel)

    def replay(self, at: int, ops: Sequence[tuple[str, int, int, int]], *, on: Thread = MAIN, api_ns: int = 5,
               **kernel: Any) -> Self:  # fmt: skip
        """One graph launch and its kernels (name, start, end, node id)."""
        self.call(at, at + api_ns, GRAPH_LAUNCH, on=on)
        for name, start, end, node in ops:
            self.kernel(name, start, end, on=on, node=node, **kernel)
        return self

    def call(self, start: int, end: int, name: str = LAUNCH, *, on: Thread = MAIN, code: int = 0, event_class: int = 0,
             correlation: int | None = None) -> Self:  # fmt: skip
        """An API row; the GPU rows that follow on its process belong to it."""
        key = (on.hw, on.pid)
        self._correlation[key] = correlation if correlation is not None else self._correlation.get(key, 100) + 1
        return self.row(RUNTIME, start=start, end=end, eventClass=event_class, globalTid=on.global_tid,
                        correlationId=self._correlation[key], nameId=self.string(name), returnValue=code)  # fmt: skip

    def kernel(self, name: str, start: int, end: int, *, node: int | None = None, shape: Shape = PLAIN,
               **where: Any) -> Self:  # fmt: skip
        """A kernel row of the last call, or of `correlation`."""
        code = self.string(name)
        sizes: dict[str, Any] = {f"{what}{axis}": n for what, three in (("grid", shape.grid), ("block", shape.block))
                 for axis, n in zip("XYZ", three, strict=True)}  # fmt: skip
        return self._work(KERNEL, start, end, **where, demangledName=code, shortName=code, graphNodeId=node, **sizes,
                          registersPerThread=shape.registers, staticSharedMemory=0,
                          dynamicSharedMemory=shape.shared)  # fmt: skip

    def copy(
        self, start: int, end: int, *, kind: int = 1, size: int = 8, node: int | None = None, **where: Any
    ) -> Self:
        return self._work(MEMCPY, start, end, **where, copyKind=kind, bytes=size, graphNodeId=node)

    def memset(self, start: int, end: int, *, size: int = 8, node: int | None = None, **where: Any) -> Self:
        return self._work(MEMSET, start, end, **where, bytes=size, value=0, graphNodeId=node)

    def graph_trace(self, start: int, end: int, *, graph: int = 2, **where: Any) -> Self:
        return self._work(GRAPH_TRACE, start, end, **where, graphId=1, graphExecId=graph)

    def _work(self, table: str, start: int, end: int, *, on: Thread = MAIN, device: int = 0, stream: int = 7,
              correlation: int | None = None, **columns: Any) -> Self:  # fmt: skip
        last = self._correlation.get((on.hw, on.pid))
        return self.row(table, start=start, end=end, deviceId=device, contextId=1, streamId=stream,
                        correlationId=last if correlation is None else correlation, globalPid=on.global_pid,
                        **columns)  # fmt: skip

    # the program's own marks

    def range(self, name: str | None, start: int, end: int | None, *, on: Thread = MAIN, kind: int = 59,
              domain: int = 0, ended_by: Thread | None = None, registered: bool = False) -> Self:  # fmt: skip
        """An NVTX range; a `registered` name stands in StringIds, else in the text column; None in neither."""
        return self.row(NVTX, start=start, end=end, eventType=kind, globalTid=on.global_tid, domainId=domain,
                        text=None if registered else name, textId=self.string(name or "") if registered else None,
                        endGlobalTid=ended_by.global_tid if ended_by else None)  # fmt: skip

    def domain(self, number: int, name: str, *, on: Thread = MAIN) -> Self:
        return self.range(name, 0, None, on=on, kind=75, domain=number)

    def workload(self, *, at: int = 0, **record: Any) -> Self:
        """The workload record, as a mark."""
        return self.range(json.dumps({"tracelab.workload": 1, **record}), at, None, kind=34)

    def node(self, at: int, node: int, origin: int | None = None, *, on: Thread = MAIN) -> Self:
        """Creation of a graph node, or its clone when the graph is instantiated."""
        return self.row(NODES, start=at, end=at, eventClass=95, globalTid=on.global_tid, nameId=self.string("node"),
                        graphNodeId=node, originalGraphNodeId=origin)  # fmt: skip

    # what the profiler says

    def overhead(self, start: int, end: int, name: str = "TLS allocation", *, on: Thread = MAIN) -> Self:
        return self.row("PROFILER_OVERHEAD", start=start, end=end, globalTid=on.global_tid, nameId=self.string(name),
                        returnValue=0)  # fmt: skip

    def diagnostic(self, text: str, severity: int = 2, *, on: Thread = MAIN) -> Self:
        return self.row("DIAGNOSTIC_EVENT", timestamp=0, timestampType=1, source=1, severity=severity, text=text,
                        globalPid=on.global_pid)  # fmt: skip

    def gpu(self, **facts: Any) -> Self:
        return self.row("TARGET_INFO_GPU", **facts)

    def cuda_device(self, gpu: int, ordinal: int, pid: int = MAIN.pid) -> Self:
        return self.row("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=ordinal, pid=pid)

    def duration(self, ns: int) -> Self:
        return self.row("ANALYSIS_DETAILS", globalVid=_VM, duration=ns, startTime=0, stopTime=ns)

    def graph_mode(self, mode: str) -> Self:
        return self.row("META_DATA_CAPTURE", name="PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", value=mode)

    # the file

    def row(self, table: str, **columns: Any) -> Self:
        """One row as it stands."""
        self._rows.setdefault(table, []).append(columns)
        return self

    def string(self, text: str) -> int:
        """Id of `text` in StringIds."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.row(STRINGS, id=self._strings[text], value=text)
        return self._strings[text]

    def without(self, *names: str) -> Self:
        """Leave out tables (`TABLE`) or columns (`TABLE.column`)."""
        self._dropped |= set(names)
        return self

    def sql(self, statement: str) -> Self:
        """A statement to run on the finished file."""
        self._statements.append(statement)
        return self

    def save(self, path: Path) -> Path:
        """Write the export; `path` may be a folder."""
        path = path / "tiny.sqlite" if path.is_dir() else path
        path.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA synchronous = OFF")
            for table, rows in self._rows.items():
                if table not in self._dropped:
                    self._write(connection, table, rows)
            for statement in self._statements:
                connection.execute(statement)
        return path

    def _write(self, connection: sqlite3.Connection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        kinds = {name: kind for name, kind in SCHEMA[table].items() if f"{table}.{name}" not in self._dropped}
        columns = ", ".join(f'"{name}" {kind}' for name, kind in kinds.items())
        connection.execute(f'CREATE TABLE "{table}" ({columns})')
        marks = ", ".join("?" * len(kinds))
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [[r.get(n) for n in kinds] for r in rows])


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
