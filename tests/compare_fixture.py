"""Sides of a comparison made by hand, and tiny programs of which every time is known. Times in ns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tiny_trace import US, Shape, TinyTrace

from tracelab.compare.load import load_side
from tracelab.compare.side import Capture, Side
from tracelab.families import classify
from tracelab.options import Facts, Selection
from tracelab.report import DeviceReport, GpuFacts, Report, StepRow, StepsFacts, TraceFacts
from tracelab.result import Metric, Result
from tracelab.step_samples import Places, StepSamples

F64 = NDArray[np.float64]

EVEN = (1.0,) * 9  # nine steps that take the same time
# Nine steps around 1: median 1.000, odd ones (1st, 3rd …) 0.999 1.000 0.998 1.000 1.002, even ones 1.001 0.999 1.002
# 0.998, so the halves' medians are alike to 0.000 (1.000 against the mean of 0.999 and 1.001).
NOISY = (0.999, 1.001, 1.000, 0.999, 0.998, 1.002, 1.000, 0.998, 1.002)


class Kernel(NamedTuple):
    """A kernel of a step: its phase, name, time of one call, and blocks of its grid."""

    phase: str
    name: str
    ns: float = 100_000.0
    blocks: int = 132


def sequence(phase: str, *names: str) -> list[Kernel]:
    """Kernels of one phase."""
    return [Kernel(phase, name) for name in names]


def places(kernels: Sequence[Kernel], steps: Sequence[float] = EVEN, *, ordered: bool = True) -> Places:
    """One place for each kernel; its time in each step is its own times that step's factor."""
    names = [kernel.name for kernel in kernels]
    shape = np.ones((len(kernels), 3), np.int64)
    times = np.outer(steps, [kernel.ns for kernel in kernels])
    return Places(
        ordered=ordered,
        phase=tuple(kernel.phase for kernel in kernels),
        run=tuple(_runs(kernels)),
        name=tuple(names),
        family=tuple(classify(names).families),
        calls=np.ones(len(kernels)),
        time_ns=times,
        behind_ns=times,
        grid=shape * np.array([[kernel.blocks, 1, 1] for kernel in kernels], np.int64).reshape(-1, 3),
        block=shape * 128,
        registers=np.full(len(kernels), 32),
    )


def _runs(kernels: Sequence[Kernel]) -> Iterator[int]:
    """How often the step has entered the phase of each kernel before."""
    entered: dict[str, int] = {}
    last = None
    for kernel in kernels:
        if kernel.phase != last:
            entered[kernel.phase] = entered.get(kernel.phase, -1) + 1
        last = kernel.phase
        yield entered[kernel.phase]


def capture(
    kernels: Sequence[Kernel],
    steps: Sequence[float] = EVEN,
    *,
    ordered: bool = True,
    bound: str = "device",
    step_factor: float = 1.0,
    failed: Mapping[str, int] | None = None,
    **facts: Any,
) -> Capture:
    """A capture whose kernels run one after the other; the step takes `step_factor` times their sum.

    `failed`: failed launches by phase, one in each of the first steps.
    `facts` are those of the trace (`workload`, `gpus`, `cuda_graphs`, …).
    """
    at = places(kernels, steps, ordered=ordered)
    phases = {p: at.time_ns[:, [of == p for of in at.phase]].sum(axis=1) for p in dict.fromkeys(at.phase)}
    busy = at.time_ns.sum(axis=1)
    main = DeviceReport(0, steps_facts(len(steps)), _results(len(kernels), bound, failed or {}), ())
    return Capture(
        report=Report(trace=_trace(**facts), capture=None, main=main),
        samples=StepSamples(busy * step_factor, busy, phases, at),
        driver="570.1",
        title="a capture",
    )


def steps_facts(used: int, source: str = "nvtx") -> StepsFacts:
    rows = [StepRow(i, f"step {i}", 1, 0, 1, 1, 1, 1, 1, None) for i in range(used)]
    return StepsFacts(source, "step #", used, used, (), (), rows)


def with_steps(of: Capture, used: int, source: str = "nvtx") -> Capture:
    """The capture with other facts about its steps."""
    return replace(of, report=replace(of.report, main=replace(of.main, steps=steps_facts(used, source))))


def _trace(**facts: Any) -> TraceFacts:
    plain: dict[str, Any] = {
        "path": "a.sqlite",
        "format": "nsys-sqlite",
        "producer": None,
        "kernels": 0,
        "kernel_sum_ns": 0,
        "recording": None,
        "workload": None,
        "gpus": [GpuFacts(0, "NVIDIA H200", 132, None, None)],
        "warnings": [],
    }
    return TraceFacts(**{**plain, **facts})


def _results(kernels: int, bound: str, failed: Mapping[str, int]) -> dict[str, Result]:
    rows = [
        {"phase": phase, "step": f"step {step}", "process": 1, "count": 1, "launch": True}
        for phase, count in failed.items()
        for step in range(count)
    ]
    return {
        "gaps": Result(metrics={"bound": Metric(bound, "")}),
        "launches": Result(
            metrics={"failed_launches": Metric(sum(failed.values()), "launches")}, tables={"failed": rows}
        ),
        "kernels": Result(
            metrics={
                "kernels_per_step": Metric(kernels, "kernels"),
                "launches_per_step": Metric(kernels, "launches"),
            }
        ),
    }


def one(kernels: Sequence[Kernel], steps: Sequence[float] = EVEN, **how: Any) -> Side:
    """A side with a single capture."""
    return Side((capture(kernels, steps, **how),))


def slower(kernels: Sequence[Kernel], factor: float, *names: str) -> list[Kernel]:
    """The kernels with those of these names or phases `factor` times as slow; all of them where none is named."""
    return [k._replace(ns=k.ns * factor) if not names or k.name in names or k.phase in names else k for k in kernels]


def program(
    kernels: Sequence[Kernel],
    steps: Sequence[float] = NOISY,
    *,
    gap_ns: int = 0,
    failing: Mapping[int, int] | None = None,
    start: int = 0,
) -> TinyTrace:
    """An eager loop: a step is its kernels back to back, then `gap_ns` without work.

    With a gap the host launches the first kernel of a step just before it runs, so the gap is its fault; without one it
    is steps ahead of the GPU. `failing[i] = k`: in step i the launch of the k-th kernel fails and nothing runs.
    """
    trace = TinyTrace()
    clock = start + 50 * US * len(steps)
    for i, factor in enumerate(steps):
        host = clock - 50 * US if gap_ns else start + 50 * US * i
        trace.range(f"step {i}", host, host + 49 * US)
        for k, kernel in enumerate(kernels):
            at, length = host + 700 * k + 1, round(kernel.ns * factor)
            trace.range(kernel.phase, at, at + 600)
            if (failing or {}).get(i) == k:
                trace.call(at + 1, at + 6, code=1)
            else:
                shape = Shape(grid=(kernel.blocks, 1, 1))
                trace.launch(at + 1, kernel.name, clock, clock + length, shape=shape)
                clock += length
        clock += gap_ns
    return trace


def loaded(*paths: Path, **selection: Any) -> Side:
    """The side of some trace files; all steps are used unless `skip_steps` says otherwise."""
    return load_side(paths, Selection(**{"skip_steps": 0, **selection}), Facts())
