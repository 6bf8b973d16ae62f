"""`tracelab profile`: run a bundled workload, or any command, under nsys and print where its time went."""

import sys
from collections.abc import Mapping
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracelab import samples
from tracelab.capture.command import GRAPH_MODES, CaptureOptions
from tracelab.capture.gpu import has_gpu
from tracelab.capture.progress import Progress
from tracelab.capture.session import Request, Session, Workload, profile_session, profile_sessions
from tracelab.commands.captured import Analyse, Render, analyse_and_keep, with_note
from tracelab.commands.kernel_command import (
    KernelCommand,
    kernel_arguments,
    known_kernel,
    require_options,
    require_packages,
    require_variant,
)
from tracelab.commands.repeat import finish_repeated
from tracelab.commands.shared import (
    FACTS,
    OUTPUT,
    SELECTION,
    build_report,
    facts_of,
    format_leaf,
    render,
    selection_of,
    write,
)
from tracelab.errors import UsageError
from tracelab.registry import Leaf, leaves

if TYPE_CHECKING:
    from tracelab.report import Report

HELP = "Run a workload, or any command after `--`, under nsys and print where its time went."
_COMMAND = "tracelab.command"  # where the program and its arguments wait in click's context


class ProfileCommand(KernelCommand):
    """Sees the raw command line: what follows `--` is the program, what a workload knows is the workload's."""

    # Newer typer brings its own click, so its classes have no name that works for every version.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the program out before anything looks for options."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[cut + 1 :])
            return self.parse_own(ctx, args[:cut])
        return super().parse_args(ctx, args)


def request_from(ctx: typer.Context, values: Mapping[str, Any]) -> Request:
    """What the command line asks for.

    Raises UsageError for an unknown workload, for both or neither of workload and command, and for words left over.
    """
    command: tuple[str, ...] | None = ctx.meta.get(_COMMAND)
    name = values["workload"]
    if command is not None and name is not None:
        raise UsageError(f"Give a workload or a command after `--`, not both ({name}).")
    chosen = None if command is not None else _workload(name)
    arguments = kernel_arguments(ctx)
    if chosen is not None:
        leaf = leaves("kernels")[chosen.name]
        require_variant(leaf, arguments)
        require_options(leaf, arguments)
        if leaf.variants and has_gpu():
            require_packages(leaf)
    if ctx.args:
        raise UsageError(f"{ctx.args[0]!r} is no option of `tracelab profile` or of the workload.")
    return Request(
        workload=chosen,
        arguments=arguments,
        command=command or (),
        options=capture_options(values),
        nsys=values["nsys"],
        output=values["output"],
        keep_environment=values["keep_environment"],
        replay=not values["no_replay"],
        repeat=values["repeat"],
    )


def finish(session: Session, analyse: Analyse, render: Render, format_name: str) -> int:
    """Analyse, keep page and JSON in the run folder, print the wanted format to stdout; returns the exit code.

    Raises what `analyse` raises, with a hint to the folder that keeps the capture.
    """
    report = analyse_and_keep(session, analyse, render)
    noted = session.folder is not None and session.capture is not None and format_name == "terminal"
    note = session.folder.note if session.folder is not None and noted else None
    write(with_note(render(report, format_name, None), note), None)
    if session.ending:
        print(f"tracelab: {session.ending}", file=sys.stderr)
    return session.program_exit_code


def capture_options(values: Mapping[str, Any]) -> CaptureOptions:
    """The options of one capture. Raises UsageError for a time that is not positive or an unknown graph mode."""
    delay_s, duration_s = values["delay"], values["duration"]
    for name, value in (("--delay", delay_s), ("--duration", duration_s)):
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name} must be more than 0 seconds.")
    if values["graph_trace"] not in GRAPH_MODES:
        raise UsageError(f"--graph-trace {values['graph_trace']!r} is none of {', '.join(GRAPH_MODES)}.")
    if values["capture_range"] and (delay_s is not None or duration_s is not None):
        raise UsageError("--capture-range excludes --delay and --duration: the program opens and closes the window.")
    arguments = tuple(values["nsys_arg"] or ())
    return CaptureOptions(values["capture_range"], delay_s, duration_s, arguments, values["graph_trace"])


def run(ctx: typer.Context, **values: Any) -> None:
    """Capture or replay, analyse, print; ends with the program's own exit code."""
    # A wrong option must not cost the user a run of the program, so all are read before it.
    format_leaf(values["format"])
    selection_of(values)
    facts_of(values)
    request = request_from(ctx, values)
    analyse = partial(build_report, values={**values, "output": None})
    shown = (analyse, partial(_render, values), values["format"])
    if request.repeat > 1:
        code = finish_repeated(profile_sessions(request, samples.FOLDER, Progress()), request.repeat, *shown)
    else:
        code = finish(profile_session(request, samples.FOLDER, Progress()), *shown)
    if code != 0:
        raise typer.Exit(code)


def _parameter(
    name: str,
    kind: Any,
    default: Any,
    help_text: str,
    *flags: str,
    metavar: str | None = None,
    least: int | None = None,
) -> Parameter:
    annotation = Annotated[
        kind, typer.Option(*flags, help=help_text, metavar=metavar, show_default=default is not None, min=least)
    ]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_WORKLOAD = Annotated[
    str | None, typer.Argument(metavar="[WORKLOAD | -- CMD…]", help="A bundled workload, its options after it.")
]
PARAMETERS = (
    Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context),
    Parameter("workload", Parameter.KEYWORD_ONLY, default=None, annotation=_WORKLOAD),
    _parameter("nsys", str | None, None, "The nsys to use.", "--nsys", metavar="PATH"),
    _parameter("capture_range", bool, False, "Capture between cudaProfilerStart and Stop only.", "--capture-range"),
    _parameter("delay", float | None, None, "Start capturing after S seconds.", "--delay", metavar="S"),
    _parameter("duration", float | None, None, "Capture S seconds, then end the program.", "--duration", metavar="S"),
    _parameter("graph_trace", str, "node", "CUDA graphs by node, or whole: graph.", "--graph-trace", metavar="MODE"),
    _parameter("nsys_arg", list[str] | None, None, "One more option for nsys.", "--nsys-arg", metavar="X"),
    _parameter("repeat", int, 1, "Capture N times, to see how far captures differ.", "--repeat",
               metavar="N", least=1),
    _parameter("output", Path | None, None, "Run folder instead of tracelab-runs/NAME-TIME.", "-o", "--output",
               metavar="DIR"),
    _parameter("keep_environment", bool, False, "Leave environment and arguments in the trace.", "--keep-environment"),
    _parameter("no_replay", bool, False, "Without a GPU end with code 5, show no recording.", "--no-replay"),
    *(option for option in OUTPUT if option.name != "output"),
    *SELECTION,
    *FACTS,
)  # fmt: skip


def _render(values: Mapping[str, Any], report: "Report", format_name: str, target: Path | None) -> str:
    return render(report, {**values, "format": format_name, "output": target})


def _workload(name: str | None) -> Workload:
    known = leaves("kernels")
    if name is None:
        raise UsageError(f"Give a workload ({_listed(known)}), or a command after `--`.")
    leaf = known_kernel(name)
    if leaf is None:
        raise UsageError(f"There is no workload {name!r}; there is {_listed(known)}. A command goes after `--`.")
    return Workload(leaf.name, leaf.module, leaf.path)


def _listed(known: dict[str, Leaf]) -> str:
    return ", ".join(known) or "none"
