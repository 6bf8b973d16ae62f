"""The trace model: columnar, immutable, free of any file format.

Every column of one table is a numpy array of the same length n; times are int64 ns from the start of the collection and
may be negative. Ids that a row lacks are `ABSENT`. Processes, threads, devices and names are small codes into the
tuples of `Trace`; rows are in a total order that depends on their content alone, so shuffling a file changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]

ABSENT = -1
# Times beyond this are damage: no capture lasts 2^52 ns (52 days), and the sum of 1000 such times fits an int64.
TIME_LIMIT_NS = 1 << 52
SUM_LIMIT_NS = 1 << 62  # of times that are added up; beyond it they would wrap around and come out negative

KERNEL, MEMCPY, MEMSET, GRAPH = range(4)  # Ops.kind

PUSH_POP, START_END = range(2)  # Ranges.kind

MIXED_PROCESSES = "several-processes"  # the code of the note that GPU work could belong to several processes
_NVIDIA_WARP = 32  # threads of a warp (CUDA C++ Programming Guide); a wavefront of AMD's CDNA has 64 (ROCm docs)
TORCH_DOMAIN = "torch"  # of the operators that the PyTorch profiler records around the user's annotations


@dataclass(frozen=True)
class Shapes:
    """Grid, block, registers and shared memory (bytes) of GPU work, each different launch once.

    Row i of `Ops` was launched as number `code[i]` of the other columns, which are in their lexicographic order. All of
    them are 0 for anything but kernels; registers are ABSENT where the trace does not say.
    """

    code: I32
    grid_x: I32
    grid_y: I32
    grid_z: I32
    block_x: I32
    block_y: I32
    block_z: I32
    registers: I32
    static_shared_bytes: I32
    dynamic_shared_bytes: I32

    def grid(self, codes: I32) -> I64:
        """Grid of each shape of `codes`; shape [codes, 3]."""
        return np.stack([self.grid_x[codes], self.grid_y[codes], self.grid_z[codes]], axis=1).astype(np.int64)

    def block(self, codes: I32) -> I64:
        """Block of each shape of `codes`; shape [codes, 3]."""
        return np.stack([self.block_x[codes], self.block_y[codes], self.block_z[codes]], axis=1).astype(np.int64)


@dataclass(frozen=True)
class Ops:
    """GPU work, ordered by start: kernels, copies, memsets and whole-graph executions.

    `call` is the row of `Calls` that launched it (same process and correlation id), ABSENT without one. `graph_node` is
    the CUDA graph node id (graph id << 32 | node), ABSENT outside graphs. `bytes` is 0 for kernels. `read_shapes` asks
    the file for the launch shapes, once somebody wants them; it raises InputError.
    """

    kind: U8
    start: I64
    end: I64
    process: I32
    device: I32
    stream: I64
    correlation: I64
    name: I32
    call: I64
    graph_node: I64
    bytes: I64
    read_shapes: Callable[[], Shapes]

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def duration_ns(self) -> I64:
        return self.end - self.start

    @cached_property
    def shapes(self) -> Shapes:
        """How each of the rows was launched."""
        return self.read_shapes()

    @cached_property
    def computes(self) -> Bool:
        """Kernels and whole-graph executions, which stand in for their kernels; no copies or memsets."""
        return np.isin(self.kind, (KERNEL, GRAPH))


@dataclass(frozen=True)
class Calls:
    """CUDA runtime and driver calls (API classes 0 and 1), ordered by start. `driver` is True for class 1."""

    start: I64
    end: I64
    process: I32
    thread: I32
    correlation: I64
    name: I32
    return_value: I64
    driver: Bool

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Ranges:
    """NVTX ranges, outer before inner: by thread, start, descending end. `open` marks those that never ended."""

    start: I64
    end: I64
    thread: I32
    name: I32
    domain: I32
    kind: U8
    open: Bool

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Overheads:
    """Host time the profiler itself took, ordered by start."""

    start: I64
    end: I64
    process: I32
    thread: I32
    name: I32

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class GraphNodes:
    """Graph node creations: `origin` is the node it was cloned from when its graph was instantiated, else ABSENT."""

    start: I64
    thread: I32
    node: I64
    origin: I64

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Gpu:
    """One physical GPU as the trace describes it; None where the trace does not say. Bandwidth in bytes/s."""

    id: int
    name: str
    sm_count: int | None = None
    memory_bytes: int | None = None
    bandwidth_bytes_per_s: int | None = None
    compute_major: int | None = None
    compute_minor: int | None = None
    registers_per_sm: int | None = None
    registers_per_block: int | None = None
    shared_bytes_per_sm: int | None = None
    warps_per_sm: int | None = None
    blocks_per_sm: int | None = None
    threads_per_warp: int | None = None

    @property
    def is_nvidia(self) -> bool:
        """False for AMD, which counts compute capabilities of its own: gfx90a is 9.0, which is a Hopper of NVIDIA."""
        warp_fits = self.threads_per_warp in (None, _NVIDIA_WARP)
        return warp_fits and not self.name.upper().startswith(("AMD", "RADEON"))


@dataclass(frozen=True)
class Diagnostic:
    """One message of the profiler. Severity: 1 information, 2 warning, 3 error."""

    severity: int
    text: str
    process: int


@dataclass(frozen=True)
class Loss:
    """Rows that could not be used, by reason: no timestamp taken, or an end before the start."""

    untimed: int = 0
    inverted: int = 0


@dataclass(frozen=True)
class EventCounts:
    """Rows of the event tables as they stand in the file, before any is left out.

    `calls`: API calls; `dropped_calls`: those of them that `Calls` lacks (repeats of other event classes, no times).
    `work`: kernels, copies and memsets; `graphs`: whole-graph executions; `unread`: what no analysis reads
    (synchronisations, event records); `marks`: everything of NVTX. `return_codes`: do the calls say what they returned?
    """

    calls: int
    dropped_calls: int
    work: int
    graphs: int
    unread: int
    marks: int
    return_codes: bool


@dataclass(frozen=True)
class Trace:
    """One loaded trace. `processes` and `threads` are the profiler's 64-bit ids, unsigned; `devices[d]` is the GPU.

    `driver` is the version of the GPU driver as the trace writes it (`580.159.04`; nsys 2022 and older `52510517`),
    None where the trace does not say. `events` is None where nobody counted the rows of the file.
    """

    path: str
    format: str
    producer: str | None
    ops: Ops
    calls: Calls
    ranges: Ranges
    overheads: Overheads
    graph_nodes: GraphNodes
    names: tuple[str, ...]
    domains: tuple[str, ...]
    processes: tuple[int, ...]
    threads: tuple[int, ...]
    thread_process: I32
    devices: tuple[Gpu, ...]
    diagnostics: tuple[Diagnostic, ...]
    workload: Mapping[str, Any] | None
    graph_mode: str | None
    loss: Loss
    notes: tuple[tuple[str, str], ...] = ()
    driver: str | None = None
    events: EventCounts | None = None

    def pid(self, process: int) -> int:
        """Operating-system process id: bits 24 to 47 of the profiler's id."""
        return self.processes[process] >> 24 & 0xFFFFFF

    def calls_named(self, test: Callable[[str], object]) -> Bool:
        """Which calls have a name that `test` accepts; each name that occurs is tried once."""
        accepted = np.zeros(len(self.names), bool)
        accepted[self._call_names] = [bool(test(self.names[code])) for code in self._call_names.tolist()]
        return accepted[self.calls.name]

    @cached_property
    def _call_names(self) -> I64:
        return np.flatnonzero(np.bincount(self.calls.name, minlength=len(self.names)))

    @property
    def mixes_processes(self) -> bool:
        """Whether GPU work could belong to several processes, which a note says: it has no call and no sure owner."""
        return any(code == MIXED_PROCESSES for code, _ in self.notes)

    @property
    def default_domain(self) -> Bool:
        """Which of `domains` is NVTX's default domain."""
        return np.array([domain == "" for domain in self.domains], bool)

    @property
    def framework_domain(self) -> Bool:
        """Which of `domains` holds the operators of a framework: they recur like steps, but nobody meant them so."""
        return np.array([domain == TORCH_DOMAIN for domain in self.domains], bool)

    @property
    def returns_known(self) -> bool:
        """Whether the trace says what its calls returned; an nsys export without calls has nothing to say of them."""
        if self.events is None or self.events.return_codes:
            return True
        return len(self.calls) == 0 and self.format != "kineto"  # no PyTorch trace holds what a call returned

    def launched_ns(self, ops: I64) -> I64:
        """Host time at which each of the op rows `ops` was launched; its GPU start where no call is known."""
        call = self.ops.call[ops]
        return np.where(call >= 0, self.calls.start[call] if len(self.calls) else 0, self.ops.start[ops])

    @cached_property
    def first_op_of_call(self) -> I64:
        """Row of the first GPU op of each call (by start), ABSENT for calls without GPU work."""
        first = np.full(len(self.calls), ABSENT, np.int64)
        launched = np.flatnonzero(self.ops.call >= 0)[::-1]
        first[self.ops.call[launched]] = launched
        return first
