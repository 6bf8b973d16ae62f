"""Which NVTX ranges a launching call lies in: by its thread and start time, never by GPU time."""

import re
from dataclasses import dataclass

import numpy as np

from tracelab.nesting import Forest, build_forest
from tracelab.trace import ABSENT, I32, I64, Bool, Trace

_DIGITS = re.compile(r"\d+")


def fold(name: str) -> str:
    """A range name with every run of digits replaced by `#`, so that numbered ranges are one."""
    return _DIGITS.sub("#", name)


def fold_codes(trace: Trace, codes: I32) -> tuple[I32, tuple[str, ...]]:
    """Folded-name code of each name code in `codes`, and the folded names."""
    unique, inverse = np.unique(codes, return_inverse=True)
    folded = [fold(trace.names[int(code)]) for code in unique]
    patterns = tuple(sorted(set(folded)))
    at = {text: i for i, text in enumerate(patterns)}
    return np.array([at[text] for text in folded], np.int32)[inverse] if len(codes) else codes, patterns


@dataclass(frozen=True)
class Launches:
    """The calls that matter for attribution: those with GPU work and those that failed; rows of `Calls`."""

    rows: I64
    gpu_ns: I64  # plain sum of the GPU time each launched


def launches(trace: Trace) -> Launches:
    """Calls with GPU work or a non-zero return value, with the GPU time each launched."""
    gpu_ns = np.zeros(len(trace.calls), np.int64)
    linked = trace.ops.call >= 0
    np.add.at(gpu_ns, trace.ops.call[linked], trace.ops.duration_ns[linked])
    has_work = trace.first_op_of_call >= 0
    rows = np.flatnonzero(has_work | (trace.calls.return_value != 0))
    return Launches(rows, gpu_ns[rows])


def without_own_range(trace: Trace, forest: Forest, rows: I64) -> Bool:
    """True for the calls `rows` whose own thread has no range open at their start."""
    lone: Bool = forest.innermost(trace.calls.thread[rows], trace.calls.start[rows]) == ABSENT
    return lone


def across_threads(trace: Trace, steps: Forest, rows: I64) -> I64:
    """Step range of another thread for each call of `rows`: the one open on the only thread of the call's process
    that holds a step at that time; ABSENT where none or several threads hold one."""
    found = np.full(len(rows), ABSENT, np.int64)
    holders = np.zeros(len(rows), np.int32)
    process, time_ns = trace.calls.process[rows], trace.calls.start[rows]
    for thread in np.unique(steps.thread):
        asked = np.flatnonzero(process == trace.thread_process[thread])
        hit = steps.innermost(np.full(len(asked), thread, np.int32), time_ns[asked])
        open_here = hit >= 0
        holders[asked[open_here]] += 1
        found[asked[open_here]] = hit[open_here]
    return np.where(holders == 1, found, ABSENT)


def domain_mask(trace: Trace, domains: Bool) -> Bool:
    """Ranges whose domain is marked in `domains` (one entry per domain)."""
    return domains[trace.ranges.domain]


def forest_of_domains(trace: Trace, domains: Bool) -> Forest:
    """Nesting of all ranges of the marked domains."""
    return build_forest(trace.ranges, domain_mask(trace, domains))


def work_in_ranges(
    trace: Trace, ranges: I64, calls: I64, weight: I64, *, any_thread: bool = False, from_ns: I64 | None = None
) -> I64:
    """Sum of `weight` over the calls that start inside each range: on its own thread, or on any of its process.

    `from_ns` counts each range from a later time than its start.
    """
    begin = trace.ranges.start[ranges] if from_ns is None else from_ns
    total = np.zeros(len(ranges), np.int64)
    thread = trace.ranges.thread[ranges]
    owner = trace.thread_process[thread] if any_thread else thread
    call_owner = trace.calls.process[calls] if any_thread else trace.calls.thread[calls]
    for code in np.unique(owner):
        here = np.flatnonzero(call_owner == code)
        times = trace.calls.start[calls[here]]
        running = np.concatenate(([0], np.cumsum(weight[here])))
        rows = np.flatnonzero(owner == code)
        first = np.searchsorted(times, begin[rows], side="left")
        last = np.searchsorted(times, trace.ranges.end[ranges[rows]], side="right")
        total[rows] = running[np.maximum(last, first)] - running[first]
    return total
