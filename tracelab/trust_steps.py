"""Are the steps that the statistics use clean, and are there enough of them? Checks of one device's view."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from tracelab.intervals import union
from tracelab.kernel_names import cut, escape
from tracelab.module_loads import module_load_finding
from tracelab.step_table import REASONS, USED, WARM_UP
from tracelab.trace import I64, Bool
from tracelab.trust_checks import FELT, IDLE, WORK, counted, step_windows
from tracelab.trust_result import TrustCheck
from tracelab.units import percent, time, times
from tracelab.view import View

_ENOUGH = 6  # from here on an interval goes by ranks; below it assumes a distribution
_TIMES = ("gaps", "mbu", "waterfall")
_NAMED, _NAME_WIDTH = 3, 40


def overheads(view: View) -> Iterator[TrustCheck]:
    """Time the profiler itself took on the launching threads, inside the used steps alone."""
    log = view.trace.overheads
    threads = np.unique(view.trace.calls.thread[view.launching_calls[1]])
    own = _overhead_ns(view, np.isin(log.thread, threads) & ~_flushes(view))
    yield from _disturbed(
        view, own, "profiler-overhead", "profiler overhead", "Profiler overhead on the launching threads"
    )


def flushes(view: View) -> Iterator[TrustCheck]:
    """Buffers that the profiler flushed inside used steps, which stops every thread of the process."""
    yield from _disturbed(
        view, _overhead_ns(view, _flushes(view)), "profiler-flush", "flushes", "Flushes of the profiler"
    )


def _flushes(view: View) -> Bool:
    named = np.array(["flush" in name.lower() for name in view.trace.names], bool)
    return named[view.trace.overheads.name] if len(view.trace.overheads) else np.zeros(0, bool)


def _overhead_ns(view: View, mine: Bool) -> I64:
    """Time of each used step that these overhead rows of its process cover."""
    log = view.trace.overheads
    start, stop = step_windows(view)
    process, covered = view.table.process[view.used], np.zeros(view.steps_used, np.int64)
    for code in np.unique(process):
        rows = mine & (log.process == code)
        steps = process == code
        covered[steps] = union(log.start[rows], log.end[rows]).covered(start[steps], stop[steps])
    return covered


def _disturbed(view: View, covered: I64, code: str, brief: str, what: str) -> Iterator[TrustCheck]:
    total = int(covered.sum())
    if total == 0:
        return
    start, stop = step_windows(view)
    share = total / max(int((stop - start).sum()), 1)
    worst = int(np.argmax(covered))
    mean, most = times(view.per_step(total), int(covered[worst]))
    yield TrustCheck(
        code,
        f"{brief}: {percent(share)} of the steps",
        f"{what} took {mean} a step, {percent(share)} of the steps' time, in {int((covered > 0).sum())} of "
        f"{counted(view.steps_used, 'step')}; the most {most}, in {_step_name(view, worst)}.",
        limits=IDLE if share > FELT else (),
        advice="As far as the GPU was idle then, the gaps show it as the profiler's." if share > FELT else "",
        numbers={"ns_per_step": view.per_step(total), "share": share, "steps": int((covered > 0).sum())},
    )


def _step_name(view: View, used: int) -> str:
    return cut(escape(view.group.names[int(view.table.step[view.used[used]])]), _NAME_WIDTH)


def other_processes(view: View) -> Iterator[TrustCheck]:
    """Other processes on the same GPU: what they run takes time and SMs from the steps."""
    ops, rows = view.trace.ops, view.device_ops
    codes = np.unique(ops.process[rows])
    if len(codes) < 2 or view.steps_used == 0:
        return
    start, stop = step_windows(view)
    owner, covered = view.table.process[view.used], np.zeros(view.steps_used, np.int64)
    for code in np.unique(owner):
        foreign, mine = rows[ops.process[rows] != code], owner == code
        covered[mine] = union(ops.start[foreign], ops.end[foreign]).covered(start[mine], stop[mine])
    share = int(covered.sum()) / max(int((stop - start).sum()), 1)
    yield TrustCheck(
        "several-processes",
        f"{len(codes)} processes on the GPU",
        f"{len(codes)} processes used this GPU: for {time(view.per_step(int(covered.sum())))} of a step "
        f"({percent(share)}) work of another one ran.",
        limits=(*WORK, "grids") if share > FELT else (),
        numbers={"processes": len(codes), "ns_per_step": view.per_step(int(covered.sum())), "share": share},
    )


def open_ranges(view: View) -> Iterator[TrustCheck]:
    """Ranges that never ended: what is launched after them counts as theirs."""
    ranges, calls = view.trace.ranges, view.trace.calls
    rows = np.flatnonzero(ranges.open)
    if len(rows) == 0:
        return
    launching = view.launching_calls[1]
    after = np.zeros(len(launching), bool)
    begun = ranges.start[rows] >= (int(calls.start[launching].min()) if len(launching) else 0)
    for row in rows[begun]:
        after |= (calls.thread[launching] == ranges.thread[row]) & (calls.start[launching] >= ranges.start[row])
    names = sorted({cut(escape(view.trace.names[int(code)]), _NAME_WIDTH) for code in ranges.name[rows]})
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    yield TrustCheck(
        "open-ranges",
        f"{counted(len(rows), 'range')} never ended",
        f"{counted(len(rows), 'range')} never ended ({', '.join(names[:_NAMED])}{more}), the first begun at "
        f"{time(int(ranges.start[rows].min()))}; {counted(int(after.sum()), 'launch')} of the steps used came after "
        "one that began among them.",
        limits=("phases",) if after.any() else (),
        numbers={"ranges": len(rows), "launches_after": int(after.sum())},
    )


def left_out(view: View) -> Iterator[TrustCheck]:
    """Steps that the statistics leave out for another reason than warm-up."""
    reason = view.table.reason
    odd = np.flatnonzero((reason != USED) & (reason != WARM_UP))
    if len(odd) == 0:
        return
    why = Counter(REASONS[int(code)] for code in reason[odd])
    said = ", ".join(f"{times_} {name}" for name, times_ in sorted(why.items()))
    warm = int((reason == WARM_UP).sum())
    most = len(odd) > view.steps_used
    yield TrustCheck(
        "steps-left-out",
        f"{view.steps_used} of {counted(len(reason), 'step')} used",
        f"{len(odd) + warm} of {counted(len(reason), 'step')} are left out: {warm} warm-up, {said}; "
        f"{view.steps_used} are used.",
        limits=WORK if most else (),
        numbers={"steps": len(reason), "steps_used": view.steps_used, "left_out": len(odd) + warm},
    )


def enough_steps(view: View) -> Iterator[TrustCheck]:
    """Whether there are steps, and enough of them for a median and an interval."""
    source, used = view.group.source, view.steps_used
    if source == "whole-trace":
        floor = ("mbu",) if view.floor.ns is not None else ()  # the floor is of one step
        yield TrustCheck(
            "no-steps",
            "no steps were found",
            "No steps were found, so the whole trace counts as one: start-up and waiting are part of every time.",
            limits=WORK,
            refuses=floor,
            advice="Mark each step with an NVTX range, or give --steps or --window.",
        )
    elif 0 < used < _ENOUGH:
        yield TrustCheck(
            "few-steps",
            f"only {counted(used, 'step')}",
            f"{counted(used, 'step')} of {len(view.table)} can be used: medians and intervals of what the host does "
            f"are weak below {_ENOUGH}.",
            limits=WORK if used == 1 else _TIMES,
            advice="Capture more steps.",
            numbers={"steps_used": used},
        )


def marked_steps(view: View) -> Iterator[TrustCheck]:
    """Steps that nobody marked: found by graph launches or by a period."""
    if view.group.source in ("graph-launch", "period"):
        yield TrustCheck(
            "steps-inferred",
            "steps are not marked",
            f"No range marks the steps: they were found by {escape(view.group.pattern)}.",
            advice="An NVTX range around each step makes them certain.",
        )


def loads(view: View) -> Iterator[TrustCheck]:
    """Modules loaded or compiled inside steps that the statistics use, since there are no others."""
    finding = module_load_finding(view)
    if finding is None or finding.evidence.startswith("Left out"):
        return
    yield TrustCheck("module-load", "modules were loaded", finding.title, limits=IDLE, advice=finding.evidence)
