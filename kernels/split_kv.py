"""Attention of one new token per sequence, the KV cache split over the whole GPU.

Math, for each query head and its KV head: o = softmax(q·Kᵀ·d^-½)·V. The context is cut into S slices; slice s gives
m_s = max of its scores (in log2), ℓ_s = Σ exp2(score − m_s) and A_s = Σ exp2(score − m_s)·v, not normalised. The merge
is m = max m_s, w_s = exp2(m_s − m), o = Σ w_s·A_s / Σ w_s·ℓ_s. An empty slice gives ℓ = 0, A = 0, m = −1e30, and adds
nothing.

Two launches: the slices, then one block for each query head that holds its partials of all slices at once. On sm_90 the
merge is a programmatic dependent launch: its blocks are in place when the slices end. An H200 takes for 8K, 32K and
128K tokens of Llama 3.1 8B 12.6, 35.0 and 123.1 µs; with an ordinary second launch 13.3, 35.7 and 123.6; with one
launch whose last block of each KV head merges (`last_block`) 14.9, 37.2 and 125.2: there 8 blocks merge what 32 share
here, each after a trip to a counter in L2.

q, o   [batch, heads, head_dim]; the query heads h·G … h·G+G−1 share KV head h
K, V   [batch, ctx_max, kv_heads, head_dim], or with pages [pages, page, kv_heads, head_dim] and a table of page ids,
       int32 [batch, max_pages]
Up to `gate` tokens one block for each KV head walks the whole context: one launch, nothing to merge, and no gain; at
4096 tokens it takes 31 µs against 9, at 1024 10.8 against 5.9. With gate = 0 every context of two tiles is split.

Sources: Dao et al., "Flash-Decoding for long-context inference" (2023); Kwon et al., "Efficient memory management for
large language model serving with PagedAttention" (2023); the Llama 3.1 8B shape is 32 query and 8 KV heads of 128.
"""

import math
import sys

import torch

from tracelab.kernels._kernel import Case, Options, Tensors, Work
from tracelab.kernels._kernel_main import main
from tracelab.kernels._split_kv_inputs import attention, contiguous, random_inputs, torch_decode
from tracelab.kernels._split_kv_launch import MIN_ROWS, Config, Scratch, decode, decode_plan
from tracelab.kernels._split_kv_specs import compile_specs
from tracelab.kernels._split_plan import ceil_div, power_of_two

__all__ = ["Config", "Scratch", "case", "compile_specs", "decode", "decode_plan"]

VARIANTS = {
    "split": "each KV head's context in slices over all SMs, merged by a second kernel",
    "paged": "the same through a block table, pages in random order",
    "last_block": "the same slices in one launch, merged by the block that finishes last: 2 µs slower",
    "serial": "starved: one block for each KV head walks the whole context, 8 blocks on 132 SMs",
    "per_head": "starved: one block for each query head walks it, every KV head read 4 times",
    "fixed_cap": "starved: never more than 8 slices, whatever the GPU: 64 blocks on 132 SMs",
    "sdpa": "torch's scaled_dot_product_attention with its own splitting, for comparison",
}
DEFAULTS = {
    "variant": "split",
    "batch": 1,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "ctx": 131072,
    "page": 16,
    "gate": 4096,
    "steps": 12,
    "graph": False,
}
CHECK = {"batch": 2, "heads": 6, "kv_heads": 2, "head_dim": 32, "ctx": 345, "page": 16, "gate": 256}
ZERO_ALLOWED = ("gate",)  # 0: every context of two tiles is split

CAPS = {"serial": 1, "per_head": 1, "fixed_cap": 8}  # 8: sglang's limit for its Triton decode kernel (sglang #21775)


def work(batch: int, heads: int, kv_heads: int, head_dim: int, ctx: int, element_bytes: int, page: int = 0) -> Work:
    """Bytes and FLOPs of one call: K, V, q and o once, with pages also the table; q·k and p·v for every element."""
    elements = 2 * batch * (ctx * kv_heads + heads) * head_dim
    table = 4 * batch * ceil_div(ctx, page) if page else 0
    flops = 4 * batch * ctx * heads * head_dim
    rows = kv_heads * max(MIN_ROWS, power_of_two(heads // kv_heads))
    return Work(elements * element_bytes + table, flops, flops // heads * rows)


def case(options: Options, device: torch.device, dtype: torch.dtype, copies: int = 1) -> Case:
    """One variant on random inputs. The cache is longer than the context, and NaN where nothing may be read."""
    variant = str(options["variant"])
    *shape, ctx, page, gate = (
        int(options[name]) for name in ("batch", "heads", "kv_heads", "head_dim", "ctx", "page", "gate")
    )
    batch, heads, kv_heads, head_dim = shape
    last_block, per_head, paged = (variant == name for name in ("last_block", "per_head", "paged"))
    plan = decode_plan(ctx, batch, heads, kv_heads, head_dim, device, gate=gate, cap=CAPS.get(variant))
    scratch = Scratch.of(plan, batch, heads, kv_heads, head_dim, device)
    sets = [
        random_inputs(copy, batch, heads, kv_heads, head_dim, ctx, page, paged=paged, device=device, dtype=dtype)
        for copy in range(copies)
    ]

    def launch(copy: int) -> Tensors:
        s = sets[copy]
        if variant == "sdpa":
            return (torch_decode(s.q, s.k, s.v, ctx),)
        decode(s.q, s.k, s.v, s.out, scratch, plan, ctx, table=s.table, per_head=per_head, last_block=last_block)
        return (s.out,)

    def reference(copy: int) -> Tensors:
        s = sets[copy]
        return (attention(s.q, contiguous(s.k, ctx, s.table), contiguous(s.v, ctx, s.table), ctx),)

    def poison() -> None:
        scratch.poison()
        for s in sets:
            s.out.fill_(math.nan)

    return Case(
        launch=launch,
        reference=reference,
        poison=poison,
        copies=copies,
        work=work(batch, heads, kv_heads, head_dim, ctx, dtype.itemsize, page if paged else 0),
        kernels=1 if last_block or plan.splits == 1 else 2,
        remark="torch" if variant == "sdpa" else f"{batch * (heads if per_head else kv_heads)} × {plan.splits} blocks",
    )


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
