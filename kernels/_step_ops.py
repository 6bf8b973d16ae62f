"""The small kernels around a decode step's products: RMS norm, RoPE with the cache's new row, embedding, argmax.

Each is one launch (the argmax two) on preallocated tensors and reads positions and tokens on the GPU, so a CUDA graph
can replay it. They move some kilobytes: what they cost is their latency. Two ways to use that time, both off unless
asked for, both sm_90: with `pdl` a kernel starts while the one before it ends (programmatic dependent launch; every
kernel here waits before it reads what another one wrote), and with `ahead`, the weights that come next, some extra
blocks ask L2 for them.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._kernel import INTERPRETED
from tracelab.kernels._step_ops_device import (
    FETCH_BYTES,
    argmax_runs_kernel,
    argmax_winner_kernel,
    embedding_kernel,
    rms_norm_kernel,
    rope_append_kernel,
)

ARGMAX_COLUMNS = 1024  # a vocabulary of 128256 makes 126 blocks for 132 SMs
EMBED_COLUMNS = 1024
L2_SHARE_BYTES = 40 << 20  # never ask L2 for more: it holds 50 MB on an H100 and 60 MB on an H200


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    eps: float,
    add: torch.Tensor | None = None,
    total: torch.Tensor | None = None,
    pdl: bool = False,
    ahead: torch.Tensor | None = None,
) -> None:
    """out [B, D] = x·weight [D] / sqrt(mean(x²) + eps) by row, in float32; contiguous, of one dtype.

    With `add` [B, D] it is x + add that is normalised, and stored in `total` (which may be `x` or `add`).
    """
    if (add is None) != (total is None):
        raise ValueError("`add` and `total` go together")
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    warps = norm_warps(block)
    rms_norm_kernel[(rows + helpers(ahead, 32 * warps),)](
        x, weight, out, x if add is None else add, x if total is None else total, x if ahead is None else ahead,
        rows, width, eps, BLOCK=block, THREADS=32 * warps, ADD=add is not None, AHEAD=ahead is not None,
        **_options(warps, pdl),
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
    *,
    pdl: bool = False,
    ahead: torch.Tensor | None = None,
) -> None:
    """Rotate q and k to `position`; write q to `query`, k and v to row `position` of the caches.

    qkv [B, (H + 2·HKV)·D] holds the heads of q, k and v in this order; query [B, H, D]; caches [B, capacity, HKV, D];
    position [1] int32 (a cache is not touched beyond its capacity); turns [D / 2] from `rope_turns`. Elements i and
    i + D / 2 are one pair, as in Llama's rotate_half.
    """
    batch, heads, dim = query.shape
    capacity, kv_heads = keys.shape[1:3]
    blocks = batch * (heads + 2 * kv_heads)
    rope_append_kernel[(blocks + helpers(ahead, 32),)](
        qkv, query, keys, values, position, turns, qkv if ahead is None else ahead, blocks, capacity, H=heads,
        HKV=kv_heads, D=dim, HALF=triton.next_power_of_2(dim // 2), AHEAD=ahead is not None, UP=INTERPRETED,
        **_options(1, pdl),
    )  # fmt: skip


def rope_turns(dim: int, theta: float, device: torch.device) -> torch.Tensor:
    """Turns per position of each of `dim` / 2 pairs, [dim / 2] int64 in units of 2^-64 turns.

    Times a position it wraps to the part of a turn that counts, which float32 then holds to 2e-7 radians at any
    position; position·frequency itself loses that to rounding: 8e-3 radians at 131072.
    """
    frequency = theta ** -(torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    return (frequency / math.tau * 2.0**64).to(torch.int64).to(device)


def embed(token: torch.Tensor, table: torch.Tensor, out: torch.Tensor, *, pdl: bool = False) -> None:
    """out [B, D] = table [V, D] at token [B] int64."""
    batch, width = out.shape
    grid = (batch, triton.cdiv(width, EMBED_COLUMNS))
    embedding_kernel[grid](token, table, out, width, BLOCK=EMBED_COLUMNS, **_options(4, pdl))


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


def argmax(logits: torch.Tensor, token: torch.Tensor, scratch: ArgmaxScratch, *, pdl: bool = False) -> None:
    """token [B] int64 = the column of the largest of logits [B, V], the first of equal ones. Two launches."""
    batch, width = logits.shape
    runs = scratch.value.shape[1]
    argmax_runs_kernel[(batch, runs)](
        logits, scratch.value, scratch.index, width, BLOCK=ARGMAX_COLUMNS, **_options(4, pdl)
    )
    argmax_winner_kernel[(batch,)](
        scratch.value, scratch.index, token, runs, width, BLOCK=triton.next_power_of_2(runs), **_options(1, pdl)
    )


def helpers(ahead: torch.Tensor | None, threads: int) -> int:
    """Extra blocks of `threads` threads that ask L2 for `ahead`, or for as much of it as L2 shall hold."""
    if ahead is None:
        return 0
    each: int = threads * FETCH_BYTES.value
    return min(int(ahead.nbytes), L2_SHARE_BYTES) // each


def _options(warps: int, pdl: bool) -> dict[str, Any]:
    return {"PDL": pdl, "num_warps": warps, "launch_pdl": pdl}


def compile_specs() -> tuple[CompileSpec, ...]:
    """The kernels at the sizes of Llama-8B and K3 (hidden 7168); registers as compiled by Triton 3.6.0 and 8 more."""
    head = {"H": 32, "HKV": 8, "D": 128, "HALF": 64, "UP": False}
    return (
        _spec("norm", rms_norm_kernel, 8, 47, 6, BLOCK=4096, THREADS=256, ADD=False, AHEAD=False),
        _spec(
            "norm of a sum, fetching ahead", rms_norm_kernel, 8, 48, 5, BLOCK=4096, THREADS=256, ADD=True, AHEAD=True
        ),
        _spec("norm, 7168", rms_norm_kernel, 16, 48, 3, BLOCK=8192, THREADS=512, ADD=False, AHEAD=False),
        _spec("rope", rope_append_kernel, 1, 45, 32, **head, AHEAD=False),
        _spec("rope, fetching ahead", rope_append_kernel, 1, 45, 32, **head, AHEAD=True),
        _spec("embed", embedding_kernel, 4, 22, 16, BLOCK=EMBED_COLUMNS),
        _spec("argmax", argmax_runs_kernel, 4, 31, 16, BLOCK=ARGMAX_COLUMNS),
        _spec("argmax of runs", argmax_winner_kernel, 1, 27, 32, BLOCK=128),
    )


def _spec(name: str, fn: Any, warps: int, registers: int, blocks: int, **constants: object) -> CompileSpec:
    types = {
        "POSITION": "*i32", "TURNS": "*i64", "TOKEN": "*i64", "VALUE": "*fp32", "INDEX": "*i32", "eps": "fp32",
        **dict.fromkeys(("rows", "blocks", "capacity", "runs", "D", "V"), "i32"),
    }  # fmt: skip
    constants["PDL"] = False
    signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in fn.arg_names}
    divisible = tuple(name for name, kind in signature.items() if kind.startswith("*") or name in ("D", "V"))
    return CompileSpec(
        name=name, fn=fn, signature=signature, constexprs=constants, num_warps=warps, num_stages=1,
        divisible=divisible, max_registers=registers, min_blocks_per_sm=blocks, wgmma=False,
    )  # fmt: skip
