"""Device code of mla for sm_90, few heads: 64 tokens are the rows of the products, 16 or 32 heads their columns."""
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
def _attend_columns(
    part: gl.tensor,
    stats: gl.tensor,
    first_row: gl.tensor,
    end_row: gl.tensor,
    count: gl.tensor,
    tiles: gl.tensor,
    scale_log2e: gl.tensor,
    buffers: gl.tensor,
    p_shared: gl.tensor,
    bars: gl.tensor,
    RING: gl.constexpr,
) -> None:
    """The warp group that multiplies with heads as columns: scores [tokens, heads], sums [latent columns, heads].

    So 64 tokens, not 64 heads, fill the rows of wgmma. The chunks are its first factor both times, first as they are
    and then transposed; the weights go through shared memory, as a second factor must.
    """
    q, q_rope, c, c_rope = buffers
    q_full, c_full, c_empty, rope_full, rope_empty = bars
    HEADS: gl.constexpr = q.shape[1]
    ROPES: gl.constexpr = c_rope.shape[0]
    M: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEADS, 16])
    COLUMNS: gl.constexpr = gl.SliceLayout(0, M)
    ROWS: gl.constexpr = gl.SliceLayout(1, M)
    m = gl.full([HEADS], NOTHING, gl.float32, COLUMNS)
    total = gl.zeros([TILE, HEADS], gl.float32, M)  # added up over tokens at the end
    sums = (gl.zeros([CHUNK, HEADS], gl.float32, M),) * CHUNKS
    token = gl.arange(0, TILE, ROWS)
    mbarrier.wait(q_full, 0)
    for t in range(tiles):
        place = t * CHUNKS
        s = warpgroup_mma_init(gl.zeros([TILE, HEADS], gl.float32, M))
        mbarrier.wait(rope_full.index(t % ROPES), (t // ROPES) & 1)
        s = warpgroup_mma(c_rope.index(t % ROPES), q_rope.permute((1, 0)), s, use_acc=False, is_async=True)
        for j in gl.static_range(CHUNKS):
            mbarrier.wait(c_full.index((place + j) % RING), ((place + j) // RING) & 1)
            s = warpgroup_mma(c.index((place + j) % RING), q.index(j).permute((1, 0)), s, is_async=True)
        scores = warpgroup_mma_wait(0, [s])
        mbarrier.arrive(rope_empty.index(t % ROPES), count=1)
        scores = gl.where((token < count - t * TILE)[:, None], scores * scale_log2e, float("-inf"))
        peak = gl.maximum(m, gl.max(scores, 0))
        p = gl.exp2(scores - peak[None, :])
        keep = gl.exp2(m - peak)[None, :]
        total = total * keep + p
        m = peak
        p_shared.store(p.to(p_shared.dtype))
        fence_async_shared()
        gl.thread_barrier()
        begun = ()
        for j in gl.static_range(CHUNKS):
            chunk = c.index((place + j) % RING).permute((1, 0))
            product = warpgroup_mma(chunk, p_shared, sums[j] * keep, is_async=True)
            begun = begun + (product,)  # type: ignore[assignment]  # noqa: RUF005
        sums = ()
        for j in gl.static_range(CHUNKS):
            sums = sums + (warpgroup_mma_wait(CHUNKS - 1 - j, [begun[j]]),)  # noqa: RUF005
            mbarrier.arrive(c_empty.index((place + j) % RING), count=1)

    total = gl.sum(total, 0)
    row = first_row + gl.arange(0, HEADS, COLUMNS)
    at = row.to(gl.int64) * gl.num_programs(1) + gl.program_id(1)
    column = gl.arange(0, CHUNK, ROWS)[:, None]
    for j in gl.static_range(CHUNKS):
        gl.store(part + at[None, :] * LATENT + (j * CHUNK + column), sums[j], mask=(row < end_row)[None, :])
    gl.store(stats + at * 2, m, mask=row < end_row)
    gl.store(stats + at * 2 + 1, total, mask=row < end_row)


@gluon.jit(do_not_specialize=["length", "heads"])
def mla_few_heads(
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
    """Grid (⌈heads / BLOCK_HEADS⌉, splits, batch). One block attends 16 or 32 heads, columns of its products."""
    gdc_launch_dependents()  # the merge may fetch W_UV meanwhile, should it be launched so; it waits for our end
    begin, count, tiles = slice_of_block(lengths, length, ON_DEVICE)
    q = gl.allocate_shared_memory(cache.dtype.element_ty, [CHUNKS, BLOCK_HEADS, CHUNK], q_map.layout)
    q_rope = gl.allocate_shared_memory(cache.dtype.element_ty, [BLOCK_HEADS, ROPE], q_rope_map.layout)
    c = gl.allocate_shared_memory(cache.dtype.element_ty, [RING, TILE, CHUNK], c_map.layout)
    c_rope = gl.allocate_shared_memory(cache.dtype.element_ty, [2, TILE, ROPE], c_rope_map.layout)
    swizzled: gl.constexpr = gl.NVMMASharedLayout(BLOCK_HEADS * 2, 16, 2)
    p_shared = gl.allocate_shared_memory(cache.dtype.element_ty, [TILE, BLOCK_HEADS], swizzled)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    c_full, c_empty = barriers(RING, 1)
    rope_full, rope_empty = barriers(2, 1)
    fence_async_shared()
    buffers = (q, q_rope, c, c_rope)
    bars = (q_full, c_full, c_empty, rope_full, rope_empty)
    maps = (q_map, q_rope_map, c_map, c_rope_map)
    row = gl.program_id(2) * heads + gl.program_id(0) * BLOCK_HEADS
    end = gl.program_id(2) * heads + heads
    first = gl.program_id(2) * rows_per_sequence + begin
    REGISTERS: gl.constexpr = 216 if BLOCK_HEADS == 16 else 232
    gl.warp_specialize(
        [
            (copy_cache, (maps, cache, row_stride, row, first, count, tiles, buffers, bars, BLOCK_HEADS, RING)),
            (_attend_columns, (part, stats, row, end, count, tiles, scale_log2e, buffers, p_shared, bars, RING)),
        ],
        [4],
        [REGISTERS],
    )
