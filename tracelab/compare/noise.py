"""How much a time may differ without anything having changed, and the verdict on a change (DESIGN section 2, Diff)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tracelab.compare.spread import capture_spread, half_spread, interval, median_log, weighted_median
from tracelab.difference import GONE, IMPROVEMENT, INCONCLUSIVE, NEUTRAL, NEW, REGRESSION, Change

F64 = NDArray[np.float64]
Captures = Sequence[F64]  # samples of each capture of one side

_RARE = "on one side it runs in fewer than half of the steps"
_NO_STEPS = "a side has no steps"
# A kernel of a graph begins right behind the one before it and reads longer than the same kernel launched alone: by up
# to 200 ns a call in 11 pairs of captures on an H200 (nsys 2025.3.2), whatever the kernel.
_OTHER_LAUNCH_NS = 224.0
_GRAPH_AGAINST_SINGLE = "kernels of a graph against single launches"
_ANY_CAPTURES = "what captures of one program in one session differ by"
_LEAST_NS = 1.0  # below the resolution of any trace; keeps logarithms finite where a step lacks a phase


@dataclass(frozen=True)
class Floors:
    """The part of a noise floor that a single capture cannot show: how far captures of one program differ.

    Measured on 29 captures of 9 programs in separate processes on an H200 (nsys 2025.3.2): the medians of 33 pairs'
    phases differed by up to 0.8 %, and by up to 270 ns a call where a phase has few calls; kernels called once by up
    to 224 ns, since whether a launch finds its code and data in the caches differs from process to process.
    """

    relative: float = 0.01
    per_row_ns: float = 256.0
    per_launch_ns: float = 0.0
    from_steps: bool = True

    def least(self, time_ns: float, calls: float) -> float:
        """The least floor (log) of a time per step that is made of `calls` launches: those that are many even out."""
        launched = max(calls, 1.0)
        by_calls = max(self.per_row_ns * np.sqrt(launched), self.per_launch_ns * launched) / max(time_ns, _LEAST_NS)
        # With time_ns the geometric mean of both sides this is exactly a difference of that many ns.
        return float(max(np.log1p(self.relative), 2 * np.arcsinh(by_calls / 2)))

    def between(self, one_in_graph: bool, other_in_graph: bool) -> "Floors":
        """The floors where kernels of a CUDA graph are compared with kernels launched one by one."""
        return self if one_in_graph == other_in_graph else replace(self, per_launch_ns=_OTHER_LAUNCH_NS)


@dataclass(frozen=True)
class ControlDrift:
    """A phase with the same kernels on both sides: by how much it moved (log), its time, and by how much it may move
    without any reason (log)."""

    phase: str
    log_change: float
    weight_ns: float
    spread: float


def positive(captures: Captures) -> list[F64]:
    """The samples of captures that have steps, none below what a trace can resolve."""
    return [np.maximum(samples, _LEAST_NS) for samples in captures if len(samples)]


def own_spread(before: Captures, after: Captures) -> float:
    """The larger of odd against even steps of each capture, and of the captures of one side against each other."""
    captures = [*before, *after]
    halves = [spread for samples in captures if (spread := half_spread(samples)) is not None]
    return max([*halves, capture_spread(before), capture_spread(after)], default=0.0)


def control_drift(phase: str, before: Captures, after: Captures, calls: float, floors: Floors) -> ControlDrift:
    """How a phase of `calls` launches that should not have moved did."""
    b, a = positive(before), positive(after)
    pooled_b, pooled_a = np.concatenate(b), np.concatenate(a)
    weight_ns = float(np.median(pooled_b) + np.median(pooled_a)) / 2
    spread = max(own_spread(b, a), floors.least(weight_ns, calls))
    return ControlDrift(phase, median_log(pooled_a) - median_log(pooled_b), weight_ns, spread)


def drift_without(controls: Iterable[ControlDrift], *phases: str) -> float | None:
    """Time-weighted median drift (log, signed) of the controls other than `phases`; None where there is no other."""
    others = [control for control in controls if control.phase not in phases]
    if not others:
        return None
    return weighted_median([c.log_change for c in others], [c.weight_ns for c in others])


def drift_for(phase: str, controls: Sequence[ControlDrift]) -> float | None:
    """The drift that explains a change of `phase`: of the controls other than itself.

    Where there are several, each is taken out in turn and the smallest drift counts: a second phase that changed for a
    reason of its own is no measure of the run, however much of the step it is. Nothing is picked by its result.
    """
    others = [control.phase for control in controls if control.phase != phase]
    if len(others) < 2:
        return drift_without(controls, phase)
    return _smallest([drift_without(controls, phase, other) for other in others])


def drift_of_step(controls: Sequence[ControlDrift], phases: Sequence[str]) -> float | None:
    """The drift that explains a change of the whole step: the smallest that is left when any one phase is taken out.

    A step is the sum of its phases, so the one that changed must not be its control.
    """
    return _smallest([drift_without(controls, phase) for phase in phases])


def _smallest(drifts: Iterable[float | None]) -> float | None:
    return min((drift for drift in drifts if drift is not None), key=abs, default=None)


@dataclass(frozen=True)
class Floor:
    """A noise floor (log), what made it as large as it is, and what else was looked at, in words."""

    log_value: float
    source: str
    others: tuple[str, ...] = ()


def floor_of(before: Captures, after: Captures, *, drift: float | None, calls: float, floors: Floors) -> Floor:
    """The floor of one time: the largest of what its steps, its captures and captures in general differ by; in a run
    that moved as a whole by more than that, both together, since each phase adds its own noise. A run that moved the
    other way explains nothing."""
    change = median_log(np.concatenate(after)) - median_log(np.concatenate(before))
    time_ns = float(np.sqrt(np.median(np.concatenate(before)) * np.median(np.concatenate(after))))
    by_launch = floors.per_launch_ns and floors.least(time_ns, calls) > replace(floors, per_launch_ns=0.0).least(
        time_ns, calls
    )
    parts = {_GRAPH_AGAINST_SINGLE if by_launch else _ANY_CAPTURES: floors.least(time_ns, calls)}
    if floors.from_steps:
        halves = [half for samples in (*before, *after) if (half := half_spread(samples)) is not None]
        parts["odd against even steps"] = max(halves, default=0.0)
        if max(len(before), len(after)) > 1:
            parts["captures of one side"] = max(capture_spread(before), capture_spread(after))
    own = max(parts.values())
    moved = abs(drift) if drift is not None and floors.from_steps and drift * change > 0 else 0.0
    if drift is not None:
        parts["the drift of the controls"] = own + moved if moved > own else moved
    largest = max(parts, key=lambda name: parts[name])
    return Floor(parts[largest], largest, tuple(name for name in parts if name != largest))


def judge(
    before: Captures | None, after: Captures | None, *, drift: float | None, calls: float, floors: Floors
) -> Change:
    """The change of one time with its interval, floor and verdict; `calls` launches of a step make it up."""
    if before is None or after is None:
        return _one_sided(before, after)
    b, a = positive(before), positive(after)
    if not b or not a:
        return Change(None, None, None, None, None, INCONCLUSIVE, _NO_STEPS)
    mid_b, mid_a = float(np.median(np.concatenate(before))), float(np.median(np.concatenate(after)))
    if min(mid_b, mid_a) == 0.0 < max(mid_b, mid_a):
        return Change(mid_b, mid_a, None, None, None, INCONCLUSIVE, _RARE)
    log_change = median_log(np.concatenate(a)) - median_log(np.concatenate(b))
    found = interval(b, a)
    floor = floor_of(b, a, drift=drift, calls=calls, floors=floors).log_value
    verdict = _verdict(log_change, found, floor)
    return Change(
        before_ns=mid_b,
        after_ns=mid_a,
        change=_relative(log_change),
        interval=None if found is None else (_relative(found[0]), _relative(found[1])),
        floor=_relative(floor),
        verdict=verdict,
        remark="one step on a side: nothing tells its spread" if verdict == INCONCLUSIVE else "",
    )


def undecided(change: Change) -> Change:
    """The change without a verdict: a replay that was traced as a whole counts its idle time as busy."""
    if change.verdict not in (REGRESSION, IMPROVEMENT):
        return change
    return replace(change, verdict=INCONCLUSIVE, remark="a graph traced as a whole counts its idle time as busy")


def verdict_of(change: Change) -> str:
    """What a change would be called by its time alone, whatever else is said of it."""
    if change.change is None or change.floor is None:
        return change.verdict
    found = None if change.interval is None else (np.log1p(change.interval[0]), np.log1p(change.interval[1]))
    return _verdict(float(np.log1p(change.change)), found, float(np.log1p(change.floor)))


def _verdict(log_change: float, found: tuple[float, float] | None, floor: float) -> str:
    if log_change == 0.0:
        return NEUTRAL
    if found is None:
        return INCONCLUSIVE
    if abs(log_change) <= floor or found[0] <= 0.0 <= found[1]:
        return NEUTRAL
    return REGRESSION if log_change > 0 else IMPROVEMENT


def _one_sided(before: Captures | None, after: Captures | None) -> Change:
    there = before if before is not None else after
    middle = float(np.median(np.concatenate(there))) if there is not None else None
    if before is not None:
        return Change(middle, None, None, None, None, GONE)
    return Change(None, middle, None, None, None, NEW)


def _relative(log_change: float) -> float:
    return float(np.expm1(log_change))
