"""Say in a few lines whether this machine can capture."""

from typing import Annotated

import typer

from tracelab.capture.doctor import diagnose


def doctor(
    nsys: Annotated[str | None, typer.Option("--nsys", metavar="PATH", help="The nsys to use.")] = None,
) -> None:
    """Say in a few lines whether this machine can capture: GPU, nsys, permissions, disk."""
    diagnosis = diagnose(nsys)
    for line in diagnosis.lines:
        typer.echo(line)
    if not diagnosis.can_capture:
        raise typer.Exit(5)
