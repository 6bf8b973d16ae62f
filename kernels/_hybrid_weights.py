"""Random weights and caches of a hybrid model, scaled so that activations keep their size through the layers."""

from dataclasses import dataclass

import torch

from tracelab.kernels import kda
from tracelab.kernels._hybrid_shape import CONV_TAPS, GATE_RANK, HybridConfig


@dataclass(frozen=True)
class KdaLayer:
    """Weights of one KDA attention; rows are outputs."""

    norm: torch.Tensor  # [hidden]
    project: torch.Tensor  # [kda_in_rows, hidden]: q, k, v, f_down, g_down, β
    expand: torch.Tensor  # [2, width, GATE_RANK]: f_up, g_up
    mixing: kda.Weights
    out: torch.Tensor  # [hidden, width]


@dataclass(frozen=True)
class MlaLayer:
    """Weights of one MLA attention; rows are outputs, except in `value`."""

    norm: torch.Tensor  # [hidden]
    project: torch.Tensor  # [mla_in_rows, hidden]: q of each head with its rope part, latent, rope part of the key
    latent_norm: torch.Tensor  # [latent]
    absorb: torch.Tensor  # [heads, latent, head_dim]: W_UK transposed, for each head
    value: torch.Tensor  # [heads, latent, head_dim]: W_UV
    out: torch.Tensor  # [hidden, width]


@dataclass(frozen=True)
class DenseFfn:
    """Weights of a gated FFN; rows are outputs."""

    norm: torch.Tensor  # [hidden]
    gate_up: torch.Tensor  # [2 I, hidden], gate above up
    down: torch.Tensor  # [hidden, I]


@dataclass(frozen=True)
class MoeFfn:
    """Weights of a mixture of experts with one shared expert; rows are outputs."""

    norm: torch.Tensor  # [hidden]
    router: torch.Tensor  # [experts, hidden]
    bias: torch.Tensor  # [experts] float32, counts for the choice alone
    gate_up: torch.Tensor  # [experts, 2 I, hidden]
    down: torch.Tensor  # [experts, hidden, I]
    shared_gate_up: torch.Tensor  # [2 shared_ffn, hidden]
    shared_down: torch.Tensor  # [hidden, shared_ffn]


@dataclass(frozen=True)
class Head:
    """Embedding table and output projection, not tied."""

    embedding: torch.Tensor  # [vocab, hidden]
    norm: torch.Tensor  # [hidden]
    lm_head: torch.Tensor  # [vocab, hidden]


class Maker:
    """Makes random tensors of one config on one device; torch's own generator decides them."""

    def __init__(self, config: HybridConfig, device: torch.device, dtype: torch.dtype) -> None:
        self.config, self.device, self.dtype = config, device, dtype

    def attention(self, layer: int) -> KdaLayer | MlaLayer:
        return self._mla() if self.config.attention(layer) == "attn_mla" else self._kda()

    def feed_forward(self, layer: int) -> DenseFfn | MoeFfn:
        return self._dense() if self.config.feed_forward(layer) == "ffn" else self._moe()

    def head(self) -> Head:
        c = self.config
        embedding = self.random(c.vocab, c.hidden, std=1.0)
        return Head(embedding, self._norm(c.hidden), self._weight(c.vocab, c.hidden))

    def cache(self, layer: int) -> kda.Cache | torch.Tensor:
        """KDA state and conv ring, or the latent cache [batch, ctx, latent + rope]; filled as by a long context."""
        c = self.config
        if c.attention(layer) == "attn_mla":
            return self.random(c.batch, c.ctx, c.cache_dim, std=1.0)
        state = self._float(c.batch, c.heads, c.head_dim, c.head_dim, std=0.1)
        return kda.Cache(state, self.random(c.batch, CONV_TAPS, 3 * c.width, std=1.0))

    def empty(self, *size: int) -> torch.Tensor:
        return torch.empty(size, device=self.device, dtype=self.dtype)

    def random(self, *size: int, std: float) -> torch.Tensor:
        return self.empty(*size).normal_(0.0, std)

    def _kda(self) -> KdaLayer:
        c = self.config
        conv = self._float(CONV_TAPS * 3 * c.width, std=0.5)
        a_log, bias = self._float(c.heads, std=0.5), self._float(c.heads, c.head_dim, std=0.5)
        mixing = kda.Weights(conv, a_log, bias, self._float(c.head_dim, std=0.1).add_(1.0))
        project, expand = self._weight(c.kda_in_rows, c.hidden), self._weight(2, c.width, GATE_RANK)
        return KdaLayer(self._norm(c.hidden), project, expand, mixing, self._weight(c.hidden, c.width))

    def _mla(self) -> MlaLayer:
        c = self.config
        return MlaLayer(
            norm=self._norm(c.hidden),
            project=self._weight(c.mla_in_rows, c.hidden),
            latent_norm=self._norm(c.latent),
            absorb=self._weight(c.heads, c.latent, c.head_dim),
            value=self.random(c.heads, c.latent, c.head_dim, std=c.latent**-0.5),
            out=self._weight(c.hidden, c.width),
        )

    def _dense(self) -> DenseFfn:
        c = self.config
        return DenseFfn(
            self._norm(c.hidden), self._weight(2 * c.dense_ffn, c.hidden), self._weight(c.hidden, c.dense_ffn)
        )

    def _moe(self) -> MoeFfn:
        c = self.config
        return MoeFfn(
            norm=self._norm(c.hidden),
            router=self._weight(c.experts, c.hidden),
            bias=self._float(c.experts, std=0.01),
            gate_up=self._weight(c.experts, 2 * c.expert_ffn, c.hidden),
            down=self._weight(c.experts, c.hidden, c.expert_ffn),
            shared_gate_up=self._weight(2 * c.shared_ffn, c.hidden),
            shared_down=self._weight(c.hidden, c.shared_ffn),
        )

    def _norm(self, width: int) -> torch.Tensor:
        return self.random(width, std=0.1).add_(1.0)

    def _weight(self, *size: int) -> torch.Tensor:
        return self.random(*size, std=size[-1] ** -0.5)

    def _float(self, *size: int, std: float) -> torch.Tensor:
        return torch.empty(size, device=self.device, dtype=torch.float32).normal_(0.0, std)
