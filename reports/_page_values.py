"""Reading results for the page: any analyzer, metric or table may be missing."""

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from tracelab.report import DeviceReport, Report, StepRow, StepsFacts
from tracelab.result import Metric, Result, Row
from tracelab.units import count, percent

NO_PHASE = "(no phase)"
_LEAST_PRINTED = 0.0005  # a smaller share would print as 0.0 %


def all_devices(report: Report) -> list[DeviceReport]:
    """Each device once, by number, whether or not `report.devices` repeats the main one."""
    return sorted({d.device: d for d in (*report.devices, report.main)}.values(), key=lambda d: d.device)


def result_of(device: DeviceReport, analyzer: str) -> Result:
    """The analyzer's result, empty if it is missing or skipped."""
    result = device.results.get(analyzer)
    return result if result is not None and not result.skipped else Result()


def rows_of(device: DeviceReport, analyzer: str, name: str | None = None) -> Sequence[Row]:
    """A table of the analyzer, by default the one named like it; empty if it is missing."""
    return result_of(device, analyzer).tables.get(name or analyzer, ())


def number_of(device: DeviceReport, analyzer: str, metric: str) -> float | None:
    """A metric as a number; None if it is missing or no number."""
    found = result_of(device, analyzer).metrics.get(metric)
    return as_number(found.value) if found else None


def word_of(device: DeviceReport, analyzer: str, metric: str) -> str | None:
    """A metric that is a word; None if it is missing."""
    found = result_of(device, analyzer).metrics.get(metric)
    return None if found is None or found.value is None else str(found.value)


def as_number(value: Any) -> float | None:
    """The value if it is a number (numpy's too), else None."""
    try:
        return None if value is None or isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError, OverflowError):  # the last: a program's number of hundreds of digits
        return None


def mbu_text(mbu: float) -> str:
    """An MBU as a percentage; one that is there but tiny does not look like none."""
    return "<0.1 %" if 0 < mbu < _LEAST_PRINTED else percent(mbu)


def counted(value: float, what: str) -> str:
    """A count with its noun: `1 kernel`, `9 launches`."""
    plural = "" if value == 1 else "es" if what.endswith("ch") else "s"
    return f"{count(value)} {what}{plural}"


def is_whole_trace(steps: StepsFacts) -> bool:
    """True where the trace counts as one step, so that nothing is said of `a step`."""
    return steps.source == "whole-trace"


def total(rows: Iterable[Row], key: str) -> float:
    """Sum of a column; a missing value counts as nothing."""
    return sum(as_number(row.get(key)) or 0.0 for row in rows)


def step_times(device: DeviceReport) -> list[float]:
    """Step time of each used step in ns: from the gaps analyzer, else the periods, else the spans."""
    metric = result_of(device, "gaps").metrics.get("step_ns", Metric(None, "ns"))
    if metric.samples is not None and len(metric.samples):
        return [float(v) for v in metric.samples if v == v]
    steps = device.steps.per_step
    return [float(s.period_ns) for s in steps if s.period_ns is not None] or [float(s.span_ns) for s in steps]


def step_time(device: DeviceReport) -> float | None:
    """The step time in ns: the analyzer's, else the median of the steps; None without steps."""
    found = number_of(device, "gaps", "step_ns")
    times = step_times(device)
    return found if found is not None else statistics.median(times) if times else None


def representative(steps: StepsFacts) -> StepRow | None:
    """The step the waterfall is of: of those with a period the median one (the lower of two), else by span."""
    timed = [s for s in steps.per_step if s.period_ns is not None]
    ordered = sorted(timed, key=lambda s: (s.period_ns or 0, s.index)) or sorted(
        steps.per_step, key=lambda s: (s.span_ns, s.index)
    )
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def ranges(numbers: Iterable[int], most: int | None = None) -> str:
    """Whole numbers in short: `0, 3–5`, after `most` runs only how many more."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    shown = runs[:most]
    more = sum(b - a + 1 for a, b in runs[len(shown) :])
    said = ", ".join(str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in shown)
    return f"{said} and {more} more" if more else said


def step_list(steps: Iterable[Any]) -> str:
    """Steps by index or name in short: `steps 0–5`, `decode_step 0–5`; None is work outside every step."""
    indices: set[int] = set()
    named: dict[tuple[str, str], set[int]] = {}
    others: set[str] = set()
    for step in steps:
        name = "outside the steps" if step is None else str(step)
        found = re.fullmatch(r"(\D*)(\d{1,9})(\D*)", name)
        if found is None:
            others.add(name)
        elif found.group(1) or found.group(3):
            named.setdefault((found.group(1), found.group(3)), set()).add(int(found.group(2)))
        else:
            indices.add(int(name))
    parts = [f"step{'s' if len(indices) > 1 else ''} {ranges(indices)}"] if indices else []
    parts += [f"{before}{ranges(found)}{after}" for (before, after), found in sorted(named.items())]
    return ", ".join([*parts, *sorted(others)])
