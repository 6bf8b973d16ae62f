"""One decode step of a Llama in plain torch, with static shapes, so that the same code runs eagerly and in a graph."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)

from tracelab.kernels._llama_shape import LlamaConfig

ROPE_THETA = 500_000.0  # Llama 3 (rope_theta in config.json); its long-context frequency scaling is left out
RMS_EPS = 1e-5  # Llama 3 (rms_norm_eps in config.json)

Phase = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer, rows are outputs; q, k, v and gate, up lie joined, as serving engines store them."""

    attn_norm: torch.Tensor  # [hidden]
    qkv: torch.Tensor  # [(heads + 2 kv_heads) head_dim, hidden]
    out: torch.Tensor  # [hidden, heads head_dim]
    ffn_norm: torch.Tensor  # [hidden]
    gate_up: torch.Tensor  # [2 ffn, hidden]
    down: torch.Tensor  # [hidden, ffn]


class LlamaStep:
    """Weights, KV cache and the decode step over them.

    The depth is constant: every step writes K and V of its token in place at the last of `ctx` positions, so all steps
    do equal work. `phase(name)` is entered around each phase (`norm`, `attn`, `ffn`, `head`).
    """

    def __init__(self, config: LlamaConfig, device: torch.device, dtype: torch.dtype, phase: Phase) -> None:
        self.config, self.phase = config, phase
        self._device, self._dtype = device, dtype
        c = config
        self.embedding = self._random(c.vocab, c.hidden, std=1.0)
        self.lm_head = self._weight(c.vocab, c.hidden)
        self.final_norm = self._norm_weight()
        self.layers = [self._layer_weights() for _ in range(c.layers)]
        self.cache = [self._random(2, c.batch, c.kv_heads, c.ctx, c.head_dim, std=1.0) for _ in range(c.layers)]
        self.token = torch.arange(c.batch, device=device) % c.vocab  # [batch], the tokens fed to the next step
        self.embedded = self.embedding[self.token]  # [batch, hidden]
        self._cos, self._signed_sin = self._rope_table()

    def step(self) -> torch.Tensor:
        """One new token for each sequence; returns the logits [batch, vocab], leaves the argmax in `token`."""
        x = self.embedded
        for weights, cache in zip(self.layers, self.cache, strict=True):
            with self.phase("norm"):
                normed = self._rms_norm(x, weights.attn_norm)
            with self.phase("attn"):
                x = x + self._attention(weights, cache, normed)
            with self.phase("norm"):
                normed = self._rms_norm(x, weights.ffn_norm)
            with self.phase("ffn"):
                x = x + self._feed_forward(weights, normed)
        with self.phase("norm"):
            normed = self._rms_norm(x, self.final_norm)
        with self.phase("head"):
            return self._head(normed)

    def _rms_norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (self.config.hidden,), weight, RMS_EPS)

    def _attention(self, weights: LayerWeights, cache: torch.Tensor, normed: torch.Tensor) -> torch.Tensor:
        """Grouped-query attention of one token per sequence over the whole cache, [batch, hidden].

        The query heads that share a KV head are passed as query rows of that head: one new token sees every position,
        so there is no mask and the result is the same. Expanding K and V to `heads` heads would copy the cache, since
        the expanded view cannot be merged into one head dimension, and `enable_gqa` copies in the backends without it.
        """
        c = self.config
        qkv = F.linear(normed, weights.qkv).view(c.batch, c.heads + 2 * c.kv_heads, c.head_dim)
        rotated = self._rope(qkv[:, : c.heads + c.kv_heads])
        cache[0, :, :, -1] = rotated[:, c.heads :]
        cache[1, :, :, -1] = qkv[:, c.heads + c.kv_heads :]
        query = rotated[:, : c.heads].view(c.batch, c.kv_heads, c.group, c.head_dim)
        mixed = F.scaled_dot_product_attention(query, cache[0], cache[1])
        return F.linear(mixed.reshape(c.batch, c.heads * c.head_dim), weights.out)

    def _rope(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate [batch, heads, head_dim] to the last position, halves paired as in Llama's rotate_half."""
        swapped = x.roll(self.config.head_dim // 2, dims=-1)
        return torch.addcmul(x * self._cos, swapped, self._signed_sin)

    def _feed_forward(self, weights: LayerWeights, normed: torch.Tensor) -> torch.Tensor:
        gate, up = F.linear(normed, weights.gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, weights.down)

    def _head(self, normed: torch.Tensor) -> torch.Tensor:
        """Logits, and the next step's input written in place: nothing returns to the host."""
        logits = F.linear(normed, self.lm_head)
        torch.argmax(logits, dim=-1, out=self.token)
        torch.index_select(self.embedding, 0, self.token, out=self.embedded)
        return logits

    def _rope_table(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines, and sines with the first half negated, [head_dim] each, at position ctx - 1."""
        half = self.config.head_dim // 2
        frequency = ROPE_THETA ** -(torch.arange(half, dtype=torch.float64) / half)
        angle = (self.config.ctx - 1) * frequency
        cos, sin = angle.cos(), angle.sin()
        return self._constant(torch.cat((cos, cos))), self._constant(torch.cat((-sin, sin)))

    def _constant(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self._device, self._dtype)

    def _layer_weights(self) -> LayerWeights:
        c = self.config
        return LayerWeights(
            attn_norm=self._norm_weight(),
            qkv=self._weight(c.qkv_rows, c.hidden),
            out=self._weight(c.hidden, c.heads * c.head_dim),
            ffn_norm=self._norm_weight(),
            gate_up=self._weight(2 * c.ffn, c.hidden),
            down=self._weight(c.hidden, c.ffn),
        )

    def _norm_weight(self) -> torch.Tensor:
        return self._random(self.config.hidden, std=0.1).add_(1.0)

    def _weight(self, rows: int, columns: int) -> torch.Tensor:
        """Random [rows, columns] scaled so that activations keep their size through any number of layers."""
        return self._random(rows, columns, std=columns**-0.5)

    def _random(self, *size: int, std: float) -> torch.Tensor:
        return torch.empty(size, device=self._device, dtype=self._dtype).normal_(0.0, std)
