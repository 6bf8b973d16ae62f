"""`tracelab report`: the one-page answer, of the bundled sample if no trace is named."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from tracelab.commands.shared import FACTS, KEPT, OUTPUT, READING, SELECTION, build_report, format_leaf, render, write
from tracelab.samples import default_sample

HELP = "The one-page answer: where the step went, in absolute times."
_TRACE = inspect.Parameter(
    "trace",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None, typer.Argument(help="SQLite export or .nsys-rep; the bundled H200 sample if left out.")
    ],
)
PARAMETERS = (_TRACE, *OUTPUT, *SELECTION, *FACTS, *READING, *KEPT)


def run(trace: Path | None, **values: Any) -> None:
    """Analyse `trace` and print the page."""
    format_leaf(values["format"])
    recording = None
    if trace is None:
        sample = default_sample()
        trace, recording = sample.path, sample.title
    write(render(build_report(trace, values, recording=recording), values), values["output"])
