"""The command line. Analyzers are commands found by folder; only the one that is called is imported."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from tracelab import __version__
from tracelab.commands import cache, check, diff, doctor, profile, report, run, scrub
from tracelab.commands import list as list_command
from tracelab.commands.kernel_command import KernelCommand
from tracelab.commands.shared import with_parameters
from tracelab.errors import TracelabError
from tracelab.registry import leaves

_HELP = "tracelab: where did my decode step go? Profile LLM inference on NVIDIA GPUs and read where the time went."
_ANALYZER_PANEL = "One analyzer"
_SETTINGS = {"help_option_names": ["-h", "--help"]}
_PASS_ON = {**_SETTINGS, "allow_extra_args": True}  # a workload's own options follow its name


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The command-line application; `arguments` tell which analyzer has to be imported for its options."""
    app = typer.Typer(
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=_SETTINGS,
        rich_markup_mode="rich",
    )
    app.callback()(_version_option)
    app.command("profile", cls=profile.ProfileCommand, help=profile.HELP, context_settings=_PASS_ON)(
        with_parameters(profile.run, profile.PARAMETERS, profile.HELP)
    )
    app.command("report", help=report.HELP)(with_parameters(report.run, report.PARAMETERS, report.HELP))
    app.command("diff", cls=diff.DiffCommand, help=diff.HELP)(with_parameters(diff.run, diff.PARAMETERS, diff.HELP))
    app.command("check", help=check.HELP)(with_parameters(check.run, check.PARAMETERS, check.HELP))
    app.command("run", cls=KernelCommand, help=run.HELP, context_settings=_PASS_ON)(
        with_parameters(run.run, run.PARAMETERS, run.HELP)
    )
    app.command("doctor", help=doctor.HELP)(doctor.doctor)
    app.command("scrub", help=scrub.HELP)(with_parameters(scrub.run, scrub.PARAMETERS, scrub.HELP))
    app.command("list", help=list_command.HELP)(list_command.run)
    caches = typer.Typer(
        help="The cache: exports of .nsys-rep files, and finished reports of large traces.", no_args_is_help=True
    )
    caches.command("clear", help="Remove the cache.")(cache.clear)
    app.add_typer(caches, name="cache")
    for leaf in leaves("analyzers").values():
        called = bool(arguments) and leaf.name in arguments
        app.command(leaf.name, help=leaf.help, rich_help_panel=_ANALYZER_PANEL)(
            _command_of(leaf.name) if called else _stub
        )
    return app


def _command_of(name: str) -> Callable[..., None]:
    from tracelab.commands.analyzer import command

    return command(leaves("analyzers")[name])


def _stub() -> None:
    raise TracelabError("an analyzer was called that the command line did not name")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tracelab {__version__}")
        raise typer.Exit


def _version_option(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Only carries --version."""
    del version
