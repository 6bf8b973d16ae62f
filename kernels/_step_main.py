"""What the decode-step workloads share: their options, starved kernels and failing launches by name, and one run.

Warm-up comes first; then, between cudaProfilerStart and Stop, the workload record, with `--graph` the capture of the
graph (NVTX range `capture`), and the steps (`decode_step N`). Each phase polls the launch error that CUDA keeps, so a
launch that failed is reported by phase and layer. Steps are issued back to back with no host synchronisation.

Exit codes: 3 for a launch that failed unasked, 2 for options that make no sense or do not fit the GPU's memory, 5
without torch, Triton or a GPU.
"""

import argparse
import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelab.errors import CaptureUnavailableError, TracelabError, UsageError
from tracelab.kernels._arguments import Parser, whole_number
from tracelab.kernels._guard import Guard, parse_fail
from tracelab.kernels._split_plan import power_of_two

if TYPE_CHECKING:
    from tracelab.kernels._gpu_window import Step

NONE = "none"  # the value of --starve and --fail that asks for nothing


@dataclass(frozen=True)
class Fault:
    """The launch that shall fail: the last one of `phase` in layer `layer`."""

    phase: str
    layer: int


@dataclass(frozen=True)
class Options:
    """One command line. `numbers` are the workload's own options; `rows` is the batch, padded if a graph needs it."""

    numbers: Mapping[str, int]
    rows: int
    starve: Mapping[str, str]
    fail: Fault | None
    graph: bool
    steps: int
    events: bool

    @property
    def variant(self) -> dict[str, object]:
        """What the workload record and the event times say of the run, batch and context excepted."""
        own = {name: value for name, value in self.numbers.items() if name not in ("batch", "ctx")}
        said: dict[str, object] = {"graph": self.graph, **own, **self.starve}
        if self.rows != self.numbers["batch"]:
            said["graph_rows"] = self.rows
        if self.fail is not None:
            said["fail"] = f"{self.fail.phase}@{self.fail.layer}"
        return said


@dataclass(frozen=True)
class Plan:
    """What the options mean for a workload.

    layer_phases  the phases of each layer, where `--fail` may strike
    memory_bytes  device memory for weights and caches
    record        the workload record, without its `variant`
    build         makes the step, its phases those of the guard; called once, on a GPU, and alone may import torch
    """

    layer_phases: Sequence[Sequence[str]]
    memory_bytes: int
    record: Mapping[str, object]
    build: "Callable[[Guard], Step]"


@dataclass(frozen=True)
class Workload:
    """A decode-step preset.

    defaults  its DEFAULTS: whole numbers are its own options, besides steps, graph, events, starve and fail
    help      one short line per own option
    choices   for own options that know few values, those
    starved   the starved forms of each kernel, as `--starve` names them
    """

    name: str
    doc: str
    defaults: Mapping[str, int | str | bool]
    help: Mapping[str, str]
    choices: Mapping[str, Sequence[int]]
    starved: Mapping[str, Sequence[str]]
    plan: Callable[[Options], Plan]


def check(workload: Workload, argv: Sequence[str]) -> None:
    """Raise UsageError for options that make no sense; needs neither torch nor a GPU."""
    options = parse(workload, argv)
    _require_phase(options.fail, workload.plan(options))


def run(workload: Workload, argv: Sequence[str] | None = None) -> int:
    """Run the workload; returns the exit code, after one sentence on stderr if it is not 0."""
    try:
        options = parse(workload, argv)
        plan = workload.plan(options)
        _require_phase(options.fail, plan)
        _require_gpu(plan)
        if (note := padding_note(options)) is not None:
            print(f"{workload.name}: {note}", file=sys.stderr)
        _decode(workload, options, plan)
    except TracelabError as error:
        print(f"{workload.name}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def parse(workload: Workload, argv: Sequence[str] | None) -> Options:
    """The options of one command line. Raises UsageError for what makes no sense, whatever GPU there is."""
    given = _parser(workload).parse_args(argv)
    numbers = {name: getattr(given, name) for name in workload.help}
    starve = _starved(given.starve or [], workload.starved)
    fail = _fault(given.fail)
    if fail is not None and given.graph:
        raise UsageError("--fail excludes --graph: the capture of a launch that fails raises, so no graph holds one.")
    rows = graph_rows(numbers["batch"]) if given.graph else numbers["batch"]
    return Options(numbers, rows, starve, fail, given.graph, given.steps, given.events)


def graph_rows(batch: int) -> int:
    """Rows of the graph that serves `batch`: 1, 2, 4, 8, 16, … as engines capture one graph for each of few sizes."""
    return power_of_two(batch)


def padding_note(options: Options) -> str | None:
    """What the rows that no sequence needs cost, None without any."""
    rows, batch = options.rows, options.numbers["batch"]
    if rows == batch:
        return None
    share = 1 - batch / rows
    return f"batch {batch} runs in the graph for {rows}: {rows - batch} of {rows} rows ({share:.1%}) are padding"


def _parser(workload: Workload) -> Parser:
    defaults = workload.defaults
    parser = Parser(prog=workload.name, description=workload.doc.splitlines()[0], allow_abbrev=False)
    for name, text in workload.help.items():
        options = workload.choices.get(name)
        said = text if options is None else f"{text}: {_either(options)}"
        kind = whole_number(1) if options is None else _one_of(options)
        parser.add_argument(f"--{name}", type=kind, default=defaults[name], help=f"{said} (default %(default)s)")
    at_least_one = whole_number(1)
    parser.add_argument("--steps", type=at_least_one, default=defaults["steps"], help="decode steps in the window")
    forms = "; ".join(f"{kernel}={'|'.join(names)}" for kernel, names in workload.starved.items())
    parser.add_argument("--starve", action="append", metavar="KERNEL=FORM", help=f"run a known bad form: {forms}")
    parser.add_argument("--fail", default=defaults["fail"], metavar="PHASE@LAYER", help="let that phase's launch fail")
    parser.add_argument("--graph", action="store_true", help="capture the step in a CUDA graph and replay it")
    parser.add_argument("--events", action="store_true", help="afterwards print the step time by CUDA events, as JSON")
    return parser


def _one_of(values: Sequence[int]) -> Callable[[str], int]:
    def kind(text: str) -> int:
        value = whole_number(1)(text)
        if value not in values:
            raise argparse.ArgumentTypeError(f"{value} is not {_either(values)}")
        return value

    return kind


def _starved(words: Sequence[str], known: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Kernel and starved form of each `KERNEL=FORM`; several are parted by commas or by repeating the option."""
    chosen: dict[str, str] = {}
    for word in ",".join(words).split(","):
        kernel, _, form = word.strip().partition("=")
        if kernel in ("", NONE):
            continue
        if kernel not in known:
            raise UsageError(f"--starve {word}: there is no kernel {kernel!r} here, only {_either(tuple(known))}.")
        if form not in known[kernel]:
            raise UsageError(f"--starve {word}: the starved forms of {kernel} are {_either(known[kernel])}.")
        if chosen.get(kernel, form) != form:
            raise UsageError(f"--starve {word}: {kernel} is already {chosen[kernel]}; it can have one form.")
        chosen[kernel] = form
    return chosen


def _fault(text: str) -> Fault | None:
    if text == NONE:
        return None
    try:
        return Fault(*parse_fail(text))
    except UsageError as error:
        raise UsageError(f"--fail: {error}") from None


def _require_phase(fail: Fault | None, plan: Plan) -> None:
    """Raise unless the layer that shall fail exists and has that phase."""
    if fail is None:
        return
    if fail.layer >= len(plan.layer_phases):
        last = len(plan.layer_phases) - 1
        raise UsageError(f"--fail {fail.phase}@{fail.layer}: there is no layer {fail.layer}, the last one is {last}.")
    if fail.phase not in plan.layer_phases[fail.layer]:
        phases = _either(plan.layer_phases[fail.layer])
        raise UsageError(f"--fail {fail.phase}@{fail.layer}: the phases of layer {fail.layer} are {phases}.")


def _either(names: Sequence[object]) -> str:
    *others, last = map(str, names)
    return f"{', '.join(others)} or {last}" if others else last


def _require_gpu(plan: Plan) -> None:
    """Raise unless torch, Triton, a GPU and its free memory allow this plan."""
    for package in ("torch", "triton"):
        if not _is_installed(package):
            raise CaptureUnavailableError(f"{package} is not installed in this Python; install the extra [gpu].")
    import torch

    if not torch.cuda.is_available():
        raise CaptureUnavailableError("torch finds no CUDA GPU; this workload needs one.")
    free_bytes, _ = torch.cuda.mem_get_info()
    if plan.memory_bytes > free_bytes:
        raise UsageError(
            f"weights and caches need {plan.memory_bytes / 1e9:.1f} GB but the GPU has {free_bytes / 1e9:.1f} GB free; "
            "lower --batch, --ctx or --layers."
        )


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _decode(workload: Workload, options: Options, plan: Plan) -> None:
    import torch

    from tracelab.kernels._gpu_window import event_times, profiled_window

    torch.manual_seed(0)
    guard = Guard("raise" if options.fail is None else "collect")
    record = {**plan.record, "variant": options.variant}
    with torch.inference_mode():
        step = plan.build(guard)
        replay = profiled_window(step, steps=options.steps, graph=options.graph, record=record)
        guard.replayed()
        if options.events:
            variant = {**options.variant, "batch": options.numbers["batch"], "ctx": options.numbers["ctx"]}
            events = {"tracelab.events": 1, "name": workload.name, "variant": variant, **event_times(replay)}
            print(json.dumps(events))
    for line in failure_lines(guard):
        print(f"{workload.name}: {line}", file=sys.stderr)


def failure_lines(guard: Guard) -> list[str]:
    """One line for each phase that failed, in the order of their first failure, with how often it did."""
    counts = Counter(str(failure) for failure in guard.failures)
    return [f"{text} in {count} step{'s' if count > 1 else ''}, warm-up included" for text, count in counts.items()]
