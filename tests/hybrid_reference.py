"""A hybrid model's decode step in float64, written from the formulas: one sequence, head and expert at a time.

It keeps states of its own, taken from the step's caches once, and shares no code with the kernels. `fault` breaks it in
a named way, for negative controls: "expert" takes the next expert, "shared" drops the shared expert, "residual" the
attention's, "rope" ignores the rope part of the scores, "decay" forgets the KDA decay, "beta" the β, "conv" the past,
"gate" takes the other form of the decay.
"""

import contextlib
import dataclasses
import math
from typing import Any

from kernel_cpu import kernel_on_cpu

EPS = 1e-5
L2_EPS = 1e-6
# Sizes for the interpreter: a KDA and an MLA layer; every other size as the model has it
TINY = {
    "batch": 2, "ctx": 37, "layers": 2, "mla_every": 2, "hidden": 64, "heads": 2, "head_dim": 16, "latent": 64,
    "rope": 16, "experts": 4, "top_k": 2, "expert_ffn": 32, "shared_ffn": 48, "dense_ffn": 96, "vocab": 101,
    "dtype_bytes": 4,
}  # fmt: skip


def tiny_step(config: Any, seed: int = 1, **how: Any) -> tuple[Any, Any]:
    """Torch, and a `HybridStep` on the CPU in float32, its Triton kernels interpreted."""
    torch, _ = kernel_on_cpu("_kernel")
    from tracelab.kernels._hybrid_model import HybridStep

    torch.manual_seed(seed)
    how.setdefault("phase", lambda _name, _layer: contextlib.nullcontext())
    return torch, HybridStep(config, torch.device("cpu"), torch.float32, **how)


def tiny(config: Any, **sizes: Any) -> Any:
    """The config in TINY sizes, or in those given."""
    return dataclasses.replace(config, **(TINY | sizes))


def two_errors(config: Any, **how: Any) -> list[float]:
    """Errors of two steps against float64, the second fed with the first one's argmax; -1 for another argmax."""
    torch, step = tiny_step(config, **how)
    with torch.inference_mode():
        reference = HybridReference(torch, step)
        errors = []
        for _ in range(2):
            want = reference.step(step.token.tolist())
            got = step.step()
            errors.append(relative_l2(got, want) if step.token.tolist() == want.argmax(-1).tolist() else -1.0)
        return errors


class HybridReference:
    """The model of a `HybridStep` in float64; `step` returns the logits and carries the states on."""

    def __init__(self, torch: Any, step: Any, fault: str = "") -> None:
        self.torch, self.model, self.config, self.fault = torch, step, step.config, fault
        self.position = int(step.position)
        self.states = [self._state(layer, cache) for layer, cache in enumerate(step.caches)]

    def _state(self, layer: int, cache: Any) -> Any:
        """MLA: the latents [B, ctx, …]. KDA: S [B, H, K, V] and the last three inputs, oldest first, [B, 3, C]."""
        if self.config.attention(layer) == "attn_mla":
            return cache.double().clone()
        places = [(self.position - back) % 4 for back in (3, 2, 1)]
        return [cache.state.double().transpose(2, 3).clone(), cache.ring[:, places].double().clone()]

    def step(self, tokens: Any) -> Any:
        rows = [self._row(b, token) for b, token in enumerate(tokens)]
        self.position += 1
        return self.torch.stack(rows)

    def _row(self, b: int, token: int) -> Any:
        model, c = self.model, self.config
        x = model.head.embedding[token].double()
        for layer in range(c.layers):
            weights, state = model.attentions[layer], self.states[layer]
            h = norm(x, weights.norm)
            mixed = (
                self._mla(b, h, weights, state) if c.attention(layer) == "attn_mla" else self._kda(b, h, weights, state)
            )
            x = (0 if self.fault == "residual" else x) + weights.out.double() @ mixed
            x = x + self._ffn(norm(x, model.feed_forwards[layer].norm), model.feed_forwards[layer])
        return model.head.lm_head.double() @ norm(x, model.head.norm)

    def _kda(self, b: int, h: Any, weights: Any, state: Any) -> Any:
        torch, c, d = self.torch, self.config, self.config.head_dim
        parts = (weights.project.double() @ h).split([c.width, c.width, c.width, 128, 128, c.heads])
        new, f, g, beta = torch.cat(parts[:3]), parts[3], parts[4], torch.sigmoid(parts[5])
        window = torch.stack([*state[1][b], new])
        state[1][b] = window[1:]
        if self.fault == "conv":
            window = window * torch.tensor([0.0, 0.0, 0.0, 1.0]).double()[:, None]
        conv = weights.mixing.conv.double().view(3, 4, c.width)
        q, k, v = (silu((conv[i] * window[:, i * c.width : (i + 1) * c.width]).sum(0)) for i in range(3))
        gate_in = (weights.expand[0].double() @ f).view(c.heads, d) + weights.mixing.dt_bias.double()
        gate_out = torch.sigmoid(weights.expand[1].double() @ g).view(c.heads, d)
        outputs = []
        for head in range(c.heads):
            cut = slice(head * d, (head + 1) * d)
            qh, kh = (t[cut] / (t[cut].square().sum() + L2_EPS).sqrt() for t in (q, k))
            a = weights.mixing.a_log[head].double().exp()
            bounded = (c.gate == "k3") != (self.fault == "gate")
            log_alpha = -5 * torch.sigmoid(a * gate_in[head]) if bounded else -a * softplus(gate_in[head])
            alpha = torch.ones_like(log_alpha) if self.fault == "decay" else log_alpha.exp()
            s = alpha[:, None] * state[0][b, head]
            strength = 1.0 if self.fault == "beta" else beta[head]
            s = s + strength * torch.outer(kh, v[cut] - s.T @ kh)
            state[0][b, head] = s
            o = s.T @ qh * d**-0.5
            outputs.append(norm(o, weights.mixing.norm) * gate_out[head])
        return torch.cat(outputs)

    def _mla(self, b: int, h: Any, weights: Any, latents: Any) -> Any:
        """Without absorbing: keys and values of every head are built from the latents."""
        torch, c = self.torch, self.config
        query, latent, rope = (weights.project.double() @ h).split([c.heads * c.query_dim, c.latent, c.rope])
        latents[b, -1] = torch.cat([norm(latent, weights.latent_norm), rope])
        outputs = []
        for head, q in enumerate(query.view(c.heads, c.query_dim)):
            keys = latents[b, :, : c.latent] @ weights.absorb[head].double()
            scores = keys @ q[: c.head_dim]
            if self.fault != "rope":
                scores = scores + latents[b, :, c.latent :] @ q[c.head_dim :]
            p = torch.softmax(scores / math.sqrt(c.head_dim + c.rope), 0)
            outputs.append(p @ (latents[b, :, : c.latent] @ weights.value[head].double()))
        return torch.cat(outputs)

    def _ffn(self, h: Any, weights: Any) -> Any:
        if not hasattr(weights, "router"):
            return gated(h, weights.gate_up, weights.down)
        score = self.torch.sigmoid(weights.router.double() @ h)
        key = score + weights.bias.double()
        chosen = sorted(range(len(score)), key=lambda e: -float(key[e]))[: self.config.top_k]
        total = sum(float(score[e]) for e in chosen)
        out = 0 if self.fault == "shared" else gated(h, weights.shared_gate_up, weights.shared_down)
        for e in chosen:
            expert = (e + 1) % len(score) if self.fault == "expert" else e
            part = gated(h, weights.gate_up[expert], weights.down[expert])
            out = out + self.config.routed_scale * float(score[e]) / total * part
        return out


def gated(h: Any, gate_up: Any, down: Any) -> Any:
    gate, up = (gate_up.double() @ h).chunk(2)
    return down.double() @ (silu(gate) * up)


def silu(x: Any) -> Any:
    return x / (1 + (-x).exp())


def softplus(x: Any) -> Any:
    return (1 + x.exp()).log()


def norm(x: Any, weight: Any) -> Any:
    return x / (x.square().mean() + EPS).sqrt() * weight.double()


def relative_l2(got: Any, want: Any) -> float:
    """Infinite for what is not a number, so that it neither passes as right nor hides in a control."""
    error = float((got.double() - want).norm() / want.norm())
    return error if math.isfinite(error) else math.inf
