"""Device code of one KDA decode step: fused into one launch, in two forms.

A token's channels are laid out [q: H·K | k: H·K | v: H·V]; C is their number. Sizes as in the module `kda`.
"""
# ruff: noqa: N803, N806

import triton
import triton.language as tl

from tracelab.kernels._kernel import INTERPRETED

TAPS = tl.constexpr(4)  # short_conv_kernel_size of Kimi-Linear
L2_EPS = tl.constexpr(1e-6)  # fla, l2norm
RMS_EPS = tl.constexpr(1e-5)  # rms_norm_eps of Kimi-Linear
K3_BOUND = tl.constexpr(-5.0)  # K3's lower bound of log α
ONE_BY_ONE = tl.constexpr(INTERPRETED)  # the interpreter reduces a tuple in Python, element by element


@triton.jit
def _add2(a: tl.tensor, b: tl.tensor, x: tl.tensor, y: tl.tensor) -> tl.tensor:
    return a + x, b + y


@triton.jit
def _add3(a: tl.tensor, b: tl.tensor, c: tl.tensor, x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tensor:
    return a + x, b + y, c + z


@triton.jit
def _sum2(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """Sums of two tensors of one shape over axis 0, with the barriers of one sum."""
    if ONE_BY_ONE:
        return tl.sum(a, 0), tl.sum(b, 0)
    return tl.reduce((a, b), 0, _add2)


@triton.jit
def _sum3(a: tl.tensor, b: tl.tensor, c: tl.tensor) -> tl.tensor:
    """Sums of three tensors of one shape over axis 0, with the barriers of one sum."""
    if ONE_BY_ONE:
        return tl.sum(a, 0), tl.sum(b, 0), tl.sum(c, 0)
    return tl.reduce((a, b, c), 0, _add3)


@triton.jit
def silu(y: tl.tensor) -> tl.tensor:
    return y * tl.sigmoid(y)


@triton.jit
def load_taps(
    x: tl.tensor,
    ring: tl.tensor,
    W: tl.tensor,
    part: tl.tensor,
    width: tl.tensor,
    at: tl.tensor,
    pos: tl.tensor,
    C: tl.tensor,
    live: tl.tensor,
) -> tl.tensor:
    """The new input (row 3), the last three inputs (rows 0–2) and the weights, each [4, N], of channels part + at.

    Taps are an axis of the tile: three wide loads instead of eight narrow ones, and their sum goes through shared
    memory, so that the compiler cannot pull it in front of a barrier.
    """
    tap = tl.arange(0, TAPS)[:, None]
    new = tl.load(x + part + at[None, :] + tap * 0, mask=tap == TAPS - 1)
    old = tl.load(ring + ((pos + 1 + tap) % TAPS) * C + part + at[None, :], mask=live & (tap < TAPS - 1))
    weight = tl.load(W + part * TAPS + tap * width + at[None, :])
    return new, old, weight


@triton.jit
def weighted(new: tl.tensor, old: tl.tensor, weight: tl.tensor) -> tl.tensor:
    """The products [4, N] that the convolution adds up over the taps."""
    return tl.where(tl.arange(0, TAPS)[:, None] == TAPS - 1, new, old).to(tl.float32) * weight


@triton.jit
def store_new(
    ring: tl.tensor, new: tl.tensor, part: tl.tensor, at: tl.tensor, pos: tl.tensor, C: tl.tensor, live: tl.tensor
) -> None:
    """Put the new input, row 3 of `new`, into the ring's place for this position, bit for bit."""
    tap = tl.arange(0, TAPS)[:, None]
    place = ring + (pos % TAPS) * C + part + at[None, :] + tap * 0
    tl.store(place, new, mask=live & (tap == TAPS - 1))


@triton.jit
def decay_factor(g: tl.tensor, a_log: tl.tensor, K3: tl.constexpr) -> tl.tensor:
    """α of each key channel from the gate's input, its bias added."""
    a = tl.exp(a_log)
    if K3:
        return tl.exp(K3_BOUND * tl.sigmoid(a * g))
    return tl.exp(-a * (tl.maximum(g, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(g)))))


@triton.jit
def delta_rule(
    s: tl.tensor,
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    alpha: tl.tensor,
    beta: tl.tensor,
    K: tl.constexpr,
    KI: tl.constexpr,
) -> tl.tensor:
    """New state [BV, K/KI, KI] and output [BV] of rows of the state; q and k [K] come without their l2norm.

    The norms scale the sums over the state instead, so that these need not wait for them. The output is
    (Diag(α)S)ᵀq + u·(kᵀq): both sums read the state once. KI should be 128 bytes: 8 lanes then share a row of the
    state and a sum over 4 rows takes 3 shuffles; over whole rows it would take 5 for each row.
    """
    KO: tl.constexpr = K // KI
    qq, kk, kq = _sum3(q * q, k * k, k * q)
    q_scale = tl.rsqrt(qq + L2_EPS) * K**-0.5
    k_scale = tl.rsqrt(kk + L2_EPS)
    q = tl.reshape(q, [KO, KI])[None, :, :]
    k = tl.reshape(k, [KO, KI])[None, :, :]
    s = s * tl.reshape(alpha, [KO, KI])[None, :, :]
    s_k = tl.sum(tl.sum(s * k, 1), 1)
    s_q = tl.sum(tl.sum(s * q, 1), 1)
    u = (v - s_k * k_scale) * (beta * k_scale)
    return s + u[:, None, None] * k, (s_q + u * kq) * q_scale


@triton.jit
def rms_norm(o: tl.tensor, V: tl.constexpr) -> tl.tensor:
    return o * tl.rsqrt(tl.sum(o * o, 0) / V + RMS_EPS)


@triton.jit
def fused(
    X: tl.tensor,
    RING: tl.tensor,
    W: tl.tensor,
    STATE: tl.tensor,
    G: tl.tensor,
    DT_BIAS: tl.tensor,
    A_LOG: tl.tensor,
    B: tl.tensor,
    GATE: tl.tensor,
    NORM: tl.tensor,
    SLOTS: tl.tensor,
    POS: tl.tensor,
    OUT: tl.tensor,
    PART: tl.tensor,
    DONE: tl.tensor,
    x_stride: tl.tensor,
    b_stride: tl.tensor,
    H: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    BV: tl.constexpr,
    KI: tl.constexpr,
    K3: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Everything, grid (rows · H, V / BV). With several tiles a head, the block that finishes last norms the head.

    DONE [rows · H] is zero before and after; PART [rows · H, V] in fp32 carries o from the tiles to the last block.
    EARLY: the state's load is issued with the small ones, before anything waits. Else where the formula needs it.
    """
    NV: tl.constexpr = V // BV
    C = H * (2 * K + V)
    unit, tile = tl.program_id(0), tl.program_id(1)
    row, head = unit // H, unit % H
    slot, pos = tl.load(SLOTS + row), tl.load(POS)
    live = slot >= 0
    x, ring = X + row * x_stride, RING + slot * TAPS * C
    in_k = tl.arange(0, K)
    in_v = tile * BV + tl.arange(0, BV)
    all_v = tl.arange(0, V)
    q_new, q_old, q_w = load_taps(x, ring, W, 0, H * K, head * K + in_k, pos, C, live)
    k_new, k_old, k_w = load_taps(x, ring, W, H * K, H * K, head * K + in_k, pos, C, live)
    v_new, v_old, v_w = load_taps(x, ring, W, 2 * H * K, H * V, head * V + in_v, pos, C, live)
    g = tl.load(G + unit * K + in_k)
    dt_bias = tl.load(DT_BIAS + head * K + in_k)
    a_log = tl.load(A_LOG + head)
    b = tl.load(B + row * b_stride + head)
    gate = tl.load(GATE + unit * V + all_v)
    norm = tl.load(NORM + all_v)
    in_row = tl.arange(0, K // KI)[None, :, None] * KI + tl.arange(0, KI)[None, None, :]
    state = STATE + (slot.to(tl.int64) * H + head) * (V * K) + in_v[:, None, None] * K + in_row
    if EARLY:
        s = tl.load(state, mask=live).to(tl.float32)
        # Without it the compiler moves the state's load down, behind the wait for the small ones, to save registers.
        tl.debug_barrier()
    q, k, v = weighted(q_new, q_old, q_w), weighted(k_new, k_old, k_w), weighted(v_new, v_old, v_w)
    if BV == K:
        q, k, v = _sum3(q, k, v)
    else:
        q, k = _sum2(q, k)
        v = tl.sum(v, 0)
    q, k, v = silu(q), silu(k), silu(v)
    alpha = decay_factor(g.to(tl.float32) + dt_bias, a_log, K3)
    beta = tl.sigmoid(b.to(tl.float32))
    scale = norm * tl.sigmoid(gate.to(tl.float32))
    if not EARLY:
        s = tl.load(state, mask=live).to(tl.float32)
    s, o = delta_rule(s, q, k, v, alpha, beta, K, KI)
    tl.store(state, s.to(STATE.dtype.element_ty), mask=live)
    # The place written is none that another block reads, so tiles of one head need no order among them.
    store_new(ring, q_new, 0, head * K + in_k, pos, C, live & (tile == 0))
    store_new(ring, k_new, H * K, head * K + in_k, pos, C, live & (tile == 0))
    store_new(ring, v_new, 2 * H * K, head * V + in_v, pos, C, live)
    out = OUT + unit * V + all_v
    if NV == 1:
        tl.store(out, tl.where(live, rms_norm(o, V) * scale, 0.0).to(OUT.dtype.element_ty))
    else:
        tl.store(PART + unit * V + in_v, o)
        tl.debug_barrier()
        if tl.atomic_add(DONE + unit, 1, sem="acq_rel") == NV - 1:
            o_all = tl.load(PART + unit * V + all_v, volatile=True)
            tl.store(out, tl.where(live, rms_norm(o_all, V) * scale, 0.0).to(OUT.dtype.element_ty))
            tl.store(DONE + unit, 0)


@triton.jit
def fused_sliced(
    X: tl.tensor,
    RING: tl.tensor,
    W: tl.tensor,
    STATE: tl.tensor,
    G: tl.tensor,
    DT_BIAS: tl.tensor,
    A_LOG: tl.tensor,
    B: tl.tensor,
    GATE: tl.tensor,
    NORM: tl.tensor,
    SLOTS: tl.tensor,
    POS: tl.tensor,
    OUT: tl.tensor,
    x_stride: tl.tensor,
    b_stride: tl.tensor,
    H: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    BV: tl.constexpr,
    KI: tl.constexpr,
    K3: tl.constexpr,
    AHEAD: tl.constexpr,
) -> None:
    """Everything, grid (rows · H): a block works through its state in V / BV slices, AHEAD of them on their way.

    A slice is stored as soon as it is done, so that a block reads and writes at the same time. The load of a later
    slice stands before the store of an earlier one, and no compiler moves it behind a store that may hit its address.
    """
    NV: tl.constexpr = V // BV
    KO: tl.constexpr = K // KI
    C = H * (2 * K + V)
    unit = tl.program_id(0)
    row, head = unit // H, unit % H
    slot, pos = tl.load(SLOTS + row), tl.load(POS)
    live = slot >= 0
    x, ring = X + row * x_stride, RING + slot * TAPS * C
    in_k, in_v, in_slice = tl.arange(0, K), tl.arange(0, V), tl.arange(0, BV)
    in_row = tl.arange(0, KO)[None, :, None] * KI + tl.arange(0, KI)[None, None, :]
    state = STATE + (slot.to(tl.int64) * H + head) * (V * K) + in_slice[:, None, None] * K + in_row
    # Triton has no unpacking into a tuple, only the sum of two.
    slices = (tl.load(state, mask=live),)
    for j in tl.static_range(1, AHEAD):
        slices = slices + (tl.load(state + j * BV * K, mask=live),)  # type: ignore[assignment]  # noqa: RUF005
    q_new, q_old, q_w = load_taps(x, ring, W, 0, H * K, head * K + in_k, pos, C, live)
    k_new, k_old, k_w = load_taps(x, ring, W, H * K, H * K, head * K + in_k, pos, C, live)
    v_new, v_old, v_w = load_taps(x, ring, W, 2 * H * K, H * V, head * V + in_v, pos, C, live)
    g = tl.load(G + unit * K + in_k)
    dt_bias = tl.load(DT_BIAS + head * K + in_k)
    a_log = tl.load(A_LOG + head)
    b = tl.load(B + row * b_stride + head)
    gate = tl.load(GATE + unit * V + in_v)
    norm = tl.load(NORM + in_v)
    tl.debug_barrier()  # as in `fused`: every load above is issued before the first wait
    q, k, v = weighted(q_new, q_old, q_w), weighted(k_new, k_old, k_w), weighted(v_new, v_old, v_w)
    if K == V:
        q, k, v = _sum3(q, k, v)
    else:
        q, k = _sum2(q, k)
        v = tl.sum(v, 0)
    q, k, v = silu(q), silu(k), silu(v)
    alpha = decay_factor(g.to(tl.float32) + dt_bias, a_log, K3)
    beta = tl.sigmoid(b.to(tl.float32))
    store_new(ring, q_new, 0, head * K + in_k, pos, C, live)
    store_new(ring, k_new, H * K, head * K + in_k, pos, C, live)
    store_new(ring, v_new, 2 * H * K, head * V + in_v, pos, C, live)
    o = tl.zeros([V], tl.float32)
    for j in tl.static_range(NV):
        if j + AHEAD < NV:
            late = tl.load(state + (j + AHEAD) * BV * K, mask=live)
            slices = slices + (late,)  # type: ignore[assignment]  # noqa: RUF005
        v_j = tl.gather(v, j * BV + in_slice, 0)
        s, o_j = delta_rule(slices[j].to(tl.float32), q, k, v_j, alpha, beta, K, KI)
        tl.store(state + j * BV * K, s.to(STATE.dtype.element_ty), mask=live)
        o = tl.where(in_v // BV == j, tl.gather(o_j, in_v % BV, 0), o)
    scale = norm * tl.sigmoid(gate.to(tl.float32))
    y = tl.where(live, rms_norm(o, V) * scale, 0.0)
    tl.store(OUT + unit * V + in_v, y.to(OUT.dtype.element_ty))
