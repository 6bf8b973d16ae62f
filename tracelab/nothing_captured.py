"""A trace without GPU work gets one sentence with the reason, never an empty report."""

import re

import numpy as np

from tracelab.errors import NoGpuWorkError
from tracelab.failures import is_graph_launch, is_launch
from tracelab.no_kernels import Evidence, explain
from tracelab.silent_processes import said_of_cuda, silent_processes
from tracelab.trace import Trace

_COLLECTED = re.compile(r"Number of CUDA events collected:\s*([\d,]+)")
_PRODUCED = re.compile(r"CUPTI events produced:\s*([\d,]+)")


def require_gpu_work(trace: Trace) -> None:
    """Raise NoGpuWorkError, naming the reason found, if `trace` has no row of GPU work."""
    if len(trace.ops) == 0:
        why = _explain_kineto(trace) if trace.format == "kineto" else explain(evidence(trace))
        raise NoGpuWorkError(f"{trace.path}: {why}.")


def evidence(trace: Trace) -> Evidence:
    """What the trace itself says about missing kernels."""
    texts = [diagnostic.text for diagnostic in trace.diagnostics]
    version = trace.producer.removeprefix("nsys ") if trace.producer else None
    silent = silent_processes(trace)
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
        silent=silent.shown if silent.pids else "",
        said=said_of_cuda(trace),
    )


def _explain_kineto(trace: Trace) -> str:
    """The same for a trace of the PyTorch profiler, which says nothing of itself: judged by what it recorded."""
    damage = [text for code, text in trace.notes if code == "truncated-file"]
    launches = int((trace.calls_named(is_launch) | trace.calls_named(is_graph_launch)).sum())
    if trace.loss.untimed or trace.loss.inverted:
        why = "none of its GPU work has a usable time; record it again"
    elif damage:
        why = f"{damage[0].rstrip('.')}; record it again, or wait until the profiler has written it"
    elif launches:
        why = (
            f"the program made {launches} launch calls, yet the profiler recorded no GPU activity; another profiler "
            "(nsys, DCGM) on the same GPU can cause that"
        )
    elif len(trace.calls):
        why = "the program called CUDA but launched no kernel while the profiler was active"
    else:
        why = (
            "the PyTorch profiler recorded only the host; ask it for ProfilerActivity.CUDA, and let the GPU finish "
            "(torch.cuda.synchronize) before it stops"
        )
    return f"the trace holds no kernels: {why}"


def _total(pattern: re.Pattern[str], texts: list[str]) -> int | None:
    found = [int(hit[1].replace(",", "")) for hit in map(pattern.search, texts) if hit]
    return sum(found) if found else None
