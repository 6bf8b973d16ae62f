"""What idle time tells an engineer to do, ranked elsewhere by the time it could save."""

from collections.abc import Sequence

from tracelab.gap_classes import DEPENDENCY, HOST_LATE, LAUNCH, PROFILER, SYNC
from tracelab.gap_pairs import costliest_pair, longest_gap
from tracelab.report import OtherGroup
from tracelab.result import Finding, Row
from tracelab.units import less, times
from tracelab.units import time as format_time
from tracelab.view import View

_WORTH_A_LINE = 0.05  # share of the step from which a kind of idle time is a finding
_MANY_KERNELS = 20  # below that the pauses are waits for something, not the cost of kernel boundaries
_FEW_LAUNCHES = 2  # so few launches a step are graphs already
_USUAL_US_PER_LAUNCH = (2, 5)  # cost of a launch that the host issues in time: 2 to 5 µs


def findings(view: View, pairs: Sequence[Row]) -> list[Finding]:
    """Launch gaps, waits and pauses of the representative step, each with its upper bound; `pairs` is the gap table."""
    if view.steps_used == 0 or view.time_incomplete:
        return []
    return [
        f for f in (_launch(view), _sync(view), _between(view), _queued(view, pairs), _profiler(view)) if f is not None
    ]


def _idle(view: View, gap_class: int) -> int:
    return int(view.step_idle_by_class[gap_class, view.representative])


def _step(view: View) -> int:
    at = int((view.timed == view.representative).argmax())
    return int(view.step_ns[at])


def _worth(view: View, idle: int) -> bool:
    return idle > 0 and idle >= _WORTH_A_LINE * _step(view)


def _launches(view: View) -> int:
    return int(view.table.launches[view.used[view.representative]])


def _launch(view: View) -> Finding | None:
    idle, step = _idle(view, LAUNCH), _step(view)
    if not _worth(view, idle):
        return None
    late, whole = times(idle, step)
    what = "it" if view.group.source == "whole-trace" else "this step"
    title = (
        f"The host launches too late: launch gaps are {late} of {whole}; "
        f"without them {what} could come down to {less(step, idle)}."
    )
    said = (longest_gap(view, LAUNCH, idle), _graph_advice(view), _per_launch(view, idle))
    return Finding("host-bound", title, " ".join(part for part in said if part), idle)


def _graph_advice(view: View) -> str:
    kernels = float(view.table.kernels[view.used[view.representative]])
    busy = format_time(int(view.busy_ns[view.representative]))
    if _launches(view) <= _FEW_LAUNCHES or view.group.source == "whole-trace":
        return f"The GPU's work takes {busy}."
    twin = next((other for other in view.others if _same_work_faster(view, other, kernels)), None)
    if twin is not None:
        return (
            f"{twin.pattern} runs the same {kernels:g} kernels in {format_time(twin.step_ns)}: "
            "capture this step in a CUDA graph."
        )
    return f"A CUDA graph launches the whole step with one call; its GPU work takes {busy}."


def _same_work_faster(view: View, other: OtherGroup, kernels: float) -> bool:
    return other.kernels_per_step == kernels and other.step_ns < view.step_time_ns


def _per_launch(view: View, idle: int) -> str:
    low, high = _USUAL_US_PER_LAUNCH
    each = format_time(idle // max(_launches(view), 1))
    profiler = "nsys itself" if view.trace.format.startswith("nsys") else "the profiler itself"
    return f"{each} idle per launch, where {low}–{high} µs are usual; {profiler} slows every launch."


def _sync(view: View) -> Finding | None:
    idle = _idle(view, SYNC)
    if not _worth(view, idle):
        return None
    title = f"The host waits for the GPU inside the step and launches only then: {format_time(idle)} of idle GPU."
    look = "Look for .item(), .tolist(), .cpu() or a synchronise in the step."
    return Finding("sync-in-step", title, f"{longest_gap(view, SYNC, idle)} {look}".strip(), idle)


def _between(view: View) -> Finding | None:
    step = _step(view)
    launch, sync = (int(ns) for ns in view.between_by_class[HOST_LATE, view.representative])
    if not _worth(view, launch + sync):
        return None
    late_text, whole = times(launch + sync, step)
    title = f"The GPU waits for the host between steps: {late_text} of {whole}."
    cause = "the host came back from a wait and then launched" if sync >= launch else "the next launch came late"
    return Finding("late-between-steps", title, f"Cause: {cause}.", launch + sync)


def _queued(view: View, pairs: Sequence[Row]) -> Finding | None:
    """Idle time between kernels that the GPU already had: only fewer or overlapping kernels remove it."""
    idle, step = _idle(view, DEPENDENCY), _step(view)
    kernels = int(view.table.kernels[view.used[view.representative]])
    if not _worth(view, idle) or kernels < _MANY_KERNELS:
        return None
    lost, whole, each = times(idle, step, idle / kernels)
    title = f"The GPU pauses between kernels already queued: {lost} of {whole}, {each} per kernel."
    why = f"{kernels} kernels a step: fuse them, or let them overlap (programmatic dependent launch, more streams)."
    return Finding("kernel-boundaries", title, f"{costliest_pair(pairs, 'dependency')} {why}".strip(), idle)


def _profiler(view: View) -> Finding | None:
    idle = _idle(view, PROFILER)
    if not _worth(view, idle):
        return None
    title = f"The profiler itself stopped the launching thread for {format_time(idle)} of the step."
    return Finding("profiler-overhead", title, "Without nsys this time is not lost; trace fewer APIs.", None)
