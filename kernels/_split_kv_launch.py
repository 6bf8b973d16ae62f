"""Launches of split_kv: how slices are walked and merged, the scratch between the two, and the constants they take."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch

from tracelab.kernels._device import sm_count
from tracelab.kernels._kernel import INTERPRETED
from tracelab.kernels._split_kv_device import split_kv_decode, split_kv_merge
from tracelab.kernels._split_plan import GATE_TOKENS, SplitPlan, power_of_two, split_plan

MIN_ROWS = 16  # rows of the matrix instruction (PTX mma.m16n8k16); fewer query heads are padded to it
LAST_BLOCK_FLOATS = 8192  # of partials in its registers at once: 16 slices × 4 rows × 128, 64 a thread of 128
MERGE_FLOATS = 4096  # the same in the merge's own kernel, 32 a thread; 16 slices × 128 are half of it
MERGE_WARPS = 4


@dataclass(frozen=True)
class Config:
    """How a block walks its slice: tiles of `block_tokens`, each dealt out to `lanes` warps, `stages` − 1 in flight."""

    block_tokens: int
    lanes: int
    stages: int


# Three tiles of 64 tokens × (K, V) × 128 × 2 B are 96 KiB in flight on an SM (sm_90, head_dim 128). Of 8 shapes none is
# faster at 8K and 32K tokens on an H200; with 2 stages it is 28 to 41 % slower, with 3 or 5 up to 2 %.
SPLIT = Config(block_tokens=64, lanes=4, stages=4)  # 166 registers, 98 304 B, 2 blocks an SM
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
        return cls(m, l, acc, torch.zeros(batch * heads, device=device, dtype=torch.int32))

    def poison(self) -> None:
        """Fill all partials with NaN; the counters carry no result and stay."""
        for buffer in (self.m, self.l, self.acc):
            buffer.fill_(math.nan)


@functools.cache
def dependent_launches(device: torch.device) -> bool:
    """Whether a kernel can begin while the one before it ends: from compute capability 9.0 on (CUDA C++ guide)."""
    return device.type == "cuda" and not INTERPRETED and torch.cuda.get_device_capability(device) >= (9, 0)


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
    length: int | torch.Tensor, *, table: torch.Tensor | None = None, per_head: bool = False, last_block: bool = False,
    config: Config | None = None,
) -> None:  # fmt: skip
    """Attend `q` to the first `length` tokens of the cache and write `out`; shapes in the module's docstring.

    `length` is a number, or int32 [batch] on the device for graphs whose context grows: the grid stays, slices beyond
    the end are empty. `scratch` may be None if the plan has one split. Several are merged by a second kernel, or with
    `last_block` by the block that finishes last. Nothing is allocated and the host never waits. Raises ValueError for
    heads that KV heads do not divide, for a head_dim that is no power of two, and for a plan with several splits
    without scratch.
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
    dependent = dependent_launches(q.device)
    split_kv_decode[(heads // group, plan.splits, batch)](
        q, k, v, out if table is None else table, length if on_device else out, out, *partials,
        0 if on_device else length, math.log2(math.e) * head_dim**-0.5,
        k.stride(0) if table is None else 0, k.stride(1), 0 if table is None else table.stride(0),
        **decode_constants(config, group, kv_group, head_dim, page=0 if table is None else k.shape[1], split=split,
                           last_block=last_block, on_device=on_device, release=dependent and not last_block),
        num_warps=config.lanes, num_stages=config.stages,
    )  # fmt: skip
    if split and not last_block:
        constants = merge_constants(plan.splits, group, head_dim, pdl=dependent)
        split_kv_merge[(batch * heads, head_dim // constants["COLUMNS"])](
            *partials[:3], out, plan.splits, **constants, num_warps=MERGE_WARPS, num_stages=1, launch_pdl=dependent
        )


def decode_constants(
    config: Config, group: int, kv_group: int, head_dim: int, *, page: int, split: bool, last_block: bool,
    on_device: bool, release: bool,
) -> dict[str, Any]:  # fmt: skip
    """What the kernel is compiled for."""
    rows = power_of_two(group)
    return {
        "GROUP": group,
        "KV_GROUP": kv_group,
        "ROWS": max(MIN_ROWS, rows),
        "HEAD_DIM": head_dim,
        "BLOCK_TOKENS": config.block_tokens,
        "LANES": config.lanes,
        "PAGE": page,
        "ON_DEVICE": on_device,
        "SPLIT": split,
        "LAST_BLOCK": last_block,
        "MERGE_ROWS": rows,
        "MERGE_CHUNK": max(1, min(16, LAST_BLOCK_FLOATS // (rows * head_dim))),
        "RELEASE": release and split,
        "UP": INTERPRETED,
    }


def merge_constants(splits: int, group: int, head_dim: int, *, pdl: bool) -> dict[str, Any]:
    """What the merge is compiled for: all columns of a head, fewer where more than 32 slices would fill registers."""
    slices = power_of_two(splits)
    columns = min(head_dim, max(16, MERGE_FLOATS // slices))
    return {
        "GROUP": group, "HEAD_DIM": head_dim, "COLUMNS": columns, "SLICES": slices, "PDL": pdl
    }  # fmt: skip
