"""`tracelab check`: hold one trace to the limits of a budget file, for CI."""

import inspect
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracelab.commands.shared import (
    FACTS,
    KEPT,
    OUTPUT,
    READING,
    SELECTION,
    build_report,
    format_leaf,
    render_as,
    write,
)
from tracelab.errors import CheckFailedError, UsageError
from tracelab.kernel_names import escape
from tracelab.units import TimeUnit, count, data, number, percent, time, work

if TYPE_CHECKING:
    from tracelab.budget_result import BudgetCheck, BudgetLine
    from tracelab.report import Report
    from tracelab.result import Value

HELP = "Budgets for CI: hold a trace to the limits of a file; exit code 3 where one falls short."
_TRACE = inspect.Parameter(
    "trace",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[Path | None, typer.Argument(help="SQLite export or .nsys-rep.")],
)
_BUDGET = inspect.Parameter(
    "budget",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None, typer.Option("--budget", metavar="FILE", help="The limits, in TOML.", show_default=False)
    ],
)
PARAMETERS = (_TRACE, _BUDGET, *OUTPUT, *SELECTION, *FACTS, *READING, *KEPT)
_NANOSECONDS = TimeUnit("ns", 1, 0)
_ALL_DIGITS = 6  # decimals of a percentage that would else read like its limit


def run(trace: Path | None, budget: Path | None, **values: Any) -> None:
    """Check `trace` against `budget`; raises CheckFailedError, after the lines are written, if one fell short."""
    from tracelab.budget_check import check_budget
    from tracelab.budgets import read_budget

    if trace is None:
        raise UsageError("tracelab check needs a trace; `tracelab list` names the bundled ones.")
    if budget is None:
        raise UsageError("tracelab check needs --budget FILE, a TOML file of limits.")
    format_leaf(values["format"])
    output = values["output"]
    if output is not None and output.resolve() == budget.resolve():
        raise UsageError(f"-o {output} would overwrite the budget; give another file.")
    limits = read_budget(budget)
    done = check_budget(build_report(trace, values), limits, _every_metric)
    write(render_as("check", done, values), output)
    if done.failed:
        raise CheckFailedError(_sentence(done))


@cache
def _every_metric() -> "Report":
    """The report of the default sample, in which no metric is missing."""
    from tracelab.analysis import attribute, report
    from tracelab.load import load_trace
    from tracelab.options import Facts, Selection
    from tracelab.samples import default_sample

    return report(attribute(load_trace(default_sample().path), Facts(), Selection()))


def _sentence(check: "BudgetCheck") -> str:
    """The first line that fell short, and how many did."""
    first = check.failed[0]
    measured = f"{_measured(first)} for {escape(first.name)}"
    remark = f"; {first.remark.rstrip('.')}" if first.remark else ""
    counted = f"{len(check.failed)} of {len(check.lines)} limit{'s' if len(check.lines) > 1 else ''}"
    return f"{check.budget}:{first.line}: {escape(first.text)} fell short: {measured}{remark} ({counted})."


def _measured(line: "BudgetLine") -> str:
    if line.measured is None:
        return "not measured"
    text = _amount(line.measured, line.unit)
    same = text == _amount(line.limit, line.unit)  # 4.5004 ms above 4.5 ms must not read 4.50
    return f"measured {_exactly(line.measured, line.unit) if same else text}"


def _amount(value: "Value", unit: str) -> str:
    if value is None or isinstance(value, str):
        return escape(value or "")
    if unit == "ratio":
        return percent(value)
    known = {"ns": time, "bytes": data, "FLOP": work}.get(unit)
    return known(value) if known else f"{count(value)} {unit}".strip()


def _exactly(value: "Value", unit: str) -> str:
    if value is None or isinstance(value, str) or unit not in ("ns", "ratio"):
        return _amount(value, unit)
    return f"{number(value, _NANOSECONDS)} ns" if unit == "ns" else percent(value, _ALL_DIGITS)
