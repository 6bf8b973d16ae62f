"""`tracelab run`: check a bundled kernel against its float64 reference, then time it, without nsys."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from tracelab.capture.gpu import has_gpu
from tracelab.capture.progress import Progress
from tracelab.commands.kernel_command import (
    PROFILE_ONLY,
    kernel_arguments,
    known_kernel,
    require_packages,
    require_variant,
)
from tracelab.commands.shared import write
from tracelab.errors import CaptureUnavailableError, CheckFailedError, TracelabError, UsageError
from tracelab.registry import Leaf, leaves

HELP = "Check a bundled kernel against its reference, then time its variants."
_FORMATS = ("terminal", "json")
PARAMETERS = (
    Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context),
    Parameter("kernel", Parameter.KEYWORD_ONLY, default=None,
              annotation=Annotated[str | None, typer.Argument(metavar="KERNEL", help="A kernel, its options after.")]),
    Parameter("format", Parameter.KEYWORD_ONLY, default="terminal",
              annotation=Annotated[str, typer.Option("--format", metavar="NAME", help="terminal or json.")]),
    Parameter("output", Parameter.KEYWORD_ONLY, default=None,
              annotation=Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE",
                                                             help="Write to FILE instead of the terminal.")]),
)  # fmt: skip


def run(ctx: typer.Context, **values: Any) -> None:
    """Check and time; raises CheckFailedError after printing if a variant's result is wrong."""
    from tracelab.commands.run_page import as_json, as_page
    from tracelab.kernel_run import kernel_run

    if values["format"] not in _FORMATS:
        raise UsageError(f"--format {values['format']!r} is none of {', '.join(_FORMATS)}.")
    leaf, arguments = _kernel(values["kernel"]), kernel_arguments(ctx)
    if ctx.args:
        raise UsageError(f"{ctx.args[0]!r} is no option of `tracelab run` or of the kernel.")
    if {word.partition("=")[0] for word in arguments} & set(PROFILE_ONLY):
        raise UsageError("--graph and --steps belong to `tracelab profile`; `tracelab run` times single launches.")
    require_variant(leaf, arguments)
    require_packages(leaf)
    lines: list[Mapping[str, Any]] = []
    failure = _measure(leaf, arguments, lines)
    if len(lines) > 1:  # what was measured is shown, however the rest ended
        done = kernel_run(lines)
        write(as_json(done) if values["format"] == "json" else as_page(done), values["output"])
    if failure is not None:
        raise failure
    if done.failed:
        raise CheckFailedError(f"{leaf.name}: the check failed for {', '.join(done.failed)}.")


def _kernel(name: str | None) -> Leaf:
    kernels = ", ".join(leaf.name for leaf in leaves("kernels").values() if leaf.variants)
    if name is None:
        raise UsageError(f"Give a kernel: {kernels}.")
    leaf = known_kernel(name)
    if leaf is None or not leaf.variants:
        hint = f"; `tracelab profile {leaf.name}` runs that decode step" if leaf is not None else ""
        raise UsageError(f"There is no kernel {name!r}{hint}. Kernels: {kernels}.")
    return leaf


def _measure(leaf: Leaf, arguments: tuple[str, ...], lines: list[Mapping[str, Any]]) -> TracelabError | None:
    """Fill `lines` with what the kernel says; returns why it failed, if it did, its own sentence standing on stderr."""
    command = [sys.executable, "-m", leaf.module, "--run", *arguments]
    # Triton reads this when the kernel is imported; with a GPU the kernel must be compiled.
    environment = {**os.environ, "TRITON_INTERPRET": "0" if has_gpu() else "1"}
    progress, total, seen = Progress(), 0, 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        for text in child.stdout:
            line = json.loads(text)
            total = len(line["variants"]) if "variants" in line else total
            seen += 1
            what = f"checking and timing variant {seen} of {total}" if seen <= total else "measuring its own tables"
            progress.stage(f"{leaf.name}: {what}")
            lines.append(line)
        progress.done()
    return _failure(leaf, child.returncode) if child.returncode else None


def _failure(leaf: Leaf, code: int) -> TracelabError:
    if code == -signal.SIGKILL:
        return UsageError(f"{leaf.name} was killed, most likely for want of memory; make its shape smaller.")
    kind = {2: UsageError, 5: CaptureUnavailableError}.get(code, TracelabError)
    return kind(f"{leaf.name} could not be run; its own message stands above.")
