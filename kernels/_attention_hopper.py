"""Flash attention for sm_90 in Gluon: one warp copies K and V, two warp groups of 64 queries each multiply.

Each of the two keeps two products in flight, the scores of the next tile of keys and the weighted sum of this one; the
softmax of those scores runs while the latter, and the products of the other warp group, are on the tensor cores. (The
groups need no turns at the tensor cores: with barriers for them an H200 is no faster.)

Tiles come through tensor maps into rings of STAGES buffers, the last tile of keys first: of a causal query tile only
that one needs a mask. `full` barriers complete with the bytes of a copy, `free` ones when both warp groups have read.
A block takes tile after tile, so that copies for the next begin while the last is still being written.
"""
# ruff: noqa: N803, SIM113

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

TILE = gl.constexpr(128)  # queries of a tile, and keys
HALF = gl.constexpr(64)  # queries of a warp group, the rows of one wgmma (PTX: M = 64)
DIM = gl.constexpr(128)  # head_dim
BYTES = gl.constexpr(2)  # of an element
STAGES = gl.constexpr(2)  # with 32 KiB a tile 2 · 2 of K and V, beside 32 of Q and 32 of OUT: 192 of 227 KiB


@gluon.jit
def _place(t: gl.tensor, per_head: gl.tensor, CAUSAL: gl.constexpr) -> gl.tensor:
    """First row of tile `t`'s head, its own in the head, its tiles of keys; causal ones with most keys come first."""
    tile = t % per_head
    blocks = per_head
    if CAUSAL:
        tile = per_head - 1 - tile
        blocks = tile + 1
    return (t // per_head) * per_head * TILE, tile * TILE, blocks


@gluon.jit
def _fill(desc: gl.tensor, row: gl.tensor, ring: gl.tensor, n: gl.tensor) -> None:
    """Copy the tile from `row` on as the ring's n-th, once both warp groups are done with its buffer's last one."""
    buffers, full, free = ring
    slot = n % STAGES
    mbarrier.wait(free.index(slot), ((n // STAGES) & 1) ^ 1)
    mbarrier.expect(full.index(slot), TILE * DIM * BYTES)
    tma.async_copy_global_to_shared(desc, [row, 0], full.index(slot), buffers.index(slot))


@gluon.jit
def _filled(ring: gl.tensor, n: gl.tensor) -> gl.tensor:
    """Wait for the ring's n-th tile."""
    mbarrier.wait(ring[1].index(n % STAGES), (n // STAGES) & 1)


@gluon.jit
def _release(ring: gl.tensor, n: gl.tensor) -> None:
    """This warp group has read the ring's n-th tile."""
    mbarrier.arrive(ring[2].index(n % STAGES))


@gluon.jit
def _copy(
    maps: gl.tensor,
    queries: gl.tensor,
    keys: gl.tensor,
    values: gl.tensor,
    tiles: gl.tensor,
    per_head: gl.tensor,
    CAUSAL: gl.constexpr,
) -> None:
    """The warp that copies. Keys run one tile ahead of values, as the products do."""
    q_map, k_map, v_map, _ = maps
    buffers, full, free = queries
    n = 0
    turn = 0
    for t in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, row, blocks = _place(t, per_head, CAUSAL)
        last = head + (blocks - 1) * TILE
        _fill(k_map, last, keys, n)
        for w in gl.static_range(2):
            mbarrier.wait(free.index(w), (turn & 1) ^ 1)
            mbarrier.expect(full.index(w), HALF * DIM * BYTES)
            tma.async_copy_global_to_shared(q_map, [head + row + w * HALF, 0], full.index(w), buffers.index(w))
        for block in range(1, blocks):
            _fill(k_map, last - block * TILE, keys, n + 1)
            _fill(v_map, last - (block - 1) * TILE, values, n)
            n += 1
        _fill(v_map, head, values, n)
        n += 1
        turn += 1


@gluon.jit
def _softmax(s: gl.tensor, m: gl.tensor, total: gl.tensor, scale_log2: gl.tensor) -> gl.tensor:
    """Weights of scores under the new maximum, the factor by which older sums shrink, the new maximum and total."""
    new = gl.maximum(m, gl.max(s, 1) * scale_log2)
    p = gl.exp2(s * scale_log2 - new[:, None])
    shrink = gl.exp2(m - new)
    return p, shrink, new, total * shrink + gl.sum(p, 1)


@gluon.jit
def _shrunk(acc: gl.tensor, by: gl.tensor, layout: gl.constexpr) -> gl.tensor:
    """The rows of `acc` times `by`."""
    return acc * gl.convert_layout(by, gl.SliceLayout(1, layout))[:, None]


@gluon.jit
def _attend(
    w: gl.constexpr,
    out_map: gl.tensor,
    out: gl.tensor,
    queries: gl.tensor,
    keys: gl.tensor,
    values: gl.tensor,
    tiles: gl.tensor,
    per_head: gl.tensor,
    scale_log2: gl.tensor,
    CAUSAL: gl.constexpr,
) -> None:
    """Warp group `w`: rows 64·w to 64·w + 63 of each query tile."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    weights: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    q, q_full, q_free = queries[0].index(w), queries[1].index(w), queries[2].index(w)
    zeros = gl.zeros([HALF, TILE], gl.float32, layout)
    n = 0
    turn = 0
    for t in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, row, blocks = _place(t, per_head, CAUSAL)
        row += w * HALF
        mbarrier.wait(q_full, turn & 1)
        _filled(keys, n)
        s = warpgroup_mma(q, keys[0].index(n % STAGES).permute((1, 0)), zeros, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        _release(keys, n)
        if CAUSAL:
            rows = row + gl.arange(0, HALF, gl.SliceLayout(1, layout))
            columns = (blocks - 1) * TILE + gl.arange(0, TILE, gl.SliceLayout(0, layout))
            s = gl.where(columns[None, :] <= rows[:, None], s, float("-inf"))
        m = gl.full([HALF], -1e30, gl.float32, gl.SliceLayout(1, layout))
        total = gl.zeros([HALF], gl.float32, gl.SliceLayout(1, layout))
        p32, shrink, m, total = _softmax(s, m, total, scale_log2)
        p = gl.convert_layout(p32.to(out.dtype), weights)
        acc = zeros
        if blocks > 1:
            _filled(keys, n + 1)
        for block in range(1, blocks):
            s = warpgroup_mma(q, keys[0].index((n + 1) % STAGES).permute((1, 0)), zeros, use_acc=False, is_async=True)
            acc = _shrunk(acc, shrink, layout)
            _filled(values, n)
            acc = warpgroup_mma(p, values[0].index(n % STAGES), acc, is_async=True)
            s = warpgroup_mma_wait(1, deps=(s,))
            _release(keys, n + 1)
            p32, shrink, m, total = _softmax(s, m, total, scale_log2)
            next_p = gl.convert_layout(p32.to(out.dtype), weights)
            # The branch keeps the assembler from moving the wait for the product up to where the softmax begins: it
            # does so within a basic block, and nothing would overlap.
            if block + 1 < blocks:
                _filled(keys, n + 2)
            acc, p, shrink, total = warpgroup_mma_wait(0, deps=(acc, next_p, shrink, total))
            _release(values, n)
            n += 1
        mbarrier.arrive(q_free)
        acc = _shrunk(acc, shrink, layout)
        _filled(values, n)
        acc = warpgroup_mma(p, values[0].index(n % STAGES), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        _release(values, n)
        tma.store_wait(0)
        out.store(_shrunk(acc, 1.0 / total, layout).to(out.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out_map, [head + row, 0], out)
        n += 1
        turn += 1
    tma.store_wait(0)


@gluon.jit
def _ring(desc: gl.tensor, slots: gl.constexpr, rows: gl.constexpr, readers: gl.constexpr) -> gl.tensor:
    """Buffers of `rows` rows, and for each the barriers `full`, completed by a copy, and `free`, by all readers."""
    buffers = gl.allocate_shared_memory(desc.dtype, [slots, rows, DIM], desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [slots, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [slots, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(slots):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=readers)
    return buffers, full, free


@gluon.jit
def hopper_kernel(
    Q: gl.tensor,
    K: gl.tensor,
    V: gl.tensor,
    OUT: gl.tensor,
    tiles: gl.tensor,
    per_head: gl.tensor,
    scale_log2: gl.tensor,
    CAUSAL: gl.constexpr,
) -> None:
    """OUT = softmax(Q·Kᵀ)·V, each a [heads·length, 128] matrix of `per_head` tiles a head, `tiles` in all.

    Q and OUT are tensor maps of 64 rows, K and V of 128.
    """
    queries = _ring(Q, 2, HALF, 1)
    keys = _ring(K, STAGES, TILE, 2)
    values = _ring(V, STAGES, TILE, 2)
    out = gl.allocate_shared_memory(OUT.dtype, [2, HALF, DIM], OUT.layout)
    gl.warp_specialize(
        [
            (_attend, (0, OUT, out.index(0), queries, keys, values, tiles, per_head, scale_log2, CAUSAL)),
            (_attend, (1, OUT, out.index(1), queries, keys, values, tiles, per_head, scale_log2, CAUSAL)),
            (_copy, ((Q, K, V, OUT), queries, keys, values, tiles, per_head, CAUSAL)),
        ],
        [4, 1],
        [240, 24],  # registers a thread; the block has 504 for one thread of each of its three warp groups
    )
