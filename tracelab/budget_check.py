"""A report held against a budget: what was measured for each line, and whether the line is kept.

What this trace cannot tell is not kept. With several GPUs every one of them must keep a line; the worst one is shown.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracelab.budget_result import BudgetCheck, BudgetLine
from tracelab.budgets import IS, MAX, SHARE, TIME, Budget, KernelRule, Limit
from tracelab.errors import UsageError
from tracelab.kernel_names import escape, shorten_all
from tracelab.report import DeviceReport, Report
from tracelab.result import Result, Row, Value

MUST_RUN = "must run"
_PER_STEP = "per step"
_SHOWN = 6  # names that a remark lists
_UNTOLD = "this trace cannot tell it"
_WHOLE_GRAPHS = (
    "the kernels inside CUDA graphs are unknown, since graphs were traced as a whole; "
    "capture with --cuda-graph-trace=node"
)
# Of kernels that nobody knows these would still give a number, and a wrong one.
_OF_KERNELS = ("kernels_per_step", "distinct_kernels", "underfill_share")
_INCOMPLETE = "gpu-time-incomplete"
_WITHOUT_GPU_ROWS = ("gaps", "launches")  # analyzers that stay right, or say themselves what they cannot tell
_NOTHING = Result()


@dataclass(frozen=True)
class _Known:
    """A metric or a column that can be limited: its unit, and whether its values are words."""

    unit: str
    word: bool


@dataclass(frozen=True)
class _Measured:
    """What one device has; None with the reason where it cannot be told."""

    value: Value
    remark: str = ""


_Names = Mapping[str, _Known]  # by `analyzer.name`


def check_budget(report: Report, budget: Budget, example: Callable[[], Report]) -> BudgetCheck:
    """Hold `report`, made by all analyzers, against `budget`.

    A name that the report lacks is looked up in `example()`, a report that has every metric: one that stands there is
    a metric this trace cannot give. Raises UsageError for a name in neither, and for a bound that does not fit its
    metric.
    """
    lines = [
        _limit_line(report, budget.path, demand, example) if isinstance(demand, Limit) else _kernel_line(report, demand)
        for demand in budget.demands
    ]
    return BudgetCheck(report.trace.path, report.trace.recording, budget.path, lines)


def _limit_line(report: Report, path: str, limit: Limit, example: Callable[[], Report]) -> BudgetLine:
    name, known = _resolve(report, path, limit, example)
    _require_fitting(path, limit, name, known)
    analyzer, _, metric = name.partition(".")
    devices = _devices(report)
    if limit.phase is None:
        measured = [_metric(report, device, analyzer, metric) for device in devices]
    else:
        measured = [_column(report, device, analyzer, metric, limit.phase) for device in devices]
    shown = name if limit.phase is None else f"{name} of {limit.phase}"
    return _judged(limit, shown, limit.bound, limit.value, known.unit, devices, measured)


def _kernel_line(report: Report, rule: KernelRule) -> BudgetLine:
    devices = _devices(report)
    measured = [_calls(report, device, rule) for device in devices]
    if rule.must_run:
        return _judged(rule, f"must run {rule.pattern.pattern}", MUST_RUN, None, _PER_STEP, devices, measured)
    return _judged(rule, f"must not run {rule.pattern.pattern}", MAX, 0, _PER_STEP, devices, measured)


def _judged(
    demand: Limit | KernelRule,
    name: str,
    bound: str,
    limit: Value,
    unit: str,
    devices: Sequence[DeviceReport],
    measured: Sequence[_Measured],
) -> BudgetLine:
    """The line by its worst device, which the remark names where the devices differ."""
    margins = [_margin(bound, limit, each.value) for each in measured]
    at = margins.index(min(margins))
    worst = measured[at]
    differ = any(each != worst for each in measured)
    remark = ": ".join(part for part in (f"device {devices[at].device}" if differ else "", worst.remark) if part)
    return BudgetLine(demand.line, demand.text, name, bound, limit, worst.value, unit, margins[at] >= 0, remark)


def _margin(bound: str, limit: Value, value: Value) -> float:
    """How far inside the bound a value is; negative where it falls short, or where there is none."""
    if value is None or isinstance(value, str):
        return 0.0 if bound == IS and value == limit else -math.inf
    if bound == MUST_RUN:
        return value if value > 0 else -math.inf
    assert isinstance(limit, int | float)
    return limit - value if bound == MAX else value - limit


def _resolve(report: Report, path: str, limit: Limit, example: Callable[[], Report]) -> tuple[str, _Known]:
    """The whole name of what is limited. The example is only made where the trace itself does not have it."""
    look_up = _metrics if limit.phase is None else _columns
    names: _Names = {}
    for first in (True, False):
        found = look_up(report if first else example())
        hits = [name for name in found if limit.name in (name, name.partition(".")[2])]
        if len(hits) > 1 and limit.phase is None:
            raise _refused(path, limit, f"{limit.name!r} is a metric of several analyzers; write one of {_list(hits)}")
        if hits:  # of columns with one name those of the first table, which is that of `phases`
            return hits[0], found[hits[0]]
        names = {**names, **found}
    what = "metric" if limit.phase is None else "column of a phase"
    raise _refused(path, limit, f"there is no {what} {limit.name!r}; {_near(limit.name, names)}")


def _near(name: str, names: Iterable[str]) -> str:
    bare = {full.partition(".")[2]: full for full in names}
    close = difflib.get_close_matches(name, [*bare, *names], 3)
    return f"near it: {_list(close)}" if close else f"there are {_list(sorted(bare))}"


def _list(names: Iterable[str]) -> str:
    return escape(", ".join(dict.fromkeys(names)))


def _metrics(report: Report) -> _Names:
    return {
        f"{analyzer}.{name}": _Known(metric.unit, isinstance(metric.value, str))
        for device in _devices(report)
        for analyzer, result in device.results.items()
        for name, metric in result.metrics.items()
    }


def _columns(report: Report) -> _Names:
    """Columns of every table of phases, those of the analyzer `phases` first."""
    found: dict[str, _Known] = {}
    for device in _devices(report):
        for analyzer in sorted(device.results, key=lambda name: name != "phases"):
            for row in _phase_rows(device.results[analyzer]):
                for column, value in row.items():
                    found.setdefault(f"{analyzer}.{column}", _Known(_unit(column), isinstance(value, str)))
                found.pop(f"{analyzer}.phase", None)
    return found


def _unit(column: str) -> str:
    """The unit of a table's column, which its name carries."""
    if "ns" in column.split("_"):
        return TIME
    if column.endswith("share") or column.startswith("mbu"):
        return SHARE
    return "bytes" if column == "bytes" else _PER_STEP if column.endswith("per_step") else ""


def _require_fitting(path: str, limit: Limit, name: str, known: _Known) -> None:
    if known.word != (limit.bound == IS):
        how = 'a word; write { is = "…" }' if known.word else "a number; write { max = … } or { min = … }"
        raise _refused(path, limit, f"{name} is {how}")
    if known.unit == SHARE and not limit.unit and isinstance(limit.value, int | float) and limit.value > 1:
        raise _refused(path, limit, f'{name} is a share: 1 is the whole; write 0.05 or "5 %"')
    if limit.unit and limit.unit != known.unit:
        given = "time" if limit.unit == TIME else "percentage"
        raise _refused(path, limit, f"{name} is no {given}; give the limit as a plain number")


def _refused(path: str, limit: Limit, sentence: str) -> UsageError:
    return UsageError(f"{path}:{limit.line}: {sentence}.")


def _devices(report: Report) -> Sequence[DeviceReport]:
    return report.devices or (report.main,)


def _metric(report: Report, device: DeviceReport, analyzer: str, name: str) -> _Measured:
    metric = device.results.get(analyzer, _NOTHING).metrics.get(name)
    return _told(report, device, analyzer, name, metric.value if metric else None)


def _column(report: Report, device: DeviceReport, analyzer: str, column: str, phase: str) -> _Measured:
    there = [str(row["phase"]) for row in _phase_rows(device.results.get("phases", _NOTHING))]
    if there and phase not in there:
        return _Measured(None, f"this trace has no phase {escape(phase)}; it has {escape(_few(there))}")
    rows = _phase_rows(device.results.get(analyzer, _NOTHING))
    mine: Row = next((row for row in rows if row["phase"] == phase), {})
    return _told(report, device, analyzer, column, mine.get(column))


def _phase_rows(result: Result) -> Sequence[Row]:
    return [row for row in result.tables.get("phases", ()) if "phase" in row]


def _told(report: Report, device: DeviceReport, analyzer: str, name: str, value: Value) -> _Measured:
    """The value, unless it is missing, no number, or one that this trace makes wrong."""
    number = value is not None and (isinstance(value, str) or math.isfinite(value))
    wrong = _incomplete(report) if analyzer not in _WITHOUT_GPU_ROWS else ""
    if not wrong and name in _OF_KERNELS and _has_whole_graphs(report, device):
        wrong = _WHOLE_GRAPHS
    if number and not wrong:
        return _Measured(value)
    return _Measured(None, wrong or device.results.get(analyzer, _NOTHING).skipped or _UNTOLD)


def _incomplete(report: Report) -> str:
    """The trace's own warning that replays left no GPU rows; empty without it."""
    return next((warning.message for warning in report.trace.warnings if warning.code == _INCOMPLETE), "")


def _has_whole_graphs(report: Report, device: DeviceReport) -> bool:
    """Whether graphs traced as a whole run in the used steps: kernels are not counted then."""
    kernels = device.results.get("kernels", _NOTHING)
    return report.trace.cuda_graphs == "graph" and "kernels_per_step" not in kernels.metrics


def _calls(report: Report, device: DeviceReport, rule: KernelRule) -> _Measured:
    """Calls per step of the kernels that a rule names; the remark lists what ran, where that breaks the rule."""
    result = device.results.get("kernels", _NOTHING)
    wrong = _WHOLE_GRAPHS if _has_whole_graphs(report, device) else _incomplete(report)
    if wrong or result.skipped:
        return _Measured(None, wrong or result.skipped or "")
    rows = result.tables.get("kernels", ())
    hits = [row for row in rows if rule.pattern.search(row["name"])]
    calls = math.fsum(row["calls_per_step"] for row in hits)
    if bool(hits) == rule.must_run:
        return _Measured(calls)
    return _Measured(calls, f"what ran: {_ran(rows)}" if rule.must_run else f"it ran as {_ran(hits)}")


def _ran(rows: Sequence[Row]) -> str:
    """The names of kernels in short, the longest running first."""
    return _few(list(dict.fromkeys(shorten_all([str(row["name"]) for row in rows])))) if rows else "no kernel"


def _few(names: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
