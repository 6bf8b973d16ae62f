"""Rows of a comparison for every format: phases and kernels by how much they matter, and where the step went."""

from collections.abc import Mapping, Sequence

from tracelab.difference import INCONCLUSIVE, NEUTRAL, SAME, Change
from tracelab.difference import KernelChange as Kernel
from tracelab.difference import PhaseChange as Phase
from tracelab.kernel_names import cut, escape
from tracelab.reports._diff_names import fold_label
from tracelab.reports._diff_values import (
    NOTHING,
    STYLES,
    WORDS,
    both,
    difference,
    interval_text,
    judged,
    signed_percent,
    unit_of,
)
from tracelab.reports._page_tables import Column
from tracelab.units import TimeUnit, count, number, round_column, round_shares, time_unit

_FOLDED = ""  # the verdict of a row that stands for changed ones of every kind
_NARROW, _PHASE_WIDTH = 120, 16  # screens up to the first get phases cut to the second


def unit_of_rows(rows: Sequence[Phase] | Sequence[Kernel]) -> TimeUnit:
    """The unit of a table of these rows."""
    return unit_of(row.time for row in rows)


def ranked_phases(phases: Sequence[Phase]) -> list[Phase]:
    """Judged changes first, then what is inconclusive, then the rest, each by its absolute time."""
    return sorted(phases, key=lambda row: (*_rank(row.time), row.phase))


def ranked_kernels(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Kernels in the same order."""
    return sorted(kernels, key=lambda row: (*_rank(row.time), row.phase, row.before, row.after))


def summed(changes: Sequence[Change], *, neutral: bool) -> Change:
    """Many changes as one row, which has no percentage."""
    before = sum(change.before_ns or 0.0 for change in changes)
    after = sum(change.after_ns or 0.0 for change in changes)
    return Change(before, after, None, None, None, NEUTRAL if neutral else _FOLDED)


def folded_phases(rows: Sequence[Phase], *, neutral: bool) -> list[Phase]:
    """One row for many phases, none for none."""
    if not rows:
        return []
    shares = [
        sum(share or 0.0 for share in side)
        for side in zip(*((r.share_before, r.share_after) for r in rows), strict=True)
    ]
    kernels = sum(row.kernels_before for row in rows), sum(row.kernels_after for row in rows)
    time = summed([row.time for row in rows], neutral=neutral)
    return [Phase(fold_label(len(rows), False, None), time, shares[0], shares[1], *kernels, control=False)]


def folded_kernels(rows: Sequence[Kernel], *, neutral: bool) -> list[Kernel]:
    """One row for many kernels, none for none."""
    if not rows:
        return []
    calls = sum(row.calls_before for row in rows), sum(row.calls_after for row in rows)
    time = summed([row.time for row in rows], neutral=neutral)
    name = (fold_label(len(rows), neutral, None),)
    return [Kernel("", SAME, name, name, *calls, time, (), ())]


def phase_columns(rows: Sequence[Phase], unit: TimeUnit) -> list[Column]:
    """Times and changes of phases, their shares of the GPU time, and kernels where their number changed."""
    times = [row.time for row in rows]
    before, after = (_shares([getattr(row, side) for row in rows]) for side in ("share_before", "share_after"))
    shares = [f"{both(b, a)} %" if {b, a} != {NOTHING} else NOTHING for b, a in zip(before, after, strict=True)]
    columns = [
        *_time_columns(times, unit),
        _filled(Column("95 % interval", [interval_text(time) for time in times], drop=4, styles=_styles(times))),
        Column("of GPU time", shares, drop=3),
    ]
    if any(row.kernels_before != row.kernels_after for row in rows):
        kernels = [both(count(row.kernels_before), count(row.kernels_after)) for row in rows]
        columns.append(Column("kernels", kernels, drop=5))
    return [*(column for column in columns if column is not None), _verdicts(times, WORDS)]


def kernel_columns(rows: Sequence[Kernel], unit: TimeUnit, *, screen: int | None = None) -> list[Column]:
    """Phase, times and changes of kernels, how often they run, and how long one call takes.

    On a screen of so many columns phases are cut, and the one row of unchanged kernels says so by its label alone.
    """
    times = [row.time for row in rows]
    wide = _PHASE_WIDTH if screen is not None and screen <= _NARROW else None
    words = WORDS if screen is None else {**WORDS, NEUTRAL: ""}
    columns = [
        Column("phase", [cut(escape(row.phase), wide) for row in rows], right=False, drop=2),
        *_time_columns(times, unit),
        Column("calls", [_calls(row) for row in rows], drop=4),
        _per_call(rows),
    ]
    return [column for column in columns if any(column.cells)] + [_verdicts(times, words)]


def _rank(change: Change) -> tuple[int, float]:
    order = 0 if judged(change) else 1 if change.verdict == INCONCLUSIVE else 2
    size = abs(change.delta_ns) if order < 2 else max(change.before_ns or 0.0, change.after_ns or 0.0)
    return order, -size


def _time_columns(times: Sequence[Change], unit: TimeUnit) -> list[Column]:
    before = _column([time.before_ns for time in times], unit)
    after = _column([time.after_ns for time in times], unit)
    signed = [judged(time) or time.verdict == _FOLDED for time in times]
    deltas = [difference(b, a) if show else "" for b, a, show in zip(before, after, signed, strict=True)]
    changes = [signed_percent(time.change) if judged(time) else "" for time in times]
    styles = _styles(times)
    columns = [
        Column("before", before),
        Column("after", after),
        _filled(Column("Δ", deltas, styles=styles)),
        _filled(Column("Δ %", changes, drop=1, styles=styles)),
    ]
    return [column for column in columns if column is not None]


def _column(times_ns: Sequence[float | None], unit: TimeUnit) -> list[str]:
    """Times that add up as printed; a dash where a side lacks one."""
    texts = round_column([ns or 0.0 for ns in times_ns], unit)
    return [NOTHING if ns is None else text for ns, text in zip(times_ns, texts, strict=True)]


def _filled(column: Column) -> Column | None:
    return column if any(column.cells) else None


def _verdicts(times: Sequence[Change], words: Mapping[str, str]) -> Column:
    cells = [words.get(time.verdict, time.verdict) for time in times]
    return Column("verdict", cells, right=False, styles=_styles(times))


def _styles(times: Sequence[Change]) -> list[str]:
    return [STYLES.get(time.verdict, "") for time in times]


def _shares(shares: Sequence[float | None]) -> list[str]:
    texts = round_shares([share or 0.0 for share in shares])
    return [NOTHING if share is None else text for share, text in zip(shares, texts, strict=True)]


def _calls(row: Kernel) -> str:
    return both(count(row.calls_before), count(row.calls_after)) if row.phase or row.calls_before else ""


def _per_call(rows: Sequence[Kernel]) -> Column:
    """One call before and after, in a unit of its own; a folded row is of many kernels and has none."""
    sides = [(row.per_call_before_ns, row.per_call_after_ns) if row.phase else (None, None) for row in rows]
    unit = time_unit(ns for pair in sides for ns in pair if ns is not None)
    pairs = [tuple(NOTHING if ns is None else number(ns, unit) for ns in pair) for pair in sides]
    return Column(
        f"{unit.symbol} a call",
        [both(*pair) if row.phase else "" for row, pair in zip(rows, pairs, strict=True)],
        drop=5,
    )
