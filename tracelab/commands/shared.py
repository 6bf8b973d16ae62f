"""Options that every command on a trace takes, and how its answer is written."""

import inspect
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracelab import quantities
from tracelab.commands.kept_reports import Question, find, keep
from tracelab.commands.reading_line import reading_line
from tracelab.errors import InputError, UsageError
from tracelab.options import PHASE_MODES, Facts, Selection
from tracelab.registry import Leaf, leaves, load

if TYPE_CHECKING:
    from tracelab.report import CaptureFacts, Report

Values = Mapping[str, Any]

_PANEL_STEPS = "Which steps"
_PANEL_FACTS = "Model and machine"


def _option(name: str, kind: Any, default: Any, help_text: str, *flags: str, **extra: Any) -> inspect.Parameter:
    declared = flags or (f"--{name.replace('_', '-')}",)
    annotation = Annotated[kind, typer.Option(*declared, help=help_text, show_default=default is not None, **extra)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


SELECTION = (
    _option("steps", str | None, None, "Steps are the NVTX ranges whose name matches REGEX.", metavar="REGEX",
            rich_help_panel=_PANEL_STEPS),
    _option("skip_steps", int, 1, "First steps to leave out (warm-up).", min=0, rich_help_panel=_PANEL_STEPS),
    _option("device", int | None, None, "GPU to report on.", metavar="N", rich_help_panel=_PANEL_STEPS),
    _option("window", str | None, None, "Only GPU work inside this time of the collection: 0.5:1.5, 200ms:250ms.",
            metavar="START:END", rich_help_panel=_PANEL_STEPS),
    _option("phases", str, "auto", "How phases are named: auto, nvtx, graph or kernels.", metavar="MODE",
            rich_help_panel=_PANEL_STEPS),
    _option("depth", int | None, None, "Levels of ranges that make a phase.", min=1, metavar="N",
            rich_help_panel=_PANEL_STEPS),
    _option("exclude", str | None, None, "NVTX ranges whose name matches REGEX make no step and no phase.",
            metavar="REGEX", rich_help_panel=_PANEL_STEPS),
)  # fmt: skip
FACTS = (
    _option("params", str | None, None, "Parameters of the model: 8B, 70e9.", metavar="COUNT",
            rich_help_panel=_PANEL_FACTS),
    _option("active_params", str | None, None, "Parameters read per step, where fewer (MoE).", metavar="COUNT",
            rich_help_panel=_PANEL_FACTS),
    _option("dtype", str | None, None, "Weight type: bf16, fp8, int4.", metavar="TYPE", rich_help_panel=_PANEL_FACTS),
    _option("kv_bytes", str | None, None, "KV cache read per step: 134MB.", metavar="BYTES",
            rich_help_panel=_PANEL_FACTS),
    _option("flops", str | None, None, "FLOPs per step: 16e9.", metavar="COUNT", rich_help_panel=_PANEL_FACTS),
    _option("bandwidth", str | None, None, "Memory bandwidth: 4.8TB/s.", metavar="BYTES/S",
            rich_help_panel=_PANEL_FACTS),
    _option("gpu", str | None, None, "GPU of the datasheet table: H200, A100-80GB.", metavar="NAME",
            rich_help_panel=_PANEL_FACTS),
)  # fmt: skip
OUTPUT = (
    _option("format", str, "terminal", "Report format: terminal, json or markdown.", "--format", metavar="NAME"),
    _option("output", Path | None, None, "Write to FILE instead of the terminal.", "-o", "--output", metavar="FILE"),
    _option("full_names", bool, False, "Print kernel names in full.", "--full-names"),
)
READING = (_option("nsys", str | None, None, "The nsys that exports a .nsys-rep.", metavar="PATH"),)
KEPT = (_option("no_cache", bool, False, "Analyse anew; neither take nor keep a finished report.", "--no-cache"),)


def with_parameters(
    run: Callable[..., None], parameters: Sequence[inspect.Parameter], help_text: str
) -> Callable[..., None]:
    """`run` as a function with these parameters, for typer to read; it receives them as keywords."""

    def command(**values: Any) -> None:
        run(**values)

    command.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = help_text
    return command


def selection_of(values: Values) -> Selection:
    """The selection options; raises UsageError for one that makes no sense."""
    if values["phases"] not in PHASE_MODES:
        raise UsageError(f"--phases {values['phases']!r} is none of {', '.join(PHASE_MODES)}.")
    return Selection(
        steps=values["steps"],
        skip_steps=values["skip_steps"],
        device=values["device"],
        window_ns=quantities.window_ns("--window", values["window"]),
        phases=values["phases"],
        depth=values["depth"],
        exclude=values["exclude"],
    )


def facts_of(values: Values) -> Facts:
    """The facts about model and machine; raises UsageError for one that cannot be read."""
    from tracelab.floor import BYTES_PER_PARAM

    dtype = values["dtype"]
    if dtype is not None and dtype.lower() not in BYTES_PER_PARAM:
        raise UsageError(f"--dtype {dtype!r} is none of {', '.join(BYTES_PER_PARAM)}.")
    return Facts(
        params=quantities.count("--params", values["params"]),
        active_params=quantities.count("--active-params", values["active_params"]),
        dtype=dtype,
        kv_bytes=quantities.byte_count("--kv-bytes", values["kv_bytes"]),
        flops=quantities.flop_count("--flops", values["flops"]),
        bandwidth_bytes_per_s=quantities.bandwidth("--bandwidth", values["bandwidth"]),
        gpu=values["gpu"],
    )


def format_leaf(name: str) -> Leaf:
    """The report format `name`; raises UsageError, naming those there are."""
    formats = leaves("reports")
    if name not in formats:
        raise UsageError(f"--format {name!r} is none of {', '.join(formats)}.")
    return formats[name]


def build_report(
    trace: Path,
    values: Values,
    analyzers: Mapping[str, Values] | None = None,
    capture: "CaptureFacts | None" = None,
    recording: str | None = None,
) -> "Report":
    """Load and analyse `trace` by the common options in `values`, or take the report that was kept of just that."""
    keep_input(trace, values.get("output"))
    question = Question(trace, selection_of(values), facts_of(values), analyzers, values.get("nsys"))
    reusable = capture is None and recording is None and not values.get("no_cache")
    found, key = find(question) if reusable else (None, None)
    return found or _analysed(question, capture, recording, key)


def _analysed(question: Question, capture: "CaptureFacts | None", recording: str | None, key: str | None) -> "Report":
    from tracelab.analysis import attribute, report
    from tracelab.load import load_trace, read_shapes_ahead

    with reading_line() as say:
        trace = load_trace(question.trace, question.nsys)
        if question.analyzers is None:
            read_shapes_ahead(trace)
        say(f"analysing {len(trace.ops) / 1e6:.1f} million rows of GPU work")
        made = report(attribute(trace, question.facts, question.selection), question.analyzers, capture, recording)
    keep(question, key, made)
    return made


def render(report: "Report", values: Values, analyzer: str | None = None) -> str:
    """The report, or one analyzer's part of it, in the chosen format and fitted to where it goes."""
    module = load(format_leaf(values["format"]))
    style = _style(values)
    return str(module.render_result(report, analyzer, **style) if analyzer else module.render(report, **style))


def render_as(kind: str, outcome: object, values: Values) -> str:
    """A `diff`, a `ladder` or a `check` in the chosen format and fitted to where it goes."""
    module = load(format_leaf(values["format"]))
    return str(getattr(module, f"render_{kind}")(outcome, **_style(values)))


def _style(values: Values) -> Values:
    to_terminal = sys.stdout is not None and sys.stdout.isatty() and values["output"] is None
    return {
        "full_names": values["full_names"],
        "width": shutil.get_terminal_size().columns if to_terminal else None,
        "color": to_terminal and not os.environ.get("NO_COLOR"),
    }


def keep_input(trace: Path, output: Path | None) -> None:
    """Raise UsageError if `output` is the trace itself, by whatever name, or a file that SQLite keeps beside it."""
    if output is None:
        return
    source, target = trace.resolve(), output.resolve()
    taken = target in [source.with_name(source.name + ending) for ending in ("", "-wal", "-shm", "-journal")]
    if taken or (target.exists() and source.exists() and target.samefile(source)):
        raise UsageError(f"-o {output} would overwrite the trace; give another file.")


def write(text: str, output: Path | None) -> None:
    """Print `text`, or write it to the file `output`."""
    body = text if text.endswith("\n") else text + "\n"
    try:
        if output is not None:
            output.write_text(body, encoding="utf-8")
            return
        if sys.stdout is None:
            raise InputError("stdout is closed; nothing could be printed.")
        sys.stdout.write(body)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()  # the reader of the pipe had enough: no error
    except OSError as error:
        _drop_stdout()
        raise InputError(f"{output or 'stdout'}: cannot be written ({error.strerror or error}).") from error


def _drop_stdout() -> None:
    """Let Python flush what is left at its end into nothing, rather than into the same error again."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
