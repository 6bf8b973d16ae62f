"""Processes that launched work of which nothing is in the trace, and what the profiler says about that."""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tracelab.failures import is_graph_launch, is_launch
from tracelab.nsys_messages import quoted
from tracelab.trace import Bool, Trace

_CAPTURE_BEGIN = re.compile(r"^(cuda|cu)StreamBeginCapture")
_ABOUT_CUDA = re.compile(r"CUDA|CUPTI|processing events")
_WARNING = 2
_PIDS_SHOWN, _MESSAGES_SHOWN = 8, 2


@dataclass(frozen=True)
class SilentProcesses:
    """Process ids, in order, and how many launch calls they made; `only_graphs`: all of these replay a graph."""

    pids: tuple[int, ...] = ()
    launch_calls: int = 0
    only_graphs: bool = False

    @property
    def shown(self) -> str:
        """The ids for a sentence: `pid 100, 101`."""
        more = " …" if len(self.pids) > _PIDS_SHOWN else ""
        return f"pid {', '.join(map(str, self.pids[:_PIDS_SHOWN]))}{more}"


def silent_processes(trace: Trace) -> SilentProcesses:
    """The processes whose launch calls returned 0 and that have no GPU work at all; none of them in most traces.

    Where the work of processes cannot be told apart there is no saying that one has none.
    """
    if trace.mixes_processes:
        return SilentProcesses()
    graph = trace.calls_named(is_graph_launch)
    capturing = np.unique(trace.calls.process[trace.calls_named(_CAPTURE_BEGIN.match)])
    # A launch into a graph under capture rightly leaves no work; a replay of that graph must.
    launching = trace.calls_named(is_launch) & (graph | ~np.isin(trace.calls.process, capturing))
    mute: Bool = launching & (trace.calls.return_value == 0)
    mute &= ~np.isin(trace.calls.process, np.unique(trace.ops.process))
    pids = sorted({trace.pid(int(code)) for code in np.unique(trace.calls.process[mute])})
    return SilentProcesses(tuple(pids), int(mute.sum()), bool(mute.any() and graph[mute].all()))


def said_of_cuda(trace: Trace) -> str:
    """The profiler's warnings about CUDA, the most frequent first, as `“…” ×7; “…”`; empty if there are none."""
    texts = [d.text for d in trace.diagnostics if d.severity >= _WARNING and _ABOUT_CUDA.search(d.text)]
    told = Counter(map(quoted, texts)).most_common(_MESSAGES_SHOWN)
    return "; ".join(f"{text}{f' ×{times}' if times > 1 else ''}" for text, times in told)
