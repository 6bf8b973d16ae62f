"""Device code shared by the sm_90 kernels of mla, in Gluon: a warp group that copies the cache for those that multiply.

The cache comes through tensor maps in chunks of 64 tokens × 128 latent columns (16 KiB) into a ring of RING chunks, and
the 64 rope columns of a tile into a ring of their own. A chunk is used twice, as keys and as values, and is free again
as soon as both are done, not when its tile is. `full` barriers complete with the bytes of a copy, `empty` ones with the
arrival of every group that reads the chunk.
"""
# ruff: noqa: N803, N806

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

TILE = gl.constexpr(64)  # tokens of a tile, which wgmma wants as rows (PTX wgmma: M = 64)
CHUNK = gl.constexpr(128)  # latent columns of a chunk
CHUNKS = gl.constexpr(4)
LATENT = gl.constexpr(512)
ROPE = gl.constexpr(64)
NOTHING = gl.constexpr(-1e30)  # the maximum of a slice without tokens: finite, as ∞ − ∞ is NaN


@gluon.jit
def slice_of_block(lengths: gl.tensor, length: gl.tensor, ON_DEVICE: gl.constexpr) -> gl.tensor:
    """First token of this block's slice, its tokens, and its tiles: at least one, so that an empty slice reports too.

    Slices follow from the length at hand, so that a replayed graph stays balanced while the context grows; they differ
    by at most one tile.
    """
    if ON_DEVICE:
        length = gl.load(lengths + gl.program_id(2))
    tiles = gl.cdiv(length, TILE)
    begin = tiles * gl.program_id(1) // gl.num_programs(1) * TILE
    end = tiles * (gl.program_id(1) + 1) // gl.num_programs(1) * TILE
    count = gl.minimum(end, length) - begin
    return begin, count, gl.maximum(gl.cdiv(count, TILE), 1)


@gluon.jit
def barriers(slots: gl.constexpr, readers: gl.constexpr) -> gl.tensor:
    """`slots` pairs of barriers: full, completed by one arrival and the bytes it announces; empty, by `readers`."""
    full = gl.allocate_shared_memory(gl.int64, [slots, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [slots, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(slots):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=readers)
    return full, empty


@gluon.jit
def _copy_rows(
    cache: gl.tensor,
    row_stride: gl.tensor,
    first: gl.tensor,
    rows: gl.tensor,
    column: gl.tensor,
    out: gl.tensor,
    WIDTH: gl.constexpr,
) -> None:
    """Copy the `rows` rows from `first` on into the chunk `out` and zeros below them: a tensor map would read on."""
    STEP: gl.constexpr = 2048 // WIDTH  # two vectors of 8 a thread at a time, as this warp group has few registers
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [4, 1], [1, 0])
    at = column + gl.arange(0, WIDTH, gl.SliceLayout(0, layout))
    for begin in gl.static_range(0, TILE, STEP):
        row = begin + gl.arange(0, STEP, gl.SliceLayout(1, layout))
        where = (first + row)[:, None] * row_stride + at[None, :]
        out.slice(begin, STEP, 0).store(gl.load(cache + where, mask=(row < rows)[:, None], other=0.0))


@gluon.jit
def _fill(
    box: gl.tensor,
    cache: gl.tensor,
    row_stride: gl.tensor,
    first: gl.tensor,
    rows: gl.tensor,
    column: gl.constexpr,
    out: gl.tensor,
    full: gl.tensor,
    WIDTH: gl.constexpr,
) -> None:
    """Fill a chunk with WIDTH columns of the tile of `rows` tokens that begins in row `first` of the cache."""
    if rows >= TILE:
        mbarrier.expect(full, TILE * WIDTH * 2)
        tma.async_copy_global_to_shared(box, [first, column], full, out)
    else:
        _copy_rows(cache, row_stride, first.to(gl.int64), rows, column, out, WIDTH)
        fence_async_shared()
        gl.thread_barrier()
        mbarrier.arrive(full, count=1)


@gluon.jit
def copy_cache(
    maps: gl.tensor,
    cache: gl.tensor,
    row_stride: gl.tensor,
    q_row: gl.tensor,
    first: gl.tensor,
    count: gl.tensor,
    tiles: gl.tensor,
    buffers: gl.tensor,
    bars: gl.tensor,
    BLOCK_HEADS: gl.constexpr,
    RING: gl.constexpr,
) -> None:
    """The warp group that copies: tile after tile as chunks of the ring become free, and the query after the first.

    So the cache, of which there is much more, is asked for as early as can be. The ring must hold a tile.
    """
    q_map, q_rope_map, c_map, c_rope_map = maps
    q, q_rope, c, c_rope = buffers
    q_full, c_full, c_empty, rope_full, rope_empty = bars
    ROPES: gl.constexpr = c_rope.shape[0]
    for t in range(tiles):
        rows = count - t * TILE
        row = first + t * TILE
        slot = t % ROPES
        mbarrier.wait(rope_empty.index(slot), ((t // ROPES) & 1) ^ 1)
        _fill(c_rope_map, cache, row_stride, row, rows, LATENT, c_rope.index(slot), rope_full.index(slot), ROPE)
        for j in gl.static_range(CHUNKS):
            place = t * CHUNKS + j
            slot = place % RING
            mbarrier.wait(c_empty.index(slot), ((place // RING) & 1) ^ 1)
            _fill(c_map, cache, row_stride, row, rows, j * CHUNK, c.index(slot), c_full.index(slot), CHUNK)
        if t == 0:
            mbarrier.expect(q_full, BLOCK_HEADS * (LATENT + ROPE) * 2)
            tma.async_copy_global_to_shared(q_rope_map, [q_row, LATENT], q_full, q_rope)
            for j in gl.static_range(CHUNKS):
                tma.async_copy_global_to_shared(q_map, [q_row, j * CHUNK], q_full, q.index(j))
