"""Comparisons and budget checks as a comment on a pull request: the verdict, what changed, the rest behind a fold."""

from collections.abc import Sequence

from tracelab.budget_result import BudgetCheck
from tracelab.difference import Diff, Ladder
from tracelab.difference import KernelChange as Kernel
from tracelab.reports._check_page import check_verdict, failing_first, limit_columns, where_demanded
from tracelab.reports._diff_ladder import (
    LadderTable,
    ladder_headline,
    ladder_warnings,
    main_texts,
    phase_table,
    time_tables,
)
from tracelab.reports._diff_markdown_text import bullets, code, details, inline, md_table, prose
from tracelab.reports._diff_names import Names, shape_changes
from tracelab.reports._diff_rows import kernel_columns, phase_columns, ranked_kernels, ranked_phases, unit_of_rows
from tracelab.reports._diff_values import (
    both,
    bound_text,
    controls_text,
    floor_text,
    gpu_text,
    has_comparison,
    headline_word,
    headlines,
    judged,
    remarks,
    side_names,
    steps_text,
    warning_texts,
)
from tracelab.reports._diff_where import step_facts, where_columns
from tracelab.reports._page_tables import Column
from tracelab.result import Finding
from tracelab.units import time

_SHOWN = 12  # kernels before the fold; the others stand behind it


def diff_markdown(diff: Diff, *, full_names: bool) -> list[list[str]]:
    """The blocks of a comparison."""
    names = side_names([diff.before, diff.after])
    head = [f"### tracelab diff: {headline_word(diff)}"]
    compared = [f"{code(names[0])} → {code(names[1])}"]
    if not has_comparison(diff):
        return [head, compared, bullets(_messages(diff)), *_warned([w.message for w in diff.warnings])]
    changed = [row for row in ranked_kernels(diff.kernels) if judged(row.time)]
    labels = Names(diff.kernels, full=full_names)
    return [
        head,
        compared,
        [" ".join(f"{_capital(inline(text))}." for text in headlines(diff)[1])],
        *_warned(warning_texts(diff)),
        _phases(diff),
        _kernels(changed[:_SHOWN], labels),
        _regressed(diff),
        details("Kernels without a verdict, where the step went, noise, findings", _rest(diff, changed, labels)),
    ]


def ladder_markdown(ladder: Ladder) -> list[list[str]]:
    """The blocks of a ladder of traces."""
    word, sentences = ladder_headline(ladder)
    comparable = has_comparison(ladder.whole)
    said = sentences if comparable else _messages(ladder.whole)
    return [
        [f"### tracelab diff, {len(ladder.sides)} traces: {word.lower()}"],
        [" ".join(f"{_capital(inline(text.rstrip('.')))}." for text in said)],
        *_warned(ladder_warnings(ladder)),
        *(_ladder_table(found) for found in (*time_tables(ladder), phase_table(ladder))),
        bullets(f"{rung}: {text}" for rung, text in main_texts(ladder)),
        _regressed(ladder.whole),
        details("Noise", [bullets([floor_text(ladder.whole), controls_text(ladder.whole.controls)])]),
    ]


def check_markdown(check: BudgetCheck) -> list[list[str]]:
    """The blocks of a budget check."""
    lines = failing_first(check)
    marks = ["ok" if line.ok else "**FAILED**" for line in lines]
    columns = [Column("limit on", [line.name for line in lines], right=False), *limit_columns(lines)]
    why = [f"- {code(where_demanded(check, line))} {inline(line.remark)}".rstrip() for line in check.failed]
    return [
        [f"### tracelab check: {check_verdict(check).rstrip('.')}"],
        [f"{code(check.trace)} against {code(check.budget)}"],
        [prose(f"RECORDING: {check.recording}")] if check.recording else [],
        md_table("", marks, columns),
        why,
    ]


def finding_items(findings: Sequence[Finding]) -> list[str]:
    """A numbered list of findings with their evidence and the most they could save."""
    saving = [f" Saves at most {time(f.saving_ns)} a step." if f.saving_ns else "" for f in findings]
    texts = [(prose(f.title), inline(f"{f.evidence}{more}".strip())) for f, more in zip(findings, saving, strict=True)]
    return [f"{i}. {title}{f' {evidence}' if evidence else ''}" for i, (title, evidence) in enumerate(texts, 1)]


def _messages(diff: Diff) -> list[str]:
    return [reason.message for reason in diff.reasons]


def _warned(texts: Sequence[str]) -> list[list[str]]:
    return [bullets(f"warning: {text}" for text in texts)] if texts else []


def _phases(diff: Diff) -> list[str]:
    rows = ranked_phases(diff.phases)
    unit = unit_of_rows(rows)
    return md_table(f"phase, {unit.symbol}", [code(row.phase) for row in rows], phase_columns(rows, unit))


def _kernels(rows: Sequence[Kernel], labels: Names) -> list[str]:
    """Kernels with how their launch changed, where it did."""
    unit = unit_of_rows(rows)
    launch = Column("launch", ["; ".join(shape_changes(row)) for row in rows], right=False)
    columns = [*kernel_columns(rows, unit), *([launch] if any(launch.cells) else [])]
    return md_table(f"kernel, {unit.symbol}", [code(labels.label(row)) for row in rows], columns)


def _rest(diff: Diff, changed: Sequence[Kernel], labels: Names) -> list[list[str]]:
    others = [row for row in ranked_kernels(diff.kernels) if not judged(row.time)]
    where, columns, unit = where_columns(diff)
    reasons = remarks([*(row.time for row in diff.phases), *(row.time for row in others)])
    return [
        _kernels([*changed[_SHOWN:], *others], labels),
        bullets(reasons),
        md_table(f"where the step went, {unit.symbol}", [inline(label) for label in where], columns),
        bullets(step_facts(diff)),
        finding_items(diff.findings),
        bullets([*_sides(diff), floor_text(diff), controls_text(diff.controls), *_failed(diff), *diff.notes]),
    ]


def _sides(diff: Diff) -> list[str]:
    return [
        f"{which}: {steps_text(side)}, {bound_text(side.bound)}, {gpu_text(side)}, {side.producer or 'unknown nsys'}"
        for which, side in (("before", diff.before), ("after", diff.after))
    ]


def _failed(diff: Diff) -> list[str]:
    before, after = diff.before.failed_launches, diff.after.failed_launches
    return [f"failed launches: {both(str(before), str(after))}"] if before or after else []


def _regressed(diff: Diff) -> list[str]:
    return [f"**Slower than before:** {', '.join(map(inline, diff.regressed))}"] if diff.regressed else []


def _ladder_table(found: LadderTable) -> list[str]:
    return md_table(found.title, [inline(name) for name in found.names], found.columns)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
