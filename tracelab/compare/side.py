"""One side of a comparison: one or more captures of the same program, loaded and attributed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tracelab.compare.pairing import like
from tracelab.report import DeviceReport, Report
from tracelab.result import Metric, Row, Value
from tracelab.step_samples import Places, StepSamples

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Capture:
    """One trace: its report, the samples of its main device's steps, the driver it ran under, and whether its kernels
    are known: `by_kernel` is False where CUDA graphs were traced as a whole."""

    report: Report
    samples: StepSamples
    driver: str | None
    title: str

    @property
    def main(self) -> DeviceReport:
        return self.report.main

    @property
    def failed(self) -> list[Row]:
        """Failed launches by phase, step and process."""
        rows = self.main.results["launches"].tables.get("failed", ())
        return [row for row in rows if row["launch"]]

    @property
    def by_kernel(self) -> bool:
        return self.report.trace.cuda_graphs != "graph"


@dataclass(frozen=True)
class Failing:
    """Launches that failed inside used steps, and the share of the used steps that have any."""

    launches: int
    share: float


@dataclass(frozen=True)
class Side:
    """Captures of one program; the first one speaks for what is no sample (record, GPU, launch shapes)."""

    captures: tuple[Capture, ...]

    @property
    def first(self) -> Capture:
        return self.captures[0]

    @property
    def steps_used(self) -> int:
        return sum(capture.main.steps.used for capture in self.captures)

    @cached_property
    def phases(self) -> tuple[str, ...]:
        """Every phase of any capture, in the order of the first."""
        return tuple(dict.fromkeys(phase for capture in self.captures for phase in capture.samples.phases))

    @property
    def step_ns(self) -> list[F64]:
        """Step times, one array per capture."""
        return [capture.samples.step_ns for capture in self.captures]

    @property
    def busy_ns(self) -> list[F64]:
        """Busy times of the steps, one array per capture."""
        return [capture.samples.busy_ns for capture in self.captures]

    def phase_ns(self, phase: str) -> list[F64] | None:
        """Busy times of a phase, one array per capture; None where no capture has it, zeros where one lacks it."""
        if phase not in self.phases:
            return None
        return [c.samples.phases.get(phase, np.zeros(len(c.samples.busy_ns))) for c in self.captures]

    @property
    def places(self) -> Places:
        """The places of the first capture."""
        return self.first.samples.places

    def place_ns(self, columns: Sequence[int], *, behind: bool = False) -> list[F64]:
        """Summed time of some places in each step, one array per capture; `behind`: each from the end of the kernel
        before it. Captures of another program have no part in it, since their places are others."""
        places = [capture.samples.places for capture in self.captures if self.same_program(capture)]
        return [(at.behind_ns if behind else at.time_ns)[:, list(columns)].sum(axis=1) for at in places]

    def kernels_of(self, phase: str) -> dict[str, float]:
        """Calls per step of each kernel name of a phase."""
        found: dict[str, float] = {}
        for name, calls in self._kernels_in(phase):
            found[name] = found.get(name, 0.0) + calls
        return found

    def shapes_of(self, phase: str) -> dict[tuple[str, tuple[int, ...], tuple[int, ...]], float]:
        """Calls per step of each kernel name, grid and block of a phase."""
        places, found = self.places, dict[tuple[str, tuple[int, ...], tuple[int, ...]], float]()
        for i in (i for i, of in enumerate(places.phase) if of == phase):
            key = (places.name[i], tuple(places.grid[i].tolist()), tuple(places.block[i].tolist()))
            found[key] = found.get(key, 0.0) + float(places.calls[i])
        return found

    def metrics(self, analyzer: str, name: str) -> list[Metric]:
        """One analyzer's metric of each capture that has it."""
        results = [capture.main.results.get(analyzer) for capture in self.captures]
        return [metric for r in results if r is not None and (metric := r.metrics.get(name)) is not None]

    def metric(self, analyzer: str, name: str) -> Value:
        """One metric of the side; None where no capture has it."""
        return _middle(self.metrics(analyzer, name))

    def share_of(self, phase: str) -> float | None:
        """The phase's part of the busy time, from totals over the used steps; None where the side lacks it."""
        samples = self.phase_ns(phase)
        whole = sum(float(busy.sum()) for busy in self.busy_ns)
        return None if samples is None else sum(float(s.sum()) for s in samples) / whole if whole else 0.0

    def _kernels_in(self, phase: str) -> Iterator[tuple[str, float]]:
        places = self.places
        return (
            (name, float(calls))
            for name, of, calls in zip(places.name, places.phase, places.calls, strict=True)
            if of == phase
        )

    @cached_property
    def time_by_family(self) -> dict[tuple[str, str], float]:
        """Kernel time of the step by phase and family (those that take each other's place as one), ns (mean)."""
        places, found = self.places, dict[tuple[str, str], float]()
        times = places.time_ns.mean(axis=0) if len(places.time_ns) else np.zeros(len(places))
        for phase, family, ns in zip(places.phase, places.family, times.tolist(), strict=True):
            key = (phase, like(family))
            found[key] = found.get(key, 0.0) + ns
        return found

    def same_program(self, other: "Capture") -> bool:
        """Whether a capture runs the kernels that the first one runs, at the same places."""
        mine, its = self.places, other.samples.places
        return (mine.phase, mine.name) == (its.phase, its.name)

    @property
    def failing(self) -> Failing:
        """Failed launches in any phase."""
        return self.failing_in(None)

    def failing_in(self, phase: str | None) -> Failing:
        """Failed launches in a phase (None: in any)."""
        launches, steps = 0, 0
        for capture in self.captures:
            used = {step.name for step in capture.main.steps.per_step}
            rows = [row for row in capture.failed if row["step"] in used and phase in (None, row["phase"])]
            launches += sum(row["count"] for row in rows)
            steps += len({(row["process"], row["step"]) for row in rows})
        return Failing(launches, min(steps / self.steps_used, 1.0) if self.steps_used else 0.0)


def _middle(metrics: Sequence[Metric]) -> Value:
    """The value of one capture; of several the median over their steps, or of their values where there are no steps."""
    samples = [metric.samples for metric in metrics if metric.samples is not None and len(metric.samples)]
    if len(metrics) > 1 and len(samples) == len(metrics):
        return float(np.median(np.concatenate(samples)))
    values = [metric.value for metric in metrics]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) or not numbers:
        return values[0] if values else None
    return median(numbers)
