"""One decode step of a Kimi K3 rank (KDA, MLA, 16 local experts), eager or graphed.

Run as `python -m tracelab.kernels.k3_rank`. 24 of 93 layers with random weights: hidden 7168, 96 heads × 128 (with
`--heads 12` one rank of eight that share the heads), every 4th layer MLA (latent 512, rope 64, not rotated), the others
KDA with K3's bounded gate; in every layer 16 experts of 3·7168·1536 parameters and a shared one; vocabulary 163840. K3
itself has its expert weights in 4 bits, a low-rank MLA query and a gate at MLA's output; here all is bf16 and plain.

Each row chooses 8 of the 16 local experts. When experts are spread over ranks and load is balanced, a rank receives as
many rows as its own tokens send out, batch · top-k, whatever the number of ranks: this is that share, for top-8. There
is no exchange between ranks, and with 12 heads the attention's output stays the partial sum that ranks would add up.

Warm-up comes first; then, between cudaProfilerStart and Stop, the workload record, with `--graph` the capture of the
graph (NVTX range `capture`), and the steps: `decode_step N` > `L0` … `L23` > `attn_kda` or `attn_mla`, then `ffn_moe`;
at last `head`, which no starved form touches. A step is 5 launches for KDA, 7 for MLA, 10 for experts and 5 for the
head: 18·5 + 6·7 + 24·10 + 5 = 377, at every context, since MLA's second launch also multiplies with W_UV (beyond
64 sequences cuBLAS does the dense products, in its own number of launches). Steps are issued back to back with no host
synchronisation: the argmax stays on the GPU.

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
    "layers": 24,
    "heads": 96,
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
    "layers": "layers, the first of 93",
    "heads": "attention heads on this rank",
}
HEADS = (96, 12)  # all of them, or the share of one rank of eight


def config(batch: int, ctx: int, layers: int, heads: int) -> HybridConfig:
    """The sizes of `kernels.md` section 11."""
    return HybridConfig(
        name="k3-rank",
        model=f"Kimi K3 shape, {heads} heads and 16 experts of one rank",
        gate="k3",
        batch=batch,
        ctx=ctx,
        layers=layers,
        model_layers=93,
        hidden=7168,
        heads=heads,
        experts=16,
        top_k=8,
        expert_ffn=1536,
        shared_ffn=1536,
        dense_layers=0,
        dense_ffn=0,
        routed_scale=1.0,
        vocab=163840,
    )


def workload() -> _step_main.Workload:
    """What the shared driver of decode steps needs to know."""
    assert __doc__ is not None
    return _step_main.Workload(
        "k3-rank", __doc__, DEFAULTS, _HELP, {"heads": HEADS}, STARVED, lambda o: hybrid_plan(config(**o.numbers), o)
    )


def check(argv: Sequence[str]) -> None:
    """Raise UsageError for options that make no sense."""
    _step_main.check(workload(), argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the workload; returns the exit code, after one sentence on stderr if it is not 0."""
    return _step_main.run(workload(), argv)


if __name__ == "__main__":
    sys.exit(main())
