"""The page of a ladder of traces: every rung against the one before, the last against the first."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.text import Text

from tracelab.difference import Ladder
from tracelab.reports._diff_ladder import (
    LadderTable,
    ladder_headline,
    ladder_warnings,
    main_texts,
    phase_table,
    time_tables,
)
from tracelab.reports._diff_page import columns_beside, regressed, remark_lines, verdict_lines
from tracelab.reports._diff_values import controls_text, floor_text, has_comparison
from tracelab.reports._page_tables import Column, Line, View, fitted, sentence, table

_GAP = 2  # between columns
_PHASE_ROOM = 22  # the phases keep this much before their rungs are told in several tables


def ladder_blocks(ladder: Ladder, view: View) -> list[list[Line]]:
    """The page's blocks in order; a blank line goes between them."""
    return [
        _headline(ladder, view),
        *(_time_lines(found, view) for found in time_tables(ladder)),
        [line for part in _parts(phase_table(ladder), view) for line in _lines(part, view)],
        _main_lines(ladder, view),
        [*_warnings(ladder, view), *regressed(ladder.whole, view)],
    ]


def _headline(ladder: Ladder, view: View) -> list[Line]:
    word, sentences = ladder_headline(ladder)
    if not has_comparison(ladder.whole):
        sentences = [f"the last of {len(ladder.sides)} traces with the first"]
    noise = f"{floor_text(ladder.whole)}; {controls_text(ladder.whole.controls)}"
    lines = verdict_lines(word, sentences, ladder.whole.verdict, view)
    reasons = [] if ladder.whole.comparable else [reason.message for reason in ladder.whole.reasons]
    lines += [line for reason in reasons for line in sentence(reason, view, indent="  ")]
    return [*lines, *sentence(noise, view, indent="  ", style="dim")]


def _time_lines(found: LadderTable, view: View) -> list[Line]:
    columns = columns_beside(found.names, found.columns, view)
    return [*_lines(replace(found, columns=columns), view), *remark_lines(found.changes, view)]


def _lines(found: LadderTable, view: View) -> list[Line]:
    return table(found.title, fitted(found.names), found.columns, view) if found.names else []


def _parts(found: LadderTable, view: View) -> Iterator[LadderTable]:
    """The table cut into as many as the width asks for, so that no rung is lost."""
    names = min(_PHASE_ROOM, max(map(cell_len, (found.title, *found.names))))
    part: list[Column] = []
    for column in found.columns:
        if part and names + sum(c.width + _GAP for c in (*part, column)) > view.width:
            yield replace(found, columns=part)
            part = []
        part.append(column)
    yield replace(found, columns=part)


def _main_lines(ladder: Ladder, view: View) -> list[Line]:
    lines: list[Line] = [Text("what changed", "bold")]
    for rung, text in main_texts(ladder):
        lines += sentence(text, view, indent="     ", first=f"{rung}  ")
    return lines


def _warnings(ladder: Ladder, view: View) -> Sequence[Line]:
    texts = ladder_warnings(ladder)
    return [line for t in texts for line in sentence(t, view, indent="  ", first="warning: ", style="yellow")]
