"""A launch that fails silently past 11712 tokens, and the guard that names its phase.

A small decode step: in each layer the phase `attn_mla`, one CUDA kernel launched through torch's own runtime with its
return code ignored, and the phase `ffn`, torch ops. The kernel keeps one score per token in dynamic shared memory,
4·(ctx + 576) bytes, and nobody asked for more than the default 48 KiB: it fits exactly at ctx 11712. One token more and
the launch returns cudaErrorInvalidValue, nothing runs, and the output keeps what an earlier step left there. Layer
`fail_layer` is launched at `ctx`, the others at a short one.

Run as `python -m tracelab.kernels.guard`. The steps (`decode_step N`, ranges `L5`, phases `attn_mla` and `ffn`) lie
between cudaProfilerStart and Stop; afterwards it prints what was reported, and whether the output is old or new. With
`--graph` the step is captured (range `capture`) and replayed. `--run` checks instead how GPU and guard behave, as JSON
lines.

Exit codes: 2 for options that make no sense, 3 if anything else happens than described here, 5 without torch or a GPU.
Sources: kernel reference, section 9 (behaviour measured on an H200, CUDA 13.0); CUDA runtime API, error handling.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tracelab.errors import CaptureUnavailableError, CheckFailedError, TracelabError, UsageError
from tracelab.kernels._arguments import Parser, whole_number
from tracelab.kernels._guard import Guard as Guard  # what programs of others import
from tracelab.kernels._guard import Hooks, torch_hooks
from tracelab.kernels._guard_demo import DecodeStep, DemoOutcome, Unguarded, report, run_window, surprises
from tracelab.kernels._guard_kernel import MlaDecode

if TYPE_CHECKING:
    import torch

    from tracelab.kernels._guard_check import CheckLine

VARIANTS = {
    "guarded": "one poll of the error slot at the end of each phase: the failure is named by phase, layer and step",
    "sync": "debug mode: the host also waits for the GPU at the end of each phase, so that faults are placed too",
    "unguarded": "nobody looks: the next torch op raises for a launch that is not its own",
}
DEFAULTS = {"variant": "guarded", "ctx": 11713, "layers": 8, "fail_layer": 5, "steps": 6, "graph": False}

_HELP = {
    "ctx": (1, "tokens that the failing layer attends to"),
    "layers": (1, "layers of the step"),
    "fail_layer": (0, "the layer that is launched at --ctx"),
    "steps": (1, "decode steps in the profiled window"),
}
SHORT_CTX = 256  # of the other layers
WARM_UP_CTX = 128  # of the step that leaves the old data; none of the others, so that old and new differ


def demo(options: Mapping[str, int | str | bool]) -> DemoOutcome:
    """Warm up, run the profiled steps, look at the failing layer's output. `options` are those of DEFAULTS.

    Raises UsageError for options that make no sense, CaptureUnavailableError without torch or a GPU.
    """
    ctx, layers, fail_layer = (int(options[name]) for name in ("ctx", "layers", "fail_layer"))
    if fail_layer >= layers:
        raise UsageError(f"--fail-layer {fail_layer} is not one of the {layers} layers, which count from 0.")
    hooks = _require_gpu()
    from tracelab.kernels._kernel import relative_l2

    variant = str(options["variant"])
    attention = MlaDecode(layers, max(ctx, SHORT_CTX))
    for layer in range(layers):
        attention.launch(layer, WARM_UP_CTX)()
        attention.ffn(layer)
    old = attention.mixed[fail_layer].clone()
    phases = Unguarded(hooks) if variant == "unguarded" else Guard("collect", sync=variant == "sync", hooks=hooks)
    attend = [attention.launch(layer, ctx if layer == fail_layer else SHORT_CTX) for layer in range(layers)]
    step = DecodeStep(attend, attention.ffn, phases)
    capture_error = run_window(step, phases, int(options["steps"]), bool(options["graph"]))
    output = attention.mixed[fail_layer]
    return DemoOutcome(
        variant=variant,
        ctx=ctx,
        failed_launches=step.failed_launches,
        failures=() if isinstance(phases, Unguarded) else tuple(phases.failures),
        blamed=tuple(phases.blamed) if isinstance(phases, Unguarded) else (),
        drained=None if isinstance(phases, Unguarded) else phases.drained,
        capture_error=capture_error,
        stale=bool((output == old).all()),
        error=relative_l2(output, attention.reference(fail_layer, ctx)),
    )


def run_check(device: "torch.device") -> "list[CheckLine]":
    """Check on a GPU how failing launches, torch, Triton and the guard behave; needs torch and Triton."""
    from tracelab.kernels import _guard_check

    return _guard_check.run_check(device)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo, or with `--run` the checks; returns the exit code, after one sentence on stderr if it is not 0."""
    try:
        options = vars(_parse(argv))
        if options.pop("run"):
            _require_gpu()
            for line in _run_lines():
                print(json.dumps(line), flush=True)
            return 0
        outcome = demo(options)
        print("\n".join(report(outcome, options["fail_layer"])))
        if wrong := surprises(outcome, options["fail_layer"]):
            raise CheckFailedError(f"this is not what should happen: {'; '.join(wrong)}.")
    except TracelabError as error:
        print(f"guard: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _run_lines() -> Iterator[dict[str, object]]:
    """First what ran where, then one object a check: `check`, `ok`, `measured`, `limit`."""
    import torch

    from tracelab.kernels._device import gpu_facts

    head = {"tracelab.run": 1, "kernel": "guard", "dtype": "float32", "options": {}, "variants": []}
    yield {**head, "gpu": gpu_facts()}
    for line in run_check(torch.device("cuda")):
        facts_of_line = asdict(line)
        yield {"check": facts_of_line.pop("name"), **facts_of_line}


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    parser = Parser(prog="guard", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--variant", choices=list(VARIANTS), default=DEFAULTS["variant"], help="default %(default)s")
    for name, (least, text) in _HELP.items():
        kind, flag = whole_number(least), f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=kind, default=DEFAULTS[name], help=f"{text} (default %(default)s)")
    parser.add_argument("--graph", action="store_true", help="capture the step in a CUDA graph and replay it")
    parser.add_argument("--run", action="store_true", help="check how GPU and guard behave, as JSON lines")
    return parser.parse_args(argv)


def _require_gpu() -> Hooks:
    if importlib.util.find_spec("torch") is None:
        raise CaptureUnavailableError("torch is not installed in this Python; install the extra [gpu].")
    hooks = torch_hooks()
    if hooks is None:
        raise CaptureUnavailableError("torch finds no CUDA GPU; the guard has nothing to watch.")
    return hooks


if __name__ == "__main__":
    sys.exit(main())
