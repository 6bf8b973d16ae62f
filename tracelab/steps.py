"""Groups of steps of one trace: which ranges, launches or periods are steps, and which GPU work belongs to each."""

import re
from dataclasses import dataclass

import numpy as np

from tracelab.attribution import Launches, fold, launches
from tracelab.errors import InputError, UsageError
from tracelab.options import Selection
from tracelab.steps_inferred import Inferred, infer_steps, whole_trace
from tracelab.steps_nvtx import NvtxSteps, nvtx_steps
from tracelab.trace import ABSENT, I32, I64, Bool, Trace

_SHOWN_PATTERNS = 8


@dataclass(frozen=True)
class StepGroup:
    """Steps that are alike. Per step: name, process, thread (ABSENT: any), host window in ns, whether it never ended.

    `op_step` is the step of every row of `Ops`, ABSENT outside. `inside_range` is the NVTX range the steps were looked
    for in (ABSENT: none). `chosen`: may be the group that results are for.
    """

    source: str
    pattern: str
    names: tuple[str, ...]
    process: I32
    thread: I32
    host_start: I64
    host_end: I64
    open: Bool
    op_step: I32
    inside_range: int = ABSENT
    chosen: bool = True


@dataclass(frozen=True)
class Steps:
    """All groups of a trace: those asked for, then by GPU time; and how calls were attributed to NVTX steps."""

    groups: tuple[StepGroup, ...]
    nvtx: NvtxSteps | None
    launched: Launches


def find_steps(trace: Trace, selection: Selection) -> Steps:
    """The steps of `trace`. Raises InputError when `selection.steps` matches no range."""
    launched = launches(trace)
    wanted = _compiled(selection.steps)
    marked = nvtx_steps(trace, launched, wanted)
    if marked is None and wanted is not None:
        raise InputError(_no_match(trace, wanted.pattern))
    groups = _from_ranges(trace, marked) if marked else _merged(trace, infer_steps(trace, launched))
    groups = [group for group in groups if (group.op_step >= 0).any()]
    if wanted is not None and not any(group.chosen for group in groups):
        raise InputError(f"--steps {wanted.pattern!r} matches ranges, but none of them launched GPU work.")
    if not groups:
        groups = _merged(trace, [whole_trace(trace)]) if len(trace.ops) else []
    return Steps(tuple(sorted(groups, key=lambda group: (not group.chosen, -_gpu_ns(trace, group)))), marked, launched)


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--steps {pattern!r} is not a regular expression ({error}).") from error


def _no_match(trace: Trace, wanted: str) -> str:
    folded = sorted({fold(trace.names[int(code)]) for code in np.unique(trace.ranges.name)} - {""})
    if not folded:
        return f"--steps {wanted!r} matches nothing: the trace has no NVTX ranges."
    more = f" and {len(folded) - _SHOWN_PATTERNS} more" if len(folded) > _SHOWN_PATTERNS else ""
    return f"--steps {wanted!r} matches no range name; there are: {', '.join(folded[:_SHOWN_PATTERNS])}{more}."


def _gpu_ns(trace: Trace, group: StepGroup) -> int:
    return int(trace.ops.duration_ns[group.op_step >= 0].sum())


def _from_ranges(trace: Trace, marked: NvtxSteps) -> list[StepGroup]:
    call_range = marked.call_range
    linked = trace.ops.call >= 0
    op_range = np.full(len(trace.ops), ABSENT, np.int64)
    op_range[linked] = call_range[trace.ops.call[linked]]
    return [_group(trace, marked, code, op_range) for code in range(len(marked.patterns))]


def _group(trace: Trace, marked: NvtxSteps, code: int, op_range: I64) -> StepGroup:
    rows = marked.rows[marked.pattern == code]
    rows = rows[np.lexsort((trace.ranges.start[rows], trace.ranges.thread[rows]))]
    number = np.full(len(trace.ranges) + 1, ABSENT, np.int32)  # the last entry answers for ABSENT
    number[rows] = np.arange(len(rows), dtype=np.int32)
    thread = trace.ranges.thread[rows]
    return StepGroup(
        source="nvtx",
        pattern=marked.patterns[code],
        names=tuple(trace.names[int(name)] for name in trace.ranges.name[rows]),
        process=trace.thread_process[thread],
        thread=thread,
        host_start=trace.ranges.start[rows],
        host_end=trace.ranges.end[rows],
        open=trace.ranges.open[rows],
        op_step=number[op_range],
        chosen=bool(marked.chosen[code]),
    )


def _merged(trace: Trace, parts: list[Inferred]) -> list[StepGroup]:
    """One group of each rule: ranks that run the same loop are steps of one group."""
    labels = dict.fromkeys((part.source, part.pattern) for part in parts)
    return [_combine(trace, [p for p in parts if (p.source, p.pattern) == label]) for label in labels]


def _combine(trace: Trace, parts: list[Inferred]) -> StepGroup:
    op_step = np.full(len(trace.ops), ABSENT, np.int32)
    first = 0
    for part in parts:
        op_step[part.op_rows] = part.op_step + first
        first += len(part.start)
    counts = [len(part.start) for part in parts]
    single = parts[0].source == "whole-trace"
    names = ["whole trace"] if single else [f"step {i}" for count in counts for i in range(count)]
    return StepGroup(
        source=parts[0].source,
        pattern=parts[0].pattern,
        names=tuple(names),
        process=np.repeat([part.process for part in parts], counts).astype(np.int32),
        thread=np.full(first, ABSENT, np.int32),
        host_start=np.concatenate([part.start for part in parts]),
        host_end=np.concatenate([part.end for part in parts]),
        open=np.zeros(first, bool),
        op_step=op_step,
        inside_range=parts[0].inside_range,
    )


def step_of_calls(trace: Trace, group: StepGroup, rows: I64) -> I32:
    """The step of `group` in whose host window, in its own process, each call of `rows` starts; ABSENT if none."""
    found = np.full(len(rows), ABSENT, np.int32)
    if group.source == "whole-trace":
        return found
    process = trace.calls.process[rows]
    for code in np.unique(process):
        steps = np.flatnonzero(group.process == code)
        steps = steps[np.argsort(group.host_start[steps], kind="stable")]
        asked = np.flatnonzero(process == code)
        time_ns = trace.calls.start[rows[asked]]
        at = np.searchsorted(group.host_start[steps], time_ns, side="right") - 1
        inside = (at >= 0) & (time_ns <= group.host_end[steps[np.maximum(at, 0)]] if len(steps) else False)
        found[asked[inside]] = steps[at[inside]]
    return found
