"""Times a case as the GPU sees it: CUDA graphs of many calls, buffers rotated beyond L2, the same thing timed twice."""

import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

L2_BYTES = 60e6  # H200; the H100 has 50 MB (NVIDIA data sheets)
ROTATED_L2S = 4  # the set of buffers is this many times the L2, so that little of one is left when it comes round
MAX_COPIES = 64
MIN_CALLS = 20  # calls in one graph: its own start of about 10 µs must not show in a kernel of 5 µs
GRAPH_NS = 1e6  # a graph is made this long, if MAX_CALLS allow
MAX_CALLS = 512
MIN_REPLAYS, MAX_REPLAYS = 5, 100
BUDGET_NS = 0.4e9  # GPU time spent on one pass of replays


@dataclass(frozen=True)
class Timing:
    """Time of one call in ns: the lower of two passes' medians, and by how much of it the passes differ (A/A)."""

    ns: float
    spread: float
    calls: int
    replays: int


def copies_for(bytes_per_call: int) -> int:
    """Input sets that make a rotation of ROTATED_L2S × L2, at most MAX_COPIES."""
    return max(1, min(MAX_COPIES, -(-int(ROTATED_L2S * L2_BYTES) // max(1, bytes_per_call))))


def time_launches(launch: Callable[[int], object], copies: int) -> Timing:
    """Time `launch(i)`, i rotating through `copies` input sets. Needs a GPU; compiles and warms up first."""
    once_ns = _first_estimate(launch, copies)
    calls = MIN_CALLS if once_ns < 1e6 else max(1, int(MIN_CALLS * 1e6 / once_ns))
    calls = max(calls, min(MAX_CALLS, int(GRAPH_NS / once_ns)))
    calls = -(-calls // copies) * copies if copies < calls else calls
    graph = _graph_of(launch, calls, copies)
    replays = max(MIN_REPLAYS, min(MAX_REPLAYS, int(BUDGET_NS / (once_ns * calls))))
    passes = [statistics.median(_replay_ns(graph, replays)) / calls for _ in range(2)]
    return Timing(min(passes), max(passes) / min(passes) - 1, calls, replays)


def _first_estimate(launch: Callable[[int], object], copies: int) -> float:
    """Rough time of one call in ns, host time included where it is longer."""
    for copy in range(min(copies, 2)):
        launch(copy)
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    launch(0)
    end.record()
    torch.cuda.synchronize()
    return max(1e3, float(begin.elapsed_time(end)) * 1e6)


def _graph_of(launch: Callable[[int], object], calls: int, copies: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in range(calls):
            launch(call % copies)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return graph


def _replay_ns(graph: torch.cuda.CUDAGraph, replays: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return [float(a.elapsed_time(b)) * 1e6 for a, b in itertools.pairwise(events)]
