"""A budget check as text: one row per limit, those that fell short first, each with its line of the budget file."""

from collections.abc import Sequence
from dataclasses import replace

from tracelab.budget_result import BudgetCheck, BudgetLine
from tracelab.kernel_names import cut, escape
from tracelab.reports._page_tables import Column, Line, View, sentence, table
from tracelab.reports._page_values import as_number, counted
from tracelab.result import Value
from tracelab.units import TimeUnit, count, data, number, percent, time_unit

CANNOT_TELL = "cannot tell"
_MARKS = {True: "ok", False: "FAILED"}
_MARK_WIDTH = 8
_SHARES = ("share", "ratio")
_WORDS_WIDTH = 16  # of a measured or demanded word
_MORE_DECIMALS = 5  # at most: 20.04 % and 20.0 % are not alike


def check_blocks(check: BudgetCheck, view: View) -> list[list[Line]]:
    """The page's blocks: what was checked, the limits, how many fell short."""
    notice = sentence(f"RECORDING: {check.recording}", view, indent="  ", first="", style="bold magenta")
    head = sentence(f"{check.trace} against {check.budget}", view, indent="  ", first="", style="bold")
    failed = bool(check.failed)
    verdict = sentence(check_verdict(check), view, style="bold red" if failed else "bold green")
    return [[*(notice if check.recording else []), *head], _limits(check, view), verdict]


def check_verdict(check: BudgetCheck) -> str:
    """How many limits fell short, in one sentence."""
    if check.failed:
        return f"{len(check.failed)} of {counted(len(check.lines), 'limit')} fell short."
    return f"{counted(len(check.lines), 'limit')} kept."


def failing_first(check: BudgetCheck) -> list[BudgetLine]:
    """All lines, those that fell short first, each group in the file's order."""
    return sorted(check.lines, key=lambda line: line.ok)


def limit_columns(lines: Sequence[BudgetLine]) -> list[Column]:
    """What was measured and what was demanded, a row's two times in one unit."""
    measured, limits = zip(*map(_pair, lines), strict=True) if lines else ((), ())
    styles = ["" if line.ok else "bold red" for line in lines]
    return [Column("measured", measured, styles=styles), Column("limit", limits, right=False)]


def where_demanded(check: BudgetCheck, line: BudgetLine) -> str:
    """Where the budget file says so: `budgets.toml:7: gap_share = { max = 0.2 }`."""
    return f"{check.budget}:{line.line}: {line.text}"


def _limits(check: BudgetCheck, view: View) -> list[Line]:
    lines = failing_first(check)
    if not lines:
        return []
    rows = table("        limit on", lambda room: [_name(line, room) for line in lines], limit_columns(lines), view)
    found = rows[:1]
    for line, row in zip(lines, rows[1:], strict=True):
        row.stylize("green" if line.ok else "bold red", 0, _MARK_WIDTH)
        found += [row, *([] if line.ok else _why(check, line, view))]
    return found


def _name(line: BudgetLine, room: int) -> str:
    return _MARKS[line.ok].ljust(_MARK_WIDTH) + cut(escape(line.name), max(room - _MARK_WIDTH, 1))


def _why(check: BudgetCheck, line: BudgetLine, view: View) -> list[Line]:
    indent = " " * _MARK_WIDTH
    lines = sentence(where_demanded(check, line), view, indent=indent, style="dim")
    return [*lines, *(sentence(line.remark, view, indent=indent, style="dim") if line.remark else [])]


def _pair(line: BudgetLine) -> tuple[str, str]:
    """Measured and limit as text, with as many decimals as tell them apart."""
    measured, limit = as_number(line.measured), as_number(line.limit)
    unit = time_unit(value for value in (measured, limit) if value is not None)
    for more in range(_MORE_DECIMALS):
        texts = _text(line.measured, line.unit, unit, more), _text(line.limit, line.unit, unit, more)
        if measured == limit or texts[0] != texts[1]:
            break
    return (CANNOT_TELL if line.measured is None else texts[0]), _demanded(line, texts[1])


def _demanded(line: BudgetLine, limit: str) -> str:
    """A kernel that must run has its name before it already."""
    return line.bound if line.bound.startswith("must") else f"{line.bound} {limit}"


def _text(value: Value, unit: str, time: TimeUnit, more: int) -> str:
    found = as_number(value)
    if found is None:
        return cut(escape(str(value)), _WORDS_WIDTH)
    if unit == "ns":
        return f"{number(found, replace(time, decimals=time.decimals + more))} {time.symbol}"
    if unit in _SHARES:
        return percent(found, 1 + more)
    if unit == "bytes":
        return data(found)
    return number(found, TimeUnit("", 1, more)) if more else count(found)
