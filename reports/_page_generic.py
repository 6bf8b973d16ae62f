"""Any analyzer's result as text, by the names of its keys: `_ns` is a time, `share` and `mbu` are percentages."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from tracelab.kernel_names import escape, shorten_all
from tracelab.reports._page_tables import Column, Line, Names, View, fitted, kept, sentence, table
from tracelab.reports._page_values import as_number, mbu_text
from tracelab.result import Metric, Result, Row
from tracelab.units import (
    TimeUnit,
    bandwidth,
    count,
    data,
    number,
    percent,
    round_column,
    round_shares,
    time_unit,
    work,
)

_KERNEL_KEYS = {"kernel", "name", "after_kernel", "before_kernel"}
_FRACTIONS = {"waves", "sm_fill", "tail_efficiency", "occupancy"}
_STATISTICS = {"median", "mean", "min", "max"}  # such times are no parts of a sum
_WHOLE_WITHIN = 1e-6
_NARROW = 200  # screens up to here get kernel names cut in columns other than the first
_KERNEL_WIDTH, _KERNEL_WIDTH_NARROW = 28, 18
_SCREEN = 100  # below this many columns the narrower cut is taken


def result_lines(name: str, result: Result, view: View, *, one_of_several: bool) -> list[Line]:
    """Title, metrics, each table, checks and findings of one analyzer, on one of several devices or the only one."""
    if result.skipped:
        return sentence(f"{name}: {result.skipped}", view, indent="  ", first="")
    alone = not result.metrics and len(result.tables) == 1 and not one_of_several  # its table's heading says it all
    blocks = [[] if alone else [Text(name, "bold")], _metrics(result, view)]
    blocks += [_titled(title, rows, view) for title, rows in result.tables.items()]
    blocks += [_checks(result), _findings(result, view)]
    shown = [block for block in blocks if block]
    return [line for i, block in enumerate(shown) for line in ([Text("")] if i > 1 - alone else []) + block]


def _metrics(result: Result, view: View) -> list[Line]:
    if not result.metrics:
        return []
    values = [_metric_text(key, metric, result) for key, metric in result.metrics.items()]
    spread = [_spread(metric) for metric in result.metrics.values()]
    columns = [Column("value", values)]
    if any(spread):
        columns.append(Column("min–max", spread, drop=1))
    return table("metric", fitted([_heading(key, view) for key in result.metrics]), columns, view)


def _metric_text(key: str, metric: Metric, result: Result) -> str:
    value = as_number(metric.value)
    if value is None:
        return "–" if metric.value is None else escape(str(metric.value))
    if _time_value(key, metric) is not None:
        unit = time_unit(v for k, m in result.metrics.items() if (v := _time_value(k, m)) is not None)
        return f"{number(value, unit)} {unit.symbol}"
    return _scalar(key, value, metric.unit)


def _time_value(key: str, metric: Metric) -> float | None:
    return as_number(metric.value) if metric.unit == "ns" or _is_time(key) else None


def _spread(metric: Metric) -> str:
    if metric.samples is None or len(metric.samples) < 2 or metric.unit != "ns":
        return ""
    low, high = float(metric.samples.min()), float(metric.samples.max())
    unit = time_unit([high])
    return f"{number(low, unit)}–{number(high, unit)} {unit.symbol}"


def _titled(title: str, rows: Sequence[Row], view: View) -> list[Line]:
    heading = Text(title.replace("_", " "), "bold")
    return [heading, *_table(rows, view)] if rows else [Text.assemble(heading, (": none", "dim"))]


def _table(rows: Sequence[Row], view: View) -> list[Line]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    unit = time_unit(
        v for row in rows for k, value in row.items() if _is_time(k) and (v := as_number(value)) is not None
    )
    columns = [_column(i, key, [row.get(key) for row in rows], unit, view) for i, key in enumerate(keys)]
    first, others = columns[0], columns[1:]
    last = view.full_names and keys[0] in _KERNEL_KEYS
    values = [str(row.get(keys[0], "")) for row in rows]
    names = _shortened(values) if keys[0] in _KERNEL_KEYS and not last else fitted(first.cells)
    shown = kept(others, view, names, first.title)
    left = [c.title for c in others if c not in shown]
    hidden = sentence(f"not shown at this width: {', '.join(left)}", view, indent="  ", style="dim") if left else []
    return [*table(first.title, names, others, view, names_last=last), *hidden]


def _column(index: int, key: str, values: Sequence[Any], unit: TimeUnit, view: View) -> Column:
    """Numbers to the right, words to the left; on a narrow screen the last columns go first, times and shares last."""
    drop = 1 if _is_time(key) or key.endswith("share") else index + 1
    title = f"{_heading(key, view)} {unit.symbol}" if _is_time(key) else _heading(key, view)
    if key in _KERNEL_KEYS and not view.full_names:
        width = None if view.width > _NARROW else _KERNEL_WIDTH if view.width >= _SCREEN else _KERNEL_WIDTH_NARROW
        return Column(title, shorten_all([str(v) for v in values], width), right=False, drop=drop)
    numeric = all(v is None or as_number(v) is not None for v in values)
    return Column(title, _cells(key, values, unit), right=numeric, drop=drop)


def _cells(key: str, values: Sequence[Any], unit: TimeUnit) -> list[str]:
    """Texts of a column; where its values are parts of a whole, they add up as printed."""
    parts = [found for value in values if (found := as_number(value)) is not None]
    if len(parts) == len(values) and _is_time(key) and not _STATISTICS & set(key.split("_")):
        return round_column(parts, unit)
    if len(parts) == len(values) and key == "share" and abs(sum(parts) - 1.0) < _WHOLE_WITHIN:
        return [f"{text} %" for text in round_shares(parts)]
    return [_cell(key, value, unit) for value in values]


def _cell(key: str, value: Any, unit: TimeUnit) -> str:
    found = as_number(value)
    if found is None:
        return "–" if value is None else {True: "yes", False: "no"}.get(value, escape(str(value)))
    return number(found, unit) if _is_time(key) else _scalar(key, found, "")


def _scalar(key: str, value: float, unit: str) -> str:
    if key.startswith("mbu"):
        return mbu_text(value)
    if key.endswith("share") or unit == "share":
        return percent(value)
    if key.endswith("bytes_per_s"):
        return bandwidth(value)
    if unit == "bytes" or "bytes" in key:
        return data(value)
    if unit == "FLOP":
        return work(value)
    if key in _FRACTIONS:
        return f"{value:.2f}"
    return count(value)


def _checks(result: Result) -> list[Line]:
    marks = {True: ("ok      ", "green"), False: ("FAILED  ", "bold red")}
    return [
        Text.assemble(
            marks[bool(c.ok)], escape(f"{c.name}: {count(c.measured)} {c.unit}, limit {count(c.limit)} {c.unit}")
        )
        for c in result.checks
    ]


def _findings(result: Result, view: View) -> list[Line]:
    texts = [f"{finding.title} {finding.evidence}" for finding in result.findings]
    return [line for text in texts for line in sentence(text, view, indent="   ", first="-  ")]


def _shortened(names: Sequence[str]) -> Names:
    return lambda room: shorten_all(names, max(room, 8))


def _is_time(key: str) -> bool:
    return "ns" in key.split("_")


def _heading(key: str, view: View) -> str:
    """`time_ns_per_step` as `time per step`, `ns_per_step` the same; in a trace without steps as `time`."""
    words = (key if view.per_step else key.removesuffix("_per_step")).split("_")
    return " ".join(["time", *words[1:]] if words[0] == "ns" else [word for word in words if word != "ns"])
