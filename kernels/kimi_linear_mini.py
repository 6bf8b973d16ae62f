"""One decode step of 12 layers of Kimi-Linear (KDA, MLA, 256 experts), eager or graphed.

Run as `python -m tracelab.kernels.kimi_linear_mini`. The first 12 of 27 layers of Kimi-Linear-48B-A3B with random
weights (its config.json): hidden 2304, 32 heads × 128, layers 4, 8 and 12 MLA (latent 512, rope 64, not rotated), the
others KDA; the first FFN dense (9216), the others 256 experts of 1024 with top-8 and a shared one; vocabulary 163840.
`--layers 27` is the whole model, whose last layer is MLA again; it needs 98 GB.

Warm-up comes first; then, between cudaProfilerStart and Stop, the workload record, with `--graph` the capture of the
graph (NVTX range `capture`), and the steps: `decode_step N` > `L0` … `L11` > `attn_kda` or `attn_mla`, then `ffn` or
`ffn_moe`; at last `head`, which no starved form touches. A step is 5 launches for KDA, 7 for MLA, 3 for a dense FFN, 10
for experts and 5 for the head: 9·5 + 3·7 + 3 + 11·10 + 5 = 184, at every context, since MLA's second launch also
multiplies with W_UV (beyond 64 sequences cuBLAS does the dense products, in its own number of launches). Steps are
issued back to back with no host synchronisation: the argmax stays on the GPU.

`--starve KERNEL=FORM` runs a kernel in a form with a known defect, and `--fail PHASE@LAYER` lets the last launch of
that phase fail, so that its result is missing. A graph has a fixed batch: the next of 1, 2, 4, 8, …; rows that only
fill it up have no KDA state, no context and no experts, but pass through the dense products.

The record's bytes are those of the experts that a batch is expected to use (`_hybrid_shape`); at batch 1 they are 8.

Exit codes: 3 for a launch that failed unasked, 2 for options that make no sense or do not fit the GPU's memory, 5
without torch, Triton or a GPU.
"""

import sys
from collections.abc import Sequence

from tracelab.kernels import _step_main
from tracelab.kernels._hybrid_main import hybrid_plan
from tracelab.kernels._hybrid_shape import HybridConfig

DEFAULTS: dict[str, int | str | bool] = {
    "batch": 1,
    "ctx": 8192,
    "layers": 12,
    "steps": 12,
    "graph": False,
    "events": False,
    "starve": "none",
    "fail": "none",
}
# `_hybrid_parts` says which variants of kda, mla and grouped_gemm these are.
STARVED = {
    "kda": ("unfused", "eager", "warps8", "bv128"),
    "mla": ("unsplit", "perhead_serial", "perhead_split", "bh32_maxnreg"),
    "moe": ("loop", "bm128"),
}

_HELP = {
    "batch": "sequences decoded together",
    "ctx": "tokens each sequence attends to",
    "layers": "layers, the first of 27",
}


def config(batch: int, ctx: int, layers: int) -> HybridConfig:
    """The sizes of moonshotai/Kimi-Linear-48B-A3B-Instruct (config.json)."""
    return HybridConfig(
        name="kimi-linear-mini",
        model="Kimi-Linear-48B-A3B shape",
        gate="kimi",
        batch=batch,
        ctx=ctx,
        layers=layers,
        model_layers=27,
        hidden=2304,
        heads=32,
        experts=256,
        top_k=8,
        expert_ffn=1024,
        shared_ffn=1024,
        dense_layers=1,
        dense_ffn=9216,
        routed_scale=2.446,
        vocab=163840,
    )


def workload() -> _step_main.Workload:
    """What the shared driver of decode steps needs to know."""
    assert __doc__ is not None
    return _step_main.Workload(
        "kimi-linear-mini", __doc__, DEFAULTS, _HELP, {}, STARVED, lambda o: hybrid_plan(config(**o.numbers), o)
    )


def check(argv: Sequence[str]) -> None:
    """Raise UsageError for options that make no sense."""
    _step_main.check(workload(), argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the workload; returns the exit code, after one sentence on stderr if it is not 0."""
    return _step_main.run(workload(), argv)


if __name__ == "__main__":
    sys.exit(main())
