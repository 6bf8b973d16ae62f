"""`tracelab ANALYZER TRACE`: one analyzer alone; its keyword parameters are its flags."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tracelab.commands.shared import (
    FACTS,
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

    options = [p.replace(annotation=Annotated[p.annotation, typer.Option(help=_flag_help(p))]) for p in own.values()]
    return with_parameters(run, (_TRACE, *options, *OUTPUT, *SELECTION, *FACTS, *READING), leaf.help)


def _flag_help(parameter: inspect.Parameter) -> str:
    return f"{parameter.name.replace('_', ' ').capitalize()} (this analyzer's own option)."
