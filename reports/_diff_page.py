"""The page of a comparison: what was compared, the verdict, phases, kernels, and where the step went."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from tracelab.difference import NEUTRAL, NOT_COMPARABLE, Change, Diff
from tracelab.difference import KernelChange as Kernel
from tracelab.kernel_names import cut, escape
from tracelab.reports._diff_names import Names, fold_label, shape_changes
from tracelab.reports._diff_rows import (
    folded_kernels,
    folded_phases,
    kernel_columns,
    phase_columns,
    ranked_kernels,
    ranked_phases,
    unit_of_rows,
)
from tracelab.reports._diff_values import (
    STYLES,
    bound_text,
    controls_text,
    floor_text,
    gpu_text,
    has_comparison,
    headlines,
    judged,
    remarks,
    side_names,
    steps_text,
    warning_texts,
)
from tracelab.reports._diff_where import step_facts, where_columns
from tracelab.reports._page_tables import Column, Line, View, fitted, in_a_row, sentence, table
from tracelab.reports._page_tables import Names as Room
from tracelab.units import time

_FEWEST_NAMED = 8  # the narrowest a kernel's label gets
_SIDE_NAME = 40  # what stands beside the name of a side gives way to this much of it
_GAP = 2  # between columns
_INDENT = "    "


def diff_blocks(diff: Diff, view: View) -> list[list[Line]]:
    """The page's blocks in order; a blank line goes between them."""
    if not has_comparison(diff):
        return [sides(diff, view), not_comparable(diff, view), warnings(diff, view)]
    return [
        sides(diff, view),
        headline(diff, view),
        phases_table(diff, view),
        kernels_table(diff, view),
        where_table(diff, view),
        [*findings(diff, view), *failed(diff, view), *warnings(diff, view), *regressed(diff, view)],
    ]


def sides(diff: Diff, view: View) -> list[Line]:
    """Two lines that name before and after: steps used, what bounds them, the GPU, the recorder where it differs."""
    both = (diff.before, diff.after)
    columns = [
        Column("", [escape(steps_text(side)) for side in both], right=False, drop=1),
        Column("", [bound_text(side.bound) for side in both], right=False, drop=2),
        Column("", [escape(gpu_text(side)) for side in both], right=False, drop=3),
    ]
    if diff.before.producer != diff.after.producer:
        columns.append(Column("", [escape(side.producer or "") for side in both], right=False, drop=4))
    names = [f"{which}  {name}" for which, name in zip(("before", "after "), side_names(both), strict=True)]
    return table("", fitted(names), columns_beside(names, columns, view), view)[1:]


def columns_beside(names: Sequence[str], columns: Sequence[Column], view: View) -> list[Column]:
    """The columns that leave the names of traces most of their room; those with a high `drop` give way first."""
    room = view.width - min(max(map(cell_len, names)), _SIDE_NAME)
    shown = list(columns)
    while sum(column.width + _GAP for column in shown) > room and any(column.drop for column in shown):
        shown.remove(max(shown, key=lambda column: column.drop))
    return shown


def not_comparable(diff: Diff, view: View) -> list[Line]:
    """That the two cannot be compared, and why."""
    style = STYLES[NOT_COMPARABLE]
    lines = [Text("NOT COMPARABLE", style)]
    return lines + [line for reason in diff.reasons for line in sentence(reason.message, view, indent="  ", first="  ")]


def headline(diff: Diff, view: View) -> list[Line]:
    """The verdict with both times, then what counts as noise."""
    word, sentences = headlines(diff)
    reasons = [] if diff.comparable else not_comparable(diff, view)
    lines = verdict_lines(word, sentences, diff.verdict, view)
    noise = f"{floor_text(diff)}; {controls_text(diff.controls)}"
    return [*reasons, *lines, *sentence(noise, view, indent="  ", style="dim")]


def verdict_lines(word: str, sentences: Sequence[str], verdict: str, view: View) -> list[Line]:
    """The verdict's word, coloured, with the first sentence behind it and the others below."""
    lines = sentence(sentences[0], view, indent="  ", first=f"{word}: ")
    for line in lines:
        line.stylize("bold")
    lines[0].stylize(STYLES.get(verdict, ""), 0, len(word))
    return lines + [line for text in sentences[1:] for line in sentence(text, view, indent="  ")]


def phases_table(diff: Diff, view: View) -> list[Line]:
    """Phases, the judged changes first; where space is short the unchanged ones share a row."""
    ranked = ranked_phases(diff.phases)
    if not ranked:
        return []
    shown, rest = ranked[: view.shown(len(ranked))], ranked[view.shown(len(ranked)) :]
    changed = [row for row in rest if row.time.verdict != NEUTRAL]
    folds = [
        *folded_phases(changed, neutral=False),
        *folded_phases([row for row in rest if row not in changed], neutral=True),
    ]
    rows = [*shown, *folds]
    unit = unit_of_rows(rows)
    lines = table(f"phase, {unit.symbol}", fitted([row.phase for row in rows]), phase_columns(rows, unit), view)
    return [*lines, *remark_lines([row.time for row in rows], view)]


def kernels_table(diff: Diff, view: View) -> list[Line]:
    """Kernels that changed; on a screen those with no measurable change share one row, in a pipe all have theirs."""
    ranked = ranked_kernels(diff.kernels)
    if not ranked:
        return []
    neutral = [] if view.uncut else [row for row in ranked if row.time.verdict == NEUTRAL]
    changed = [row for row in ranked if row not in neutral]
    shown, rest = changed[: view.shown(len(changed))], changed[view.shown(len(changed)) :]
    folds = [*folded_kernels(rest, neutral=False), *folded_kernels(neutral, neutral=True)]
    labels = [(len(rest), False)] * bool(rest) + [(len(neutral), True)] * bool(neutral)
    rows = [*shown, *folds]
    unit = unit_of_rows(rows)
    names = Names(diff.kernels, full=view.full_names)
    lines = table(
        f"kernel, {unit.symbol}",
        _labels(shown, labels, names),
        kernel_columns(rows, unit, screen=None if view.uncut else view.width),
        view,
        names_last=view.full_names,
    )
    return [*_with_details(lines, shown, names, view), *remark_lines([row.time for row in shown], view)]


def where_table(diff: Diff, view: View) -> list[Line]:
    """Busy and idle time of the step on both sides, then what explains them."""
    labels, columns, unit = where_columns(diff)
    facts = in_a_row(map(Text, step_facts(diff)), view)
    if not labels:
        return facts
    return [*table(f"where the step went, {unit.symbol}", fitted(labels), columns, view), *facts]


def findings(diff: Diff, view: View) -> list[Line]:
    """The numbered findings with their evidence."""
    shown = diff.findings[: view.findings]
    lines = [Text("findings", "bold")] if shown else []
    for i, finding in enumerate(shown, 1):
        lines += sentence(finding.title, view, indent="   ", first=f"{i}  ")
        saving = f" Saves at most {time(finding.saving_ns)} a step." if finding.saving_ns else ""
        lines += sentence(f"{finding.evidence}{saving}".strip(), view, indent="   ", style="dim")
    if hidden := len(diff.findings) - len(shown):
        lines.append(Text(f"   … {hidden} more with --format json", "dim"))
    return lines


def failed(diff: Diff, view: View) -> list[Line]:
    """Failed launches of both sides, where there are any."""
    before, after = diff.before.failed_launches, diff.after.failed_launches
    said = f"failed launches: {before} before, {after} after" if before or after else ""
    return sentence(said, view, style="bold red" if after else "") if said else []


def warnings(diff: Diff, view: View) -> list[Line]:
    """What the reader must know about the two."""
    texts = warning_texts(diff) if has_comparison(diff) else [warning.message for warning in diff.warnings]
    return [line for t in texts for line in sentence(t, view, indent="  ", first="warning: ", style="yellow")]


def regressed(diff: Diff, view: View) -> list[Line]:
    """What was let pass or not looked at, and what makes the command exit with 3."""
    notes = [line for note in diff.notes for line in sentence(note, view, indent="  ", first="", style="yellow")]
    said = f"exit code 3: slower than before: {', '.join(diff.regressed)}"
    return notes + (sentence(said, view, indent="  ", first="", style="bold red") if diff.regressed else [])


def remark_lines(times: Sequence[Change], view: View) -> list[Line]:
    """Why rows have the verdict they have."""
    return [line for said in remarks(times) for line in sentence(said, view, indent="  ", style="dim")]


def _labels(shown: Sequence[Kernel], folds: Sequence[tuple[int, bool]], names: Names) -> Room:
    return lambda room: [
        *(names.label(row, max(room, _FEWEST_NAMED)) for row in shown),
        *(cut(fold_label(rows, neutral, room), room) for rows, neutral in folds),
    ]


def _with_details(lines: Sequence[Line], shown: Sequence[Kernel], names: Names, view: View) -> list[Line]:
    """Under a kernel: its whole label where that was cut, and how its launch changed."""
    found = list(lines[:1])
    for i, line in enumerate(lines[1:]):
        found.append(line)
        if i < len(shown) and judged(shown[i].time):
            found += _details(shown[i], line, names, view)
    return found


def _details(row: Kernel, line: Line, names: Names, view: View) -> list[Line]:
    label = names.label(row)
    whole = [] if label in line.plain else [cut(label, view.width - len(_INDENT))]
    return sentence(" · ".join([*whole, *shape_changes(row)]), view, indent=_INDENT, style="dim")
