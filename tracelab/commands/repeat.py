"""`tracelab profile --repeat N`: the same program captured several times, to see how far it differs from itself."""

import math
import shlex
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracelab.capture.folder import RunFolder
from tracelab.capture.session import Session
from tracelab.commands.captured import Analyse, Render, analyse_and_keep, with_note, without_folders
from tracelab.commands.shared import write
from tracelab.errors import TracelabError
from tracelab.units import number, percent, time_unit

if TYPE_CHECKING:
    from tracelab.report import Report

TABLE = "repeat.txt"
# Column and metric of the analyzer `gaps`; each is the median over the used steps of one capture, in ns.
_COLUMNS = (("step time", "step_ns"), ("device busy", "busy_ns"), ("launch gaps", "launch_gap_ns"))


@dataclass(frozen=True)
class Repeated:
    """The captures that were made and analysed, in order; `wanted` is how many there should have been."""

    sessions: Sequence[Session]
    reports: Sequence["Report"]
    wanted: int

    @property
    def run_folders(self) -> Iterator[RunFolder]:
        """The folder of each capture."""
        return (session.folder for session in self.sessions if session.folder is not None)

    @property
    def folder(self) -> Path:
        """The folder that holds those of the captures."""
        return next(self.run_folders).path.parent

    @property
    def program_exit_code(self) -> int:
        """The first exit code of the program that is not 0; 0 if there is none."""
        return next((s.program_exit_code for s in self.sessions if s.program_exit_code), 0)

    @property
    def shown(self) -> int:
        """Index of the capture with the median step time, the lower of two; of the first where none has steps."""
        timed = [(time_ns, i) for i, time_ns in enumerate(self.column("step_ns")) if math.isfinite(time_ns)]
        return statistics.median_low(timed)[1] if timed else 0

    def column(self, metric: str) -> list[float]:
        """One metric of every capture in ns, NaN where it is missing."""
        return [_metric_ns(report, metric) for report in self.reports]


def finish_repeated(
    sessions: Iterator[Session], wanted: int, analyse: Analyse, render: Render, format_name: str
) -> int:
    """Take and analyse captures one by one, print the median one's report and the table; returns the exit code.

    The exit code is the first of the program's that is not 0. A capture that was stopped from outside is the last.
    Raises TracelabError that names the capture which failed; those before it are kept.
    """
    done = _collect(sessions, wanted, analyse, render)
    page = render(without_folders(done.reports[done.shown]), "terminal", done.folder / TABLE)
    contents = next(done.run_folders).contents
    write(with_note(page, f"{table(done, done.folder.resolve().name)}\n\n{contents}"), done.folder / TABLE)
    shown, told = render(done.reports[done.shown], format_name, None), table(done, str(done.folder))
    note = f"{told}\n\nKept in {done.folder}, each capture in a folder of its own: {contents}"
    write(with_note(shown, note if format_name == "terminal" else None), None)
    if format_name != "terminal":
        print(told, file=sys.stderr)  # stdout is the document, for scripts
    return done.program_exit_code


def table(done: Repeated, folder: str) -> str:
    """One row a capture and the spread, and how to use them; `folder` as the reader is to type it."""
    columns = [done.column(metric) for _, metric in _COLUMNS]
    unit = time_unit(time_ns for column in columns for time_ns in column)
    rows = [
        ["capture", *(f"{title} {unit.symbol}" for title, _ in _COLUMNS)],
        *(
            [str(i + 1), *(number(time_ns, unit) for time_ns in row)]
            for i, row in enumerate(zip(*columns, strict=True))
        ),
        ["spread", *(percent(_spread(column)) for column in columns)],
    ]
    count = len(done.reports)
    of = _captures(count) if count == done.wanted else f"{count} of {_captures(done.wanted)}"
    uses = "this capture" if count == 1 else f"all {_captures(count)}"
    lines = (
        f"{of}, medians of a step; capture {done.shown + 1} is shown",
        *_aligned(rows),
        "Spread: largest less smallest, relative to the median.",
        f"`tracelab diff {shlex.quote(folder)} OTHER_FOLDER` uses {uses}.",
    )
    return "\n".join(lines)


def _collect(sessions: Iterator[Session], wanted: int, analyse: Analyse, render: Render) -> Repeated:
    taken: list[Session] = []
    reports: list[Report] = []
    try:
        for session in sessions:
            taken.append(session)
            reports.append(analyse_and_keep(session, analyse, render))
            if session.ending:
                print(f"tracelab: capture {len(taken)} of {wanted}: {session.ending}", file=sys.stderr)
            if session.capture is not None and session.capture.interrupted:
                break
    except TracelabError as error:
        raise _failed(error, Repeated(taken[: len(reports)], reports, wanted)) from error
    except KeyboardInterrupt as error:
        raise _stopped(Repeated(taken, reports, wanted)) from error
    return Repeated(taken, reports, wanted)


def _failed(error: TracelabError, before: Repeated) -> TracelabError:
    count = len(before.reports)
    kept = f"; {_numbers(count)} kept in {before.folder}" if count else ""
    failed = TracelabError(f"capture {count + 1} of {before.wanted} failed: {str(error).rstrip('.')}{kept}")
    failed.exit_code = before.program_exit_code or error.exit_code
    return failed


def _stopped(done: Repeated) -> TracelabError:
    kept = f"; what was captured is kept in {done.folder}" if done.sessions else ""
    return TracelabError(f"stopped by Ctrl-C after {len(done.sessions)} of {_captures(done.wanted)}{kept}")


def _numbers(count: int) -> str:
    return "capture 1 is" if count == 1 else f"captures 1 to {count} are"


def _captures(count: int) -> str:
    return f"{count} capture{'' if count == 1 else 's'}"


def _metric_ns(report: "Report", name: str) -> float:
    gaps = report.main.results.get("gaps")
    value = gaps.metrics[name].value if gaps is not None and name in gaps.metrics else None
    return math.nan if value is None or isinstance(value, str) else float(value)


def _spread(column_ns: Sequence[float]) -> float:
    """Largest less smallest, relative to the median (lower of two); NaN where that says nothing."""
    if len(column_ns) < 2 or not all(map(math.isfinite, column_ns)):
        return math.nan
    span_ns, median_ns = max(column_ns) - min(column_ns), statistics.median_low(column_ns)
    return span_ns / median_ns if median_ns else math.nan if span_ns else 0.0


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns side by side: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        yield "  ".join((first.ljust(widths[0]), *(t.rjust(w) for t, w in zip(others, widths[1:], strict=True))))
