"""Device code of mla in Triton: slices of the latent cache attended by blocks of heads, and the merge with W_UV."""
# ruff: noqa: N803, N806

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

# The maximum that a slice without tokens reports: finite, since a difference of two infinities is NaN.
NOTHING = tl.constexpr(-1e30)


@triton.jit
def _slice(
    lengths: tl.tensor, length: tl.tensor, batch: tl.tensor, ON_DEVICE: tl.constexpr, BLOCK_TOKENS: tl.constexpr
) -> tl.tensor:
    """First token of this block's slice, and one past its last.

    Slices follow from the length at hand, so that a replayed graph stays balanced while the context grows.
    """
    if ON_DEVICE:
        length = tl.load(lengths + batch)
    slice_tokens = tl.cdiv(tl.cdiv(length, tl.num_programs(1)), BLOCK_TOKENS) * BLOCK_TOKENS
    begin = tl.minimum(tl.program_id(1) * slice_tokens, length)
    return begin, tl.minimum(begin + slice_tokens, length)


@triton.jit
def _dot(a: tl.tensor, b: tl.tensor, acc: tl.tensor, UP: tl.constexpr) -> tl.tensor:
    """acc + a·b, in float32 where the interpreter cannot multiply what it is given."""
    if UP:
        return acc + tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit(do_not_specialize=["length"])
def mla_batched(
    query: tl.tensor,
    cache: tl.tensor,
    lengths: tl.tensor,
    part: tl.tensor,
    stats: tl.tensor,
    length: tl.tensor,
    heads: tl.tensor,
    stride_batch: tl.tensor,
    stride_token: tl.tensor,
    scale_log2e: tl.tensor,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    ON_DEVICE: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """Grid (⌈heads / BLOCK_HEADS⌉, splits, batch). One block attends BLOCK_HEADS heads to one slice of one sequence.

    Each tile of the cache is loaded once: as keys with its rope part, and as values without.
    """
    batch = tl.program_id(2)
    head = tl.program_id(0) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    real = head < heads
    column = tl.arange(0, LATENT)
    rope = LATENT + tl.arange(0, ROPE)
    begin, end = _slice(lengths, length, batch, ON_DEVICE, BLOCK_TOKENS)
    q_row = query + (batch * heads + head)[:, None] * (LATENT + ROPE)
    q = tl.load(q_row + column[None, :], mask=real[:, None], other=0.0)
    q_rope = tl.load(q_row + rope[None, :], mask=real[:, None], other=0.0)
    cache += batch.to(tl.int64) * stride_batch

    m = tl.full([BLOCK_HEADS], NOTHING, tl.float32)
    total = tl.zeros([BLOCK_HEADS], tl.float32)
    acc = tl.zeros([BLOCK_HEADS, LATENT], tl.float32)
    for n in range(begin, end, BLOCK_TOKENS):
        token = n + tl.arange(0, BLOCK_TOKENS)
        valid = token < end
        row = cache + token[:, None].to(tl.int64) * stride_token
        c = tl.load(row + column[None, :], mask=valid[:, None], other=0.0)
        c_rope = tl.load(row + rope[None, :], mask=valid[:, None], other=0.0)
        scores = _dot(q, tl.trans(c), tl.zeros([BLOCK_HEADS, BLOCK_TOKENS], tl.float32), UP)
        scores = _dot(q_rope, tl.trans(c_rope), scores, UP)
        scores = tl.where(valid[None, :], scores * scale_log2e, float("-inf"))
        peak = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - peak[:, None])
        keep = tl.exp2(m - peak)
        total = total * keep + tl.sum(p, 1)
        acc = _dot(p.to(c.dtype), c, acc * keep[:, None], UP)
        m = peak

    at = (batch * heads + head).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    tl.store(part + at[:, None] * LATENT + column[None, :], acc, mask=real[:, None])
    tl.store(stats + at * 2, m, mask=real)
    tl.store(stats + at * 2 + 1, total, mask=real)


@triton.jit(do_not_specialize=["length"])
def mla_per_head(
    query: tl.tensor,
    cache: tl.tensor,
    lengths: tl.tensor,
    part: tl.tensor,
    stats: tl.tensor,
    length: tl.tensor,
    heads: tl.tensor,
    stride_batch: tl.tensor,
    stride_token: tl.tensor,
    scale_log2e: tl.tensor,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    ON_DEVICE: tl.constexpr,
) -> None:
    """Grid (heads, splits, batch). One block attends one head to one slice, with multiply-adds instead of tensor cores.

    Every head streams the whole cache, and nothing is prefetched, as no load feeds a dot.
    """
    head, batch = tl.program_id(0), tl.program_id(2)
    column = tl.arange(0, LATENT)
    rope = LATENT + tl.arange(0, ROPE)
    begin, end = _slice(lengths, length, batch, ON_DEVICE, BLOCK_TOKENS)
    q_row = query + (batch * heads + head) * (LATENT + ROPE)
    q = tl.load(q_row + column).to(tl.float32)
    q_rope = tl.load(q_row + rope).to(tl.float32)
    cache += batch.to(tl.int64) * stride_batch

    m = NOTHING
    total = 0.0
    acc = tl.zeros([LATENT], tl.float32)
    for n in range(begin, end, BLOCK_TOKENS):
        token = n + tl.arange(0, BLOCK_TOKENS)
        valid = token < end
        row = cache + token[:, None].to(tl.int64) * stride_token
        c = tl.load(row + column[None, :], mask=valid[:, None], other=0.0).to(tl.float32)
        c_rope = tl.load(row + rope[None, :], mask=valid[:, None], other=0.0).to(tl.float32)
        scores = tl.sum(c * q[None, :], 1) + tl.sum(c_rope * q_rope[None, :], 1)
        scores = tl.where(valid, scores * scale_log2e, float("-inf"))
        peak = tl.maximum(m, tl.max(scores, 0))
        p = tl.exp2(scores - peak)
        keep = tl.exp2(m - peak)
        total = total * keep + tl.sum(p, 0)
        acc = acc * keep + tl.sum(p[:, None] * c, 0)
        m = peak

    at = (batch * heads + head).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    tl.store(part + at * LATENT + column, acc)
    tl.store(stats + at * 2, m)
    tl.store(stats + at * 2 + 1, total)


@triton.jit
def mla_merge(
    part: tl.tensor,
    stats: tl.tensor,
    w_uv: tl.tensor,
    latent: tl.tensor,
    value: tl.tensor,
    pieces: tl.tensor,
    counters: tl.tensor,
    heads: tl.tensor,
    splits: tl.tensor,
    LATENT: tl.constexpr,
    VALUE: tl.constexpr,
    PIECES: tl.constexpr,
    SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    """Grid (batch × heads, PIECES). Merges LATENT / PIECES columns of one head and multiplies them with their rows of
    W_UV; who finishes last of a head adds the pieces up, always in the same order.

    SPLITS is `splits` rounded up to a power of two. CHUNK of them are in registers while the next are on their way: the
    time is that of a chain of loads from L2, so that as many as possible of them must overlap.
    """
    row, piece = tl.program_id(0), tl.program_id(1)
    WIDTH: tl.constexpr = LATENT // PIECES
    column = piece * WIDTH + tl.arange(0, WIDTH)
    out = tl.arange(0, VALUE)
    # The weights do not depend on the slices, so their way here overlaps the wait for these.
    at = (row % heads).to(tl.int64) * LATENT + column
    w = tl.load(w_uv + at[:, None] * VALUE + out[None, :])
    if PDL:
        gdc_wait()
    first = row.to(tl.int64) * splits
    some = tl.arange(0, CHUNK)
    valid = some < splits
    values = tl.load(part + (first + some)[:, None] * LATENT + column[None, :], mask=valid[:, None], other=0.0)
    maxima = tl.load(stats + (first + some) * 2, mask=valid, other=NOTHING)
    all_parts = tl.arange(0, SPLITS)
    present = all_parts < splits
    peaks = tl.load(stats + (first + all_parts) * 2, mask=present, other=NOTHING)
    sums = tl.load(stats + (first + all_parts) * 2 + 1, mask=present, other=0.0)
    peak = tl.max(peaks, 0)
    total = tl.sum(tl.exp2(peaks - peak) * sums, 0)
    acc = tl.zeros([CHUNK, WIDTH], tl.float32)  # added up over slices at the end
    for begin in range(CHUNK, splits, CHUNK):
        valid = begin + some < splits
        at_slice = first + begin + some
        coming = tl.load(part + at_slice[:, None] * LATENT + column[None, :], mask=valid[:, None], other=0.0)
        coming_maxima = tl.load(stats + at_slice * 2, mask=valid, other=NOTHING)
        acc += tl.exp2(maxima - peak)[:, None] * values
        values = coming
        maxima = coming_maxima
    acc += tl.exp2(maxima - peak)[:, None] * values
    merged = tl.sum(acc, 0) * (1.0 / tl.where(total > 0.0, total, 1.0))
    tl.store(latent + row.to(tl.int64) * LATENT + column, merged.to(latent.dtype.element_ty))
    result = tl.sum(merged[:, None] * w.to(tl.float32), 0)
    if PIECES > 1:
        tl.store(pieces + (row * PIECES + piece) * VALUE + out, result)
        # All warps have stored before one of them reports; who reports last sees every piece of its head.
        tl.debug_barrier()
        if tl.atomic_add(counters + row, 1, sem="acq_rel", scope="gpu") == PIECES - 1:
            each = tl.arange(0, PIECES)
            found = tl.load(pieces + (row * PIECES + each)[:, None] * VALUE + out[None, :], volatile=True)
            tl.store(value + row.to(tl.int64) * VALUE + out, tl.sum(found, 0).to(value.dtype.element_ty))
            tl.store(counters + row, 0)  # for the next launch, or the next replay
    else:
        tl.store(value + row.to(tl.int64) * VALUE + out, result.to(value.dtype.element_ty))
