"""The finished analysis of one trace, as every report format receives it. Holds no trace and reads none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracelab.result import Finding, Result

SCHEMA = "tracelab.report/1"


@dataclass(frozen=True)
class TraceWarning:
    """Something the reader must know about the input, with a stable code."""

    code: str
    message: str


@dataclass(frozen=True)
class GpuFacts:
    """One GPU as the page names it. Bandwidth in bytes per second; its source is `option`, `datasheet` or `trace`."""

    id: int
    name: str
    sm_count: int | None
    memory_bandwidth_bytes_per_s: float | None
    bandwidth_source: str | None


@dataclass(frozen=True)
class TraceFacts:
    """Where the numbers come from. `kernel_sum_ns` is the plain sum over every kernel row of the trace.
    `cuda_graphs`: `node` (kernels of replays are in the trace), `graph` (replays as a whole), None without graphs."""

    path: str
    format: str
    producer: str | None
    kernels: int
    kernel_sum_ns: int
    recording: str | None
    workload: Mapping[str, Any] | None
    gpus: Sequence[GpuFacts]
    warnings: Sequence[TraceWarning]
    cuda_graphs: str | None = None


@dataclass(frozen=True)
class CaptureFacts:
    """How the trace came to be, when tracelab captured it itself."""

    program_exit_code: int
    nsys: str
    nsys_version: str


@dataclass(frozen=True)
class StepRow:
    """One used step on one device; times in ns, `period_ns` None for the last of its group."""

    index: int
    name: str
    process: int
    device: int
    kernels: int
    launches: int
    span_ns: int
    busy_ns: int
    sum_ns: int
    period_ns: int | None


@dataclass(frozen=True)
class LeftOut:
    """A step that no statistic uses, with the reason: `warm-up`, `module-load`, `deviates` or `truncated`."""

    index: int
    name: str
    reason: str
    span_ns: int
    kernels: int = 0


@dataclass(frozen=True)
class OtherGroup:
    """Another group of steps in the same trace."""

    pattern: str
    found: int
    step_ns: int
    kernels_per_step: float
    launches_per_step: float = 0.0


@dataclass(frozen=True)
class StepsFacts:
    """Which steps were found and used. `source`: nvtx, graph-launch, period, whole-trace or none."""

    source: str
    pattern: str
    found: int
    used: int
    left_out: Sequence[LeftOut]
    others: Sequence[OtherGroup]
    per_step: Sequence[StepRow]
    outside_ns: int = 0
    outside_kernels: int = 0


@dataclass(frozen=True)
class DeviceReport:
    """The results of all analyzers on one device."""

    device: int
    steps: StepsFacts
    results: Mapping[str, Result]
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Report:
    """Everything a report format may print. `devices` holds the other devices when there are several."""

    trace: TraceFacts
    capture: CaptureFacts | None
    main: DeviceReport
    devices: Sequence[DeviceReport] = field(default_factory=tuple)
