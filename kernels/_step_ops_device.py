"""Triton kernels around a decode step's products (see `_step_ops.py` for shapes)."""
# ruff: noqa: N803

import triton
import triton.language as tl
from triton.language.extra import libdevice

LAST_INDEX = tl.constexpr(2**31 - 1)
HALF_TURN = tl.constexpr(2.0**-63)  # the unit of `rope_turns` in half turns
PI = tl.constexpr(3.141592653589793)


@triton.jit
def rms_norm_kernel(
    X: tl.tensor,
    WEIGHT: tl.tensor,
    OUT: tl.tensor,
    ADDEND: tl.tensor,
    TOTAL: tl.tensor,
    D: tl.tensor,
    eps: tl.tensor,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
) -> None:
    """One row a block."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    place = row.to(tl.int64) * D + at
    weight = tl.load(WEIGHT + at, mask=at < D, other=0.0).to(tl.float32)
    x = tl.load(X + place, mask=at < D, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(ADDEND + place, mask=at < D, other=0.0).to(tl.float32)
        tl.store(TOTAL + place, x.to(TOTAL.dtype.element_ty), mask=at < D)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / D + eps)
    tl.store(OUT + place, (x * scale * weight).to(OUT.dtype.element_ty), mask=at < D)


@triton.jit
def rope_append_kernel(
    QKV: tl.tensor,
    QUERY: tl.tensor,
    KEYS: tl.tensor,
    VALUES: tl.tensor,
    POSITION: tl.tensor,
    TURNS: tl.tensor,
    capacity: tl.tensor,
    H: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """One head of q, k or v of one sequence a block."""
    block = tl.program_id(0)
    sequence, head = (block // (H + 2 * HKV)).to(tl.int64), block % (H + 2 * HKV)
    at = tl.arange(0, HALF)
    ok = at < D // 2
    turns = tl.load(TURNS + at, mask=ok, other=0)
    position = tl.load(POSITION).to(tl.int64)
    low = tl.load(QKV + block.to(tl.int64) * D + at, mask=ok, other=0.0).to(tl.float32)
    high = tl.load(QKV + block.to(tl.int64) * D + D // 2 + at, mask=ok, other=0.0).to(tl.float32)
    half_turns = tl.where(head < H + HKV, (position * turns).to(tl.float32) * HALF_TURN, 0.0)  # v is not rotated
    cos, sin = cos_and_sin(half_turns, UP)
    first, second = low * cos - high * sin, high * cos + low * sin
    row = (sequence * capacity + position) * HKV
    kept = ok & (position < capacity)
    if head < H:
        store_pair(QUERY + (sequence * H + head) * D + at, first, second, ok, D)
    elif head < H + HKV:
        store_pair(KEYS + (row + head - H) * D + at, first, second, kept, D)
    else:
        store_pair(VALUES + (row + head - H - HKV) * D + at, first, second, kept, D)


@triton.jit
def store_pair(place: tl.tensor, first: tl.tensor, second: tl.tensor, ok: tl.tensor, D: tl.constexpr) -> None:
    """Both halves of a head."""
    tl.store(place, first.to(place.dtype.element_ty), mask=ok)
    tl.store(place + D // 2, second.to(place.dtype.element_ty), mask=ok)


@triton.jit
def cos_and_sin(half_turns: tl.tensor, UP: tl.constexpr) -> tl.tensor:
    """Of an angle in half turns, -1 to 1. The interpreter has no libdevice; compiled, `tl.cos` takes local memory."""
    if UP:
        cos, sin = tl.cos(half_turns * PI), tl.sin(half_turns * PI)
    else:
        cos, sin = libdevice.cospi(half_turns), libdevice.sinpi(half_turns)
    return cos, sin


@triton.jit
def embedding_kernel(TOKEN: tl.tensor, TABLE: tl.tensor, OUT: tl.tensor, D: tl.tensor, BLOCK: tl.constexpr) -> None:
    """BLOCK columns of one token's row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(TOKEN + row).to(tl.int64)
    tl.store(OUT + row * D + at, tl.load(TABLE + token * D + at, mask=at < D, other=0.0), mask=at < D)


@triton.jit
def best_of(value: tl.tensor, index: tl.tensor) -> tl.tensor:
    """The largest value and the smallest index that has it."""
    best = tl.max(value, 0)
    return best, tl.min(tl.where(value == best, index, LAST_INDEX), 0)


@triton.jit
def argmax_runs_kernel(
    LOGITS: tl.tensor, VALUE: tl.tensor, INDEX: tl.tensor, V: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """The best of BLOCK columns of one row."""
    row, run = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = run * BLOCK + tl.arange(0, BLOCK)
    value, index = best_of(tl.load(LOGITS + row * V + at, mask=at < V, other=float("-inf")).to(tl.float32), at)
    tl.store(VALUE + row * tl.num_programs(1) + run, value)
    tl.store(INDEX + row * tl.num_programs(1) + run, index)


@triton.jit
def argmax_winner_kernel(
    VALUE: tl.tensor,
    INDEX: tl.tensor,
    TOKEN: tl.tensor,
    runs: tl.tensor,
    V: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """The best of one row's runs."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    value = tl.load(VALUE + row * runs + at, mask=at < runs, other=float("-inf"))
    _, index = best_of(value, tl.load(INDEX + row * runs + at, mask=at < runs, other=LAST_INDEX))
    tl.store(TOKEN + row, tl.minimum(index, V - 1).to(tl.int64))  # NaN has no largest: stay inside the table
