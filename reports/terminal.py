"""One page for the terminal: where the step went, how long, why, and what to do."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.text import Text

from tracelab.report import Report
from tracelab.reports._page_body import floor_line, phases_table, waterfall
from tracelab.reports._page_generic import result_lines
from tracelab.reports._page_head import devices_table, header, headline, steps_lines
from tracelab.reports._page_kernels import kernels_table
from tracelab.reports._page_tables import Line, View, sentence, text_of
from tracelab.reports._page_tail import failures, findings, notes, recording
from tracelab.reports._page_values import all_devices, is_whole_trace

_SCREEN_LINES = 46  # the page is to fit one screen; tables give up rows for that, then findings give way
_FEWEST_ROWS = 5
_FINDINGS = (3, 2)  # shown once the tables give up rows, and once they have no more to give


def render(report: Report, *, full_names: bool, width: int | None, color: bool) -> str:
    """The page. `width` in columns, None for a pipe: nothing is then cut or wrapped."""
    lines: list[Line] = []
    for view in _views(View.of(width, full_names)):
        lines = _page(report, view)
        if view.uncut or len(lines) <= _SCREEN_LINES:
            break
    return text_of(lines, color=color)


def _views(first: View) -> Iterator[View]:
    """Ever shorter ways to show the page."""
    yield first
    for rows in range(first.rows - 1, _FEWEST_ROWS - 1, -1):
        yield replace(first, rows=rows, findings=_FINDINGS[0])
    yield replace(first, rows=_FEWEST_ROWS, findings=_FINDINGS[1])


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
