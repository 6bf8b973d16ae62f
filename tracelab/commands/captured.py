"""What a capture leaves in its run folder once it is analysed: the page, and the same as JSON."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tracelab.capture.outcome import describe_exit
from tracelab.capture.session import Session
from tracelab.commands.shared import write
from tracelab.errors import TracelabError

if TYPE_CHECKING:
    from tracelab.report import CaptureFacts, Report


class Analyse(Protocol):
    """From an export to the finished report."""

    def __call__(self, trace: Path, *, capture: "CaptureFacts | None", recording: str | None) -> "Report": ...


class Render(Protocol):
    """A report as text in the format of that name, fitted to the file `target` or, where it is None, to stdout."""

    def __call__(self, report: "Report", format_name: str, target: Path | None) -> str: ...


def analyse_and_keep(session: Session, analyse: Analyse, render: Render) -> "Report":
    """Analyse, and keep page and JSON in the run folder where there is one.

    Raises what `analyse` raises, with a hint to the folder that keeps the capture.
    """
    try:
        report = analyse(session.trace, capture=_facts(session), recording=session.recording)
    except TracelabError as error:
        if session.folder is not None:
            code = session.program_exit_code
            ended = f" The program ended with {describe_exit(code)}." if code else ""
            raise type(error)(f"{error}{ended} The capture is kept in {session.folder.path}.") from error
        raise
    if session.folder is not None:
        page, shared = session.folder.page, without_folders(report)
        note = session.folder.contents if session.capture is not None else None
        write(with_note(render(shared, "terminal", page), note), page)
        write(render(shared, "json", session.folder.analysis), session.folder.analysis)
    return report


def without_folders(report: "Report") -> "Report":
    """What the run folder shares names no folder of this machine: the trace lies beside it, nsys has its version."""
    capture = report.capture
    return replace(
        report,
        trace=replace(report.trace, path=Path(report.trace.path).name),
        capture=replace(capture, nsys=Path(capture.nsys).name) if capture is not None else None,
    )


def with_note(text: str, note: str | None) -> str:
    """The text, and below it the note where there is one."""
    return text if note is None else f"{text.rstrip()}\n\n{note}\n"


def _facts(session: Session) -> "CaptureFacts | None":
    from tracelab.report import CaptureFacts  # brings numpy, which `tracelab --help` must not wait for

    done = session.capture
    return None if done is None else CaptureFacts(done.program_exit_code, str(done.nsys), done.nsys_version)
