"""Run a bundled workload, or any command, under nsys and print where its time went."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from typer.core import TyperCommand

from tracelab.capture.command import GRAPH_MODES, CaptureOptions
from tracelab.capture.outcome import describe_exit
from tracelab.capture.progress import Progress
from tracelab.capture.recordings import split_arguments, workload_defaults
from tracelab.capture.session import Request, Session, Workload, profile_session
from tracelab.errors import TracelabError, UsageError
from tracelab.registry import Leaf, leaves
from tracelab.report import CaptureFacts, Report

SAMPLES = Path(__file__).parent.parent / "sample_traces"
_COMMAND, _ARGUMENTS = "tracelab.command", "tracelab.arguments"  # where the split command line waits in click's context


class Analyse(Protocol):
    """From an export to the finished report."""

    def __call__(self, sqlite: Path, *, capture: CaptureFacts | None, recording: str | None) -> Report: ...


class Render(Protocol):
    """A report as text, as the report format of that name gives it, without colour."""

    def __call__(self, report: Report, format_name: str) -> str: ...


class ProfileCommand(TyperCommand):
    """Sees the raw command line: what follows `--` is the program, what a workload knows is the workload's."""

    # Newer typer brings its own click, so its classes have no name that works for every version.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the program or the workload's own options out before click looks for tracelab's."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[cut + 1 :])
            args = args[:cut]
        elif (at := self._workload_index(ctx, args)) is not None:
            defaults = workload_defaults(leaves("kernels")[args[at]].path)
            own, others = split_arguments(args[at + 1 :], defaults)
            ctx.meta[_ARGUMENTS] = tuple(own)
            args = [*args[: at + 1], *others]
        return super().parse_args(ctx, args)

    def _workload_index(self, ctx: Any, args: Sequence[str]) -> int | None:
        options = [param for param in self.get_params(ctx) if not getattr(param, "is_flag", False)]
        takes_value = {name for option in options for name in option.opts}
        for index, word in enumerate(args):
            if word in leaves("kernels") and (index == 0 or args[index - 1] not in takes_value):
                return index
        return None


def request_from(
    ctx: typer.Context,
    workload: str | None,
    *,
    options: CaptureOptions,
    nsys: str | None,
    output: Path | None,
    keep_environment: bool,
    replay: bool,
) -> Request:
    """What the command line asks for.

    Raises UsageError for an unknown workload, for both or neither of workload and command, and for words left over.
    """
    command: tuple[str, ...] | None = ctx.meta.get(_COMMAND)
    if command is not None and workload is not None:
        raise UsageError(f"give a workload or a command after `--`, not both ({workload})")
    chosen = None if command is not None else _workload(workload)
    if ctx.args:
        raise UsageError(f"{ctx.args[0]} is no option of tracelab profile or of the workload")
    return Request(
        workload=chosen,
        arguments=ctx.meta.get(_ARGUMENTS, ()),
        command=command or (),
        options=options,
        nsys=nsys,
        output=output,
        keep_environment=keep_environment,
        replay=replay,
    )


def finish(session: Session, analyse: Analyse, render: Render, format_name: str) -> int:
    """Analyse, keep page and JSON in the run folder, print the wanted format to stdout; returns the exit code.

    Raises what `analyse` raises, with a hint to the folder that keeps the capture.
    """
    facts = _facts(session)
    try:
        report = analyse(session.trace, capture=facts, recording=session.recording)
    except TracelabError as error:
        if session.folder is not None:
            raise type(error)(f"{error} (the capture is kept in {session.folder.path})") from error
        raise
    note = session.folder.note if session.folder is not None and session.capture is not None else None
    if session.folder is not None:
        page = _with_note(render(report, "terminal"), note)
        session.folder.page.write_text(page, encoding="utf-8")
        session.folder.analysis.write_text(render(report, "json"), encoding="utf-8")
    text = render(report, format_name)
    sys.stdout.write(_with_note(text, note if format_name == "terminal" else None))
    return 0 if facts is None else _program_code(session, facts.program_exit_code)


def run_profile(request: Request, analyse: Analyse, render: Render, format_name: str) -> int:
    """Capture or replay what `request` asks for, then `finish`; returns the exit code."""
    return finish(profile_session(request, SAMPLES, Progress()), analyse, render, format_name)


def capture_options(
    capture_range: bool, delay_s: float | None, duration_s: float | None, nsys_args: Sequence[str], graph_trace: str
) -> CaptureOptions:
    """The options of one capture. Raises UsageError for a time that is not positive or an unknown graph mode."""
    for name, value in (("--delay", delay_s), ("--duration", duration_s)):
        if value is not None and value <= 0:
            raise UsageError(f"{name} must be more than 0 seconds")
    if graph_trace not in GRAPH_MODES:
        raise UsageError(f"--graph-trace is one of {', '.join(GRAPH_MODES)}, not {graph_trace}")
    if capture_range and (delay_s is not None or duration_s is not None):
        raise UsageError("--capture-range cannot be combined with --delay or --duration: the program sets the window")
    return CaptureOptions(capture_range, delay_s, duration_s, tuple(nsys_args), graph_trace)


WorkloadArgument = Annotated[
    str | None, typer.Argument(metavar="WORKLOAD", help="A bundled workload (`tracelab list`); its options follow it.")
]
NsysOption = Annotated[str | None, typer.Option("--nsys", metavar="PATH", help="The nsys to use.")]
RangeOption = Annotated[bool, typer.Option("--capture-range", help="Capture between cudaProfilerStart and Stop only.")]
DelayOption = Annotated[float | None, typer.Option("--delay", metavar="S", help="Start capturing after S seconds.")]
DurationOption = Annotated[
    float | None, typer.Option("--duration", metavar="S", help="Capture S seconds, then end the program.")
]
NsysArgOption = Annotated[
    list[str] | None,
    typer.Option("--nsys-arg", metavar="X", help="One more option for nsys, such as --cuda-um-…=true."),
]
GraphTraceOption = Annotated[
    str,
    typer.Option("--graph-trace", metavar="MODE", help="CUDA graphs by `node`, or whole by `graph` (less overhead)."),
]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="The run folder (default tracelab-runs/NAME-TIME).")
]
KeepOption = Annotated[
    bool, typer.Option("--keep-environment", help="Leave environment and arguments in the run folder's trace.")
]
NoReplayOption = Annotated[
    bool, typer.Option("--no-replay", help="Without a GPU fail with exit code 5 instead of showing a recording.")
]


def _workload(name: str | None) -> Workload:
    known = leaves("kernels")
    if name is None:
        raise UsageError(f"give a workload ({_listed(known)}), or a command after `--`")
    if name not in known:
        raise UsageError(f"there is no workload {name}; there is {_listed(known)}; a command goes after `--`")
    return Workload(name, known[name].module, known[name].path)


def _listed(known: dict[str, Leaf]) -> str:
    return ", ".join(known) or "none"


def _facts(session: Session) -> CaptureFacts | None:
    done = session.capture
    return None if done is None else CaptureFacts(done.program_exit_code, str(done.nsys), done.nsys_version)


def _program_code(session: Session, code: int) -> int:
    notes = session.capture.notes if session.capture is not None else ()
    if code != 0 or notes:
        said = "".join(f"; {note}" for note in notes)
        print(f"tracelab: the program ended with {describe_exit(code)}{said}", file=sys.stderr)
    return code


def _with_note(text: str, note: str | None) -> str:
    text = text if text.endswith("\n") else text + "\n"
    return text if note is None else f"{text}\n{note}\n"
