"""What the fused KDA step replaces: a chain of three Triton kernels, as engines run it, and plain torch operations."""
# ruff: noqa: N803, N806

import torch
import triton
import triton.language as tl

from tracelab.kernels._kda_data import L2_EPS, RMS_EPS, Cache, Token, Weights, decay
from tracelab.kernels._kda_device import (
    TAPS,
    decay_factor,
    delta_rule,
    load_taps,
    rms_norm,
    silu,
    store_new,
    weighted,
)


@triton.jit
def _conv_part(
    x: tl.tensor,
    ring: tl.tensor,
    W: tl.tensor,
    y: tl.tensor,
    part: tl.tensor,
    head: tl.tensor,
    pos: tl.tensor,
    C: tl.tensor,
    H: tl.tensor,
    live: tl.tensor,
    WIDTH: tl.constexpr,
) -> None:
    at = head * WIDTH + tl.arange(0, WIDTH)
    new, old, weight = load_taps(x, ring, W, part, H * WIDTH, at, pos, C, live)
    tl.store(y + part + at, silu(tl.sum(weighted(new, old, weight), 0)).to(y.dtype.element_ty))
    store_new(ring, new, part, at, pos, C, live)


@triton.jit
def conv_silu(
    X: tl.tensor,
    RING: tl.tensor,
    W: tl.tensor,
    SLOTS: tl.tensor,
    POS: tl.tensor,
    Y: tl.tensor,
    x_stride: tl.tensor,
    H: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
) -> None:
    """Convolution and silu of one (row, head) into Y [rows, C], the new input into the ring. Grid rows · H."""
    C = H * (2 * K + V)
    row, head = tl.program_id(0) // H, tl.program_id(0) % H
    slot = tl.load(SLOTS + row)
    pos = tl.load(POS)
    live = slot >= 0
    x, ring, y = X + row * x_stride, RING + slot * TAPS * C, Y + row * C
    _conv_part(x, ring, W, y, 0, head, pos, C, H, live, K)
    _conv_part(x, ring, W, y, H * K, head, pos, C, H, live, K)
    _conv_part(x, ring, W, y, 2 * H * K, head, pos, C, H, live, V)


@triton.jit
def recurrent(
    Y: tl.tensor,
    STATE: tl.tensor,
    G: tl.tensor,
    DT_BIAS: tl.tensor,
    A_LOG: tl.tensor,
    B: tl.tensor,
    SLOTS: tl.tensor,
    O: tl.tensor,  # noqa: E741
    b_stride: tl.tensor,
    H: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    BV: tl.constexpr,
    KI: tl.constexpr,
    K3: tl.constexpr,
) -> None:
    """l2norm, gate and the delta rule on BV rows of one state; o into O [rows, H, V]. Grid (rows · H, V / BV)."""
    unit, tile = tl.program_id(0), tl.program_id(1)
    row, head = unit // H, unit % H
    slot = tl.load(SLOTS + row)
    live = slot >= 0
    in_k = tl.arange(0, K)
    in_v = tile * BV + tl.arange(0, BV)
    y = Y + row * H * (2 * K + V)
    q = tl.load(y + head * K + in_k).to(tl.float32)
    k = tl.load(y + H * K + head * K + in_k).to(tl.float32)
    v = tl.load(y + 2 * H * K + head * V + in_v).to(tl.float32)
    g = tl.load(G + unit * K + in_k).to(tl.float32) + tl.load(DT_BIAS + head * K + in_k)
    beta = tl.sigmoid(tl.load(B + row * b_stride + head).to(tl.float32))
    in_row = tl.arange(0, K // KI)[None, :, None] * KI + tl.arange(0, KI)[None, None, :]
    state = STATE + (slot.to(tl.int64) * H + head) * (V * K) + in_v[:, None, None] * K + in_row
    s = tl.load(state, mask=live).to(tl.float32)
    s, o = delta_rule(s, q, k, v, decay_factor(g, tl.load(A_LOG + head), K3), beta, K, KI)
    tl.store(state, s.to(STATE.dtype.element_ty), mask=live)
    tl.store(O + unit * V + in_v, o.to(O.dtype.element_ty))


@triton.jit
def gated_norm(
    O: tl.tensor,  # noqa: E741
    GATE: tl.tensor,
    NORM: tl.tensor,
    SLOTS: tl.tensor,
    OUT: tl.tensor,
    H: tl.tensor,
    V: tl.constexpr,
) -> None:
    """RMSNorm(o) · weight · σ(gate) of one (row, head), zeros for a null slot. Grid rows · H."""
    unit = tl.program_id(0)
    in_v = tl.arange(0, V)
    o = tl.load(O + unit * V + in_v).to(tl.float32)
    gate = tl.load(GATE + unit * V + in_v).to(tl.float32)
    y = rms_norm(o, V) * tl.load(NORM + in_v) * tl.sigmoid(gate)
    live = tl.load(SLOTS + unit // H) >= 0
    tl.store(OUT + unit * V + in_v, tl.where(live, y, 0.0).to(OUT.dtype.element_ty))


def eager(
    token: Token,
    weights: Weights,
    cache: Cache,
    slots: torch.Tensor,
    rows: torch.Tensor,
    pos: torch.Tensor,
    out: torch.Tensor,
    gate: str,
) -> None:
    """The step in torch operations, in the order of the slots so that the state is worked on in place.

    `rows` int64 [slots] is the slot table the other way round: the row in each slot, −1 where there is none.
    """
    state, (heads, key_dim, value_dim) = cache.state, cache.sizes
    dead, row = rows < 0, rows.clamp_min(0)
    x = token.x.index_select(0, row)
    places = cache.ring.shape[1]
    place = (pos % places).long()
    old = cache.ring.index_select(1, (place + cache.last_three) % places)
    y = torch.nn.functional.silu((torch.cat([old, x[:, None]], 1).float() * weights.conv_by_tap).sum(1))
    kept = torch.where(dead[:, None, None], cache.ring.index_select(1, place), x[:, None])
    cache.ring.index_copy_(1, place, kept)
    qk, v = y.split([2 * heads * key_dim, heads * value_dim], 1)
    qk, v = qk.unflatten(1, (2, heads, key_dim)), v.unflatten(1, (heads, value_dim))
    q, k = (qk * torch.rsqrt(qk.square().sum(-1, keepdim=True) + L2_EPS)).unbind(1)
    alpha = decay(token.g.index_select(0, row).float() + weights.dt_bias, weights.a_log, gate)
    alpha.masked_fill_(dead[:, None, None], 1.0)
    beta = token.b.index_select(0, row).float().sigmoid().masked_fill_(dead[:, None], 0.0)
    s = state.float()  # the state itself if it is fp32
    s.mul_(alpha[:, :, None, :])
    u = (v - (s @ k[..., None])[..., 0]) * beta[..., None]
    s.addcmul_(u[..., None], k[:, :, None, :])
    o = (s @ (q * key_dim**-0.5)[..., None])[..., 0]
    if s is not state:
        state.copy_(s)
    y = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + RMS_EPS) * weights.norm
    y = y.index_select(0, slots.clamp_min(0)) * token.gate.float().sigmoid()
    out.copy_(y.masked_fill_((slots < 0)[:, None, None], 0.0))
