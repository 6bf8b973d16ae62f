"""Attention of one new token per sequence, the KV cache split over the whole GPU.

Math, for each query head and its KV head: o = softmax(q·Kᵀ·d^-½)·V. The context is cut into S slices; slice s gives
m_s = max of its scores (in log2), ℓ_s = Σ exp2(score − m_s) and A_s = Σ exp2(score − m_s)·v, not normalised. The merge
is m = max m_s, w_s = exp2(m_s − m), o = Σ w_s·A_s / Σ w_s·ℓ_s. An empty slice gives ℓ = 0, A = 0, m = −1e30, and adds
nothing. The block that finishes last of a KV head merges its slices, so a call is one launch.

q, o   [batch, heads, head_dim]; the query heads h·G … h·G+G−1 share KV head h
K, V   [batch, ctx_max, kv_heads, head_dim], or with pages [pages, page, kv_heads, head_dim] and a table of page ids,
       int32 [batch, max_pages]
Up to 4096 tokens one block for each KV head walks the whole context and there is nothing to merge.

Sources: Dao et al., "Flash-Decoding for long-context inference" (2023); Kwon et al., "Efficient memory management for
large language model serving with PagedAttention" (2023); the Llama 3.1 8B shape is 32 query and 8 KV heads of 128.
"""

import functools
import math
import sys
from dataclasses import dataclass
from typing import Any

import torch

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._kernel import INTERPRETED, Case, Options, Tensors, Work
from tracelab.kernels._kernel_main import main
from tracelab.kernels._split_kv_device import split_kv_decode, split_kv_merge
from tracelab.kernels._split_kv_inputs import attention, contiguous, random_inputs, torch_decode
from tracelab.kernels._split_plan import GATE_TOKENS, SMS, SplitPlan, ceil_div, split_plan

VARIANTS = {
    "split": "each KV head's context in slices over all SMs, merged by the block that finishes last",
    "paged": "the same through a block table, pages in random order",
    "two_launches": "the same slices, merged by a second kernel: one launch more",
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

CAPS = {"serial": 1, "per_head": 1, "fixed_cap": 8}  # 8: sglang's limit for its Triton decode kernel (sglang #21775)
MIN_ROWS = 16  # rows of the matrix instruction (PTX mma.m16n8k16); fewer query heads are padded to it
MERGE_FLOATS = 8192  # of partials in registers at once: 16 slices × 4 rows × 128, 32 a thread with 8 warps
MERGE_WARPS = 4


@dataclass(frozen=True)
class Config:
    """How a block walks its slice: tiles of `block_tokens`, dealt out to `lanes` warps, `stages` − 1 of them in flight.

    `prefetch` asks L2 for that many tokens before anything else is waited for. `pdl` lets the launch begin while the
    kernel before it ends (programmatic dependent launch); it waits for that kernel before it reads the query.
    """

    block_tokens: int
    lanes: int
    stages: int
    prefetch: int = 0
    pdl: bool = False
    min_rows: int = MIN_ROWS


# Two tiles of 128 tokens × (K, V) × 128 × 2 B are 128 KiB in flight on an SM, three 192 KiB (sm_90, head_dim 128).
SPLIT = Config(block_tokens=128, lanes=8, stages=3)  # 180 registers, 131 072 B, 1 block an SM
WALK = Config(block_tokens=128, lanes=8, stages=4)  # 182 registers, 196 608 B, 1 block an SM


@dataclass(frozen=True)
class Scratch:
    """Partial results of one plan on one device: made once, written by every call. Counters are zero between calls.

    `m` and `l` [batch × kv_heads, splits, group] and `acc` [batch × kv_heads, splits, group, head_dim] in float32.
    Calls that may run at the same time need a scratch each.
    """

    m: torch.Tensor
    l: torch.Tensor  # noqa: E741
    acc: torch.Tensor
    counters: torch.Tensor

    @classmethod
    def of(
        cls, plan: SplitPlan, batch: int, heads: int, kv_heads: int, head_dim: int, device: torch.device
    ) -> "Scratch":
        """Scratch for calls with this plan."""
        shape = (batch * kv_heads, plan.splits, heads // kv_heads)
        m, l, acc = (  # noqa: E741
            torch.empty(size, device=device, dtype=torch.float32) for size in (shape, shape, (*shape, head_dim))
        )
        return cls(m, l, acc, torch.zeros(batch * kv_heads, device=device, dtype=torch.int32))

    def poison(self) -> None:
        """Fill all partials with NaN; the counters carry no result and stay."""
        for buffer in (self.m, self.l, self.acc):
            buffer.fill_(math.nan)


@functools.cache
def sm_count(device: torch.device) -> int:
    """SMs of the device; those of the H200 where there is no GPU."""
    return SMS if device.type == "cpu" else int(torch.cuda.get_device_properties(device).multi_processor_count)


def decode_plan(
    ctx: int,
    batch: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    device: torch.device,
    *,
    gate: int = GATE_TOKENS,
    cap: int | None = None,
    config: Config = SPLIT,
) -> SplitPlan:
    """The plan for up to `ctx` tokens. Shorter contexts may use it too: slices follow the length of each call."""
    return split_plan(
        ctx,
        batch * kv_heads,
        sms=sm_count(device),
        block_tokens=config.block_tokens,
        value_dim=head_dim,
        rows=heads // kv_heads,
        gate=gate,
        cap=cap,
    )


def decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, scratch: Scratch | None, plan: SplitPlan,
    length: int | torch.Tensor, *, table: torch.Tensor | None = None, per_head: bool = False, fused: bool = True,
    config: Config | None = None,
) -> None:  # fmt: skip
    """Attend `q` to the first `length` tokens of the cache and write `out`; shapes in the module's docstring.

    `length` is a number, or int32 [batch] on the device for graphs whose context grows: the grid stays, slices beyond
    the end are empty. `scratch` may be None if the plan has one split. Without `fused` a second kernel merges. Nothing
    is allocated and the host never waits. Raises ValueError for heads that KV heads do not divide, for a head_dim that
    is no power of two, and for a plan with several splits without scratch.
    """
    batch, heads, head_dim = q.shape
    kv_group, rest = divmod(heads, k.shape[2])
    split = plan.splits > 1
    if rest or head_dim < 16 or head_dim & (head_dim - 1) or (split and scratch is None):
        raise ValueError(f"cannot attend {heads} heads of {head_dim} to {k.shape[2]} KV heads in {plan.splits} splits")
    config = config or (SPLIT if split else WALK)
    group = 1 if per_head else kv_group
    partials = (out,) * 4 if scratch is None else (scratch.m, scratch.l, scratch.acc, scratch.counters)
    on_device = isinstance(length, torch.Tensor)
    split_kv_decode[(heads // group, plan.splits, batch)](
        q, k, v, out if table is None else table, length if on_device else out, out, *partials,
        0 if on_device else length, math.log2(math.e) * head_dim**-0.5,
        k.stride(0) if table is None else 0, k.stride(1), 0 if table is None else table.stride(0),
        **_constants(config, group, kv_group, head_dim, page=0 if table is None else k.shape[1], split=split,
                     fused=fused, on_device=on_device),
        num_warps=config.lanes, num_stages=config.stages, launch_pdl=config.pdl,
    )  # fmt: skip
    if split and not fused:
        split_kv_merge[(batch * heads,)](
            *partials[:3], out, plan.splits, GROUP=group, HEAD_DIM=head_dim, CHUNK=_merge_chunk(1, head_dim),
            PDL=config.pdl, num_warps=MERGE_WARPS, num_stages=1, launch_pdl=config.pdl,
        )  # fmt: skip


def _constants(
    config: Config, group: int, kv_group: int, head_dim: int, *, page: int, split: bool, fused: bool, on_device: bool
) -> dict[str, Any]:
    """What the kernel is compiled for."""
    return {
        "GROUP": group,
        "KV_GROUP": kv_group,
        "ROWS": max(config.min_rows, _power_of_two(group)),
        "HEAD_DIM": head_dim,
        "BLOCK_TOKENS": config.block_tokens,
        "LANES": config.lanes,
        "PAGE": page,
        "ON_DEVICE": on_device,
        "SPLIT": split,
        "FUSED": fused,
        "MERGE_ROWS": _power_of_two(group),
        "MERGE_CHUNK": _merge_chunk(group, head_dim),
        "PREFETCH": 0 if INTERPRETED or page else config.prefetch,
        "PDL": config.pdl and not INTERPRETED,
        "UP": INTERPRETED,
    }


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _merge_chunk(group: int, head_dim: int) -> int:
    """Slices merged at a time; more than 16 would be idle rows where 8 KV heads share the GPU."""
    return max(1, min(16, MERGE_FLOATS // (_power_of_two(group) * head_dim)))


def work(batch: int, heads: int, kv_heads: int, head_dim: int, ctx: int, element_bytes: int, page: int = 0) -> Work:
    """Bytes and FLOPs of one call: K, V, q and o once, with pages also the table; q·k and p·v for every element."""
    elements = 2 * batch * (ctx * kv_heads + heads) * head_dim
    table = 4 * batch * ceil_div(ctx, page) if page else 0
    flops = 4 * batch * ctx * heads * head_dim
    rows = kv_heads * max(MIN_ROWS, _power_of_two(heads // kv_heads))
    return Work(elements * element_bytes + table, flops, flops // heads * rows)


def case(options: Options, device: torch.device, dtype: torch.dtype, copies: int = 1) -> Case:
    """One variant on random inputs. The cache is longer than the context, and NaN where nothing may be read."""
    variant = str(options["variant"])
    *shape, ctx, page, gate = (
        int(options[name]) for name in ("batch", "heads", "kv_heads", "head_dim", "ctx", "page", "gate")
    )
    batch, heads, kv_heads, head_dim = shape
    fused, per_head, paged = variant not in ("two_launches", "sdpa"), variant == "per_head", variant == "paged"
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
        decode(s.q, s.k, s.v, s.out, scratch, plan, ctx, table=s.table, per_head=per_head, fused=fused)
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
        kernels=1 if fused or plan.splits == 1 else 2,
        remark="torch" if variant == "sdpa" else f"{batch * (heads if per_head else kv_heads)} × {plan.splits} blocks",
    )


def _spec(name: str, config: Config, registers: int, *, split: bool = True, page: int = 0) -> CompileSpec:
    """The kernel at the Llama 8B shape in bf16."""
    constants = _constants(config, 4, 4, 128, page=page, split=split, fused=True, on_device=False) | {"UP": False}
    types = dict.fromkeys(("q", "k", "v", "table", "lengths", "out"), "*bf16")
    types |= {"table": "*i32"} if page else {}
    types |= dict.fromkeys(("part_m", "part_l", "part_acc"), "*fp32")
    types |= {"counters": "*i32", "scale_log2e": "fp32"}
    signature = {
        parameter: "constexpr" if parameter in constants else types.get(parameter, "i32")
        for parameter in split_kv_decode.arg_names
    }
    return CompileSpec(
        name=name,
        fn=split_kv_decode,
        signature=signature,
        constexprs=constants,
        num_warps=config.lanes,
        num_stages=config.stages,
        divisible=(*types.keys() - {"scale_log2e"}, "stride_batch", "stride_token"),
        max_registers=registers,
        min_blocks_per_sm=1,
        wgmma=False,
    )


def compile_specs() -> tuple[CompileSpec, ...]:
    """The shipped configurations; registers as compiled by Triton 3.6.0 and 8 more."""
    return (
        _spec("split", SPLIT, 188),
        _spec("paged", SPLIT, 182, page=16),
        _spec("walk", WALK, 190, split=False),
    )


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
