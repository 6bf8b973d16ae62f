"""Which NVTX ranges a launching call lies in: by its thread and start time, never by GPU time."""

import re
from dataclasses import dataclass

import numpy as np

from tracelab.nesting import Forest, build_forest
from tracelab.trace import ABSENT, I32, I64, Bool, Trace

_DIGITS = re.compile(r"#?\d+")  # the profiler of PyTorch numbers its steps `ProfilerStep#12`


def fold(name: str) -> str:
    """A range name with every run of digits, and a `#` before it, replaced by `#`: numbered ranges are one."""
    return _DIGITS.sub("#", name)


def fold_codes(trace: Trace, codes: I32) -> tuple[I32, tuple[str, ...]]:
    """Folded-name code of each name code in `codes`, and the folded names."""
    unique, inverse = np.unique(codes, return_inverse=True)
    folded = [fold(trace.names[int(code)]) for code in unique]
    patterns = tuple(sorted(set(folded)))
    at = {text: i for i, text in enumerate(patterns)}
    return np.array([at[text] for text in folded], np.int32)[inverse] if len(codes) else codes, patterns


def ranges_named(trace: Trace, pattern: re.Pattern[str]) -> Bool:
    """Which ranges have a name in which `pattern` is found; each name that occurs is searched once."""
    codes, inverse = np.unique(trace.ranges.name, return_inverse=True)
    hits = np.array([bool(pattern.search(trace.names[code])) for code in codes.tolist()], bool)
    return hits[inverse]


@dataclass(frozen=True)
class Launches:
    """The calls that matter for attribution: those with GPU work and those that failed; rows of `Calls`."""

    rows: I64


def launches(trace: Trace) -> Launches:
    """Calls with GPU work or a non-zero return value."""
    has_work = trace.first_op_of_call >= 0
    return Launches(np.flatnonzero(has_work | (trace.calls.return_value != 0)))


def launched_gpu_ns(trace: Trace) -> I64:
    """Plain sum of the GPU time that each call launched."""
    gpu_ns = np.zeros(len(trace.calls), np.int64)
    linked = trace.ops.call >= 0
    np.add.at(gpu_ns, trace.ops.call[linked], trace.ops.duration_ns[linked])
    return gpu_ns


class OwnRanges:
    """The forests of domains, each made once, and the innermost range of every launch on its own thread."""

    def __init__(self, trace: Trace, launched: Launches) -> None:
        self._trace, self._launched = trace, launched
        self._known: dict[bytes, tuple[Forest, I64]] = {}

    def of(self, domains: Bool) -> tuple[Forest, I64]:
        """Nesting of the ranges of `domains`, and range row of each of `Launches.rows`, ABSENT where none is open."""
        key = domains.tobytes()
        if key not in self._known:
            forest, calls, rows = forest_of_domains(self._trace, domains), self._trace.calls, self._launched.rows
            self._known[key] = (forest, forest.innermost(calls.thread[rows], calls.start[rows]))
        return self._known[key]


def across_threads(trace: Trace, steps: Forest, rows: I64) -> I64:
    """Step range of another thread for each call of `rows`: the one open on the only thread of the call's process
    that holds a step at that time; ABSENT where none or several threads hold one."""
    outer = np.flatnonzero(steps.parent == ABSENT)  # at most one of a thread is open at a time
    found = np.full(len(rows), ABSENT, np.int64)
    process, time_ns = trace.calls.process[rows], trace.calls.start[rows]
    owner = trace.thread_process[steps.thread[outer]]
    for code in np.unique(process):
        mine = outer[owner == code]
        asked = np.flatnonzero(process == code)
        found[asked] = _only_open(steps, mine, time_ns[asked])
    return found


def _only_open(steps: Forest, mine: I64, time_ns: I64) -> I64:
    """Row of the range of `mine` that is open at each time, ABSENT where none or several are.

    The numbers of the ranges begun, less those of the ranges ended, add up to the number of the only open one.
    """
    begun, ended = np.sort(steps.start[mine]), np.sort(steps.end[mine])
    before = np.concatenate(([0], np.cumsum(mine[np.argsort(steps.start[mine], kind="stable")])))
    after = np.concatenate(([0], np.cumsum(mine[np.argsort(steps.end[mine], kind="stable")])))
    started = np.searchsorted(begun, time_ns, side="right")
    over = np.searchsorted(ended, time_ns, side="left")
    only = started - over == 1
    number = np.where(only, before[started] - after[over], 0)
    return np.where(only, steps.rows[number] if len(steps.rows) else ABSENT, ABSENT)


def forest_of_domains(trace: Trace, domains: Bool) -> Forest:
    """Nesting of all ranges of the domains that are marked in `domains` (one entry per domain)."""
    return build_forest(trace.ranges, domains[trace.ranges.domain])


def forest_of_rows(trace: Trace, rows: I64) -> Forest:
    """Nesting of the ranges `rows` among themselves."""
    mask = np.zeros(len(trace.ranges), bool)
    mask[rows] = True
    return build_forest(trace.ranges, mask)


def work_in_ranges(
    trace: Trace,
    ranges: I64,
    calls: I64,
    weight: I64 | None = None,
    *,
    any_thread: bool = False,
    from_ns: I64 | None = None,
) -> I64:
    """Sum of `weight` (None: how many) over the calls that start inside each range: on its own thread, or on any of its
    process.

    `from_ns` counts each range from a later time than its start.
    """
    begin = trace.ranges.start[ranges] if from_ns is None else from_ns
    total = np.zeros(len(ranges), np.int64)
    thread = trace.ranges.thread[ranges]
    owner = trace.thread_process[thread] if any_thread else thread
    call_owner = trace.calls.process[calls] if any_thread else trace.calls.thread[calls]
    for code in np.unique(owner):
        mine = call_owner == code
        here = slice(None) if mine.all() else np.flatnonzero(mine)
        times = trace.calls.start[calls[here]]
        running = np.concatenate(([0], np.cumsum(weight[here]))) if weight is not None else np.arange(len(times) + 1)
        rows = np.flatnonzero(owner == code)
        first = np.searchsorted(times, begin[rows], side="left")
        last = np.searchsorted(times, trace.ranges.end[ranges[rows]], side="right")
        total[rows] = running[np.maximum(last, first)] - running[first]
    return total
