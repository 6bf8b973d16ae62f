"""A ladder of traces as texts for every format, rounded so that the printed increments add up to the whole.

Rungs without a verdict (inside their noise floor, or inconclusive) print no number of their own; what they come to
together stands in a row, or a column, of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise

from tracelab.difference import NEUTRAL, NOT_COMPARABLE, Change, Diff, Ladder, PhaseChange
from tracelab.reports._diff_names import Names
from tracelab.reports._diff_rows import ranked_kernels
from tracelab.reports._diff_values import (
    NOTHING,
    STYLES,
    WORDS,
    as_decimal,
    bound_text,
    change_sentence,
    difference,
    has_comparison,
    headlines,
    interval_text,
    judged,
    side_names,
    signed_decimal,
    signed_percent,
    time_text,
    unit_of,
    warning_texts,
)
from tracelab.reports._page_tables import Column
from tracelab.units import TimeUnit

_REST_ROW = "rungs without a verdict"
_REST_COLUMN = "rest"
_Phases = Mapping[str, PhaseChange]


@dataclass(frozen=True)
class LadderTable:
    """A table of texts for every format; `title` heads the column of `names`, `changes` are the rungs behind it."""

    title: str
    names: Sequence[str]
    columns: Sequence[Column]
    changes: Sequence[Change]


def ladder_headline(ladder: Ladder) -> tuple[str, list[str]]:
    """The verdict of the last trace against the first in capitals, and the sentences that follow it."""
    word, sentences = headlines(ladder.whole)
    return word, [f"first to last of {len(ladder.sides)} traces: {sentences[0]}", *sentences[1:]]


def time_tables(ladder: Ladder) -> list[LadderTable]:
    """Device time and step time: a row per trace with its increment, then the last trace against the first."""
    steps = Column("steps", [str(side.steps_used) for side in ladder.sides], drop=4)
    bounds = Column("bound", [bound_text(side.bound) for side in ladder.sides], right=False, drop=3)
    return [
        _time_table("device time", ladder, lambda diff: diff.device_time, steps),
        _time_table("step time", ladder, lambda diff: diff.step, bounds),
    ]


def phase_table(ladder: Ladder) -> LadderTable:
    """Phases by rungs: what each rung added to each phase, the largest change first."""
    rungs, whole = [_phases_of(rung) for rung in ladder.rungs], _phases_of(ladder.whole)
    names = list(dict.fromkeys(phase for found in (*rungs, whole) for phase in found))
    names.sort(key=lambda name: (-_largest(name, [*rungs, whole]), name))
    changes = [row.time for found in (*rungs, whole) for row in found.values()]
    unit = unit_of(changes)
    rows = [_phase_cells(name, rungs, whole, unit) for name in names]
    titles = [*(rung_name(i) for i in range(len(rungs))), _REST_COLUMN, f"1→{len(rungs) + 1}"]
    columns = [Column(title, [row[i] for row in rows]) for i, title in enumerate(titles)]
    kept = [column for column in columns if column.title != _REST_COLUMN or any(column.cells)]
    return LadderTable(f"phase, Δ {unit.symbol}", names, kept, changes)


def rung_name(index: int) -> str:
    """How a rung is called: `1→2` for the first."""
    return f"{index + 1}→{index + 2}"


def main_texts(ladder: Ladder) -> list[tuple[str, str]]:
    """Per rung its name, and in one line its first finding, else the kernel that changed most."""
    return [(rung_name(i), _main(rung)) for i, rung in enumerate(ladder.rungs)]


def ladder_warnings(ladder: Ladder) -> list[str]:
    """The warnings of all rungs, each once behind the rungs that they are of."""
    found: dict[str, list[str]] = {}
    for i, rung in enumerate(ladder.rungs):
        own = warning_texts(rung) if has_comparison(rung) else [w.message for w in (*rung.reasons, *rung.warnings)]
        for text in own:
            found.setdefault(text, []).append(rung_name(i))
    return [f"{', '.join(rungs)}: {text}" for text, rungs in found.items()]


def _time_table(title: str, ladder: Ladder, time_of: Callable[[Diff], Change], more: Column) -> LadderTable:
    rungs, whole = [_told(rung, time_of(rung)) for rung in ladder.rungs], _told(ladder.whole, time_of(ladder.whole))
    unit = unit_of([*rungs, whole])
    times = [time_text(ns, unit) for ns in (rungs[0].before_ns, *(rung.after_ns for rung in rungs))]
    deltas, rest = _increments(times, rungs, whole)
    count = len(times)
    names = [f"{i}  {name}" for i, name in enumerate(side_names(ladder.sides), 1)]
    names += [_REST_ROW] * bool(rest) + [f"1→{count}  first to last"]
    gap = [""] * bool(rest)
    rows = [*rungs, whole]
    styles = ["", *(STYLES.get(rung.verdict, "") for rung in rungs), *gap, STYLES.get(whole.verdict, "")]

    def spread(texts: Sequence[str]) -> list[str]:
        return ["", *texts[:-1], *gap, texts[-1]]

    columns = [
        Column(unit.symbol, [*times, *gap, ""]),
        Column("Δ", ["", *deltas[:-1], *([rest] if rest else []), deltas[-1]], styles=styles),
        Column("Δ %", spread([signed_percent(c.change) if judged(c) else "" for c in rows]), drop=1, styles=styles),
        Column(
            "95 % interval",
            spread([interval_text(c) for c in rows]),
            drop=5,
        ),
        Column("verdict", spread([WORDS.get(c.verdict, c.verdict) for c in rows]), False, 2, styles),
        Column(more.title, [*more.cells, *gap, ""], more.right, more.drop),
    ]
    return LadderTable(f"{title} a step", names, [c for c in columns if any(c.cells)], rows)


def _increments(times: Sequence[str], rungs: Sequence[Change], whole: Change) -> tuple[list[str], str]:
    """The printed increments of the rungs and of the whole, and what the rungs without a verdict come to together.

    That rest is empty where the whole has no verdict either, for then nothing adds up to it.
    """
    pairs = list(pairwise(times))
    known = [difference(*pair) if judged(rung) else NOTHING for pair, rung in zip(pairs, rungs, strict=True)]
    if not judged(whole):
        return [*known, NOTHING], ""
    total = as_decimal(times[-1]) - as_decimal(times[0])
    rest = total - sum(map(as_decimal, known), Decimal(0))
    return [*known, signed_decimal(total)], "" if NOTHING not in known else signed_decimal(rest)


def _phase_cells(name: str, rungs: Sequence[_Phases], whole: _Phases, unit: TimeUnit) -> list[str]:
    """A phase's increments, their rest, and the last against the first; empty where neither side has the phase."""
    absent = Change(None, None, None, None, None, NEUTRAL)
    changes = [found[name].time if name in found else absent for found in rungs]
    total = whole[name].time if name in whole else absent
    times = [time_text(ns, unit) for ns in (changes[0].before_ns, *(change.after_ns for change in changes))]
    deltas, rest = _increments(times, changes, total)
    here = [delta if change is not absent else "" for delta, change in zip(deltas, [*changes, total], strict=True)]
    return [*here[:-1], rest, here[-1]]


def _told(diff: Diff, change: Change) -> Change:
    """The change, without a verdict of its own where the two traces cannot be compared."""
    return change if has_comparison(diff) else replace(change, verdict=NOT_COMPARABLE)


def _phases_of(diff: Diff) -> _Phases:
    return {row.phase: replace(row, time=_told(diff, row.time)) for row in diff.phases}


def _largest(name: str, found: Sequence[_Phases]) -> float:
    return max((abs(rows[name].time.delta_ns) for rows in found if name in rows), default=0.0)


def _main(rung: Diff) -> str:
    if not has_comparison(rung):
        return "not comparable"
    if rung.findings:
        return rung.findings[0].title
    kernels = [row for row in ranked_kernels(rung.kernels) if judged(row.time)]
    if not kernels:
        return "no kernel has a measurable change"
    row = kernels[0]
    return change_sentence(f"{Names(rung.kernels).label(row)} ({row.phase})", replace(row.time, interval=None), "")
