"""What `python -m tracelab.kernels.NAME` does for a kernel: one variant in a profiled window, or check and time all.

With `--run` it writes one JSON object a line to stdout for `tracelab run` to print: first about the run, then one a
variant, then on a GPU the further tables that the kernel offers by `tables(options, device)`. Exit codes: 2 for options
that make no sense or do not fit the memory, 5 without torch, Triton or (in a profiled window) a GPU.
"""

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from triton.errors import TritonError

from tracelab.errors import CaptureUnavailableError, TracelabError, UsageError
from tracelab.kernels._arguments import Parser, whole_number
from tracelab.kernels._bench import copies_for, time_launches
from tracelab.kernels._device import gpu_facts
from tracelab.kernels._gpu_window import Range, profiled_window
from tracelab.kernels._kernel import INTERPRETED, TOLERANCE, Case, Options, worst_error

_OWN = ("variant", "steps", "graph")  # options of the driver; all others are the kernel's shape
_SWITCHES = ("causal",)  # whole numbers that say no or yes
# What torch, Triton and a kernel's own checks raise for sizes that they cannot do, or that no machine has room for.
_SHAPE_ERRORS = (
    ValueError,
    TypeError,
    RuntimeError,
    ArithmeticError,
    AssertionError,
    IndexError,
    MemoryError,
    TritonError,
)
_LONGEST_REASON = 160
_MEMORY_SHARE = 0.9  # of the free memory: what allocator and workspaces take stays below a tenth


def main(module: ModuleType, argv: Sequence[str] | None = None) -> int:
    """Run the kernel `module`; returns the exit code, after one sentence on stderr if it is not 0."""
    name = leaf_name(module)
    try:
        asked = _parse(module, argv)
        if asked.pop("run"):
            for line in run_lines(module, asked):
                print(json.dumps(line), flush=True)
        else:
            with _shape_errors(_shape_is_given(asked)):
                _profile(module, {**module.DEFAULTS, **asked})
    except TracelabError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    except torch.OutOfMemoryError:
        print(f"{name}: the GPU's memory is too small for this shape; make it smaller.", file=sys.stderr)
        return UsageError.exit_code
    return 0


def leaf_name(module: ModuleType) -> str:
    """The name of a kernel on the command line, also while it runs as `__main__`."""
    assert module.__file__ is not None
    return Path(module.__file__).stem.replace("_", "-")


def run_lines(module: ModuleType, asked: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """Check every asked variant against float64 and, on a GPU, time it; `asked` are the options that were given."""
    on_gpu = torch.cuda.is_available()
    if not on_gpu and not INTERPRETED:
        raise CaptureUnavailableError("torch finds no CUDA GPU, and TRITON_INTERPRET=1 is not set.")
    device = torch.device("cuda" if on_gpu else "cpu")
    dtype = torch.bfloat16 if on_gpu else torch.float32
    shape = {**module.DEFAULTS, **({} if on_gpu else module.CHECK), **asked}
    shape = {name: value for name, value in shape.items() if name not in _OWN}
    chosen = [str(asked["variant"])] if "variant" in asked else list(module.VARIANTS)
    yield {"tracelab.run": 1, "kernel": leaf_name(module), "dtype": str(dtype).removeprefix("torch."),
           "options": shape, "variants": chosen, "gpu": gpu_facts() if on_gpu else None}  # fmt: skip
    for variant in chosen:
        with _shape_errors(_shape_is_given(asked)):
            done = _measured(module, {**shape, "variant": variant}, device, dtype)
        yield {"variant": variant, "help": module.VARIANTS[variant], **done}
    if on_gpu and "variant" not in asked and hasattr(module, "tables"):
        with _shape_errors(_shape_is_given(asked)):
            found: list[dict[str, object]] = [
                {"table": dataclasses.asdict(table)} for table in module.tables(shape, device)
            ]
        yield from found


def _shape_is_given(asked: Mapping[str, Any]) -> bool:
    return any(name not in _OWN for name in asked)


@contextlib.contextmanager
def _shape_errors(shape_is_given: bool) -> Iterator[None]:
    """Errors of a shape that the user gave become one sentence; at the kernel's own shape they are bugs."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except _SHAPE_ERRORS as error:
        if not shape_is_given:
            raise
        # A compiler error begins with the place in the source; what is wrong stands in `error_message`.
        said = str(getattr(error, "error_message", None) or error).strip() or type(error).__name__
        reason = said.splitlines()[0][:_LONGEST_REASON]
        raise UsageError(f"this shape cannot be run ({reason}); give other sizes.") from error


def _measured(module: ModuleType, options: Options, device: torch.device, dtype: torch.dtype) -> dict[str, object]:
    """What one variant computes wrongly and, on a GPU, how long it takes."""
    case: Case = module.case(options, device, dtype)
    error, tolerance = worst_error(case), TOLERANCE[dtype] if case.tolerance is None else case.tolerance
    facts: dict[str, object] = {
        "error": error, "tolerance": tolerance, "ok": error <= tolerance, "bytes": case.work.bytes,
        "flops": case.work.flops, "executed_flops": case.work.executed_flops, "kernels": case.kernels,
        "remark": case.remark,
    }  # fmt: skip
    if device.type == "cuda":
        copies = _copies(case)
        del case
        case = module.case(options, device, dtype, copies)
        timing = time_launches(case.launch, copies)
        facts |= {"ns": timing.ns, "spread": timing.spread, "copies": copies, "calls": timing.calls,
                  "replays": timing.replays}  # fmt: skip
    return facts


def _copies(case: Case) -> int:
    """Input sets for a rotation beyond L2, as far as the memory holds them."""
    free_bytes, _ = torch.cuda.mem_get_info()
    fitting = int(_MEMORY_SHARE * free_bytes) // max(1, case.work.bytes)
    return max(1, min(copies_for(case.work.bytes), fitting))


def _profile(module: ModuleType, options: dict[str, Any]) -> None:
    """Run one variant `steps` times under NVTX steps; a step calls it once on every input set."""
    if not torch.cuda.is_available():
        raise CaptureUnavailableError("torch finds no CUDA GPU; a profile needs one.")
    device, dtype, name = torch.device("cuda"), torch.bfloat16, leaf_name(module).replace("-", "_")
    with torch.inference_mode():
        case: Case = module.case(options, device, dtype)
        copies = _copies(case)
        if copies > 1:
            case = module.case(options, device, dtype, copies)

        def step() -> None:
            with Range(name):
                for copy in range(copies):
                    case.launch(copy)

        profiled_window(step, steps=options["steps"], graph=options["graph"], record=_record(name, options, case))


def _record(name: str, options: Options, case: Case) -> dict[str, object]:
    """The workload record: a step is one call on each input set."""
    bytes_per_step, flops_per_step = case.work.bytes * case.copies, case.work.flops * case.copies
    known = {key: options[key] for key in ("batch", "ctx") if key in options}
    return {
        "tracelab.workload": 1,
        "name": name,
        "model": f"the kernel {name} alone, variant {options['variant']}",
        "dtype": "bf16",
        **known,
        "bytes_per_step": bytes_per_step,
        "flops_per_step": flops_per_step,
        "phases": {name: {"bytes": bytes_per_step, "flops": flops_per_step}},
        "variant": {**options, "calls_per_step": case.copies},
    }


def _parse(module: ModuleType, argv: Sequence[str] | None) -> dict[str, Any]:
    """The options that were given, by name, and `run`."""
    assert module.__doc__ is not None
    parser = Parser(prog=leaf_name(module), description=module.__doc__.splitlines()[0], allow_abbrev=False,
                     argument_default=argparse.SUPPRESS)  # fmt: skip
    parser.add_argument("--run", action="store_true", default=False, help="check and time instead, as JSON lines")
    for name, default in module.DEFAULTS.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        elif name == "variant":
            parser.add_argument(flag, choices=list(module.VARIANTS), help=f"default {default}")
        elif name in _SWITCHES:
            parser.add_argument(flag, type=int, choices=(0, 1), help=f"default {default}")
        else:
            zero_allowed = default == 0 or name in getattr(module, "ZERO_ALLOWED", ())
            kind = whole_number(0 if zero_allowed else 1) if isinstance(default, int) else str
            parser.add_argument(flag, type=kind, help=f"default {default}")
    return vars(parser.parse_args(argv))
