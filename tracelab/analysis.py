"""From a trace to the finished report: steps, phases, every device, every analyzer."""

import inspect
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tracelab.arrays import median_int
from tracelab.errors import InputError, UsageError
from tracelab.excluded import without_ranges
from tracelab.gpu_facts import machine
from tracelab.nothing_captured import require_gpu_work
from tracelab.options import Facts, Selection
from tracelab.phases import Phases, find_phases
from tracelab.registry import Leaf, leaves, load
from tracelab.report import (
    CaptureFacts,
    DeviceReport,
    GpuFacts,
    LeftOut,
    OtherGroup,
    Report,
    StepRow,
    StepsFacts,
    TraceFacts,
    TraceWarning,
)
from tracelab.result import Finding, Result
from tracelab.step_table import NO_NEXT, REASONS, USED, StepTable, build_table, in_window
from tracelab.steps import StepGroup, Steps, find_steps
from tracelab.trace import GRAPH, KERNEL, Bool, Trace
from tracelab.trace_warnings import trace_warnings
from tracelab.view import View
from tracelab.window import check_window, empty_window, is_empty

_MANY_OPS = 100_000  # from here on threads pay
_MOST_THREADS = 3  # more take more memory and no less time: `tests/bench/README.md`
_FIRST = ("fatal-error", "failed-launch")  # without these nothing else on the page can be trusted


@dataclass(frozen=True)
class Analysis:
    """A trace with its steps and phases found, ready to be looked at device by device."""

    trace: Trace
    facts: Facts
    selection: Selection
    steps: Steps
    phases: Phases


def attribute(trace: Trace, facts: Facts, selection: Selection) -> Analysis:
    """Find the steps and phases of `trace`. Raises InputError when it has no GPU work."""
    require_gpu_work(trace)
    trace = without_ranges(trace, selection.exclude)
    check_window(trace, selection)
    steps = find_steps(trace, selection)
    phases = find_phases(trace, steps, selection.phases, selection.depth)
    return Analysis(trace, facts, selection, steps, phases)


def view_of(analysis: Analysis, device: int) -> View:
    """One device (code) of the analysis, with the group of steps that has most GPU time there."""
    trace = analysis.trace
    tables = [(group, build_table(trace, group, device, analysis.selection)) for group in analysis.steps.groups]
    present = sorted(
        (pair for pair in tables if len(pair[1])), key=lambda pair: (not pair[0].chosen, -int(pair[1].sum_ns.sum()))
    )
    group, table = present[0] if present else tables[0]
    return View(
        trace=trace,
        facts=analysis.facts,
        selection=analysis.selection,
        steps=analysis.steps,
        group=group,
        table=table,
        phases=analysis.phases,
        device=device,
        machine=machine(trace.devices[device], analysis.facts),
        others=tuple(_other(*pair) for pair in present[1:]),
    )


def report(
    analysis: Analysis,
    analyzers: Mapping[str, Mapping[str, Any]] | None = None,
    capture: CaptureFacts | None = None,
    recording: str | None = None,
    views: Sequence[View] | None = None,
) -> Report:
    """Run `analyzers` (name to keyword parameters; None: all of them) on every device that did work.

    `views` are those of `device_views`, where the caller has them already.
    """
    found = leaves("analyzers")
    wanted = analyzers if analyzers is not None else {name: {} for name in found}
    views = device_views(analysis) if views is None else views
    reports = [_device_report(view, [(found[name], dict(params)) for name, params in wanted.items()]) for view in views]
    main = main_device(analysis, views)
    return Report(
        trace=_trace_facts(analysis, views, recording),
        capture=capture,
        main=reports[main],
        devices=tuple(reports) if len(reports) > 1 else (),
    )


def device_views(analysis: Analysis) -> list[View]:
    """One view for each device that did work, or for the one that was selected."""
    views = [view_of(analysis, device) for device in _devices(analysis)]
    _require_steps(analysis, views)
    return views


def main_device(analysis: Analysis, views: Sequence[View]) -> int:
    """Which of `views` the results are for: the one with most GPU work, of those with steps."""
    durations = analysis.trace.ops.duration_ns
    work = [(view.steps_used > 0, int(durations[view.device_ops].sum())) for view in views]
    return work.index(max(work))


def parameters_of(leaf: Leaf) -> dict[str, inspect.Parameter]:
    """The keyword parameters of an analyzer: its own flags on the command line."""
    signature = inspect.signature(load(leaf).analyze)
    return {name: p for name, p in signature.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _devices(analysis: Analysis) -> list[int]:
    """Codes of the devices that did work in the window; of all of them where it holds none."""
    inside = in_window(analysis.trace, analysis.selection)
    codes = np.unique(analysis.trace.ops.device[inside if inside.any() else slice(None)]).tolist()
    wanted = analysis.selection.device
    if wanted is None:
        return [int(code) for code in codes]
    ids = {analysis.trace.devices[int(code)].id: int(code) for code in codes}
    if wanted not in ids:
        raise UsageError(f"--device {wanted} did no work in this trace; devices with work: {sorted(ids)}.")
    return [ids[wanted]]


def _require_steps(analysis: Analysis, views: Sequence[View]) -> None:
    """A window that cuts every step would leave nothing to say: name the time of the steps there are."""
    if analysis.selection.window_ns is None or any(view.steps_used for view in views):
        return
    if is_empty(analysis.trace, analysis.selection):
        return
    rows = np.flatnonzero(analysis.steps.groups[0].op_step >= 0)
    first, last = analysis.trace.ops.start[rows].min() / 1e9, analysis.trace.ops.end[rows].max() / 1e9
    raise InputError(f"No step lies wholly inside --window; the steps run from {first:.6f} s to {last:.6f} s.")


def _device_report(view: View, analyzers: Sequence[tuple[Leaf, dict[str, Any]]]) -> DeviceReport:
    results = _results(view, analyzers)
    findings = [_capped(finding, view) for result in results.values() for finding in result.findings]
    return DeviceReport(view.trace.devices[view.device].id, _steps_facts(view), results, _ranked(findings))


def _results(view: View, analyzers: Sequence[tuple[Leaf, dict[str, Any]]]) -> dict[str, Result]:
    """What each analyzer says; of a large trace several at once, since they leave most of their time to numpy."""
    calls = {leaf.name: partial(load(leaf).analyze, view, **params) for leaf, params in analyzers}
    if len(view.trace.ops) < _MANY_OPS:
        return {name: call() for name, call in calls.items()}
    threads = ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS))
    try:
        return dict(zip(calls, threads.map(lambda call: call(), calls.values()), strict=True))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # after an error or an interrupt nobody waits for the others


def _capped(finding: Finding, view: View) -> Finding:
    """No saving exceeds the step: sums over overlapping kernels could."""
    if finding.saving_ns is None:
        return finding
    return replace(finding, saving_ns=min(finding.saving_ns, view.step_time_ns))


def _ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    def key(finding: Finding) -> tuple[int, int]:
        urgent = _FIRST.index(finding.code) if finding.code in _FIRST else len(_FIRST)
        return (urgent, -(finding.saving_ns or 0))

    return tuple(sorted(findings, key=key))


def _other(group: StepGroup, table: StepTable) -> OtherGroup:
    used = table.used
    periods = (table.next_start - table.start)[used][table.next_start[used] != NO_NEXT]
    return OtherGroup(
        pattern=group.pattern,
        found=len(table),
        step_ns=median_int(periods) if len(periods) else median_int(table.span_ns[used]),
        kernels_per_step=float(np.median(table.kernels[used])),
        launches_per_step=float(np.median(table.launches[used])),
    )


def _steps_facts(view: View) -> StepsFacts:
    table, group, trace = view.table, view.group, view.trace
    outside = view.device_ops[~_in_any_step(view)[view.device_ops]]
    return StepsFacts(
        source=group.source if len(table) else "none",
        pattern=group.pattern,
        found=len(table),
        used=view.steps_used,
        left_out=tuple(_left_out(view, row) for row in range(len(table)) if table.reason[row] != USED),
        others=view.others,
        per_step=tuple(_step_row(view, int(row)) for row in view.used),
        outside_ns=int(trace.ops.duration_ns[outside].sum()),
        outside_kernels=int((trace.ops.kind[outside] == KERNEL).sum()),
    )


def _in_any_step(view: View) -> Bool:
    """GPU work that belongs to a step of any group."""
    inside = np.zeros(len(view.trace.ops), bool)
    for group in view.steps.groups:
        inside |= group.op_step >= 0
    return inside


def _left_out(view: View, row: int) -> LeftOut:
    table = view.table
    step = int(table.step[row])
    return LeftOut(
        step, view.group.names[step], REASONS[int(table.reason[row])], int(table.span_ns[row]), int(table.kernels[row])
    )


def _step_row(view: View, row: int) -> StepRow:
    table = view.table
    following = int(table.next_start[row])
    step = int(table.step[row])
    return StepRow(
        index=step,
        name=view.group.names[step],
        process=view.trace.pid(int(table.process[row])),
        device=view.trace.devices[view.device].id,
        kernels=int(table.kernels[row]),
        launches=int(table.launches[row]),
        span_ns=int(table.end[row] - table.start[row]),
        busy_ns=int(table.busy_ns[row]),
        sum_ns=int(table.sum_ns[row]),
        period_ns=None if following == NO_NEXT else following - int(table.start[row]),
    )


def _trace_facts(analysis: Analysis, views: Sequence[View], recording: str | None) -> TraceFacts:
    trace = analysis.trace
    is_kernel = trace.ops.kind == KERNEL
    return TraceFacts(
        path=trace.path,
        format=trace.format,
        producer=trace.producer,
        kernels=int(is_kernel.sum()),
        kernel_sum_ns=int(trace.ops.duration_ns[is_kernel].sum()),
        recording=recording,
        workload=trace.workload,
        gpus=tuple(_gpu_facts(view) for view in views),
        cuda_graphs=_cuda_graphs(trace),
        warnings=tuple(TraceWarning(code, message) for code, message in _warnings(analysis, views)),
    )


def _warnings(analysis: Analysis, views: Sequence[View]) -> list[tuple[str, str]]:
    nothing = empty_window(analysis.trace, analysis.selection)
    first = [("empty-window", nothing)] if nothing else []
    return [*first, *trace_warnings(analysis.trace, views)]


def _cuda_graphs(trace: Trace) -> str | None:
    if (trace.ops.kind == GRAPH).any():
        return "graph"
    return "node" if (trace.ops.graph_node >= 0).any() else None


def _gpu_facts(view: View) -> GpuFacts:
    m = view.machine
    gpu = view.trace.devices[view.device]
    return GpuFacts(gpu.id, m.name, m.sm_count, m.bandwidth_bytes_per_s, m.bandwidth_source)
