"""`tracelab doctor [TRACE]`: can this machine capture? With a trace: can it be trusted?"""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracelab.capture.doctor import diagnose
from tracelab.commands.reading_line import reading_line
from tracelab.commands.shared import (
    FACTS,
    OUTPUT,
    READING,
    SELECTION,
    Values,
    facts_of,
    format_leaf,
    keep_input,
    render_as,
    selection_of,
    with_parameters,
    write,
)
from tracelab.errors import NoGpuWorkError, UsageError
from tracelab.registry import leaves

if TYPE_CHECKING:
    from tracelab.trust_result import Trust

HELP = "Can this machine capture? With a trace: can it be trusted, analyzer by analyzer?"
_TRACE = inspect.Parameter(
    "trace",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None, typer.Argument(help="SQLite export or .nsys-rep to judge; the machine if left out.")
    ],
)
PARAMETERS = (_TRACE, *OUTPUT, *SELECTION, *FACTS, *READING)


def run(trace: Path | None, **values: Any) -> None:
    """Judge `trace` and print the verdicts; without one say in a few lines whether this machine can capture."""
    if trace is None:
        _machine(values)
        return
    format_leaf(values["format"])
    keep_input(trace, values["output"])
    write(render_as("trust", _judged(trace, values), values), values["output"])


doctor = with_parameters(run, PARAMETERS, HELP)


def _machine(values: Values) -> None:
    """GPU, nsys, permissions and disk; exit code 5 where nothing can be captured."""
    of_traces = [p.name for p in PARAMETERS if p.name not in ("trace", "nsys") and values[p.name] != p.default]
    if of_traces:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in of_traces)
        raise UsageError(f"Without a trace there is no use for {named}; name one: tracelab doctor TRACE.")
    diagnosis = diagnose(values["nsys"])
    for line in diagnosis.lines:
        typer.echo(line)
    if not diagnosis.can_capture:
        raise typer.Exit(5)


def _judged(path: Path, values: Values) -> "Trust":
    """The judgement of the trace at `path`, by the common options in `values`."""
    from tracelab.analysis import attribute, device_views, main_device, report
    from tracelab.load import load_trace
    from tracelab.trust import judge, judge_nothing

    selection, facts = selection_of(values), facts_of(values)
    with reading_line():
        trace = load_trace(path, values["nsys"])
    try:
        analysis = attribute(trace, facts, selection)
    except NoGpuWorkError:
        return judge_nothing(trace, tuple(leaves("analyzers")))
    views = device_views(analysis)
    results = report(analysis, views=views).main.results
    return judge(views[main_device(analysis, views)], results)
