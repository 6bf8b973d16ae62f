"""Where the step went on both sides: its busy and idle times, and the facts that explain them."""

from collections.abc import Sequence

from tracelab.difference import INCONCLUSIVE, Diff
from tracelab.reports._diff_values import NOTHING, both, bound_text, mbu_pair, values
from tracelab.reports._page_tables import Column
from tracelab.reports._page_values import counted
from tracelab.units import TimeUnit, count, number, percent, time_unit

_GAPS = (
    ("busy_ns", "GPU busy"),
    ("launch_gap_ns", "launch gaps"),
    ("sync_gap_ns", "sync gaps"),
    ("dependency_gap_ns", "dependency gaps"),
    ("between_steps_ns", "between steps"),
)
_Row = tuple[str, float | None, float | None]  # label, ns before, ns after


def where_columns(diff: Diff) -> tuple[list[str], list[Column], TimeUnit]:
    """Labels and columns of the table of where the step went: both times, each with its share of the step.

    All classes are there where the step time is inconclusive, else only those that took time on a side.
    """
    whole = values(diff.metric("gaps", "step_ns"))
    rows: list[_Row] = [("step", *whole)]
    rows += [(label, *values(diff.metric("gaps", name))) for name, label in _GAPS]
    idle = values(diff.metric("gaps", "gap_share"))
    rows.append(("idle in all", _product(idle[0], whole[0]), _product(idle[1], whole[1])))
    full = diff.step.verdict == INCONCLUSIVE
    known = [row for row in rows if row[1] or row[2] or (full and (row[1], row[2]) != (None, None))]
    unit = time_unit(ns for row in known for ns in (row[1], row[2]) if ns is not None)
    columns = [column for side in (0, 1) for column in _where_side(known, side, whole[side], unit)]
    return [row[0] for row in known], columns, unit


def step_facts(diff: Diff) -> list[str]:
    """Kernels, launches, API time of a launch, MBU, floor and bound, each once where both sides are alike."""
    kernels, launches = (values(diff.metric("kernels", f"{name}_per_step")) for name in ("kernels", "launches"))
    facts = [
        _counted(kernels, "kernel"),
        _counted(launches, "launch"),
        _times("API time ", _per_launch(diff, launches), " a launch"),
        _times("floor ", values(diff.metric("mbu", "floor_ns")), ""),
        _labelled("MBU ", mbu_pair(diff.metric("mbu", "mbu")), " of the step"),
        _labelled("MBU ", mbu_pair(diff.metric("mbu", "mbu_busy")), " while busy"),
        both(bound_text(diff.before.bound), bound_text(diff.after.bound)),
    ]
    return [fact for fact in facts if fact]


def _where_side(rows: Sequence[_Row], side: int, whole: float | None, unit: TimeUnit) -> list[Column]:
    times = [row[2] if side else row[1] for row in rows]
    shares = ["" if ns is None or not whole else percent(ns / whole) for ns in times]
    styles = ["bold" if row[0] == "step" else "" for row in rows]
    return [
        Column(("before", "after")[side], [NOTHING if ns is None else number(ns, unit) for ns in times], styles=styles),
        Column("of step", shares, drop=1, styles=styles),
    ]


def _per_launch(diff: Diff, launches: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    api = values(diff.metric("gaps", "launch_api_ns"))
    before, after = (ns / n if ns is not None and n else None for ns, n in zip(api, launches, strict=True))
    return before, after


def _counted(pair: tuple[float | None, float | None], what: str) -> str:
    before, after = ("" if value is None else count(value) for value in pair)
    noun = counted(max(value or 0.0 for value in pair), what).partition(" ")[2]
    return _labelled("", both(before, after), f" {noun} a step")


def _times(what: str, pair: tuple[float | None, float | None], of: str) -> str:
    unit = time_unit(ns for ns in pair if ns is not None)
    texts = ["" if ns is None else number(ns, unit) for ns in pair]
    return _labelled(what, both(texts[0], texts[1]), f" {unit.symbol}{of}")


def _labelled(before: str, text: str, after: str) -> str:
    return f"{before}{text}{after}" if text else ""


def _product(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b
