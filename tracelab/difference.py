"""What changed between two traces, or along a ladder of them, as every report format receives it.

Holds no trace and reads none. Times are medians over the used steps in ns; changes are relative to the time before
(0.2 is 20 % slower); verdicts are the words below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracelab.report import TraceWarning
from tracelab.result import Finding, Value

SCHEMA = "tracelab.diff/1"
LADDER_SCHEMA = "tracelab.ladder/1"

REGRESSION, IMPROVEMENT, NEUTRAL, INCONCLUSIVE = "regression", "improvement", "neutral", "inconclusive"
NEW, GONE, COUNT_CHANGED, NOT_COMPARABLE = "new", "gone", "count-changed", "not-comparable"

# How kernels of the two sides were paired: by name and place, by place alone, one with several, several with one.
SAME, REPLACED, SPLIT, FUSED = "same", "replaced", "split", "fused"


@dataclass(frozen=True)
class Change:
    """One time before and after, in ns; None on the side that lacks it.

    `change`, its 95 % `interval` and the noise `floor` that it was judged by are relative; None where they cannot be
    told. `remark` says in a few words why the verdict is `inconclusive`.
    """

    before_ns: float | None
    after_ns: float | None
    change: float | None
    interval: tuple[float, float] | None
    floor: float | None
    verdict: str
    remark: str = ""

    @property
    def delta_ns(self) -> float:
        """After minus before; a side that lacks it counts as zero."""
        return (self.after_ns or 0.0) - (self.before_ns or 0.0)


@dataclass(frozen=True)
class PhaseChange:
    """One phase: its busy time per step (overlaps shared evenly), its share of the step's busy time, its kernels per
    step, and whether it serves as a control for the others."""

    phase: str
    time: Change
    share_before: float | None
    share_after: float | None
    kernels_before: float
    kernels_after: float
    control: bool


@dataclass(frozen=True)
class Shape:
    """The most frequent launch shape of a kernel row; `sm_fill` is the share of the SMs that its grid reaches."""

    grid: str
    block: str
    blocks: int
    registers: int
    sm_fill: float | None


@dataclass(frozen=True)
class KernelChange:
    """Kernels of one phase that stand at the same places in the step before and after.

    `pairing` is SAME, REPLACED, SPLIT, FUSED, NEW or GONE; `before` and `after` are the kernel names of one place
    (several where a kernel was split or kernels were fused). `time` is the sum over all calls of a step, `calls_*` how
    many.
    """

    phase: str
    pairing: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    calls_before: float
    calls_after: float
    time: Change
    shapes_before: tuple[Shape, ...]
    shapes_after: tuple[Shape, ...]

    @property
    def per_call_before_ns(self) -> float | None:
        """Time of one call before, None where there was none."""
        return _per_call(self.time.before_ns, self.calls_before)

    @property
    def per_call_after_ns(self) -> float | None:
        """Time of one call after, None where there is none."""
        return _per_call(self.time.after_ns, self.calls_after)


def _per_call(time_ns: float | None, calls: float) -> float | None:
    return time_ns / calls if time_ns is not None and calls else None


@dataclass(frozen=True)
class MetricChange:
    """One metric of an analyzer on both sides; None where a side lacks it."""

    analyzer: str
    name: str
    unit: str
    before: Value
    after: Value


@dataclass(frozen=True)
class Control:
    """A phase that should not have moved, and by how much it did."""

    phase: str
    change: float


@dataclass(frozen=True)
class NoiseFloor:
    """What counts as no measurable change, relative: of the step's device time, and of the step time (None where it
    cannot be told). `source` and `step_source` say in words what each was measured from."""

    device_time: float | None
    step_time: float | None
    source: str
    step_source: str = ""


@dataclass(frozen=True)
class SideFacts:
    """One side: its captures, the GPU, the steps that were used in all captures, what bounds them, failed launches."""

    paths: tuple[str, ...]
    title: str
    producer: str | None
    gpu: str
    sm_count: int | None
    pattern: str
    source: str
    steps_used: int
    bound: str
    failed_launches: int
    workload: Mapping[str, Any] | None


@dataclass(frozen=True)
class Diff:
    """Two sides compared. `reasons` say why they cannot be compared; if that was forced, `comparable` stays False and
    the rest is filled all the same. `regressed` names what makes the exit code 3; `notes` say what was not looked at or
    was let pass."""

    before: SideFacts
    after: SideFacts
    comparable: bool
    reasons: Sequence[TraceWarning]
    warnings: Sequence[TraceWarning]
    verdict: str
    noise_floor: NoiseFloor
    controls: Sequence[Control]
    step: Change
    device_time: Change
    phases: Sequence[PhaseChange]
    kernels: Sequence[KernelChange]
    metrics: Sequence[MetricChange]
    findings: Sequence[Finding]
    regressed: Sequence[str] = ()
    notes: Sequence[str] = ()

    def metric(self, analyzer: str, name: str) -> MetricChange | None:
        """The change of one analyzer's metric, None if neither side has it."""
        return next((m for m in self.metrics if (m.analyzer, m.name) == (analyzer, name)), None)


@dataclass(frozen=True)
class Ladder:
    """Several traces in a row: each rung against the one before, and the last against the first.

    The rungs' medians are those of the whole, so the increments add up to its difference.
    """

    rungs: Sequence[Diff]
    whole: Diff

    @property
    def sides(self) -> list[SideFacts]:
        """Every trace once, in order."""
        return [self.rungs[0].before, *(rung.after for rung in self.rungs)]
