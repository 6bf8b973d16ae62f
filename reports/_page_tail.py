"""Bottom of the page: findings, failed launches, what is missing, warnings, and where the trace comes from."""

from collections.abc import Sequence

from rich.text import Text

from tracelab.report import CaptureFacts, DeviceReport, Report
from tracelab.reports._page_body import floor_unknown
from tracelab.reports._page_tables import Line, View, sentence
from tracelab.reports._page_values import (
    NO_PHASE,
    as_number,
    counted,
    is_whole_trace,
    number_of,
    ranges,
    rows_of,
    step_list,
)
from tracelab.result import Row
from tracelab.units import time

_FAILURES_SHOWN = 5
_OVERLAP = "Savings are upper bounds and overlap; they do not add up."


def findings(device: DeviceReport, view: View) -> list[Line]:
    """The ranked findings, each with its evidence and the most it could save."""
    found = device.findings
    if not found:
        return []
    shown = found[: view.findings]
    lines = [Text("findings", "bold")]
    a_step = "" if is_whole_trace(device.steps) else " a step"
    for i, finding in enumerate(shown, 1):
        saving = f"Saves at most {time(finding.saving_ns)}{a_step}." if finding.saving_ns else ""
        evidence = " ".join(filter(None, (_ended(finding.evidence), saving)))
        lines += sentence(finding.title, view, indent="   ", first=f"{i}  ")
        lines += sentence(evidence, view, indent="   ", style="dim")
    if hidden := len(found) - len(shown):
        lines.append(Text(f"   … {hidden} more with --format json", "dim"))
    several = sum(bool(finding.saving_ns) for finding in shown) > 1
    return [*lines, *(sentence(_OVERLAP, view, indent="   ", style="dim") if several else [])]


def failures(device: DeviceReport, view: View) -> list[Line]:
    """Failed launches by phase, steps and error; one line that there are none otherwise."""
    failed = number_of(device, "launches", "failed_launches")
    if failed is None:
        return []
    without = number_of(device, "launches", "launches_without_work") or 0.0
    idle = f" {counted(without, 'launch')} left no GPU work." if without else ""
    rows = rows_of(device, "launches", "failed")
    if not failed and not rows:
        return sentence(f"0 failed launches.{idle}", view)
    said = f"{counted(failed, 'failed launch')}.{idle}"
    return [*sentence(said, view, style="bold red"), *_failed_groups(rows, view)]


def notes(report: Report, view: View) -> list[Line]:
    """Analyzers without an answer, GPU work outside the steps, warnings, and how the trace was captured."""
    device = report.main
    missed = _skipped(device, alone=not report.devices)
    lines = [line for text in missed for line in sentence(text, view, indent="  ", first="", style="dim")]
    steps = device.steps
    if steps.outside_kernels or steps.outside_ns:
        kernels = counted(steps.outside_kernels, "kernel") if steps.outside_kernels else "no kernels"
        said = f"outside the steps: {time(steps.outside_ns)} of GPU time, {kernels}"
        lines += sentence(said, view, indent="  ", first="")
    for warning in report.trace.warnings:
        lines += sentence(warning.message, view, indent="  ", first="warning: ", style="yellow")
    return [*lines, *_captured(report.capture, view)]


def recording(report: Report, view: View) -> list[Line]:
    """The notice that these numbers are not of this machine."""
    if not report.trace.recording:
        return []
    return sentence(f"RECORDING: {report.trace.recording}", view, indent="  ", first="", style="bold magenta")


def _failed_groups(rows: Sequence[Row], view: View) -> list[Line]:
    several = len({row.get("process") for row in rows}) > 1 or len({row.get("device") for row in rows}) > 1
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = tuple(str(row.get(name, "")) for name in ("phase", "api", "code", "error", "severity"))
        groups.setdefault(key, []).append(row)
    lines: list[Line] = []
    most = len(groups) if view.uncut else _FAILURES_SHOWN
    for (phase, api, code, error, severity), found in list(groups.items())[:most]:
        times = sum(int(as_number(row.get("count")) or 1) for row in found)
        where = step_list(row.get("step") for row in found)
        fatal = "; what the trace holds after it is unreliable" if severity == "fatal" else ""
        place = f"{where}, phase {phase}" if phase and phase != NO_PHASE else where
        devices = sorted({row["device"] for row in found if row.get("device") is not None})
        place += f", device {ranges(devices)}" if devices and several else ""
        lines += sentence(f"{place}: {api} returned {code} {error}, ×{times}{fatal}", view, indent="  ", style="red")
    hidden = len(groups) - most
    kinds = counted(hidden, "more kind")
    return [*lines, Text(f"  … {kinds} with --format json", "red")] if hidden > 0 else lines


def _ended(text: str) -> str:
    """The text as a sentence, since another may follow."""
    return f"{text}." if text and text[-1].isalnum() else text


def _skipped(device: DeviceReport, *, alone: bool) -> list[str]:
    """Each reason once, with the analyzers it stops; why the floor is unknown stands beside the waterfall.

    Nobody misses communication on a GPU that is `alone`.
    """
    reasons: dict[str, list[str]] = {}
    for name, result in device.results.items():
        told = (name == "mbu" and floor_unknown(device)) or (name == "communication" and alone)
        if result.skipped and not told:
            reasons.setdefault(result.skipped, []).append(name)
    return [f"no {', '.join(names)}: {reason}" for reason, names in reasons.items()]


def _captured(capture: CaptureFacts | None, view: View) -> list[Line]:
    if capture is None:
        return []
    said = f"captured with nsys {capture.nsys_version} ({capture.nsys})"
    code = capture.program_exit_code
    ended = f"; the program ended with code {code}" if code else ""
    return sentence(said + ended, view, indent="  ", first="", style="yellow" if code else "dim")
