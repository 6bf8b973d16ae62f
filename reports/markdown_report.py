"""The page as Markdown for a comment on a pull request; nothing in a trace can become markup."""

from collections.abc import Sequence

from tracelab.budget_result import BudgetCheck
from tracelab.difference import Diff, Ladder
from tracelab.kernel_names import escape, shorten_all
from tracelab.report import DeviceReport, Report
from tracelab.reports._diff_markdown import check_markdown, diff_markdown, finding_items, ladder_markdown
from tracelab.reports._diff_markdown_text import bullets, code, document, inline, md_table
from tracelab.reports._page_body import floor_line
from tracelab.reports._page_head import header, headline, steps_lines
from tracelab.reports._page_tables import Column, Line, View
from tracelab.reports._page_tail import failures, notes, recording
from tracelab.reports._page_values import all_devices, as_number, mbu_text, rows_of, total
from tracelab.reports._trust_markdown import trust_markdown
from tracelab.result import Result, Row
from tracelab.trust_result import Trust
from tracelab.units import TimeUnit, count, data, number, percent, round_column, round_shares, time, time_unit

_KERNELS_SHOWN = 20
_KERNEL_KEYS = {"kernel", "name", "after_kernel", "before_kernel"}
_SHARES = ("share", "ratio")
_SMALL, _RATIO = 10, TimeUnit("", 1, 2)  # below the first a number that is not whole gets two decimals


def render(report: Report, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001 - one signature
    """The report's headline, waterfall, phases, kernels and findings. A comment has no width and no colour."""
    device, view = report.main, View.of(None, full_names)
    return document(
        [
            [f"### tracelab report: {_first(headline(report, view), report.trace.path)}"],
            _bullets([*recording(report, view), *header(report, view), *steps_lines(device, view)]),
            _waterfall(device),
            _bullets(floor_line(device, report.trace.gpus, view)),
            _phases(device),
            _kernels(device, full_names),
            finding_items(device.findings),
            _bullets([*failures(device, view), *notes(report, view)]),
        ]
    )


def render_result(report: Report, analyzer: str, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001
    """One analyzer alone: its metrics and every row of its tables, for each device."""
    view = View.of(None, full_names)
    notice = _bullets([*recording(report, view), *header(report, view), *steps_lines(report.main, view)])
    blocks: list[list[str]] = [[f"### tracelab {inline(analyzer)}"], notice]
    for device in all_devices(report):
        result = device.results.get(analyzer)
        blocks.append([f"#### device {device.device}"] if report.devices else [])
        blocks += _result(result, full_names) if result else [["This report has no such result."]]
    return document(blocks)


def render_diff(diff: Diff, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001
    """A comparison: the verdict, phases and kernels that changed; the rest is folded away."""
    return document(diff_markdown(diff, full_names=full_names))


def render_ladder(ladder: Ladder, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001
    """Several traces in a row: each against the one before, and the last against the first."""
    return document(ladder_markdown(ladder))


def render_check(check: BudgetCheck, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001
    """One row per limit of a budget, those that fell short first."""
    return document(check_markdown(check))


def render_trust(trust: Trust, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001
    """Whether a trace can be trusted: the verdicts by analyzer, then what was seen, worst first."""
    return document(trust_markdown(trust))


def _first(lines: Sequence[Line], path: str) -> str:
    """The headline, its parts separated; without steps the file."""
    said = " ".join(line.plain for line in lines)
    return inline(" · ".join(part.strip() for part in said.split("      ") if part.strip()) or path)


def _bullets(lines: Sequence[Line]) -> list[str]:
    return bullets(" · ".join(part.strip() for part in line.plain.split("    ") if part.strip()) for line in lines)


def _waterfall(device: DeviceReport) -> list[str]:
    rows = [row for row in rows_of(device, "waterfall") if as_number(row.get("ns"))]
    times = _numbers(rows, "ns")
    whole = sum(times)
    unit = time_unit([whole])
    shares = [ns / whole if whole else 0.0 for ns in times]
    columns = [
        Column(unit.symbol, [*round_column(times, unit, whole), number(whole, unit)]),
        Column("share", [f"{s} %" for s in [*round_shares(shares, 1.0), "100.0"]]),
    ]
    names = [inline(str(row.get("component", ""))) for row in rows]
    return md_table("where it goes", [*names, "**in all**"], columns) if rows else []


def _phases(device: DeviceReport) -> list[str]:
    rows = sorted(rows_of(device, "phases"), key=lambda row: -(as_number(row.get("busy_ns")) or 0.0))
    near = {row.get("phase"): as_number(row.get("mbu")) for row in rows_of(device, "mbu", "phases")}
    times = _numbers(rows, "busy_ns")
    unit = time_unit(times)
    mbu = [near.get(row.get("phase")) for row in rows]
    columns = [
        Column("kernels", [count(value) for value in _numbers(rows, "kernels_per_step")]),
        Column(unit.symbol, round_column(times, unit)),
        Column("of GPU time", [f"{s} %" for s in round_shares(_numbers(rows, "share"))]),
    ]
    if any(value is not None for value in mbu):
        columns.append(Column("MBU", ["" if value is None else mbu_text(value) for value in mbu]))
    return md_table("phase", [code(str(row.get("phase", ""))) for row in rows], columns)


def _kernels(device: DeviceReport, full_names: bool) -> list[str]:
    ranked = sorted(rows_of(device, "kernels"), key=lambda row: -(as_number(row.get("time_ns_per_step")) or 0.0))
    shown, rest = ranked[:_KERNELS_SHOWN], ranked[_KERNELS_SHOWN:]
    keys = ("calls_per_step", "time_ns_per_step", "share")
    rows = [*shown, *([{"phase": "", **{key: total(rest, key) for key in keys}}] if rest else [])]
    times = _numbers(rows, "time_ns_per_step")
    unit = time_unit(times)
    columns = [
        Column("phase", [str(row.get("phase", "")) for row in rows], right=False),
        Column("calls", [count(value) for value in _numbers(rows, "calls_per_step")]),
        Column(unit.symbol, round_column(times, unit)),
        Column("share", [f"{s} %" for s in round_shares(_numbers(rows, "share"))]),
    ]
    names = _kernel_names([str(row.get("name", "")) for row in shown], full_names)
    return md_table("kernel", [*names, *([f"… {len(rest)} more"] if rest else [])], columns)


def _result(result: Result, full_names: bool) -> list[list[str]]:
    if result.skipped:
        return [bullets([result.skipped])]
    metrics = {key: _value(key, metric.value, metric.unit) for key, metric in result.metrics.items()}
    checks = [f"{'ok' if check.ok else 'FAILED'}: {check.name}" for check in result.checks]
    return [
        md_table("metric", [inline(key) for key in metrics], [Column("value", list(metrics.values()))]),
        *([f"**{inline(title)}**", "", *_table(rows, full_names)] for title, rows in result.tables.items() if rows),
        bullets(checks),
        finding_items(result.findings),
    ]


def _table(rows: Sequence[Row], full_names: bool) -> list[str]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    columns = [
        Column(key, [_value(key, row.get(key), "") for row in rows], all(_is_number(row.get(key)) for row in rows))
        for key in keys
    ]
    first = [str(row.get(keys[0], "")) for row in rows]
    names = _kernel_names(first, full_names) if keys[0] in _KERNEL_KEYS else [inline(text) for text in first]
    return md_table(keys[0], names, columns[1:])


def _kernel_names(names: Sequence[str], full_names: bool) -> list[str]:
    return [code(name) or "(unnamed)" for name in (map(escape, names) if full_names else shorten_all(names))]


def _value(key: str, value: object, unit: str) -> str:
    """A value by its unit or the words of its key."""
    found = as_number(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if found is None:
        return "–" if value is None else str(value)
    if unit == "ns" or "ns" in key.split("_"):
        return time(found)
    if unit in _SHARES or key.endswith("share"):
        return percent(found)
    if unit == "bytes" or "bytes" in key:
        return data(found)
    return number(found, _RATIO) if abs(found) < _SMALL and found != round(found) else count(found)


def _is_number(value: object) -> bool:
    return as_number(value) is not None


def _numbers(rows: Sequence[Row], key: str) -> list[float]:
    return [as_number(row.get(key)) or 0.0 for row in rows]
