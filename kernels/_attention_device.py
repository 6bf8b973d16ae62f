"""Device code of flash attention: one tile of queries against all the keys it sees, in one pass over K and V."""
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def _scores(
    q: tl.tensor, K: tl.tensor, head: tl.tensor, key: tl.tensor, BN: tl.constexpr, D: tl.constexpr, UP: tl.constexpr
) -> tl.tensor:
    """q·K[key : key + BN]ᵀ as [BM, BN] float32; keys past the last are read as zeros."""
    k = K.load([head, key, 0]).reshape(BN, D)
    if UP:
        k = k.to(tl.float32)
    return tl.dot(q, k.T, input_precision="ieee")


@triton.jit
def _weighted(
    acc: tl.tensor,
    p: tl.tensor,
    V: tl.tensor,
    head: tl.tensor,
    key: tl.tensor,
    BN: tl.constexpr,
    D: tl.constexpr,
    UP: tl.constexpr,
) -> tl.tensor:
    """acc + p·V[key : key + BN]; the weights are rounded to the type of V first."""
    v = V.load([head, key, 0]).reshape(BN, D)
    p = p.to(v.dtype)
    if UP:
        p = p.to(tl.float32)
        v = v.to(tl.float32)
    return tl.dot(p, v, acc, input_precision="ieee")


@triton.jit
def _seen(
    row: tl.tensor, key: tl.tensor, length: tl.tensor, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
) -> tl.tensor:
    """Which keys from `key` on the queries from `row` on see; up to the last query, causal ones see no padding."""
    keys = key + tl.arange(0, BN)[None, :]
    return keys <= row + tl.arange(0, BM)[:, None] if CAUSAL else keys < length


@triton.jit
def _softmax(s: tl.tensor, m: tl.tensor, total: tl.tensor, scale_log2: tl.tensor) -> tl.tensor:
    """Weights of scores under the new maximum, the factor by which older sums shrink, the new maximum and total."""
    new = tl.maximum(m, tl.max(s, 1) * scale_log2)
    p = tl.exp2(s * scale_log2 - new[:, None])
    shrink = tl.exp2(m - new)
    return p, shrink, new, total * shrink + tl.sum(p, 1)


@triton.jit
def _attend(
    Q: tl.tensor,
    K: tl.tensor,
    V: tl.tensor,
    OUT: tl.tensor,
    head: tl.tensor,
    row: tl.tensor,
    length: tl.tensor,
    scale_log2: tl.tensor,
    CAUSAL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """Write OUT[head, row : row + BM].

    A tile's weighted sum is added one step late, beside the softmax of the next tile's scores: that product needs none
    of it, and so the tensor cores run on. The first one is of weights that are 0. Two loops, so that the long one has
    no mask; what is left for the other one is a loop too, as the assembler waits for every product by itself where a
    loop leaves one to the code after it (ptxas C7515).
    """
    q = Q.load([head, row, 0]).reshape(BM, D)
    if UP:
        q = q.to(tl.float32)
    end = length
    plain = length // BN * BN  # keys before this one are seen by all queries of the tile
    if CAUSAL:
        end = tl.minimum(length, row + BM)
        plain = row // BN * BN
    m = tl.full([BM], -1e30, tl.float32)  # finite: −∞ − m would be undefined
    total = tl.zeros([BM], tl.float32)
    shrink = tl.zeros([BM], tl.float32)
    p = tl.zeros([BM, BN], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for key in range(0, plain, BN):
        s = _scores(q, K, head, key, BN, D, UP)
        acc = _weighted(acc * shrink[:, None], p, V, head, tl.maximum(key - BN, 0), BN, D, UP)
        p, shrink, m, total = _softmax(s, m, total, scale_log2)
    for key in tl.range(plain, end, BN, num_stages=1):
        s = _scores(q, K, head, key, BN, D, UP)
        s = tl.where(_seen(row, key, length, CAUSAL, BM, BN), s, float("-inf"))
        acc = _weighted(acc * shrink[:, None], p, V, head, tl.maximum(key - BN, 0), BN, D, UP)
        p, shrink, m, total = _softmax(s, m, total, scale_log2)
    acc = _weighted(acc * shrink[:, None], p, V, head, (end - 1) // BN * BN, BN, D, UP)
    acc = acc * (1.0 / total)[:, None]
    OUT.store([head, row, 0], acc.to(OUT.dtype).reshape(1, BM, D))


@triton.jit
def flash_kernel(
    Q: tl.tensor,
    K: tl.tensor,
    V: tl.tensor,
    OUT: tl.tensor,
    length: tl.tensor,
    scale_log2: tl.tensor,
    CAUSAL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """Grid (query tiles, heads): a block a tile."""
    tile = tl.program_id(0)
    if CAUSAL:
        tile = tl.num_programs(0) - 1 - tile  # those with most keys start first
    _attend(Q, K, V, OUT, tl.program_id(1), tile * BM, length, scale_log2, CAUSAL, BM, BN, D, UP)


@triton.jit
def serial_kernel(
    Q: tl.tensor,
    K: tl.tensor,
    V: tl.tensor,
    OUT: tl.tensor,
    length: tl.tensor,
    scale_log2: tl.tensor,
    CAUSAL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
    UP: tl.constexpr,
) -> None:
    """Grid (1, heads): a block a head, which does all its query tiles one after the other."""
    for row in tl.range(0, length, BM, num_stages=1):
        _attend(Q, K, V, OUT, tl.program_id(1), row, length, scale_log2, CAUSAL, BM, BN, D, UP)
