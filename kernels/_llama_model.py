"""One decode step of a Llama in the bundled kernels, with static shapes: the same code runs eagerly and in a graph.

Launches: for each layer 6 and 3 (norm, qkv, RoPE and append, attention, merge, out; norm, gate and up, down), 5 and 3
where attention is not split, then 5 for the head (norm, lm_head, argmax in two, embedding of the new tokens). Attention
splits any context of two tiles, as long as its KV heads leave half of the SMs without a block: at 1024 tokens and batch
1 split and merge take 6.5 µs on an H200, one launch that walks the context 10.7.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from tracelab.kernels import split_kv
from tracelab.kernels._gemv import gate_up_silu, linear
from tracelab.kernels._llama_shape import LlamaConfig
from tracelab.kernels._step_ops import argmax, argmax_scratch, embed, rms_norm, rope_append, rope_turns

ROPE_THETA = 500_000.0  # Llama 3 (rope_theta in config.json); its long-context frequency scaling is left out
RMS_EPS = 1e-5  # Llama 3 (rms_norm_eps in config.json)

Phase = Callable[[str, int | None], AbstractContextManager[object]]


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer, rows are outputs; q, k, v and gate, up lie joined, as serving engines store them."""

    attn_norm: torch.Tensor  # [hidden]
    qkv: torch.Tensor  # [(heads + 2 kv_heads) head_dim, hidden]
    out: torch.Tensor  # [hidden, heads head_dim]
    ffn_norm: torch.Tensor  # [hidden]
    gate_up: torch.Tensor  # [2 ffn, hidden]
    down: torch.Tensor  # [hidden, ffn]


@dataclass(frozen=True)
class LayerCache:
    """Keys and values of one layer, token-major: [batch, ctx, kv_heads, head_dim] each."""

    keys: torch.Tensor
    values: torch.Tensor


class Attention:
    """Split-KV attention over the first `ctx` tokens of a cache, in its good form or in a starved one."""

    def __init__(self, config: LlamaConfig, device: torch.device, *, starved: str | None, gate: int) -> None:
        c = config
        cap = None if starved is None else split_kv.CAPS[starved]
        self._plan = split_kv.decode_plan(c.ctx, c.batch, c.heads, c.kv_heads, c.head_dim, device, gate=gate, cap=cap)
        self._scratch = split_kv.Scratch.of(self._plan, c.batch, c.heads, c.kv_heads, c.head_dim, device)
        self._ctx, self._per_head = c.ctx, starved == "per_head"

    @property
    def splits(self) -> int:
        """Slices of the context that are computed apart."""
        return self._plan.splits

    def __call__(self, query: torch.Tensor, cache: LayerCache, out: torch.Tensor) -> None:
        """out, query: [batch, heads, head_dim]. One launch, two where the context is split."""
        split_kv.decode(
            query, cache.keys, cache.values, out, self._scratch, self._plan, self._ctx, per_head=self._per_head
        )  # fmt: skip


class LlamaStep:
    """Weights, KV cache and the decode step over them.

    The depth is constant: every step writes K and V of its token in place at the last of `ctx` positions, so all steps
    do equal work. `phase(name, layer)` is entered around `attn_gqa` and `ffn` of each layer and around `head` (layer
    None); a norm belongs to the phase it precedes. `before_phase_exit(name, layer)` is called last in each.
    `starved` is a variant of split_kv; up to `gate` tokens it does not split. The kernel `split-kv` has a gate
    of 4096 by default; here there is none, since splitting is faster from two tiles on.
    """

    def __init__(
        self,
        config: LlamaConfig,
        device: torch.device,
        dtype: torch.dtype,
        phase: Phase,
        *,
        starved: str | None = None,
        gate: int = 0,
        before_phase_exit: Callable[[str, int | None], object] = lambda _name, _layer: None,
    ) -> None:
        self.config, self.phase, self.before_phase_exit = config, phase, before_phase_exit
        self._device, self._dtype = device, dtype
        c = config
        self.embedding = self._random(c.vocab, c.hidden, std=1.0)
        self.lm_head = self._weight(c.vocab, c.hidden)
        self.final_norm = self._norm_weight()
        self.layers = [self._layer_weights() for _ in range(c.layers)]
        self.cache = [self._layer_cache() for _ in range(c.layers)]
        self.token = torch.arange(c.batch, device=device) % c.vocab  # [batch], the tokens fed to the next step
        self.hidden = self.embedding[self.token]  # [batch, hidden]; holds their embedding between steps
        self.position = torch.full((1,), c.ctx - 1, device=device, dtype=torch.int32)
        self._turns = rope_turns(c.head_dim, ROPE_THETA, device)
        self.attention = Attention(c, device, starved=starved, gate=gate)
        self._normed = self._empty(c.hidden)
        self._qkv = self._empty(c.qkv_rows)
        self._query, self._mixed = (self._empty(c.heads, c.head_dim) for _ in range(2))
        self._ffn = self._empty(c.ffn)
        self.logits = self._empty(c.vocab)
        self._best = argmax_scratch(c.batch, c.vocab, device)

    def step(self) -> torch.Tensor:
        """One new token for each sequence; returns the logits [batch, vocab], leaves the argmax in `token`."""
        for layer, (weights, cache) in enumerate(zip(self.layers, self.cache, strict=True)):
            with self.phase("attn_gqa", layer):
                self._attend(weights, cache)
                self.before_phase_exit("attn_gqa", layer)
            with self.phase("ffn", layer):
                self._feed_forward(weights)
                self.before_phase_exit("ffn", layer)
        with self.phase("head", None):
            self._head()
            self.before_phase_exit("head", None)
        return self.logits

    def _attend(self, weights: LayerWeights, cache: LayerCache) -> None:
        """Norm, projections and grouped-query attention of one token per sequence, added to `hidden`."""
        self._norm(weights.attn_norm)
        linear(self._normed, weights.qkv, self._qkv)
        rope_append(self._qkv, self._query, cache.keys, cache.values, self.position, self._turns)
        self.attention(self._query, cache, self._mixed)
        mixed = self._mixed.view(self.config.batch, -1)
        linear(mixed, weights.out, self.hidden, residual=self.hidden)

    def _feed_forward(self, weights: LayerWeights) -> None:
        """Norm, and the gated FFN added to `hidden`."""
        self._norm(weights.ffn_norm)
        gate_up_silu(self._normed, weights.gate_up, self._ffn)
        linear(self._ffn, weights.down, self.hidden, residual=self.hidden)

    def _head(self) -> None:
        """Logits, and the next step's input written in place: nothing returns to the host."""
        self._norm(self.final_norm)
        linear(self._normed, self.lm_head, self.logits)
        argmax(self.logits, self.token, self._best)
        embed(self.token, self.embedding, self.hidden)

    def _norm(self, weight: torch.Tensor) -> None:
        rms_norm(self.hidden, weight, self._normed, eps=RMS_EPS)

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

    def _layer_cache(self) -> LayerCache:
        c = self.config
        keys, values = (self._random(c.batch, c.ctx, c.kv_heads, c.head_dim, std=1.0) for _ in range(2))
        return LayerCache(keys, values)

    def _norm_weight(self) -> torch.Tensor:
        return self._random(self.config.hidden, std=0.1).add_(1.0)

    def _weight(self, rows: int, columns: int) -> torch.Tensor:
        """Random [rows, columns] scaled so that activations keep their size through any number of layers."""
        return self._random(rows, columns, std=columns**-0.5)

    def _random(self, *size: int, std: float) -> torch.Tensor:
        return torch.empty(size, device=self._device, dtype=self._dtype).normal_(0.0, std)

    def _empty(self, *size: int) -> torch.Tensor:
        """A buffer [batch, *size]."""
        return torch.empty(self.config.batch, *size, device=self._device, dtype=self._dtype)
