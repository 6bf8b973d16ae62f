"""Small kernels of a KDA or MLA layer: low-rank and per-head products, the new cache row, embedding with the position.

Each is one launch on preallocated tensors and reads positions on the GPU, so a CUDA graph can replay it. They move at
most some megabytes, so what they cost is mostly latency: many small blocks, each with all of its weights in flight.
"""
# ruff: noqa: N803

import torch
import triton
import triton.language as tl

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._kernel import INTERPRETED

BLOCK_OUTPUTS = 64  # outputs of one block: 16 KiB of weights, rows enough for the tensor cores' 64
BLOCK_ROWS = 16  # rows of x at a time; fewer are padded
EMBED_COLUMNS = 1024


@triton.jit
def expand_kernel(
    X: tl.tensor,
    WEIGHT: tl.tensor,
    OUT: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
    x_row: tl.tensor,
    x_group: tl.tensor,
    out_row: tl.tensor,
    out_group: tl.tensor,
    K: tl.constexpr,
    COPY: tl.constexpr,
    BN: tl.constexpr,
    BB: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """Grid (groups, output tiles): BN outputs of one group for all rows; its first block copies the COPY extra columns.

    The weights are the left operand: they fill the tensor cores' rows whatever the batch.
    """
    group = tl.program_id(0)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.arange(0, K)
    weight = tl.load(
        WEIGHT + (group.to(tl.int64) * outputs + on[:, None]) * K + ok[None, :], mask=(on < outputs)[:, None], other=0.0
    )
    if UP:
        weight = weight.to(tl.float32)
    for first in range(0, rows, BB):
        ob = (first + tl.arange(0, BB)).to(tl.int64)
        live = ob < rows
        source = X + ob * x_row + group * x_group
        target = OUT + ob * out_row + group * out_group
        x = tl.load(source[None, :] + ok[:, None], mask=live[None, :], other=0.0)
        if UP:
            x = x.to(tl.float32)
        y = tl.dot(weight, x, input_precision="ieee")
        tl.store(
            target[None, :] + on[:, None],
            y.to(OUT.dtype.element_ty),
            mask=(on < outputs)[:, None] & live[None, :],
        )
        if COPY > 0:
            oc = tl.arange(0, COPY)
            mine = live[:, None] & (tl.program_id(1) == 0)
            extra = tl.load(source[:, None] + K + oc[None, :], mask=mine, other=0.0)
            tl.store(target[:, None] + outputs + oc[None, :], extra, mask=mine)


@triton.jit
def latent_append_kernel(
    X: tl.tensor,
    WEIGHT: tl.tensor,
    CACHE: tl.tensor,
    POSITION: tl.tensor,
    x_row: tl.tensor,
    cache_batch: tl.tensor,
    cache_token: tl.tensor,
    capacity: tl.tensor,
    eps: tl.tensor,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
) -> None:
    """Grid (rows,): normalises a row's latent part and writes it with its rope part to the cache's row POSITION."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(POSITION).to(tl.int64)
    column = tl.arange(0, LATENT)
    rope = LATENT + tl.arange(0, ROPE)
    source = X + row * x_row
    target = CACHE + row * cache_batch + position * cache_token
    x = tl.load(source + column).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / LATENT + eps)
    weight = tl.load(WEIGHT + column).to(tl.float32)
    if (position >= 0) & (position < capacity):
        tl.store(target + column, (x * scale * weight).to(CACHE.dtype.element_ty))
        tl.store(target + rope, tl.load(source + rope))


@triton.jit
def embed_advance_kernel(
    TOKEN: tl.tensor,
    TABLE: tl.tensor,
    OUT: tl.tensor,
    POSITION: tl.tensor,
    width: tl.tensor,
    BC: tl.constexpr,
) -> None:
    """Grid (rows, column tiles): a row of the table for each token; the first block counts the position up."""
    row = tl.program_id(0).to(tl.int64)
    oc = tl.program_id(1) * BC + tl.arange(0, BC)
    token = tl.load(TOKEN + row).to(tl.int64)
    tl.store(OUT + row * width + oc, tl.load(TABLE + token * width + oc, mask=oc < width), mask=oc < width)
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(POSITION, tl.load(POSITION) + 1)


def expand(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """out [B, G, N] = x [B, G, K]·weightᵀ of each group, weight [G, N, K] contiguous; x and out contiguous in columns.

    Columns of x beyond K are copied to those of out beyond N: both have as many, none or a power of two. K is a power
    of two, 16 or more. Raises ValueError for other shapes.
    """
    groups, outputs, k = weight.shape
    extra = x.shape[2] - k
    if x.shape[1] != groups or out.shape[2] - outputs != extra or extra < 0 or extra & (extra - 1) or k & (k - 1):
        raise ValueError(f"x {tuple(x.shape)} and out {tuple(out.shape)} do not fit weights {tuple(weight.shape)}")
    grid = (groups, triton.cdiv(outputs, BLOCK_OUTPUTS))
    expand_kernel[grid](
        x, weight, out, x.shape[0], outputs, x.stride(0), x.stride(1), out.stride(0), out.stride(1),
        K=k, COPY=extra, BN=BLOCK_OUTPUTS, BB=BLOCK_ROWS, UP=INTERPRETED, num_warps=4, num_stages=1,
    )  # fmt: skip


def latent_append(
    x: torch.Tensor, weight: torch.Tensor, cache: torch.Tensor, position: torch.Tensor, *, eps: float
) -> None:
    """Write RMSNorm(x[:, :L])·weight and the other columns of x to row `position` of `cache`, in each sequence.

    x [B, L + R] contiguous in columns, weight [L], cache [B, capacity, L + R], position [1] integer on the device
    (outside of the cache nothing is written); L and R are powers of two.
    """
    latent = weight.shape[0]
    latent_append_kernel[(x.shape[0],)](
        x, weight, cache, position, x.stride(0), cache.stride(0), cache.stride(1), cache.shape[1], eps,
        LATENT=latent, ROPE=x.shape[1] - latent, num_warps=4, num_stages=1,
    )  # fmt: skip


def embed_advance(token: torch.Tensor, table: torch.Tensor, out: torch.Tensor, position: torch.Tensor) -> None:
    """out [B, D] = table [V, D] at token [B]; `position` [1] is counted up, for whoever runs after this launch."""
    rows, width = out.shape
    grid = (rows, triton.cdiv(width, EMBED_COLUMNS))
    embed_advance_kernel[grid](token, table, out, position, width, BC=EMBED_COLUMNS, num_warps=4, num_stages=1)


def compile_specs() -> tuple[CompileSpec, ...]:
    """The launches of K3 with 96 heads; registers as compiled by Triton 3.6.0 and 8 more."""
    return (
        _spec("expand", expand_kernel, 64, 8, wgmma=True, K=128, COPY=0, BN=BLOCK_OUTPUTS, BB=BLOCK_ROWS, UP=False),
        _spec("absorb", expand_kernel, 64, 8, wgmma=True, K=128, COPY=64, BN=BLOCK_OUTPUTS, BB=BLOCK_ROWS, UP=False),
        _spec("latent append", latent_append_kernel, 64, 8, LATENT=512, ROPE=64),
        _spec("embed and advance", embed_advance_kernel, 64, 8, BC=EMBED_COLUMNS),
    )


def _spec(
    name: str, fn: object, registers: int, blocks: int, *, wgmma: bool = False, **constants: object
) -> CompileSpec:
    types = {"POSITION": "*i32", "TOKEN": "*i64", "eps": "fp32"}
    signature = {
        name: "constexpr" if name in constants else types.get(name, "*bf16" if name.isupper() else "i32")
        for name in fn.arg_names  # type: ignore[attr-defined]
    }
    # Of the sizes only `rows` need not be a multiple of 16.
    divisible = tuple(
        name for name, kind in signature.items() if kind.startswith("*") or (kind == "i32" and name != "rows")
    )
    return CompileSpec(
        name=name, fn=fn, signature=signature, constexprs=constants, num_warps=4, num_stages=1, divisible=divisible,
        max_registers=registers, min_blocks_per_sm=blocks, wgmma=wgmma,
    )  # fmt: skip
