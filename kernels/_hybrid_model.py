"""One decode step of a hybrid model in the bundled kernels, with static shapes: it runs eagerly and in a graph alike.

Launches of each part (`kernels.md` section 11):
attn_kda   5  norm, projection of q, k, v, f_down, g_down and β, f_up and g_up, KDA, out
attn_mla   7  norm, projection of q and the new latent, its norm and append, W_UK, attention, merge and W_UV, out
ffn        3  norm, gate and up, down
ffn_moe   10  norm, router, slots, scatter, grouped gate and up, silu·mul, grouped down, combine, shared gate and up,
              shared down
head       5  norm, lm_head, argmax in two, embedding of the new tokens
The last product of a part adds it to the residual stream in its own launch.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import torch

from tracelab.kernels import kda
from tracelab.kernels._gemv import gate_up_silu, linear
from tracelab.kernels._hybrid_ops import embed_advance
from tracelab.kernels._hybrid_parts import RMS_EPS, Kda, Mla, Moe
from tracelab.kernels._hybrid_shape import HybridConfig
from tracelab.kernels._hybrid_weights import DenseFfn, KdaLayer, Maker, MlaLayer, MoeFfn
from tracelab.kernels._step_ops import argmax, argmax_scratch, rms_norm

Phase = Callable[[str, int | None], AbstractContextManager[object]]
Place = tuple[str, int]


class HybridStep:
    """Weights, caches and the decode step over them.

    The depth of MLA is constant: every step writes its token's latent at the last of `ctx` positions, so all steps do
    equal work. KDA states go on from step to step. `phase(name, layer)` is entered around the two parts of each layer
    and around `head` (layer None); a norm belongs to the part it precedes. Rows from `live` on fill up a graph's batch.
    `starve` names kernels and forms as `--starve` does. In the part `fault`, `failing` is called in place of the last
    launch, so that what the part would have added to the residual stream is missing.
    """

    def __init__(
        self,
        config: HybridConfig,
        device: torch.device,
        dtype: torch.dtype,
        phase: Phase,
        *,
        live: int | None = None,
        starve: Mapping[str, str] | None = None,
        fault: Place | None = None,
        failing: Callable[[], object] | None = None,
    ) -> None:
        self.config, self.phase = config, phase
        self._fault, self._failing = fault, failing
        live = config.batch if live is None else live
        c, make, forms = config, Maker(config, device, dtype), starve or {}
        names = [c.layer_phases(layer) for layer in range(c.layers)]
        self._places: list[tuple[Place, Place]] = [((a, layer), (b, layer)) for layer, (a, b) in enumerate(names)]
        self.head = make.head()
        self.attentions = [make.attention(layer) for layer in range(c.layers)]
        self.feed_forwards = [make.feed_forward(layer) for layer in range(c.layers)]
        self.caches = [make.cache(layer) for layer in range(c.layers)]
        self.kda = Kda(make, live, forms.get("kda"))
        self.mla = Mla(make, live, forms.get("mla"))
        self.moe = Moe(make, live, forms.get("moe"))
        self.token = torch.arange(c.batch, device=device) % c.vocab  # [batch], the tokens fed to the next step
        self.hidden = self.head.embedding[self.token]  # [batch, hidden]; holds their embedding between steps
        self.position = torch.full((1,), c.ctx - 1, device=device, dtype=torch.int32)  # of those tokens
        self._normed, self._ffn = make.empty(c.batch, c.hidden), make.empty(c.batch, c.dense_ffn)
        self.logits = make.empty(c.batch, c.vocab)
        self._best = argmax_scratch(c.batch, c.vocab, device)

    def step(self) -> torch.Tensor:
        """One new token for each sequence; returns the logits [batch, vocab], leaves the argmax in `token`."""
        layers = zip(self._places, self.attentions, self.caches, self.feed_forwards, strict=True)
        for (first, second), attention, cache, feed_forward in layers:
            with self.phase(*first):
                self._add(first, self._attend(attention, cache), attention.out)
            with self.phase(*second):
                self._add(second, *self._feed_forward(feed_forward))
        with self.phase("head", None):
            self._head()
        return self.logits

    def _attend(self, weights: KdaLayer | MlaLayer, cache: kda.Cache | torch.Tensor) -> torch.Tensor:
        normed = self._norm(weights.norm)
        if isinstance(weights, KdaLayer):
            assert isinstance(cache, kda.Cache)
            return self.kda(normed, weights, cache, self.position)
        assert isinstance(cache, torch.Tensor)
        return self.mla(normed, weights, cache)

    def _feed_forward(self, weights: DenseFfn | MoeFfn) -> tuple[torch.Tensor, torch.Tensor]:
        """What the last product takes, and its weights."""
        normed = self._norm(weights.norm)
        if isinstance(weights, MoeFfn):
            return self.moe(normed, weights, self.hidden), weights.shared_down
        gate_up_silu(normed, weights.gate_up, self._ffn)
        return self._ffn, weights.down

    def _add(self, place: Place, x: torch.Tensor, weight: torch.Tensor) -> None:
        """Add the product to the residual stream, unless this part shall fail."""
        if place != self._fault:
            linear(x, weight, self.hidden, residual=self.hidden)
        elif self._failing is not None:
            self._failing()

    def _head(self) -> None:
        """Logits, and the next step's input written in place: nothing returns to the host."""
        linear(self._norm(self.head.norm), self.head.lm_head, self.logits)
        argmax(self.logits, self.token, self._best)
        embed_advance(self.token, self.head.embedding, self.hidden, self.position)

    def _norm(self, weight: torch.Tensor) -> torch.Tensor:
        rms_norm(self.hidden, weight, self._normed, eps=RMS_EPS)
        return self._normed
