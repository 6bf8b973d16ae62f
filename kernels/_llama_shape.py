"""The Llama-8B shape as numbers: parameters, bytes and FLOPs of one decode step. Pure arithmetic, no torch.

The byte model is that of `nsys-exports.md` section 12: every weight is read once whatever the batch (the embedding
table only by the rows looked up, lm_head in full), the KV cache of all sequences is read once, one token of K and V is
written. Activations and L2 hits are ignored.
"""

from dataclasses import dataclass

BF16_BYTES = 2
# As the phases of a trace are written: layer numbers folded to `#`, norms in the phase that they precede.
ATTENTION, FFN, HEAD = "L#/attn_gqa", "L#/ffn", "head"


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of one decode step; the defaults are Llama-3.1-8B's (config.json of meta-llama/Llama-3.1-8B)."""

    batch: int
    ctx: int  # tokens each sequence attends to, the new one included
    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    ffn: int = 14336
    vocab: int = 128256
    dtype_bytes: int = BF16_BYTES

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def qkv_rows(self) -> int:
        """Output rows of the joint q, k and v projection."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim


def phase_products(config: LlamaConfig) -> dict[str, int]:
    """Parameters of the matrices that one step multiplies by, by phase."""
    c = config
    return {
        ATTENTION: c.layers * c.hidden * (c.qkv_rows + c.heads * c.head_dim),
        FFN: c.layers * 3 * c.hidden * c.ffn,
        HEAD: c.vocab * c.hidden,
    }


def phase_params(config: LlamaConfig) -> dict[str, int]:
    """Parameters that one step reads in full, by phase: matrices and norms, without the embedding table."""
    norms = {ATTENTION: config.layers, FFN: config.layers, HEAD: 1}
    return {name: count + norms[name] * config.hidden for name, count in phase_products(config).items()}


def active_params(config: LlamaConfig) -> int:
    """Parameters read in full by every step: all but the embedding table."""
    return sum(phase_params(config).values())


def params(config: LlamaConfig) -> int:
    """All parameters, the (untied) embedding table included."""
    return active_params(config) + config.vocab * config.hidden


def kv_bytes_per_token(config: LlamaConfig) -> int:
    """K and V of one token over all layers, in bytes."""
    return config.layers * 2 * config.kv_heads * config.head_dim * config.dtype_bytes


def phase_bytes(config: LlamaConfig) -> dict[str, int]:
    """Bytes each phase must move in one step; they add up to `bytes_per_step`."""
    bytes_by_phase = {name: count * config.dtype_bytes for name, count in phase_params(config).items()}
    bytes_by_phase[ATTENTION] += kv_bytes_per_token(config) * config.batch * (config.ctx + 1)  # read ctx, write one
    bytes_by_phase[HEAD] += config.batch * config.hidden * config.dtype_bytes  # embedding rows of the new tokens
    return bytes_by_phase


def phase_flops(config: LlamaConfig) -> dict[str, int]:
    """FLOPs of the matrix products of each phase (2 a multiply-add); norms are left out, they never bind."""
    flops = {name: 2 * count * config.batch for name, count in phase_products(config).items()}
    flops[ATTENTION] += 4 * config.layers * config.heads * config.head_dim * config.ctx * config.batch  # QK^T and PV
    return flops


def bytes_per_step(config: LlamaConfig) -> int:
    """Bytes one step must move (`nsys-exports.md` section 12)."""
    return sum(phase_bytes(config).values())


def flops_per_step(config: LlamaConfig) -> int:
    """FLOPs of one step's matrix products."""
    return sum(phase_flops(config).values())


def memory_bytes(config: LlamaConfig) -> int:
    """Device memory for weights and KV cache, in bytes; activations are small beside them."""
    return params(config) * config.dtype_bytes + kv_bytes_per_token(config) * config.batch * config.ctx


def record(config: LlamaConfig) -> dict[str, object]:
    """The workload record (`tracelab.workload` version 1) of one bf16 decode step, without its `variant`."""
    bytes_by_phase, flops_by_phase = phase_bytes(config), phase_flops(config)
    return {
        "tracelab.workload": 1,
        "name": "llama8b",
        "model": f"Llama-8B shape, {config.layers} layers, random weights",
        "params": params(config),
        "active_params": active_params(config),
        "dtype": "bf16",
        "batch": config.batch,
        "ctx": config.ctx,
        "tensor_parallel": 1,
        "tokens_per_step": config.batch,
        "bytes_per_step": bytes_per_step(config),
        "flops_per_step": flops_per_step(config),
        "phases": {name: {"bytes": count, "flops": flops_by_phase[name]} for name, count in bytes_by_phase.items()},
    }
