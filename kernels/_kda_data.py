"""Tensors of the KDA decode step, its float64 reference and its bytes."""

import functools
from dataclasses import dataclass

import torch

from tracelab.kernels._kernel import Work

TAPS, L2_EPS, RMS_EPS = 4, 1e-6, 1e-5  # as in `_kda_device`, which says whose they are
K3_BOUND = -5.0
ROW_PIECE_BYTES = 128  # of a state row, that one instruction of a warp reads: a cache line


@dataclass(frozen=True)
class Weights:
    """Parameters of one layer, fp32.

    conv     flat [4, H·K] for q, then [4, H·K] for k, then [4, H·V] for v; with K = V that is [3, 4, H·K]
    a_log    [H]
    dt_bias  [H, K]
    norm     [V]
    """

    conv: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    norm: torch.Tensor

    @functools.cached_property
    def conv_by_tap(self) -> torch.Tensor:
        """The convolution's weights as [4, C]."""
        key_width = self.dt_bias.numel()
        value_width = self.conv.numel() // TAPS - 2 * key_width
        parts = self.conv.split([TAPS * key_width, TAPS * key_width, TAPS * value_width])
        return torch.cat([part.view(TAPS, -1) for part in parts], 1)


@dataclass(frozen=True)
class Token:
    """Activations of the new token of each row. Only rows may be strided (x and b are slices of one projection).

    x     [rows, C] q, k and v before their convolution; C = H·(2·K + V)
    g     [rows, H, K] the gate's input, without dt_bias
    b     [rows, H] β before its sigmoid
    gate  [rows, H, V] the output gate before its sigmoid
    """

    x: torch.Tensor
    g: torch.Tensor
    b: torch.Tensor
    gate: torch.Tensor


@dataclass(frozen=True)
class Cache:
    """What one layer keeps between steps, by slot. Both are changed in place.

    state  [slots, H, V, K], fp32 or bf16: V first, a row of K contiguous
    ring   [slots, 4, C] the last inputs of the convolution, the one of position p at p % 4
    """

    state: torch.Tensor
    ring: torch.Tensor

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Heads, key dim, value dim."""
        _, heads, value_dim, key_dim = self.state.shape
        return heads, key_dim, value_dim

    @property
    def row_piece(self) -> int:
        """Elements of a state row that lie beside each other in one warp's access."""
        return min(int(self.state.shape[3]), ROW_PIECE_BYTES // int(self.state.element_size()))

    @functools.cached_property
    def last_three(self) -> torch.Tensor:
        """What to add to a position to find the places of the three before it."""
        return torch.arange(1, TAPS, device=self.ring.device)


def reference(
    token: Token, weights: Weights, cache: Cache, slots: torch.Tensor, pos: int, gate: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output [rows, H, V], state and ring after one step, in float64 (the ring in its own type), row by row.

    Written from the formula: S ← Diag(α)·S, S ← S + β·k·(v − Sᵀk)ᵀ, o = Sᵀq, with S [K, V].
    """
    heads, key_dim, value_dim = cache.sizes
    state, ring = cache.state.double(), cache.ring.clone()
    out = torch.zeros(len(slots), heads, value_dim, device=state.device, dtype=torch.float64)
    for row, slot in enumerate(slots.tolist()):
        if slot < 0:
            continue
        ring[slot, pos % TAPS] = token.x[row]
        window = torch.stack([ring[slot, (pos - TAPS + 1 + tap) % TAPS] for tap in range(TAPS)]).double()
        y = torch.nn.functional.silu((window * weights.conv_by_tap.double()).sum(0))
        q, k, v = (t.view(heads, -1) for t in y.split([heads * key_dim, heads * key_dim, heads * value_dim]))
        q = q / (q.square().sum(1, keepdim=True) + L2_EPS).sqrt() * key_dim**-0.5
        k = k / (k.square().sum(1, keepdim=True) + L2_EPS).sqrt()
        alpha = decay(token.g[row].double() + weights.dt_bias.double(), weights.a_log, gate)
        s = state[slot].transpose(1, 2) * alpha[:, :, None]
        u = token.b[row].double().sigmoid()[:, None] * (v - torch.einsum("hkv,hk->hv", s, k))
        s = s + torch.einsum("hk,hv->hkv", k, u)
        o = torch.einsum("hkv,hk->hv", s, q)
        state[slot] = s.transpose(1, 2)
        o = o / (o.square().mean(1, keepdim=True) + RMS_EPS).sqrt()
        out[row] = o * weights.norm.double() * token.gate[row].double().sigmoid()
    return out, state, ring


def decay(g: torch.Tensor, a_log: torch.Tensor, gate: str) -> torch.Tensor:
    """α […, H, K] from the gate's input with its bias, in the precision of g; a_log [H]."""
    a = a_log.to(g.dtype).exp()[:, None]
    return torch.exp(K3_BOUND * torch.sigmoid(a * g) if gate == "k3" else -a * torch.nn.functional.softplus(g))


def work(rows: int, heads: int, key_dim: int, value_dim: int, element_bytes: int, state_bytes: int) -> Work:
    """Bytes and FLOPs of one step of `rows` live rows, the weights read once for all of them.

    A row and head: its state twice, three places of the ring and the new input read, the input written to the ring,
    g, b, gate and out. 7 FLOPs an element of the state: decay, two sums of 2, update of 2.
    """
    channels = heads * (2 * key_dim + value_dim)
    weights = 4 * (TAPS * channels + heads * (key_dim + 1) + value_dim)
    small = element_bytes * ((TAPS + 1) * channels + heads * (key_dim + 2 * value_dim + 1)) + 4
    state = 2 * state_bytes * heads * key_dim * value_dim
    flops = rows * heads * 7 * key_dim * value_dim
    return Work(rows * (state + small) + weights + 4, flops, flops)
