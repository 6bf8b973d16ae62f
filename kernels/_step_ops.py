"""The small kernels around a decode step's products: RMS norm, RoPE with the cache's new row, embedding, argmax.

Each is one launch (the argmax two) on preallocated tensors and reads positions and tokens on the GPU, so a CUDA graph
can replay it. They move some kilobytes: what they cost is their latency.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._kernel import INTERPRETED
from tracelab.kernels._step_ops_device import (
    argmax_runs_kernel,
    argmax_winner_kernel,
    embedding_kernel,
    rms_norm_kernel,
    rope_append_kernel,
)

ARGMAX_COLUMNS = 1024  # a vocabulary of 128256 makes 126 blocks for 132 SMs
EMBED_COLUMNS = 1024


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    eps: float,
    add: torch.Tensor | None = None,
    total: torch.Tensor | None = None,
) -> None:
    """out [B, D] = x·weight [D] / sqrt(mean(x²) + eps) by row, in float32; contiguous, of one dtype.

    With `add` [B, D] it is x + add that is normalised, and stored in `total` (which may be `x` or `add`).
    """
    if (add is None) != (total is None):
        raise ValueError("`add` and `total` go together")
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    rms_norm_kernel[(rows,)](
        x, weight, out, x if add is None else add, x if total is None else total, width, eps,
        BLOCK=block, ADD=add is not None, num_warps=norm_warps(block),
    )  # fmt: skip


def norm_warps(block: int) -> int:
    """Warps for a row of `block` elements: 16 elements a thread, two loads of 16 bytes in bf16."""
    return max(1, min(16, block // 512))


def rope_append(
    qkv: torch.Tensor,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: torch.Tensor,
    turns: torch.Tensor,
) -> None:
    """Rotate q and k to `position`; write q to `query`, k and v to row `position` of the caches.

    qkv [B, (H + 2·HKV)·D] holds the heads of q, k and v in this order; query [B, H, D]; caches [B, capacity, HKV, D];
    position [1] int32 (a cache is not touched beyond its capacity); turns [D / 2] from `rope_turns`. Elements i and
    i + D / 2 are one pair, as in Llama's rotate_half.
    """
    batch, heads, dim = query.shape
    capacity, kv_heads = keys.shape[1:3]
    rope_append_kernel[(batch * (heads + 2 * kv_heads),)](
        qkv, query, keys, values, position, turns, capacity,
        H=heads, HKV=kv_heads, D=dim, HALF=triton.next_power_of_2(dim // 2), UP=INTERPRETED, num_warps=1,
    )  # fmt: skip


def rope_turns(dim: int, theta: float, device: torch.device) -> torch.Tensor:
    """Turns per position of each of `dim` / 2 pairs, [dim / 2] int64 in units of 2^-64 turns.

    Times a position it wraps to the part of a turn that counts, which float32 then holds to 2e-7 radians at any
    position; position·frequency itself loses that to rounding: 8e-3 radians at 131072.
    """
    frequency = theta ** -(torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    return (frequency / math.tau * 2.0**64).to(torch.int64).to(device)


def embed(token: torch.Tensor, table: torch.Tensor, out: torch.Tensor) -> None:
    """out [B, D] = table [V, D] at token [B] int64."""
    batch, width = out.shape
    grid = (batch, triton.cdiv(width, EMBED_COLUMNS))
    embedding_kernel[grid](token, table, out, width, BLOCK=EMBED_COLUMNS, num_warps=4)


@dataclass(frozen=True)
class ArgmaxScratch:
    """The best of each run of ARGMAX_COLUMNS columns, [B, runs]."""

    value: torch.Tensor  # float32
    index: torch.Tensor  # int32


def argmax_scratch(batch: int, width: int, device: torch.device) -> ArgmaxScratch:
    """Scratch of `argmax` over [batch, width]."""
    size = (batch, triton.cdiv(width, ARGMAX_COLUMNS))
    return ArgmaxScratch(
        torch.empty(size, device=device, dtype=torch.float32), torch.empty(size, device=device, dtype=torch.int32)
    )


def argmax(logits: torch.Tensor, token: torch.Tensor, scratch: ArgmaxScratch) -> None:
    """token [B] int64 = the column of the largest of logits [B, V], the first of equal ones. Two launches."""
    batch, width = logits.shape
    runs = scratch.value.shape[1]
    argmax_runs_kernel[(batch, runs)](logits, scratch.value, scratch.index, width, BLOCK=ARGMAX_COLUMNS, num_warps=4)
    argmax_winner_kernel[(batch,)](
        scratch.value, scratch.index, token, runs, width, BLOCK=triton.next_power_of_2(runs), num_warps=1
    )


def compile_specs() -> tuple[CompileSpec, ...]:
    """The kernels at the sizes of Llama-8B and K3 (hidden 7168); registers as compiled by Triton 3.6.0 and 8 more."""
    head = {"H": 32, "HKV": 8, "D": 128, "HALF": 64, "UP": False}
    return (
        _spec("norm", rms_norm_kernel, 8, 47, 6, BLOCK=4096, ADD=False),
        _spec("norm of a sum", rms_norm_kernel, 8, 48, 6, BLOCK=4096, ADD=True),
        _spec("norm, 7168", rms_norm_kernel, 16, 48, 3, BLOCK=8192, ADD=False),
        _spec("rope", rope_append_kernel, 1, 45, 32, **head),
        _spec("embed", embedding_kernel, 4, 22, 16, BLOCK=EMBED_COLUMNS),
        _spec("argmax", argmax_runs_kernel, 4, 31, 16, BLOCK=ARGMAX_COLUMNS),
        _spec("argmax of runs", argmax_winner_kernel, 1, 27, 32, BLOCK=128),
    )


def _spec(name: str, fn: Any, warps: int, registers: int, blocks: int, **constants: object) -> CompileSpec:
    types = {
        "POSITION": "*i32", "TURNS": "*i64", "TOKEN": "*i64", "VALUE": "*fp32", "INDEX": "*i32", "eps": "fp32",
        **dict.fromkeys(("capacity", "runs", "D", "V"), "i32"),
    }  # fmt: skip
    signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in fn.arg_names}
    divisible = tuple(name for name, kind in signature.items() if kind.startswith("*") or name in ("D", "V"))
    return CompileSpec(
        name=name, fn=fn, signature=signature, constexprs=constants, num_warps=warps, num_stages=1,
        divisible=divisible, max_registers=registers, min_blocks_per_sm=blocks, wgmma=False,
    )  # fmt: skip
