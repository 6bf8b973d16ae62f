"""What a workload does around its step on the GPU: NVTX ranges, warm-up, the profiled window, graph capture, timing."""

import itertools
import statistics
from collections.abc import Callable, Mapping

import torch

from tracelab.kernels._record import emit

WARMUP_STEPS = 3  # the first loads kernels and makes the cuBLAS workspace, the others settle the allocator
EVENT_STEPS = 24  # periods timed by CUDA events; the median of 20 or more is steady to about 1 %

Step = Callable[[], object]


class Range:
    """An NVTX range in the default domain. Plain push and pop: contextlib's wrapper costs more host time per phase."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        torch.cuda.nvtx.range_push(self._name)

    def __exit__(self, *_: object) -> None:
        torch.cuda.nvtx.range_pop()


def profiled_window(step: Step, *, steps: int, graph: bool, record: Mapping[str, object]) -> Step:
    """Warm up, then run `steps` steps between cudaProfilerStart and Stop; returns what runs one step afterwards.

    With `graph` the capture lies inside the window: node-creation events and the NVTX ranges open at that time are the
    only way to trace a replayed kernel to its phase, and ranges from before the window are not kept.
    """
    warm_up(step)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    emit(record)
    run = captured(step) if graph else step
    for index in range(steps):
        with Range(f"decode_step {index}"):
            run()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    return run


def warm_up(step: Step) -> None:
    """Run a few steps on a side stream, as graph capture requires, so that eager and graph runs start alike."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)


def captured(step: Step) -> Step:
    """Capture `step` in a CUDA graph under the NVTX range `capture`; returns its replay."""
    graph = torch.cuda.CUDAGraph()
    with Range("capture"), torch.cuda.graph(graph):
        step()
    replay: Step = graph.replay
    return replay


def event_times(step: Step) -> dict[str, int]:
    """Start-to-start times of EVENT_STEPS steps by CUDA events, in ns (their resolution is about 500 ns)."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(EVENT_STEPS + 1)]
    for _ in range(WARMUP_STEPS):
        step()
    for event in events[:-1]:
        event.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    periods_ns = [round(begin.elapsed_time(end) * 1e6) for begin, end in itertools.pairwise(events)]
    return {
        "steps": len(periods_ns),
        "step_ns": round(statistics.median(periods_ns)),
        "fastest_ns": min(periods_ns),
        "slowest_ns": max(periods_ns),
    }
