"""One decode step of the Llama-8B shape in the bundled kernels, eager or as a CUDA graph.

Run as `python -m tracelab.kernels.llama8b`. Warm-up comes first; then, between cudaProfilerStart and Stop, the workload
record, with `--graph` the capture of the graph (NVTX range `capture`), and the steps: `decode_step N` holds the phases
`attn_gqa` and `ffn` within `L0`, `L1`, …, then `head`. A step is 9 launches a layer and 5 for the head, 293 in all.
Attention splits every context of more than 64 tokens, since its two launches take 6.5 µs on an H200 at 1024 tokens and
one that walks the context 10.7; the gate of 4096 tokens is a default of the kernel `split-kv` alone. It is not split
with `--starve gqa=serial` and `per_head`, nor from batch 9 on, whose KV heads alone take more than half of 132 SMs: 8
launches a layer.

Steps are issued back to back with no host synchronisation: the argmax stays on the GPU, as in engines that run ahead.

`--starve gqa=FORM` runs attention in a form with a known defect, and `--fail PHASE@LAYER` adds a launch that fails to a
phase; the launch penalty itself is seen without `--graph`. A graph has a fixed batch: the next of 1, 2, 4, 8, …

Exit codes: 3 for a launch that failed unasked, 2 for options that make no sense or do not fit the GPU's memory, 5
without torch, Triton or a GPU.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tracelab.kernels import _step_main
from tracelab.kernels._guard import Guard, UncheckedLaunch
from tracelab.kernels._llama_shape import LlamaConfig, memory_bytes, record

if TYPE_CHECKING:
    from tracelab.kernels._gpu_window import Step

DEFAULTS: dict[str, int | str | bool] = {
    "batch": 1,
    "ctx": 1024,
    "layers": 32,
    "steps": 12,
    "graph": False,
    "events": False,
    "starve": "none",
    "fail": "none",
}
STARVED = {"gqa": ("serial", "per_head", "fixed_cap")}  # variants of split_kv

_HELP = {
    "batch": "sequences decoded together",
    "ctx": "tokens each sequence attends to",
    "layers": "transformer layers",
}


def check(argv: Sequence[str]) -> None:
    """Raise UsageError for options that make no sense."""
    _step_main.check(workload(), argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the workload; returns the exit code, after one sentence on stderr if it is not 0."""
    return _step_main.run(workload(), argv)


def workload() -> _step_main.Workload:
    """What the shared driver of decode steps needs to know."""
    assert __doc__ is not None
    return _step_main.Workload("llama8b", __doc__, DEFAULTS, _HELP, {}, STARVED, plan)


def plan(options: _step_main.Options) -> _step_main.Plan:
    """What the options mean: the record counts the sequences asked for, the step also those that pad a graph."""
    asked = LlamaConfig(**options.numbers)
    config = replace(asked, batch=options.rows)

    def build(guard: Guard) -> "Step":
        import torch

        from tracelab.kernels._llama_model import LlamaStep

        return LlamaStep(
            config, torch.device("cuda"), torch.bfloat16, guard.phase, starved=options.starve.get("gqa"),
            before_phase_exit=failing(options.fail),
        ).step  # fmt: skip

    return _step_main.Plan([("attn_gqa", "ffn")] * config.layers, memory_bytes(config), record(asked), build)


def failing(fault: _step_main.Fault | None) -> Callable[[str, int | None], object]:
    """What the step calls at the end of each phase: a launch that fails, in the phase that `fault` names."""
    if fault is None:
        return lambda _name, _layer: None
    launch = UncheckedLaunch()
    return lambda name, layer: launch() if (name, layer) == (fault.phase, fault.layer) else None


if __name__ == "__main__":
    sys.exit(main())
