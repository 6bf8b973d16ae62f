"""Two sides compared, and a ladder of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from tracelab.compare.comparable import differences, failed_launches, gpu_of, reasons_against
from tracelab.compare.findings import diff_findings
from tracelab.compare.kernel_rows import kernel_changes
from tracelab.compare.noise import undecided, verdict_of
from tracelab.compare.options import DiffOptions
from tracelab.compare.rows import (
    device_change,
    find_controls,
    phase_changes,
    phases_there,
    step_change,
)
from tracelab.compare.side import Capture, Side
from tracelab.difference import (
    COUNT_CHANGED,
    IMPROVEMENT,
    INCONCLUSIVE,
    NEUTRAL,
    NOT_COMPARABLE,
    REGRESSION,
    Change,
    Control,
    Diff,
    KernelChange,
    Ladder,
    MetricChange,
    NoiseFloor,
    PhaseChange,
    SideFacts,
)
from tracelab.errors import UsageError
from tracelab.report import TraceWarning
from tracelab.units import percent


def compare(before: Side, after: Side, options: DiffOptions) -> Diff:
    """What changed from one side to the other. Raises UsageError for a phase, kernel or control that neither has."""
    reasons = reasons_against(before, after)
    in_graph = [side.first.samples.in_graph for side in (before, after)]
    options = replace(options, floors=options.floors.between(*in_graph))
    controls = find_controls(before, after, options)
    device_time, source = device_change(before, after, controls, options)
    step, step_source = step_change(before, after, controls, options)
    phases = _phases_looked_at(phase_changes(before, after, controls, options), before, after, options)
    kernels = _kernels_looked_at(kernel_changes(before, after, controls, options), options)
    if any(reason.code == "graph-mode" for reason in reasons):
        device_time = undecided(device_time)
        phases = [replace(row, time=undecided(row.time)) for row in phases]
    told = not reasons or options.force
    found = diff_findings(before, after, phases, kernels, controls, device_time)
    return Diff(
        before=side_facts(before),
        after=side_facts(after),
        comparable=not reasons,
        reasons=reasons,
        warnings=differences(before, after),
        verdict=_overall(step, device_time, phases, kernels, options) if told else NOT_COMPARABLE,
        noise_floor=NoiseFloor(device_time.floor, step.floor, source, step_source),
        controls=[Control(c.phase, float(np.expm1(c.log_change))) for c in controls],
        step=step,
        device_time=device_time,
        phases=phases,
        kernels=kernels,
        metrics=_metrics(before, after),
        findings=found,
        regressed=_regressed(step, device_time, phases, kernels, options) if told else (),
        notes=_notes(step, device_time, phases, kernels, options),
    )


def compare_ladder(sides: Sequence[Side], options: DiffOptions) -> Ladder:
    """Each side against the one before, and the last against the first."""
    rungs = [compare(one, other, options) for one, other in pairwise(sides)]
    return Ladder(rungs, rungs[0] if len(rungs) == 1 else compare(sides[0], sides[-1], options))


def nothing_to_compare(paths: Sequence[Sequence[Path]], sides: Sequence[Side | None], reason: str) -> Diff:
    """The outcome where a trace holds nothing that could be compared; a side that does is described."""
    unknown = Change(None, None, None, None, None, NOT_COMPARABLE)
    return Diff(
        before=_facts_or_name(sides[0], paths[0]),
        after=_facts_or_name(sides[-1], paths[-1]),
        comparable=False,
        reasons=[TraceWarning("no-gpu-work", reason)],
        warnings=(),
        verdict=NOT_COMPARABLE,
        noise_floor=NoiseFloor(None, None, ""),
        controls=(),
        step=unknown,
        device_time=unknown,
        phases=(),
        kernels=(),
        metrics=(),
        findings=(),
    )


def _facts_or_name(side: Side | None, paths: Sequence[Path]) -> SideFacts:
    if side is not None:
        return side_facts(side)
    return SideFacts(tuple(map(str, paths)), paths[0].name, None, "", None, "", "none", 0, "", 0, None)


def side_facts(side: Side) -> SideFacts:
    """One side in words and numbers."""
    first = side.first
    gpu = gpu_of(first) or ("", None)
    bounds = dict.fromkeys(_bound(capture) for capture in side.captures)
    return SideFacts(
        paths=tuple(capture.report.trace.path for capture in side.captures),
        title=first.title if len(side.captures) == 1 else _title(side),
        producer=first.report.trace.producer,
        gpu=gpu[0],
        sm_count=gpu[1],
        pattern=first.main.steps.pattern,
        source=first.main.steps.source,
        steps_used=side.steps_used,
        bound=" or ".join(bounds),
        failed_launches=failed_launches(side),
        workload=first.report.trace.workload,
    )


def _title(side: Side) -> str:
    folders = {capture.title.rpartition("/")[0] for capture in side.captures}
    if len(folders) == 1 and "" not in folders:
        return f"{folders.pop()} ({len(side.captures)} captures)"
    more = len(side.captures) - 1
    return f"{side.first.title} and {more} more capture{'s' if more > 1 else ''}"


def _bound(capture: Capture) -> str:
    metric = capture.main.results["gaps"].metrics.get("bound")
    return str(metric.value) if metric is not None else "unknown"


def _phases_looked_at(rows: list[PhaseChange], before: Side, after: Side, options: DiffOptions) -> list[PhaseChange]:
    if options.phase is None:
        return rows
    found = [row for row in rows if options.phase.search(row.phase)]
    if not found:
        raise UsageError(f"--phase {options.phase.pattern!r} matches no phase; {phases_there(before, after)}.")
    return found


def _kernels_looked_at(rows: list[KernelChange], options: DiffOptions) -> list[KernelChange]:
    if options.phase is not None:
        rows = [row for row in rows if options.phase.search(row.phase)]
    if options.kernel is None:
        return rows
    wanted = options.kernel
    found = [row for row in rows if any(wanted.search(name) for name in (*row.before, *row.after))]
    if not found:
        raise UsageError(f"--kernel {wanted.pattern!r} matches no kernel of either trace.")
    return found


def _judged(
    step: Change,
    device_time: Change,
    phases: Sequence[PhaseChange],
    kernels: Sequence[KernelChange],
    options: DiffOptions,
) -> list[tuple[str, Change]]:
    """What the verdict and the exit code rest on: step and phases, or what the user named."""
    found = [] if options.narrowed else [("the step", step), ("device time of the step", device_time)]
    if options.kernel is None or options.phase is not None:
        found += [(row.phase, row.time) for row in phases]
    if options.kernel is not None:
        found += [(" + ".join(row.after or row.before), row.time) for row in kernels]
    return found


def _regressed(
    step: Change,
    device_time: Change,
    phases: Sequence[PhaseChange],
    kernels: Sequence[KernelChange],
    options: DiffOptions,
) -> tuple[str, ...]:
    return tuple(
        name
        for name, time in _judged(step, device_time, phases, kernels, options)
        if _time_verdict(time) == REGRESSION and (time.change or 0.0) > options.fail_above
    )


def _notes(
    step: Change,
    device_time: Change,
    phases: Sequence[PhaseChange],
    kernels: Sequence[KernelChange],
    options: DiffOptions,
) -> list[str]:
    """What became slower and does not count, and why."""
    slower = [
        (name, time)
        for name, time in _judged(step, device_time, phases, kernels, options)
        if _time_verdict(time) == REGRESSION and (time.change or 0.0) <= options.fail_above
    ]
    named = ", ".join(f"{name} (+{percent(time.change or 0.0)})" for name, time in slower)
    found = [f"--fail-above lets pass: {named}."] if slower else []
    if options.narrowed:
        others = [n for n, t in (("the step", step), ("its device time", device_time)) if t.verdict == REGRESSION]
        also = f" Not looked at, though slower: {' and '.join(others)}." if others else ""
        found.append(f"Only what --phase and --kernel name was looked at.{also}")
    return found


def _time_verdict(time: Change) -> str:
    """A kernel that runs more often is judged by its time when it is what the user looks at."""
    return verdict_of(time) if time.verdict == COUNT_CHANGED else time.verdict


def _overall(
    step: Change,
    device_time: Change,
    phases: Sequence[PhaseChange],
    kernels: Sequence[KernelChange],
    options: DiffOptions,
) -> str:
    """A regression anywhere, else an improvement anywhere, else what cannot be told."""
    verdicts = [_time_verdict(time) for _, time in _judged(step, device_time, phases, kernels, options)]
    for verdict in (REGRESSION, IMPROVEMENT, INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return NEUTRAL


def _metrics(before: Side, after: Side) -> list[MetricChange]:
    """Every metric of every analyzer on both sides."""
    found = []
    names = {(a, m) for side in (before, after) for a, r in side.first.main.results.items() for m in r.metrics}
    for analyzer, name in sorted(names):
        units = [metric.unit for side in (before, after) for metric in side.metrics(analyzer, name)]
        found.append(
            MetricChange(analyzer, name, units[0], before.metric(analyzer, name), after.metric(analyzer, name))
        )
    return found
