"""Device code of split_kv: a block walks one slice of the context; a second kernel, or the last block, merges them."""
# ruff: noqa: N803, N806

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# The maximum that a slice without tokens reports: finite, since a difference of two infinities is NaN.
NOTHING = tl.constexpr(-1e30)


@triton.jit
def _sum_lanes(x: tl.tensor, LANES: tl.constexpr, SIZE: tl.constexpr) -> tl.tensor:
    """Sum of `x` [LANES, SIZE] over its lanes, pair by pair: one exchange through shared memory, the rest in registers.

    `tl.sum` exchanges every element through shuffles here and takes twice the instructions of a whole tile.
    """
    pairs = tl.trans(x)
    for level in tl.static_range(5):
        if LANES >> level > 1:
            even, odd = tl.split(tl.reshape(pairs, (SIZE, LANES >> (level + 1), 2)))
            pairs = even + odd
    return tl.reshape(pairs, (SIZE,))


@triton.jit
def _walk(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    table: tl.tensor,
    begin: tl.tensor,
    count: tl.tensor,
    scale_log2e: tl.tensor,
    stride_token: tl.tensor,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    LANES: tl.constexpr,
    PAGE: tl.constexpr,
    UP: tl.constexpr,
) -> tl.tensor:
    """Maximum [ROWS] and sum [ROWS] of the scores' exp2, and Σ exp2·v [ROWS × HEAD_DIM], of `count` tokens.

    A tile of BLOCK_TOKENS tokens is dealt out to LANES warps, each with a softmax of its own over its tokens, so that
    the loop needs no exchange between warps; they are merged once, at the end. `k` and `v` point at the KV head, in the
    token `begin` or, with pages, in the pool. Past the end the last token is read again: loads need no mask, and its
    score is struck out.
    """
    LANE_TOKENS: tl.constexpr = BLOCK_TOKENS // LANES
    token = tl.arange(0, LANES)[:, None] * LANE_TOKENS + tl.arange(0, LANE_TOKENS)[None, :]
    column = tl.arange(0, HEAD_DIM)
    last = tl.maximum(count - 1, 0)
    lanes = tl.broadcast_to((q.to(tl.float32) if UP else q)[None], (LANES, ROWS, HEAD_DIM))
    m = tl.full([LANES, ROWS], NOTHING, tl.float32)
    total = tl.zeros([LANES, ROWS], tl.float32)
    acc = tl.zeros([LANES, ROWS, HEAD_DIM], tl.float32)
    if PAGE:
        begin = tl.where(count > 0, begin, 0)  # an empty slice reads no table entry past the end
        page = tl.load(table + (begin + tl.minimum(token, last)) // PAGE)
    for n in range(0, count, BLOCK_TOKENS):
        near = tl.minimum(n + token, last)
        if PAGE:
            row = page.to(tl.int64) * PAGE + (begin + near) % PAGE  # int64: a pool can be large
            # The ids of the next tile come one tile early, so that its loads need not wait for them.
            page = tl.load(table + (begin + tl.minimum(n + BLOCK_TOKENS + token, last)) // PAGE)
        else:
            row = near
        at = (row * stride_token)[:, :, None] + column[None, None, :]
        k_tile = tl.load(k + at)
        v_tile = tl.load(v + at)
        k_tile = tl.permute(k_tile.to(tl.float32) if UP else k_tile, (0, 2, 1))
        scores = tl.dot(lanes, k_tile, input_precision="ieee")
        scores = tl.where((n + token < count)[:, None, :], scores * scale_log2e, float("-inf"))
        peak = tl.maximum(m, tl.max(scores, 2))
        p = tl.exp2(scores - peak[:, :, None])
        keep = tl.exp2(m - peak)
        total = total * keep + tl.sum(p, 2)
        p = p.to(v_tile.dtype)
        if UP:
            p, v_tile = p.to(tl.float32), v_tile.to(tl.float32)
        acc = tl.dot(p, v_tile, acc * keep[:, :, None], input_precision="ieee")
        m = peak
    peak = tl.max(m, 0)
    weight = tl.exp2(m - peak[None, :])
    lanes_acc = tl.reshape(acc * weight[:, :, None], (LANES, ROWS * HEAD_DIM))
    return peak, tl.sum(total * weight, 0), _sum_lanes(lanes_acc, LANES, ROWS * HEAD_DIM)


@triton.jit
def _merge(
    part_m: tl.tensor,
    part_l: tl.tensor,
    part_acc: tl.tensor,
    out: tl.tensor,
    first: tl.tensor,
    splits: tl.tensor,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Merge `splits` partials of up to ROWS query rows that begin at `first`, CHUNK of them at a time, into `out`.

    The loads are volatile because other blocks of this launch may have written the partials.
    """
    row = tl.arange(0, ROWS)
    column = tl.arange(0, HEAD_DIM)
    m = tl.full([ROWS], NOTHING, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for begin in range(0, splits, CHUNK):
        part = begin + tl.arange(0, CHUNK)
        at = first + part[:, None] * GROUP + row[None, :]
        valid = (part < splits)[:, None] & (row < GROUP)[None, :]
        values = tl.load(
            part_acc + at[:, :, None] * HEAD_DIM + column[None, None, :],
            mask=valid[:, :, None],
            other=0.0,
            volatile=True,
        )
        peaks = tl.load(part_m + at, mask=valid, other=NOTHING, volatile=True)
        sums = tl.load(part_l + at, mask=valid, other=0.0, volatile=True)
        peak = tl.maximum(m, tl.max(peaks, 0))
        weight = tl.exp2(peaks - peak[None, :])
        keep = tl.exp2(m - peak)
        total = total * keep + tl.sum(weight * sums, 0)
        acc = acc * keep[:, None] + tl.sum(weight[:, :, None] * values, 0)
        m = peak
    _store_rows(out, acc, total, GROUP, ROWS, HEAD_DIM)


@triton.jit
def _store_rows(
    out: tl.tensor, acc: tl.tensor, total: tl.tensor, GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr
) -> None:
    """Write acc / total [ROWS, HEAD_DIM], of which GROUP rows are real; zeros where nothing was attended to."""
    row = tl.arange(0, ROWS)
    column = tl.arange(0, HEAD_DIM)
    result = acc / tl.where(total > 0.0, total, 1.0)[:, None]
    at = row[:, None] * HEAD_DIM + column[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=(row < GROUP)[:, None])


@triton.jit(do_not_specialize=["length"])
def split_kv_decode(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    table: tl.tensor,
    lengths: tl.tensor,
    out: tl.tensor,
    part_m: tl.tensor,
    part_l: tl.tensor,
    part_acc: tl.tensor,
    counters: tl.tensor,
    length: tl.tensor,
    scale_log2e: tl.tensor,
    stride_batch: tl.tensor,
    stride_token: tl.tensor,
    stride_table: tl.tensor,
    GROUP: tl.constexpr,
    KV_GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    LANES: tl.constexpr,
    PAGE: tl.constexpr,
    ON_DEVICE: tl.constexpr,
    SPLIT: tl.constexpr,
    LAST_BLOCK: tl.constexpr,
    MERGE_ROWS: tl.constexpr,
    MERGE_CHUNK: tl.constexpr,
    RELEASE: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """Grid (heads / GROUP, splits, batch). A block attends GROUP query heads to one slice of one sequence.

    With RELEASE the merge may begin when the walk is over; merge blocks that wait from the start cost 1.3 µs (H200).
    """
    unit, index, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(1)
    group = batch * tl.num_programs(0) + unit
    if ON_DEVICE:
        length = tl.load(lengths + batch)
    # Slices follow from the length at hand, so that a replayed graph stays balanced while the context grows.
    slice_tokens = tl.cdiv(tl.cdiv(length, splits), BLOCK_TOKENS) * BLOCK_TOKENS
    begin = tl.minimum(index * slice_tokens, length)
    count = tl.minimum(length - begin, slice_tokens)

    start = tl.cast(unit * GROUP // KV_GROUP * HEAD_DIM, tl.int64)
    if PAGE:
        table += batch.to(tl.int64) * stride_table
    else:
        start += batch.to(tl.int64) * stride_batch + begin.to(tl.int64) * stride_token
    k += start
    v += start
    row = tl.arange(0, ROWS)
    q_at = (group * GROUP + row)[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    q_rows = tl.load(q + q_at, mask=(row < GROUP)[:, None], other=0.0)
    peak, total, flat = _walk(
        q_rows, k, v, table, begin, count, scale_log2e, stride_token, ROWS, HEAD_DIM, BLOCK_TOKENS, LANES, PAGE, UP
    )
    if RELEASE:
        gdc_launch_dependents()
    out += group * GROUP * HEAD_DIM
    if not SPLIT:
        _store_rows(out, tl.reshape(flat, (ROWS, HEAD_DIM)), total, GROUP, ROWS, HEAD_DIM)
    else:
        first = group * splits * GROUP
        part = first + index * GROUP
        place = tl.arange(0, ROWS * HEAD_DIM)
        tl.store(part_m + part + row, peak, mask=row < GROUP)
        tl.store(part_l + part + row, total, mask=row < GROUP)
        tl.store(part_acc + part * HEAD_DIM + place, flat, mask=place < GROUP * HEAD_DIM)
        if LAST_BLOCK:
            # All warps have stored before one of them reports; who reports last sees every slice of its KV head.
            tl.debug_barrier()
            if tl.atomic_add(counters + group, 1, sem="acq_rel", scope="gpu") == splits - 1:
                _merge(part_m, part_l, part_acc, out, first, splits, GROUP, MERGE_ROWS, HEAD_DIM, MERGE_CHUNK)
                tl.store(counters + group, 0)  # for the next launch, or the next replay


@triton.jit
def split_kv_merge(
    part_m: tl.tensor,
    part_l: tl.tensor,
    part_acc: tl.tensor,
    out: tl.tensor,
    splits: tl.tensor,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    SLICES: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """Grid (batch × heads, HEAD_DIM / COLUMNS). Merges COLUMNS of one query head, its slices (≤ SLICES) all at once.

    With PDL the blocks are there when the walk ends and wait for it; no load may move before that, hence volatile.
    """
    if PDL:
        gdc_wait()
    head = tl.program_id(0)
    part = tl.arange(0, SLICES)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    valid = part < splits
    at = (head // GROUP * splits + part) * GROUP + head % GROUP
    values = tl.load(part_acc + at[:, None] * HEAD_DIM + column[None, :], mask=valid[:, None], other=0.0, volatile=True)
    peaks = tl.load(part_m + at, mask=valid, other=NOTHING, volatile=True)
    sums = tl.load(part_l + at, mask=valid, other=0.0, volatile=True)
    weight = tl.exp2(peaks - tl.max(peaks, 0))
    total = tl.sum(weight * sums, 0)
    result = tl.sum(weight[:, None] * values, 0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out + head * HEAD_DIM + column, result.to(out.dtype.element_ty))
