"""What is worth saying about a comparison, the most urgent first."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from tracelab.compare.comparable import failed_launches
from tracelab.compare.noise import ControlDrift
from tracelab.compare.side import Side
from tracelab.difference import (
    COUNT_CHANGED,
    GONE,
    IMPROVEMENT,
    NEUTRAL,
    NEW,
    REGRESSION,
    Change,
    KernelChange,
    PhaseChange,
    Shape,
)
from tracelab.kernel_names import shorten
from tracelab.result import Finding
from tracelab.units import count, percent, times

_FILLED = 0.9  # DESIGN section 2: a grid that reaches fewer of the SMs underfills the GPU
_KERNEL_WIDTH = 40
_KERNELS_NAMED = 3
_PHASES_NAMED = 3
_CONTROLS_AT_LEAST = 2  # one phase that moved is that phase
_SHARE_MOVED = 0.02  # of the GPU time; less is no reason to wonder


def diff_findings(
    before: Side,
    after: Side,
    phases: Sequence[PhaseChange],
    kernels: Sequence[KernelChange],
    controls: Sequence[ControlDrift],
    device_time: Change,
) -> list[Finding]:
    """Failed launches, a run that was slower as a whole, grids starved at a cost, each changed phase, kernels that
    changed in phases that did not, launches, other starved grids, shares."""
    starved = [(row.time.verdict == REGRESSION, found) for row in kernels for found in _starved(row, after)]
    return [
        *_failures(before, after),
        *_slower_run(controls),
        *(finding for slower, finding in starved if slower),
        *(_phase(row, kernels) for row in phases if row.time.verdict in (REGRESSION, IMPROVEMENT)),
        *(_other_phase(row) for row in phases if row.time.verdict in (NEW, GONE)),
        *_kernels_alone(phases, kernels),
        *_launches(before, after, device_time),
        *(finding for slower, finding in starved if not slower),
        *_shares(phases),
    ]


def _failures(before: Side, after: Side) -> Iterator[Finding]:
    failed_b, failed_a = failed_launches(before), failed_launches(after)
    if failed_b == failed_a:
        return
    more: Counter[str] = Counter()
    for row in (row for capture in (after if failed_a > failed_b else before).captures for row in capture.failed):
        more[row["phase"]] += row["count"]
    where = ", ".join(f"{phase} {number}" for phase, number in more.most_common(_PHASES_NAMED))
    yield Finding(
        "failed-launch",
        f"Failed launches: {failed_b} before, {failed_a} after ({where}).",
        "The kernels did not run, so the time they would have taken is missing on that side.",
    )


def _slower_run(controls: Sequence[ControlDrift]) -> Iterator[Finding]:
    """All controls moved the same way, each by more than its own spread: nothing that one change of code does."""
    beyond = all(abs(c.log_change) > c.spread for c in controls)
    if len(controls) < _CONTROLS_AT_LEAST or not beyond or len({c.log_change > 0 for c in controls}) > 1:
        return
    moved = sorted(float(np.expm1(c.log_change)) for c in controls)
    slower = moved[0] > 0
    word = "slower" if slower else "faster"
    yield Finding(
        f"run-{word}",
        f"This run was {word}, not one phase: all {len(controls)} controls moved by {_signed(moved[0])} to "
        f"{_signed(moved[-1])}.",
        "Clocks, power limits or other work on the GPU do that; capture both again before looking for a cause in code.",
    )


def _starved(row: KernelChange, after: Side) -> Iterator[Finding]:
    one, other = _fullest(row.shapes_before), _fullest(row.shapes_after)
    if one is None or other is None or one.sm_fill is None or other.sm_fill is None:
        return
    if not other.sm_fill < _FILLED <= one.sm_fill:
        return
    gpu = next((g for g in after.first.report.trace.gpus if g.id == after.first.main.device), None)
    sms = gpu.sm_count if gpu is not None and gpu.sm_count else 0
    spent = times(row.time.before_ns or 0.0, row.time.after_ns or 0.0)
    yield Finding(
        "grid-shrunk",
        f"{_name(row.after)} in {row.phase} no longer fills the GPU: {one.blocks} → {other.blocks} blocks for {sms} "
        f"SMs ({spent[0]} → {spent[1]} a step).",
        "A change that divides one parallel axis starves the kernels that shared it; give them more blocks.",
    )


def _fullest(shapes: Sequence[Shape]) -> Shape | None:
    known = [shape for shape in shapes if shape.sm_fill is not None]
    return max(known, key=lambda shape: shape.blocks, default=None)


def _phase(row: PhaseChange, kernels: Sequence[KernelChange]) -> Finding:
    time = row.time
    slower = time.verdict == REGRESSION
    before, after, delta = times(time.before_ns or 0.0, time.after_ns or 0.0, abs(time.delta_ns))
    return Finding(
        "phase-slower" if slower else "phase-faster",
        f"{row.phase} is {delta} a step {'slower' if slower else 'faster'}: {before} → {after} "
        f"({_signed(time.change or 0.0)}).",
        _because(row, kernels),
    )


def _kernels_alone(phases: Sequence[PhaseChange], kernels: Sequence[KernelChange]) -> Iterator[Finding]:
    """Kernels that became slower or faster in phases whose time did not change measurably."""
    still = {row.phase for row in phases if row.time.verdict == NEUTRAL}
    for word, verdict in (("slower", REGRESSION), ("faster", IMPROVEMENT)):
        rows = [row for row in kernels if row.phase in still and row.time.verdict == verdict]
        if rows:
            named = "; ".join(f"{_kernel(row)} in {row.phase}" for row in rows[:_KERNELS_NAMED])
            more = f"; {len(rows) - _KERNELS_NAMED} more" if len(rows) > _KERNELS_NAMED else ""
            yield Finding(
                f"kernel-{word}",
                f"{len(rows)} kernel{'s' if len(rows) > 1 else ''} {word} without a measurable change of the phase.",
                f"{named}{more}.",
            )


def _other_phase(row: PhaseChange) -> Finding:
    new = row.time.verdict == NEW
    spent = times(abs(row.time.delta_ns))[0]
    what = f"{row.phase} is {'new' if new else 'gone'}: {spent} a step {'more' if new else 'less'}."
    kernels = row.kernels_after if new else row.kernels_before
    return Finding("phase-new" if new else "phase-gone", what, f"It has {count(kernels)} kernels a step.")


def _because(row: PhaseChange, kernels: Sequence[KernelChange]) -> str:
    mine = [
        kernel
        for kernel in kernels
        if kernel.phase == row.phase and kernel.time.verdict != NEUTRAL and kernel.time.delta_ns * row.time.delta_ns > 0
    ]
    if not mine:
        return "No single kernel of it changed measurably."
    return "; ".join(_kernel(kernel) for kernel in mine[:_KERNELS_NAMED]) + "."


def _kernel(row: KernelChange) -> str:
    delta = times(abs(row.time.delta_ns))[0]
    sign = "+" if row.time.delta_ns > 0 else "−"
    if row.time.verdict in (NEW, GONE):
        return f"{_name(row.after or row.before)} {'is new' if row.time.verdict == NEW else 'is gone'} ({sign}{delta})"
    what = _name(row.before) if row.before == row.after else f"{_name(row.before)} → {_name(row.after)}"
    if row.time.verdict == COUNT_CHANGED or row.calls_before != row.calls_after:
        return f"{what} {sign}{delta} ({count(row.calls_before)} → {count(row.calls_after)} calls)"
    before, after = times(row.per_call_before_ns or 0.0, row.per_call_after_ns or 0.0)
    return f"{what} {sign}{delta} ({before} → {after} a call)"


def _launches(before: Side, after: Side, device_time: Change) -> Iterator[Finding]:
    """Fewer launches or kernels for the same GPU time: what only the gaps show."""
    launches = [_metric(side, "kernels", "launches_per_step") for side in (before, after)]
    kernels = [_metric(side, "kernels", "kernels_per_step") for side in (before, after)]
    changed = [
        f"{what} {count(pair[0])} → {count(pair[1])} a step"
        for what, pair in (("kernels", kernels), ("launches", launches))
        if pair[0] is not None and pair[1] is not None and pair[0] != pair[1]
    ]
    if changed:
        same = ", device time unchanged within the noise" if device_time.verdict == NEUTRAL else ""
        yield Finding("launches-changed", f"{' and '.join(changed).capitalize()}{same}.", _gap_evidence(before, after))


def _gap_evidence(before: Side, after: Side) -> str:
    gaps = [_metric(side, "gaps", "launch_gap_ns") for side in (before, after)]
    steps = [_metric(side, "gaps", "step_ns") for side in (before, after)]
    if None in (*gaps, *steps) or not sum(gap or 0.0 for gap in gaps):
        return ""
    spent = times(*(gap or 0.0 for gap in gaps))
    shares = [percent((gap or 0.0) / (step or 1.0)) for gap, step in zip(gaps, steps, strict=True)]
    return f"Launch gaps {spent[0]} → {spent[1]} a step ({shares[0]} → {shares[1]} of the step)."


def _metric(side: Side, analyzer: str, name: str) -> float | None:
    value = side.metric(analyzer, name)
    return float(value) if isinstance(value, int | float) else None


def _shares(phases: Sequence[PhaseChange]) -> Iterator[Finding]:
    """Phases whose share moved although their time did not: others changed around them."""
    moved = [
        row
        for row in phases
        if row.time.verdict == NEUTRAL
        and row.share_before is not None
        and row.share_after is not None
        and abs(row.share_after - row.share_before) >= _SHARE_MOVED
    ]
    if not moved:
        return
    named = ", ".join(_share(row) for row in moved[:_PHASES_NAMED])
    yield Finding(
        "shares-moved",
        f"Same time, other share of GPU time: {named}.",
        "The times did not change measurably; the rest of the step did.",
    )


def _share(row: PhaseChange) -> str:
    return f"{row.phase} {percent(row.share_before or 0.0)} → {percent(row.share_after or 0.0)}"


def _signed(change: float) -> str:
    return f"{'+' if change >= 0 else '−'}{percent(abs(change))}"


def _name(names: Sequence[str]) -> str:
    return " + ".join(shorten(name, _KERNEL_WIDTH) or "(unnamed)" for name in names)
