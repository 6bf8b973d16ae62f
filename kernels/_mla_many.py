"""Device code of mla for sm_90, many heads: 64 heads are the rows of the products, 64 tokens their columns."""
# ruff: noqa: N803, N806

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents

from tracelab.kernels._mla_ring import CHUNK, CHUNKS, LATENT, NOTHING, ROPE, TILE, barriers, copy_cache, slice_of_block


@gluon.jit
def _scores(t: gl.tensor, buffers: gl.tensor, bars: gl.tensor, layout: gl.constexpr, RING: gl.constexpr) -> gl.tensor:
    """Begin the products of all heads with tile `t`, [heads, tokens]: five groups of wgmma, as the chunks arrive."""
    q, q_rope, c, c_rope = buffers
    _, c_full, _, rope_full, _ = bars
    HEADS: gl.constexpr = q_rope.shape[0]
    ROPES: gl.constexpr = c_rope.shape[0]
    s = warpgroup_mma_init(gl.zeros([HEADS, TILE], gl.float32, layout))
    mbarrier.wait(rope_full.index(t % ROPES), (t // ROPES) & 1)
    s = warpgroup_mma(q_rope, c_rope.index(t % ROPES).permute((1, 0)), s, use_acc=False, is_async=True)
    for j in gl.static_range(CHUNKS):
        place = t * CHUNKS + j
        mbarrier.wait(c_full.index(place % RING), (place // RING) & 1)
        s = warpgroup_mma(q.index(j), c.index(place % RING).permute((1, 0)), s, is_async=True)
    return s


@gluon.jit
def _weights(scores: gl.tensor, m: gl.tensor, total: gl.tensor, scale_log2e: gl.tensor) -> gl.tensor:
    """exp2 of the scores against the new maximum; by how much the old sums shrink; maximum and sum of the weights."""
    peak = gl.maximum(m, gl.max(scores, 1) * scale_log2e)
    p = gl.exp2(scores * scale_log2e - peak[:, None])
    keep = gl.exp2(m - peak)
    return p, keep, peak, total * keep + gl.sum(p, 1)


@gluon.jit
def _begin_values(
    p: gl.tensor, keep: gl.tensor, o0: gl.tensor, o1: gl.tensor, v0: gl.tensor, v1: gl.tensor, layout: gl.constexpr
) -> gl.tensor:
    """Begin o0 += p·v0 and o1 += p·v1: two groups of wgmma. `p` stays in registers, which are in use until they end."""
    p = gl.convert_layout(p.to(v0.dtype), gl.DotOperandLayout(0, layout, 2))
    keep = gl.convert_layout(keep, gl.SliceLayout(1, layout))[:, None]
    return warpgroup_mma(p, v0, o0 * keep, is_async=True), warpgroup_mma(p, v1, o1 * keep, is_async=True), p


@gluon.jit
def _attend_half(
    HALF: gl.constexpr,
    out: gl.tensor,
    count: gl.tensor,
    tiles: gl.tensor,
    scale_log2e: gl.tensor,
    buffers: gl.tensor,
    bars: gl.tensor,
    go: gl.tensor,
    RING: gl.constexpr,
) -> None:
    """One of the two warp groups that multiply: all scores of a tile, and half of the value columns.

    Both compute the scores, so that they never wait for each other, and one does its softmax while the tensor cores
    work for the other; 64 × 512 sums are too many for the registers of one.
    """
    part, stats, first_row, end_row = out
    q, _, c, c_rope = buffers
    q_full, _, c_empty, _, rope_empty = bars
    HEADS: gl.constexpr = q.shape[1]
    ROPES: gl.constexpr = c_rope.shape[0]
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])  # noqa: E741
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O)
    MINE: gl.constexpr = 2 * HALF
    OTHERS: gl.constexpr = 2 - 2 * HALF
    m = gl.full([HEADS], NOTHING, gl.float32, S_ROWS)
    total = gl.zeros([HEADS], gl.float32, S_ROWS)
    o0 = gl.zeros([HEADS, CHUNK], gl.float32, O)
    o1 = gl.zeros([HEADS, CHUNK], gl.float32, O)
    mbarrier.wait(q_full, 0)
    if HALF == 1:
        mbarrier.wait(go, 0)  # half a step behind the other group, where it stays
    s = _scores(0, buffers, bars, S, RING)
    for t in range(tiles - 1):
        place = t * CHUNKS
        scores = warpgroup_mma_wait(0, [s])
        if HALF == 0:
            mbarrier.arrive(go, count=1, pred=t == 0)
        mbarrier.arrive(rope_empty.index(t % ROPES), count=1)
        mbarrier.arrive(c_empty.index((place + OTHERS) % RING), count=1)
        mbarrier.arrive(c_empty.index((place + OTHERS + 1) % RING), count=1)
        p, keep, m, total = _weights(scores, m, total, scale_log2e)
        first, second = c.index((place + MINE) % RING), c.index((place + MINE + 1) % RING)
        a0, a1, p = _begin_values(p, keep, o0, o1, first, second, O)
        s = _scores(t + 1, buffers, bars, S, RING)
        o0, o1, p = warpgroup_mma_wait(5, [a0, a1, p])  # what is left are the groups of the scores
        mbarrier.arrive(c_empty.index((place + MINE) % RING), count=1)
        mbarrier.arrive(c_empty.index((place + MINE + 1) % RING), count=1)

    place = (tiles - 1) * CHUNKS
    scores = warpgroup_mma_wait(0, [s])
    if HALF == 0:
        mbarrier.arrive(go, count=1, pred=tiles == 1)
    token = gl.arange(0, TILE, gl.SliceLayout(0, S))
    scores = gl.where((token < count - (tiles - 1) * TILE)[None, :], scores, float("-inf"))
    p, keep, m, total = _weights(scores, m, total, scale_log2e)
    first, second = c.index((place + MINE) % RING), c.index((place + MINE + 1) % RING)
    a0, a1, p = _begin_values(p, keep, o0, o1, first, second, O)
    o0, o1, p = warpgroup_mma_wait(0, [a0, a1, p])

    row = first_row + gl.arange(0, HEADS, O_ROWS)
    at = (row.to(gl.int64) * gl.num_programs(1) + gl.program_id(1))[:, None] * LATENT
    column = MINE * CHUNK + gl.arange(0, CHUNK, gl.SliceLayout(0, O))[None, :]
    gl.store(part + at + column, o0, mask=(row < end_row)[:, None])
    gl.store(part + at + CHUNK + column, o1, mask=(row < end_row)[:, None])
    if HALF == 0:
        row = first_row + gl.arange(0, HEADS, S_ROWS)
        at = (row.to(gl.int64) * gl.num_programs(1) + gl.program_id(1)) * 2
        gl.store(stats + at, m, mask=row < end_row)
        gl.store(stats + at + 1, total, mask=row < end_row)


@gluon.jit(do_not_specialize=["length", "heads"])
def mla_many_heads(
    q_map: gl.tensor,
    q_rope_map: gl.tensor,
    c_map: gl.tensor,
    c_rope_map: gl.tensor,
    cache: gl.tensor,
    lengths: gl.tensor,
    part: gl.tensor,
    stats: gl.tensor,
    length: gl.tensor,
    heads: gl.tensor,
    rows_per_sequence: gl.tensor,
    row_stride: gl.tensor,
    scale_log2e: gl.tensor,
    BLOCK_HEADS: gl.constexpr,
    RING: gl.constexpr,
    ON_DEVICE: gl.constexpr,
) -> None:
    """Grid (⌈heads / 64⌉, splits, batch). One block attends 64 heads, the rows of its products, to one slice."""
    gdc_launch_dependents()  # the merge may fetch W_UV meanwhile, should it be launched so; it waits for our end
    begin, count, tiles = slice_of_block(lengths, length, ON_DEVICE)
    q = gl.allocate_shared_memory(cache.dtype.element_ty, [CHUNKS, BLOCK_HEADS, CHUNK], q_map.layout)
    q_rope = gl.allocate_shared_memory(cache.dtype.element_ty, [BLOCK_HEADS, ROPE], q_rope_map.layout)
    c = gl.allocate_shared_memory(cache.dtype.element_ty, [RING, TILE, CHUNK], c_map.layout)
    c_rope = gl.allocate_shared_memory(cache.dtype.element_ty, [1, TILE, ROPE], c_rope_map.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    go = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    mbarrier.init(go, count=1)
    c_full, c_empty = barriers(RING, 2)
    rope_full, rope_empty = barriers(1, 2)
    fence_async_shared()
    buffers = (q, q_rope, c, c_rope)
    bars = (q_full, c_full, c_empty, rope_full, rope_empty)
    maps = (q_map, q_rope_map, c_map, c_rope_map)
    row = gl.program_id(2) * heads + gl.program_id(0) * BLOCK_HEADS
    end = gl.program_id(2) * heads + heads
    first = gl.program_id(2) * rows_per_sequence + begin
    out = (part, stats, row, end)
    gl.warp_specialize(
        [
            (copy_cache, (maps, cache, row_stride, row, first, count, tiles, buffers, bars, BLOCK_HEADS, RING)),
            (_attend_half, (gl.constexpr(0), out, count, tiles, scale_log2e, buffers, bars, go, RING)),
            (_attend_half, (gl.constexpr(1), out, count, tiles, scale_log2e, buffers, bars, go, RING)),
        ],
        [4, 4],
        [240, 240],
    )
