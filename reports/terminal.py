"""One page for the terminal: where the step went, how long, why, and what to do."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rich.text import Text

from tracelab.budget_result import BudgetCheck
from tracelab.difference import Diff, Ladder
from tracelab.report import Report
from tracelab.reports._check_page import check_blocks
from tracelab.reports._diff_ladder_page import ladder_blocks
from tracelab.reports._diff_page import diff_blocks
from tracelab.reports._page_body import floor_line, phases_table, waterfall
from tracelab.reports._page_generic import result_lines
from tracelab.reports._page_head import devices_table, header, headline, steps_lines
from tracelab.reports._page_kernels import kernels_table
from tracelab.reports._page_tables import Line, View, sentence, text_of
from tracelab.reports._page_tail import failures, findings, notes, recording
from tracelab.reports._page_values import all_devices, is_whole_trace
from tracelab.reports._trust_page import trust_blocks
from tracelab.trust_result import Trust

_SCREEN_LINES = 46  # the page is to fit one screen; tables give up rows for that, then findings give way
# Rows of a table and findings, ever fewer; a changed kernel takes two lines, so a comparison gives up more.
_REPORT_VIEWS = ((7, 3), (6, 3), (5, 3), (5, 2))
_DIFF_VIEWS = ((7, 3), (6, 3), (5, 3), (4, 3), (3, 3), (3, 2), (3, 1), (2, 1))


def render(report: Report, *, full_names: bool, width: int | None, color: bool) -> str:
    """The page. `width` in columns, None for a pipe: nothing is then cut or wrapped."""
    lines = _on_a_screen(lambda view: _page(report, view), View.of(width, full_names), _REPORT_VIEWS)
    return text_of(lines, color=color)


def render_diff(diff: Diff, *, full_names: bool, width: int | None, color: bool) -> str:
    """The page of a comparison: the verdict first, then what changed and where the step went."""
    view = View.of(width, full_names)
    return text_of(_on_a_screen(lambda view: _joined(diff_blocks(diff, view)), view, _DIFF_VIEWS), color=color)


def render_ladder(ladder: Ladder, *, full_names: bool, width: int | None, color: bool) -> str:
    """The page of several traces in a row: each against the one before, and the last against the first."""
    return text_of(_joined(ladder_blocks(ladder, View.of(width, full_names))), color=color)


def render_check(check: BudgetCheck, *, full_names: bool, width: int | None, color: bool) -> str:
    """One row per limit of a budget, those that fell short first."""
    return text_of(_joined(check_blocks(check, View.of(width, full_names))), color=color)


def render_trust(trust: Trust, *, full_names: bool, width: int | None, color: bool) -> str:
    """Whether a trace can be trusted: the verdicts by analyzer, then what was seen, worst first."""
    return text_of(_joined(trust_blocks(trust, View.of(width, full_names))), color=color)


def _on_a_screen(page: Callable[[View], list[Line]], first: View, shorter: Iterable[tuple[int, int]]) -> list[Line]:
    """The page in the first of ever shorter ways that fits a screen; a pipe gets all of it."""
    lines = page(first)
    for rows, findings_shown in shorter:
        if first.uncut or len(lines) <= _SCREEN_LINES:
            break
        lines = page(replace(first, rows=rows, findings=min(findings_shown, first.findings)))
    return lines


def _page(report: Report, view: View) -> list[Line]:
    notice = recording(report, view)
    main = report.main
    blocks = [
        [*notice, *header(report, view), *steps_lines(main, view)],
        headline(report, view),
        devices_table(report, view),
        [*waterfall(main, view), *floor_line(main, report.trace.gpus, view)],
        phases_table(main, view),
        kernels_table(main, view),
        [*findings(main, view), *failures(main, view), *notes(report, view), *notice],
    ]
    return _joined(blocks)


def render_result(report: Report, analyzer: str, *, full_names: bool, width: int | None, color: bool) -> str:
    """One analyzer alone: its metrics and every row of its tables, for each device."""
    view = View.of(width, full_names)
    notice = recording(report, view)
    blocks: list[Sequence[Line]] = [[*notice, *header(report, view), *steps_lines(report.main, view)]]
    for device in all_devices(report):
        shown = replace(view, per_step=not is_whole_trace(device.steps))
        result = device.results.get(analyzer)
        title = f"{analyzer}, device {device.device}" if report.devices else analyzer
        if result is None:
            blocks.append(sentence(f"{title}: this report has no such result.", view))
        else:
            blocks.append(result_lines(title, result, shown, one_of_several=bool(report.devices)))
    return text_of(_joined([*blocks, notice]), color=color)


def _joined(blocks: Sequence[Sequence[Line]]) -> list[Line]:
    """The blocks that have something to say, with a blank line between."""
    shown = [block for block in blocks if block]
    return [line for i, block in enumerate(shown) for line in ([Text("")] if i else []) + list(block)]
