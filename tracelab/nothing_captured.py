"""A trace without GPU work gets one sentence with the reason, never an empty report."""

import re

import numpy as np

from tracelab.errors import NoGpuWorkError
from tracelab.failures import is_graph_launch, is_launch
from tracelab.no_kernels import Evidence, explain
from tracelab.trace import Trace

_COLLECTED = re.compile(r"Number of CUDA events collected:\s*([\d,]+)")
_PRODUCED = re.compile(r"CUPTI events produced:\s*([\d,]+)")


def require_gpu_work(trace: Trace) -> None:
    """Raise NoGpuWorkError, naming the reason found, if `trace` has no row of GPU work."""
    if len(trace.ops) == 0:
        raise NoGpuWorkError(f"{trace.path}: {explain(evidence(trace))}.")


def evidence(trace: Trace) -> Evidence:
    """What the trace itself says about missing kernels."""
    texts = [diagnostic.text for diagnostic in trace.diagnostics]
    version = trace.producer.removeprefix("nsys ") if trace.producer else None
    return Evidence(
        diagnostics=texts,
        processes=len(trace.processes) or None,
        processes_with_calls=len(np.unique(trace.calls.process)),
        launch_calls=int(trace.calls_named(is_launch).sum()),
        graph_launches=int(trace.calls_named(is_graph_launch).sum()),
        graph_mode=trace.graph_mode.capitalize() if trace.graph_mode else None,
        nsys_version=version,
        events_produced=_total(_PRODUCED, texts),
        events_collected=_total(_COLLECTED, texts),
    )


def _total(pattern: re.Pattern[str], texts: list[str]) -> int | None:
    found = [int(hit[1].replace(",", "")) for hit in map(pattern.search, texts) if hit]
    return sum(found) if found else None
