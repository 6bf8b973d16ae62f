"""Triton kernels of the decode projections (see `_gemv.py` for shapes and for which runs when)."""
# ruff: noqa: N803

import triton
import triton.language as tl

LANES = tl.constexpr(8)  # neighbouring bf16 of K that one thread holds (16 bytes): summed there, not kept apart


@triton.jit
def silu_times(gate: tl.tensor, up: tl.tensor) -> tl.tensor:
    """silu(gate)·up in float32."""
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit
def run_sums(weight: tl.tensor, x: tl.tensor, BM: tl.constexpr, BK: tl.constexpr) -> tl.tensor:
    """[BM, BK / LANES] sums of weight [BM, BK] times x [1, BK] over runs of LANES columns."""
    return tl.sum(tl.reshape(weight.to(tl.float32) * x, [BM, BK // LANES, LANES]), 2)


@triton.jit
def gemv_row(
    X: tl.tensor,
    WEIGHT: tl.tensor,
    RESIDUAL: tl.tensor,
    OUT: tl.tensor,
    N: tl.tensor,
    K: tl.tensor,
    BM: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
    GATED: tl.constexpr,
    RES: tl.constexpr,
    EVEN: tl.constexpr,
) -> None:
    """BM outputs of one row x on CUDA cores. Rows past N repeat the last one and are not stored: no mask on them."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    near = tl.minimum(row, N - 1).to(tl.int64)
    at = tl.arange(0, BK)
    first = WEIGHT + near[:, None] * K + at[None, :]
    second = WEIGHT + (near + N)[:, None] * K + at[None, :]
    gate = tl.zeros([BM, BK // LANES], tl.float32)
    up = tl.zeros([BM, BK // LANES], tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        ok = EVEN | (k + at < K)
        x = tl.load(X + k + at, mask=ok, other=0.0).to(tl.float32)[None, :]
        gate += run_sums(tl.load(first + k, mask=ok[None, :], other=0.0), x, BM, BK)
        if GATED:
            up += run_sums(tl.load(second + k, mask=ok[None, :], other=0.0), x, BM, BK)
    y = tl.sum(gate, 1)
    if GATED:
        y = silu_times(y, tl.sum(up, 1))
    if RES:
        y += tl.load(RESIDUAL + row, mask=row < N, other=0.0).to(tl.float32)
    tl.store(OUT + row, y.to(OUT.dtype.element_ty), mask=row < N)


@triton.jit
def gemv_tile(
    X: tl.tensor,
    WEIGHT: tl.tensor,
    RESIDUAL: tl.tensor,
    OUT: tl.tensor,
    PARTIAL: tl.tensor,
    COUNT: tl.tensor,
    B: tl.tensor,
    N: tl.tensor,
    K: tl.tensor,
    PART: tl.tensor,
    BM: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    GATED: tl.constexpr,
    RES: tl.constexpr,
    EVEN: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """BM outputs of up to BT rows x on tensor cores, over PART columns of K (a multiple of BK) from part·PART on."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    near = tl.minimum(row, N - 1).to(tl.int64)
    token, at = tl.arange(0, BT), tl.arange(0, BK)
    xs = X + token[None, :].to(tl.int64) * K + at[:, None]
    first = WEIGHT + near[:, None] * K + at[None, :]
    second = WEIGHT + (near + N)[:, None] * K + at[None, :]
    gate, up = tl.zeros([BM, BT], tl.float32), tl.zeros([BM, BT], tl.float32)
    low = tl.program_id(1) * PART
    for k in range(low, tl.minimum(low + PART, K), BK):
        ok = EVEN | (k + at < K)
        x = tl.load(xs + k, mask=ok[:, None] & (token < B)[None, :], other=0.0)
        gate = product(tl.load(first + k, mask=ok[None, :], other=0.0), x, gate, UP)
        if GATED:
            up = product(tl.load(second + k, mask=ok[None, :], other=0.0), x, up, UP)
    if SPLIT == 1:
        finish(gate, up, RESIDUAL, OUT, row, token, B, N, GATED, RES)
    else:
        join(gate, up, PARTIAL, COUNT, RESIDUAL, OUT, row, token, B, N, SPLIT, GATED, RES)


@triton.jit
def product(weight: tl.tensor, x: tl.tensor, acc: tl.tensor, UP: tl.constexpr) -> tl.tensor:
    """acc + weight·x; with UP in float32, since the interpreter's bf16 products are garbage."""
    if UP:
        weight, x = weight.to(tl.float32), x.to(tl.float32)
    return tl.dot(weight, x, acc, input_precision="ieee")


@triton.jit
def join(
    gate: tl.tensor,
    up: tl.tensor,
    PARTIAL: tl.tensor,
    COUNT: tl.tensor,
    RESIDUAL: tl.tensor,
    OUT: tl.tensor,
    row: tl.tensor,
    token: tl.tensor,
    B: tl.tensor,
    N: tl.tensor,
    SPLIT: tl.constexpr,
    GATED: tl.constexpr,
    RES: tl.constexpr,
) -> None:
    """Leave this part's sums; the block that comes last to its tile adds all parts in order and resets the counter."""
    tile, part = tl.program_id(0), tl.program_id(1)
    size: tl.constexpr = row.shape[0] * token.shape[0]
    cell = tl.arange(0, row.shape[0])[:, None] * token.shape[0] + token[None, :]
    mine = PARTIAL + (tile * SPLIT + part).to(tl.int64) * (2 * size) + cell
    tl.store(mine, gate)
    if GATED:
        tl.store(mine + size, up)
    tl.debug_barrier()  # every thread's part is written before one of them counts it
    if tl.atomic_add(COUNT + tile, 1, sem="acq_rel") == SPLIT - 1:
        all_parts = PARTIAL + tile.to(tl.int64) * (SPLIT * 2 * size) + cell
        gate, up = tl.zeros_like(gate), tl.zeros_like(up)
        for other in range(SPLIT):
            gate += tl.load(all_parts + other * (2 * size), cache_modifier=".cg")
            if GATED:
                up += tl.load(all_parts + other * (2 * size) + size, cache_modifier=".cg")
        tl.store(COUNT + tile, 0)
        finish(gate, up, RESIDUAL, OUT, row, token, B, N, GATED, RES)


@triton.jit
def finish(
    gate: tl.tensor,
    up: tl.tensor,
    RESIDUAL: tl.tensor,
    OUT: tl.tensor,
    row: tl.tensor,
    token: tl.tensor,
    B: tl.tensor,
    N: tl.tensor,
    GATED: tl.constexpr,
    RES: tl.constexpr,
) -> None:
    """Store [BM, BT] results at out[token, row]."""
    y = gate
    if GATED:
        y = silu_times(gate, up)
    place = token[None, :].to(tl.int64) * N + row[:, None]
    ok = (token < B)[None, :] & (row < N)[:, None]
    if RES:
        y += tl.load(RESIDUAL + place, mask=ok, other=0.0).to(tl.float32)
    tl.store(OUT + place, y.to(OUT.dtype.element_ty), mask=ok)


@triton.jit
def silu_mul(BOTH: tl.tensor, OUT: tl.tensor, N: tl.tensor, BLOCK: tl.constexpr) -> None:
    """out[b, i] = silu(both[b, i])·both[b, N + i]."""
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    base = tl.program_id(0).to(tl.int64) * N
    gate = tl.load(BOTH + 2 * base + at, mask=at < N, other=0.0).to(tl.float32)
    up = tl.load(BOTH + 2 * base + N + at, mask=at < N, other=0.0).to(tl.float32)
    tl.store(OUT + base + at, silu_times(gate, up).to(OUT.dtype.element_ty), mask=at < N)
