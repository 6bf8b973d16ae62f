"""A Llama's decode step in float64, written independently of the kernels: what the step's numerics are held to."""

import math
from typing import Any

from tracelab.kernels import _llama_shape as shape


def reference_logits(torch: Any, step: Any, tokens: Any, position: int) -> Any:
    """The step's logits in float64, written independently: one sequence, head and position at a time."""
    c = step.config
    rows = []
    for b in range(c.batch):
        x = step.embedding[tokens[b]].double()
        for weights, cache in zip(step.layers, step.cache, strict=True):
            keys, values = cache.keys[b].double(), cache.values[b].double()
            h = norm(x, weights.attn_norm)
            x = x + reference_attention(torch, c, weights, (keys, values), h, position)
            h = norm(x, weights.ffn_norm)
            gate, up = weights.gate_up[: c.ffn].double() @ h, weights.gate_up[c.ffn :].double() @ h
            x = x + weights.down.double() @ (gate / (1 + torch.exp(-gate)) * up)
        rows.append(step.lm_head.double() @ norm(x, step.final_norm))
    return torch.stack(rows)


def reference_attention(
    torch: Any, c: shape.LlamaConfig, weights: Any, cache: tuple[Any, Any], h: Any, position: int
) -> Any:
    """Attention output of one token; keys and values are [ctx, kv_heads, head_dim], their last row is replaced."""
    rows = (weights.qkv.double() @ h).view(-1, c.head_dim)
    outputs = []
    for head in range(c.heads):
        kv = head // (c.heads // c.kv_heads)
        keys, values = cache[0][:, kv].clone(), cache[1][:, kv].clone()
        keys[-1] = rotate(torch, rows[c.heads + kv], position)
        values[-1] = rows[c.heads + c.kv_heads + kv]
        scores = keys @ rotate(torch, rows[head], position) / math.sqrt(c.head_dim)
        outputs.append(torch.softmax(scores, 0) @ values)
    return weights.out.double() @ torch.cat(outputs)


def rotate(torch: Any, x: Any, position: int) -> Any:
    """RoPE as a complex product: element i and i + d/2 are one number, turned by position·500000^(−2i/d)."""
    half = len(x) // 2
    turn = torch.tensor([position * 500_000.0 ** (-2 * i / len(x)) for i in range(half)], dtype=torch.float64)
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(turn), turn)
    return torch.cat((turned.real, turned.imag))


def norm(x: Any, weight: Any) -> Any:
    return x / (x.pow(2).mean() + 1e-5).sqrt() * weight.double()


def relative_l2(got: Any, want: Any) -> float:
    return float((got.double() - want).norm() / want.norm())
