"""Device code of the grouped GEMM: a persistent grid that walks the tiles of all experts."""
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def _place(
    t: tl.tensor,
    COUNT: tl.tensor,
    CAP: tl.tensor,
    ends: tl.tensor,
    tiles: tl.tensor,
    BM: tl.constexpr,
    BN: tl.constexpr,
) -> tl.tensor:
    """Of tile `t`: expert, first row in the [E·CAP, …] buffers, how many rows from there count, first column."""
    before = ends <= t
    expert = tl.sum(before.to(tl.int32), 0)
    within = t - tl.sum(tl.where(before, tiles, 0), 0)
    count = tl.minimum(tl.load(COUNT + expert), CAP)
    row_tiles = tl.cdiv(count, BM)
    # Row tiles run fastest: blocks that share a weight tile run at the same time, and all but one find it in L2.
    row = within % row_tiles * BM
    return expert, expert * CAP + row, tl.minimum(count - row, BM), within // row_tiles * BN


@triton.jit
def _product(
    A: tl.tensor,
    B: tl.tensor,
    rows: tl.tensor,
    taken: tl.tensor,
    row: tl.tensor,
    expert: tl.tensor,
    col: tl.tensor,
    N: tl.tensor,
    K: tl.tensor,
    depth: tl.tensor,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
    TMA_A: tl.constexpr,
    TMA_B: tl.constexpr,
    UP: tl.constexpr,
) -> tl.tensor:
    """A[rows]·B[expert, col:]ᵀ as [BM, BN] float32. Rows not `taken` are zero or, where TMA fetched them, garbage."""
    inner = tl.arange(0, BK)
    cols = col + tl.arange(0, BN)
    if not TMA_A:
        a_at = A + rows[:, None] * K + inner[None, :]
    if not TMA_B:
        # 32-bit offsets within one expert. Columns past N read its row 0 and are not stored.
        b_at = B + tl.cast(expert, tl.int64) * N * K + (tl.where(cols < N, cols, 0)[:, None] * K + inner[None, :])
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, depth, BK):
        if TMA_A:
            a = A.load([row, k])
        elif EVEN_K:
            a = tl.load(a_at + k, mask=taken[:, None], other=0.0)
        else:
            a = tl.load(a_at + k, mask=taken[:, None] & (k + inner < K)[None, :], other=0.0)
        if TMA_B:
            b = B.load([expert * N + col, k])
        elif EVEN_K:
            b = tl.load(b_at + k)
        else:
            b = tl.load(b_at + k, mask=(k + inner < K)[None, :], other=0.0)
        if UP:
            a = a.to(tl.float32)
            b = b.to(tl.float32)
        acc = tl.dot(a, tl.trans(b), acc, input_precision="ieee")
    return acc


@triton.jit
def _store(
    OUT: tl.tensor,
    acc: tl.tensor,
    slots: tl.tensor,
    taken: tl.tensor,
    col: tl.tensor,
    N: tl.tensor,
    BN: tl.constexpr,
) -> None:
    """Writes the rows that are `taken`, and of them the columns before N: the other rows stay as they are."""
    cols = col + tl.arange(0, BN)
    at = OUT + slots[:, None] * N + cols[None, :]
    tl.store(at, acc.to(OUT.dtype.element_ty), mask=taken[:, None] & (cols < N)[None, :])


@triton.jit
def _masked_tile(
    t: tl.tensor,
    A: tl.tensor,
    B: tl.tensor,
    COUNT: tl.tensor,
    TOKEN: tl.tensor,
    OUT: tl.tensor,
    CAP: tl.tensor,
    N: tl.tensor,
    K: tl.tensor,
    ends: tl.tensor,
    tiles: tl.tensor,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
    TMA_A: tl.constexpr,
    TMA_B: tl.constexpr,
    GATHER: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    expert, row, count, col = _place(t, COUNT, CAP, ends, tiles, BM, BN)
    taken = tl.arange(0, BM) < count
    slots = tl.cast(row, tl.int64) + tl.arange(0, BM)
    rows = slots
    if GATHER:
        rows = tl.load(TOKEN + slots, mask=taken, other=0).to(tl.int64)
    acc = _product(A, B, rows, taken, row, expert, col, N, K, K, BM, BN, BK, EVEN_K, TMA_A, TMA_B, UP)
    _store(OUT, acc, slots, taken, col, N, BN)


@triton.jit
def masked_kernel(
    A: tl.tensor,
    B: tl.tensor,
    COUNT: tl.tensor,
    TOKEN: tl.tensor,
    OUT: tl.tensor,
    QUEUE: tl.tensor,
    E: tl.tensor,
    CAP: tl.tensor,
    N: tl.tensor,
    K: tl.tensor,
    EP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
    TMA_A: tl.constexpr,
    TMA_B: tl.constexpr,
    GATHER: tl.constexpr,
    DYNAMIC: tl.constexpr,
    FLATTEN: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """OUT[e, :COUNT[e]] = A[e, :COUNT[e]]·B[e]ᵀ by any number of blocks; EP is a power of two ≥ E.

    The counts are read here: the host never learns them. DYNAMIC takes tiles from the counter QUEUE[0]; the block that
    finishes last, as counted in QUEUE[1], sets both back to zero, so that a graph can replay the launch.
    """
    experts = tl.arange(0, EP)
    counts = tl.minimum(tl.load(COUNT + experts, mask=experts < E, other=0), CAP)
    tiles = tl.cdiv(counts, BM) * tl.cdiv(N, BN)
    ends = tl.cumsum(tiles, 0)
    total = tl.sum(tiles, 0)
    if DYNAMIC:
        t = tl.atomic_add(QUEUE, 1, sem="relaxed")
        while t < total:
            _masked_tile(
                t, A, B, COUNT, TOKEN, OUT, CAP, N, K, ends, tiles,
                BM, BN, BK, EVEN_K, TMA_A, TMA_B, GATHER, UP,
            )  # fmt: skip
            t = tl.atomic_add(QUEUE, 1, sem="relaxed")
        if tl.atomic_add(QUEUE + 1, 1, sem="acq_rel") == tl.num_programs(0) - 1:
            tl.store(QUEUE, 0)
            tl.store(QUEUE + 1, 0)
    else:
        for t in tl.range(tl.program_id(0), total, tl.num_programs(0), flatten=FLATTEN):
            _masked_tile(
                t, A, B, COUNT, TOKEN, OUT, CAP, N, K, ends, tiles,
                BM, BN, BK, EVEN_K, TMA_A, TMA_B, GATHER, UP,
            )  # fmt: skip


@triton.jit
def contiguous_kernel(
    A: tl.tensor,
    B: tl.tensor,
    EXPERT: tl.tensor,
    OUT: tl.tensor,
    ROWS: tl.tensor,
    N: tl.tensor,
    K: tl.tensor,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,
    TMA_A: tl.constexpr,
    TMA_B: tl.constexpr,
    FLATTEN: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """OUT[r] = A[r]·B[EXPERT[r]]ᵀ for rows with EXPERT[r] ≥ 0; the first of each BM rows names the tile's expert."""
    row_tiles, col_tiles = tl.cdiv(ROWS, BM), tl.cdiv(N, BN)
    for t in tl.range(tl.program_id(0), row_tiles * col_tiles, tl.num_programs(0), flatten=FLATTEN):
        # GROUP row tiles take a weight tile at the same time, so that those of one expert read it from HBM once.
        group = t // (GROUP * col_tiles)
        high = tl.minimum(row_tiles - group * GROUP, GROUP)
        within = t - group * GROUP * col_tiles
        row = (group * GROUP + within % high) * BM
        col = within // high * BN
        om = row + tl.arange(0, BM)
        taken = tl.load(EXPERT + om, mask=om < ROWS, other=-1) >= 0
        expert = tl.load(EXPERT + row)
        if FLATTEN:
            depth = K  # loops fuse only if the inner one is always as long: tiles of padding alone cost as any other
            expert = tl.maximum(expert, 0)
        else:
            depth = tl.where(expert < 0, 0, K)
        slots = tl.cast(row, tl.int64) + tl.arange(0, BM)
        acc = _product(A, B, slots, taken, row, expert, col, N, K, depth, BM, BN, BK, EVEN_K, TMA_A, TMA_B, UP)
        _store(OUT, acc, slots, taken, col, N, BN)
