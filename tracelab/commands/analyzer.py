"""`tracelab ANALYZER TRACE`: one analyzer alone; its keyword parameters are its flags."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from tracelab.commands.shared import (
    FACTS,
    KEPT,
    OUTPUT,
    READING,
    SELECTION,
    build_report,
    format_leaf,
    render,
    with_parameters,
    write,
)
from tracelab.errors import UsageError
from tracelab.registry import Leaf

_TRACE = inspect.Parameter(
    "trace",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[Path | None, typer.Argument(help="SQLite export or .nsys-rep.")],
)


def command(leaf: Leaf) -> Callable[..., None]:
    """The command function of one analyzer; imports it, since its parameters become options."""
    from tracelab.analysis import parameters_of

    own = parameters_of(leaf)

    def run(trace: Path | None, **values: Any) -> None:
        if trace is None:
            raise UsageError(f"tracelab {leaf.name} needs a trace; `tracelab list` names the bundled ones.")
        format_leaf(values["format"])
        flags = {name: values.pop(name) for name in own}
        report = build_report(trace, values, {leaf.name: flags})
        write(render(report, values, leaf.name), values["output"])

    options = [_flag(p) for p in own.values()]
    return with_parameters(run, (_TRACE, *options, *OUTPUT, *SELECTION, *FACTS, *READING, *KEPT), leaf.help)


def _flag(parameter: inspect.Parameter) -> inspect.Parameter:
    """An analyzer's parameter, annotated `Annotated[type, "help"]`, as a command-line option."""
    kind, text = get_args(parameter.annotation)
    name = f"--{parameter.name.replace('_', '-')}"
    return parameter.replace(annotation=Annotated[kind, typer.Option(name, help=text)])
