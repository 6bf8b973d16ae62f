"""A trace without GPU work gets one sentence with the reason, never an empty report."""

import re

from tracelab.errors import InputError
from tracelab.launch_state import launch_calls
from tracelab.no_kernels import Evidence, explain
from tracelab.failures import is_graph_launch
from tracelab.trace import Trace

_COLLECTED = re.compile(r"Number of CUDA events collected:\s*([\d,]+)")
_PRODUCED = re.compile(r"CUPTI events produced:\s*([\d,]+)")


def require_gpu_work(trace: Trace) -> None:
    """Raise InputError, naming the reason found, if `trace` has no row of GPU work."""
    if len(trace.ops) == 0:
        raise InputError(f"{trace.path}: {explain(evidence(trace))}")
