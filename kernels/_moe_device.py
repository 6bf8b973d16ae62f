"""Device code of `_moe_ops`: routing by one block, and three kernels that move the rows of each choice."""
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def route_kernel(
    LOGITS: tl.tensor,
    BIAS: tl.tensor,
    LIVE: tl.tensor,
    EXPERT: tl.tensor,
    SLOT: tl.tensor,
    WEIGHT: tl.tensor,
    COUNT: tl.tensor,
    DROPPED: tl.tensor,
    rows: tl.tensor,
    experts: tl.tensor,
    capacity: tl.tensor,
    scale: tl.tensor,
    TOP_K: tl.constexpr,
    BB: tl.constexpr,
    BE: tl.constexpr,
    EPS: tl.constexpr,
) -> None:
    """One block routes all rows, BB at a time; `taken` carries the slots given so far from one lot to the next."""
    oe = tl.arange(0, BE)
    real = oe < experts
    bias = tl.load(BIAS + oe, mask=real, other=0.0).to(tl.float32)
    live = tl.minimum(tl.load(LIVE), rows)
    taken = tl.zeros([BE], tl.int32)
    for first in range(0, rows, BB):
        ob = first + tl.arange(0, BB)
        inside = (ob < rows)[:, None] & real[None, :]
        logits = tl.load(LOGITS + ob[:, None] * experts + oe[None, :], mask=inside, other=0.0).to(tl.float32)
        score = 1.0 / (1.0 + tl.exp(-logits))
        key = tl.where(real[None, :], score + bias[None, :], float("-inf"))
        rank = tl.full([BB, BE], TOP_K, tl.int32)  # TOP_K: not chosen
        for j in tl.static_range(TOP_K):
            best = oe[None, :] == tl.argmax(key, 1)[:, None]
            rank = tl.where(best, j, rank)
            key = tl.where(best, float("-inf"), key)
        chosen = (rank < TOP_K) & (ob < live)[:, None]
        total = tl.sum(tl.where(chosen, score, 0.0), 1) + EPS
        one = chosen.to(tl.int32)
        place = taken[None, :] + tl.cumsum(one, 0) - one
        fits = chosen & (place < capacity)
        taken += tl.sum(one, 0)
        for j in tl.static_range(TOP_K):
            mine = fits & (rank == j)
            found = tl.max(mine.to(tl.int32), 1) > 0
            expert = tl.sum(tl.where(mine, oe[None, :], 0), 1)
            slot = tl.sum(tl.where(mine, place, 0), 1)
            weight = tl.sum(tl.where(mine, score, 0.0), 1) / total * scale
            at = ob * TOP_K + j
            tl.store(EXPERT + at, tl.where(found, expert, -1), mask=ob < rows)
            tl.store(SLOT + at, tl.where(found, slot, -1), mask=ob < rows)
            tl.store(WEIGHT + at, tl.where(found, weight, 0.0), mask=ob < rows)
    tl.store(COUNT + oe, tl.minimum(taken, capacity), mask=real)
    tl.store(DROPPED, tl.sum(tl.maximum(taken - capacity, 0), 0))


@triton.jit
def scatter_kernel(
    X: tl.tensor,
    EXPERT: tl.tensor,
    SLOT: tl.tensor,
    OUT: tl.tensor,
    capacity: tl.tensor,
    width: tl.tensor,
    TOP_K: tl.constexpr,
    BC: tl.constexpr,
) -> None:
    """Copies a row to the slot of one of its choices; grid (rows · TOP_K, column tiles)."""
    choice = tl.program_id(0)
    expert = tl.load(EXPERT + choice).to(tl.int64)
    slot = tl.load(SLOT + choice)
    oc = tl.program_id(1) * BC + tl.arange(0, BC)
    wanted = (oc < width) & (slot >= 0)
    row = tl.load(X + (choice // TOP_K).to(tl.int64) * width + oc, mask=wanted, other=0.0)
    tl.store(OUT + (expert * capacity + slot) * width + oc, row, mask=wanted)


@triton.jit
def silu_mul_kernel(
    H: tl.tensor,
    EXPERT: tl.tensor,
    SLOT: tl.tensor,
    OUT: tl.tensor,
    capacity: tl.tensor,
    width: tl.tensor,
    BC: tl.constexpr,
) -> None:
    """silu(gate) · up of the rows that are in use; grid (rows · top_k, column tiles)."""
    choice = tl.program_id(0)
    expert = tl.load(EXPERT + choice).to(tl.int64)
    slot = tl.load(SLOT + choice)
    oc = tl.program_id(1) * BC + tl.arange(0, BC)
    wanted = (oc < width) & (slot >= 0)
    row = expert * capacity + slot
    gate = tl.load(H + row * 2 * width + oc, mask=wanted, other=0.0).to(tl.float32)
    up = tl.load(H + row * 2 * width + width + oc, mask=wanted, other=0.0).to(tl.float32)
    tl.store(OUT + row * width + oc, gate / (1.0 + tl.exp(-gate)) * up, mask=wanted)


@triton.jit
def combine_kernel(
    Y: tl.tensor,
    RESIDUAL: tl.tensor,
    EXPERT: tl.tensor,
    SLOT: tl.tensor,
    WEIGHT: tl.tensor,
    OUT: tl.tensor,
    capacity: tl.tensor,
    width: tl.tensor,
    TOP_K: tl.constexpr,
    BC: tl.constexpr,
) -> None:
    """Residual plus the weighted sum of a row's experts, in fp32 and in the order of choice; grid (rows, tiles)."""
    row = tl.program_id(0).to(tl.int64)
    oc = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = oc < width
    total = tl.load(RESIDUAL + row * width + oc, mask=inside, other=0.0).to(tl.float32)
    for j in tl.static_range(TOP_K):
        expert = tl.load(EXPERT + row * TOP_K + j).to(tl.int64)
        slot = tl.load(SLOT + row * TOP_K + j)
        weight = tl.load(WEIGHT + row * TOP_K + j)
        part = tl.load(Y + (expert * capacity + slot) * width + oc, mask=inside & (slot >= 0), other=0.0)
        total += weight * part.to(tl.float32)
    tl.store(OUT + row * width + oc, total, mask=inside)
