"""Top of the page: which GPU, which steps, how long, and what bounds it."""

import re
import statistics
from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from tracelab.kernel_names import escape
from tracelab.report import DeviceReport, GpuFacts, LeftOut, Report, StepRow, StepsFacts
from tracelab.reports._page_tables import Column, Line, View, fitted, in_a_row, sentence, table, two_sides
from tracelab.reports._page_values import (
    all_devices,
    as_number,
    counted,
    is_whole_trace,
    number_of,
    ranges,
    rows_of,
    step_time,
    step_times,
    word_of,
)
from tracelab.units import bandwidth, count, number, time, time_unit

# A left-out step's own time is worth a word when it is this far from the median of the used ones.
_NOTABLE = 1.2
_SLOW = 1.5
_SLOW_NAMED = 3
_LEFT_OUT_NAMED = 4  # runs of step numbers that are named
_SOURCES = {
    "graph-launch": "by graph launch",
    "period": "by the repeating sequence of kernels",
}
_SLOWED_BY_PROFILER = ("host", "mixed")
_GRAPHS = {"node": "graphs by node", "graph": "graphs as a whole"}
_BOUNDS = {
    "host": ("host-bound", "bold yellow"),
    "device": ("device-bound", "bold green"),
    "mixed": ("mixed: partly host-bound", "bold"),
    "unknown": ("bound unknown", "dim"),
}


def header(report: Report, view: View) -> list[Line]:
    """GPU and its bandwidth at the left, the recording tool at the right."""
    gpu = next((g for g in report.trace.gpus if g.id == report.main.device), None)
    left = " · ".join(_gpu_parts(gpu)) if gpu else "GPU not described in the trace"
    graphs = _GRAPHS.get(report.trace.cuda_graphs or "", "")
    right = " · ".join(part for part in (report.trace.producer or "", graphs) if part)
    return two_sides(Text(left, "bold"), Text(escape(right), "dim"), view)


def steps_lines(device: DeviceReport, view: View) -> list[Line]:
    """Which steps were found, used and left out, and the other groups of the trace."""
    steps = device.steps
    said = "; ".join([_found(steps), *_left_out(steps), *_slow(device)])
    others = ", ".join(f"{o.pattern} ×{o.found}, {time(o.step_ns)}" for o in steps.others)
    here = escape(f"also here: {others}") if others else ""
    if len(said) + len(here) + 4 <= min(view.width, 120):
        return two_sides(Text(escape(said)), Text(here, "dim"), view)
    return [*sentence(said, view, indent="  ", first=""), *sentence(here, view, indent="  ", first="", style="dim")]


def headline(report: Report, view: View) -> list[Line]:
    """Step time with its spread, kernels and launches, the bound in words, and the rate."""
    device = report.main
    step_ns = step_time(device)
    if step_ns is None:
        return []
    bound = _BOUNDS.get(word_of(device, "gaps", "bound") or "")
    return in_a_row(
        [
            Text(_step_text(device, step_ns), "bold"),
            Text(_counts(device)),
            Text(*bound) if bound else Text(""),
            Text(_rate(report, step_ns), "dim"),
        ],
        view,
    )


def devices_table(report: Report, view: View) -> list[Line]:
    """One row per device, where there are several; what is alike on all of them, or nowhere, has no column."""
    devices = all_devices(report)
    if len(devices) < 2:
        return []
    times = [step_time(d) or float("nan") for d in devices]
    busy = [_or_nan(number_of(d, "gaps", "busy_ns")) for d in devices]
    exposed = [_or_nan(number_of(d, "communication", "exposed_ns")) for d in devices]
    unit = time_unit([*times, *busy])
    kernels = [_or_nan(number_of(d, "kernels", "kernels_per_step")) for d in devices]
    marks = [f"{d.device}{' (this page)' if d.device == report.main.device else ''}" for d in devices]
    columns = [
        *_telling("GPU", _gpu_names(report, devices), drop=3, right=False),
        *_telling("process", [_processes(d) for d in devices], drop=2),
        Column("steps", [str(d.steps.used) for d in devices]),
        Column("kernels", [count(k) for k in kernels], drop=4),
        Column(f"step {unit.symbol}", [number(t, unit) for t in times]),
        Column(f"busy {unit.symbol}", [number(b, unit) for b in busy]),
    ]
    if any(e == e for e in exposed):
        columns.append(Column(f"exposed {unit.symbol}", [number(e, unit) for e in exposed], drop=1))
    columns.append(Column("bound", [word_of(d, "gaps", "bound") or "–" for d in devices], right=False))
    failed = [_failed_launches(report.main, d) for d in devices]
    if any(failed):
        columns.append(Column("failed", [str(n) for n in failed], styles=["bold red" if n else "" for n in failed]))
    return table("device", fitted(marks), columns, view)


def _telling(title: str, cells: Sequence[str], *, drop: int, right: bool = True) -> list[Column]:
    """A column, if its cells tell the devices apart."""
    return [Column(title, [escape(c) for c in cells], right=right, drop=drop)] if len(set(cells)) > 1 else []


def _gpu_names(report: Report, devices: Sequence[DeviceReport]) -> list[str]:
    names = {gpu.id: gpu.name.removeprefix("NVIDIA ") for gpu in report.trace.gpus}
    return [names.get(device.device) or "–" for device in devices]


def _processes(device: DeviceReport) -> str:
    found = sorted({step.process for step in device.steps.per_step})
    return str(found[0]) if len(found) == 1 else f"{len(found)} processes" if found else "–"


def _failed_launches(main: DeviceReport, device: DeviceReport) -> int:
    """Failed launches on this device; where a failure names none, those of the processes whose steps ran here."""
    processes = {step.process for step in device.steps.per_step}
    return sum(
        int(as_number(row.get("count")) or 0)
        for row in rows_of(main, "launches", "failed")
        if row.get("launch")
        and (row.get("process") in processes if row.get("device") is None else row["device"] == device.device)
    )


def _gpu_parts(gpu: GpuFacts) -> list[str]:
    parts = [escape(gpu.name) or "unnamed GPU"]
    if gpu.sm_count:
        parts.append(f"{gpu.sm_count} SMs")
    beta = as_number(gpu.memory_bandwidth_bytes_per_s)
    if beta:
        source = f" ({gpu.bandwidth_source})" if gpu.bandwidth_source else ""
        parts.append(bandwidth(beta) + escape(source))
    return parts if len(parts) > 1 else [*parts, "limits and bandwidth unknown"]


def _found(steps: StepsFacts) -> str:
    if steps.source == "none":
        return "no steps found"
    if is_whole_trace(steps):
        return "no steps found: the whole trace counts as one"
    how = _SOURCES.get(steps.source, "")
    name = f"{steps.pattern} ({how})" if how and steps.pattern else steps.pattern or f"steps {how}".strip()
    return f"{name}: {steps.found} found, {steps.used} used"


def _left_out(steps: StepsFacts) -> list[str]:
    by_reason: dict[str, list[LeftOut]] = {}
    for step in steps.left_out:
        by_reason.setdefault(step.reason, []).append(step)
    return [_left_out_for(reason, out, steps) for reason, out in by_reason.items()]


def _left_out_for(reason: str, out: Sequence[LeftOut], steps: StepsFacts) -> str:
    which = f"step{'s' if len(out) > 1 else ''} {ranges((step.index for step in out), _LEFT_OUT_NAMED)}"
    details = [_other_kernels(out, steps)] if reason == "deviates" else []
    details += [_other_time(out[0], steps)] if len(out) == 1 else []
    said = "; ".join(filter(None, details))
    return f"{which} left out: {reason}" + (f" ({said})" if said else "")


def _other_kernels(out: Sequence[LeftOut], steps: StepsFacts) -> str:
    """What makes these steps deviate: how many kernels they have, else which."""
    counts = {step.kernels for step in out}
    most = Counter(step.kernels for step in steps.per_step).most_common(1)
    if len(counts) > 1 or not most or counts == {most[0][0]}:
        return "other kernels"
    return f"{counted(counts.pop(), 'kernel')}, most have {most[0][0]}"


def _other_time(step: LeftOut, steps: StepsFacts) -> str:
    """The step's own time, where it is far from the usual one."""
    median = statistics.median(s.span_ns for s in steps.per_step) if steps.per_step else 0
    if not median or median / _NOTABLE <= step.span_ns <= median * _NOTABLE:
        return ""
    unit = time_unit([step.span_ns, median])
    return f"window {number(step.span_ns, unit)} {unit.symbol}, median {number(median, unit)}"


def _slow(device: DeviceReport) -> list[str]:
    """Steps far above the median: counted, never left out, so they are named."""
    median = step_time(device)
    timed = [(s.period_ns or s.span_ns, s) for s in device.steps.per_step]
    slow = sorted(((ns, s) for ns, s in timed if median and ns > _SLOW * median), key=lambda p: (-p[0], p[1].index))
    if not slow:
        return []
    named = ", ".join(f"{_step_name(s)} {time(ns)}" for ns, s in slow[:_SLOW_NAMED])
    more = f" and {len(slow) - _SLOW_NAMED} more" if len(slow) > _SLOW_NAMED else ""
    return [f"slow but counted: {named}{more}"]


def _step_name(step: StepRow) -> str:
    """Its name, with its index where names carry no number."""
    return step.name if re.search(r"\d", step.name) else f"{step.name} {step.index}"


def _step_text(device: DeviceReport, step_ns: float) -> str:
    times = step_times(device)
    unit = time_unit([step_ns])  # by the median: one request's pause among the steps must not blur it
    said = f"{number(step_ns, unit)} {unit.symbol}"
    if is_whole_trace(device.steps):
        return f"{said} in all"
    spread = f" (median; {number(min(times), unit)}–{number(max(times), unit)})" if len(times) > 1 else ""
    return f"{said} a step{spread}"


def _counts(device: DeviceReport) -> str:
    kernels = number_of(device, "kernels", "kernels_per_step")
    launches = number_of(device, "kernels", "launches_per_step")
    parts = [counted(value, what) for value, what in ((kernels, "kernel"), (launches, "launch")) if value is not None]
    return " · ".join(parts)


def _rate(report: Report, step_ns: float) -> str:
    """Tokens per second where the workload says how many a step makes, else steps per second.

    A profiler slows every launch, so a step that waits for its launches is faster without it.
    """
    if step_ns <= 0 or is_whole_trace(report.main.steps):
        return ""
    workload = report.trace.workload or {}
    tokens = as_number(workload.get("tokens_per_step")) or as_number(workload.get("batch"))
    variant = workload.get("variant")
    if isinstance(variant, dict) and "calls_per_step" in variant:
        tokens = None  # a kernel alone has a batch and makes no tokens
    rate = (tokens or 1.0) * 1e9 / step_ns
    profiler = "nsys" if report.trace.format.startswith("nsys") else "the profiler"
    slowed = f" under {profiler}" if word_of(report.main, "gaps", "bound") in _SLOWED_BY_PROFILER else ""
    return f"{rate:.{0 if rate >= 1000 else 1}f} {'tokens/s' if tokens else 'steps/s'}{slowed}"


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
