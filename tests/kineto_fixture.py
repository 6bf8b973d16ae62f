"""Tiny files of the PyTorch profiler built event by event: keys as Kineto writes them, times in ns, written in µs.

Every method returns the trace; `save` writes the file. What a test does not say is plain: one process, one thread, one
H200, stream 7. `OLD` is the dialect of torch 1.8: capital categories, whole µs, threads and streams as text.
"""

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tracelab.kineto_load import load_kineto
from tracelab.trace import Trace

PID = 4242
_TIMES = ("ts", "dur")


@dataclass(frozen=True)
class Dialect:
    """How one generation of the profiler writes: its categories, and whether its times have digits below 1 µs."""

    kernel: str = "kernel"
    copy: str = "gpu_memcpy"
    memset: str = "gpu_memset"
    runtime: str = "cuda_runtime"
    driver: str = "cuda_driver"
    op: str = "cpu_op"
    annotation: str = "user_annotation"
    overhead: str = "overhead"
    whole_us: bool = False
    registers: bool = True
    gpu: Mapping[str, Any] | None = None


H200: Mapping[str, Any] = {
    "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150110011392, "computeMajor": 9, "computeMinor": 0,
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
    "sharedMemPerBlock": 49152, "numSms": 132, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
}  # fmt: skip
MI250: Mapping[str, Any] = {
    "id": 0, "name": "AMD Instinct MI250X", "totalGlobalMem": 68702699520, "computeMajor": 9, "computeMinor": 0,
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 64,
    "sharedMemPerBlock": 65536, "numSms": 110, "maxSharedMemoryPerMultiProcessor": 65536,
}  # fmt: skip

NEW = Dialect(gpu=H200)
OLD = Dialect("Kernel", "Memcpy", "Memset", "Runtime", "Driver", "Operator", "user_annotation", "Overhead", True,
              gpu=H200)  # fmt: skip
ROCM = Dialect(runtime="hip_runtime", registers=False, gpu=MI250)


@dataclass
class TinyKineto:
    """Events of a file under construction, and its other top-level keys."""

    dialect: Dialect = NEW
    events: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=lambda: {"schemaVersion": 1})
    _correlation: int = 100

    def launch(self, at: int, name: str, start: int, dur: int, *, api: str = "cudaLaunchKernel", api_ns: int = 5_000,
               tid: int = PID, pid: int = PID, **kernel: Any) -> Self:  # fmt: skip
        """A launching call at `at` and its kernel."""
        return self.call(at, api, dur=api_ns, tid=tid, pid=pid).kernel(name, start, dur, **kernel)

    def call(self, at: int, name: str = "cudaLaunchKernel", *, dur: int = 5_000, tid: int = PID, pid: int = PID,
             driver: bool = False, correlation: int | None = None) -> Self:  # fmt: skip
        """A call; the GPU rows that follow belong to it."""
        self._correlation = self._correlation + 1 if correlation is None else correlation
        category = self.dialect.driver if driver else self.dialect.runtime
        args = {"External id": 7, "cbid": 211, "correlation": self._correlation}
        return self.event(category, name, at, dur, pid=pid, tid=self._tid(tid), args=args)

    def kernel(self, name: str, start: int, dur: int, *, grid: Sequence[int] = (132, 1, 1),
               block: Sequence[int] = (128, 1, 1), registers: int = 32, shared: int = 0,
               node: tuple[int, int] | None = None, **where: Any) -> Self:  # fmt: skip
        """A kernel of the last call, or of `correlation`; `node` is (graph id, graph node id)."""
        args: dict[str, Any] = {"grid": list(grid), "block": list(block)}
        if self.dialect.registers:
            args |= {"registers per thread": registers, "shared memory": shared, "blocks per SM": 1.0,
                     "est. achieved occupancy %": 6}  # fmt: skip
        if node is not None:
            args |= {"graph id": node[0], "graph node id": node[1]}
        return self._work(self.dialect.kernel, name, start, dur, args, **where)

    def copy(self, start: int, dur: int, *, size: int = 8, **where: Any) -> Self:
        args = {"bytes": size, "memory bandwidth (GB/s)": 1.25}
        return self._work(self.dialect.copy, "Memcpy HtoD (Pinned -> Device)", start, dur, args, **where)

    def memset(self, start: int, dur: int, *, size: int = 8, **where: Any) -> Self:
        args = {"bytes": size, "memory bandwidth (GB/s)": "N/A"}
        return self._work(self.dialect.memset, "Memset (Device)", start, dur, args, **where)

    def _work(self, category: str, name: str, start: int, dur: int, args: dict[str, Any], *, device: int = 0,
              stream: int = 7, correlation: int | None = None) -> Self:  # fmt: skip
        place = {"device": device, "context": 1, "stream": stream,
                 "correlation": self._correlation if correlation is None else correlation}  # fmt: skip
        tid = f"stream {stream}" if self.dialect.whole_us else stream
        return self.event(category, name, start, dur, pid=device, tid=tid, args={**place, **args})

    def annotation(self, name: str, start: int, dur: int, *, tid: int = PID, pid: int = PID) -> Self:
        return self.event(self.dialect.annotation, name, start, dur, pid=pid, tid=self._tid(tid))

    def op(self, name: str, start: int, dur: int, *, tid: int = PID) -> Self:
        args = {"External id": 9, "Input Dims": [[2, 8], []], "Ev Idx": 3}
        return self.event(self.dialect.op, name, start, dur, tid=self._tid(tid), args=args)

    def overhead(self, start: int, dur: int, name: str = "Activity Buffer Request") -> Self:
        return self.event(self.dialect.overhead, name, start, dur, pid=-1, tid=0)

    def event(self, category: str | None, name: str, start: int, dur: int | None = None, *, ph: str = "X",
              pid: Any = PID, tid: Any = PID, args: Mapping[str, Any] | None = None) -> Self:  # fmt: skip
        """One event as it stands."""
        event: dict[str, Any] = {"ph": ph, "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start}
        if category is None:
            del event["cat"]
        if dur is not None:
            event["dur"] = dur
        if args is not None:
            event["args"] = dict(args)
        self.events.append(event)
        return self

    def shuffled(self, seed: int) -> "TinyKineto":
        """The same events in another order."""
        events = list(self.events)
        random.Random(seed).shuffle(events)
        return TinyKineto(self.dialect, events, self.metadata)

    def text(self) -> str:
        """The file: metadata, then one event after the other, times with three digits below 1 µs or none."""
        head = dict(self.metadata)
        if self.dialect.gpu is not None:
            head.setdefault("deviceProperties", [self.dialect.gpu])
        lines = "".join(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
        events = ",".join(map(self.event_text, self.events))
        return f'{{\n{lines}  "traceEvents": [{events}\n  ],\n  "traceName": "x"\n}}'

    def event_text(self, event: Mapping[str, Any]) -> str:
        """One event as JSON, its times as the dialect writes them."""
        parts = (f'"{key}": {self._us(value) if key in _TIMES else json.dumps(value)}' for key, value in event.items())
        return "\n  {\n    " + ", ".join(parts) + "\n  }"

    def save(self, path: Path) -> Path:
        """Write the file, compressed where its name ends in .gz; `path` may be a folder."""
        path = path / "tiny.pt.trace.json" if path.is_dir() else path
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    def _us(self, ns: int) -> str:
        sign, ns = ("-", -ns) if ns < 0 else ("", ns)
        return f"{sign}{ns // 1000}" if self.dialect.whole_us else f"{sign}{ns // 1000}.{ns % 1000:03d}"

    def _tid(self, tid: int) -> int | str:
        return str(tid) if self.dialect.whole_us else tid


def load(trace: TinyKineto, tmp_path: Path) -> Trace:
    """The trace as tracelab loads it from a file."""
    return load_kineto(trace.save(tmp_path))


def names_of(trace: Trace, codes: NDArray[np.int32]) -> list[str]:
    """The names behind name codes."""
    return [trace.names[code] for code in codes.tolist()]


def program(dialect: Dialect = NEW) -> TinyKineto:
    """Two annotated launches, the second inside an operator; a copy; a wait. GPU work at 120, 150 and 180 µs."""
    trace = TinyKineto(dialect).annotation("attn", 100_000, 40_000).launch(105_000, "k1", 120_000, 10_000)
    trace.annotation("mlp", 142_000, 30_000).op("aten::mm", 143_000, 20_000).launch(145_000, "k2", 150_000, 9_000)
    return trace.call(165_000, "cudaMemcpyAsync").copy(180_000, 4_000, size=4096).overhead(190_000, 2_000)
