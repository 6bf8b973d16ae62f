"""Hybrid models (KDA and MLA attention, mixture of experts) as numbers: what one decode step moves and computes.

Pure arithmetic, no torch. Kernel compositions are those of `kernels.md` section 11. Bytes: every weight that the step
uses is read once whatever the batch (the embedding table only by the rows looked up), the latent cache is read once
and grows by one token, KDA states are read and written. Activations and L2 hits are ignored.

Of a layer's experts a batch uses some. Each row picks `top_k` different ones; taking every choice as
equally likely and rows as independent, an expert is missed by all of `batch` rows with (1 - top_k / experts) ** batch,
so experts · (1 - that) are read. At batch 1 this is top_k exactly. Routing that favours some experts reads fewer.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SLOT_MULTIPLE = 16  # rows of the smallest tile of the grouped product
STATE_BYTES = 4  # KDA states and conv weights are fp32
CONV_TAPS = 4  # depthwise convolution over the last 4 tokens (short_conv_kernel_size)
KERNELS = {"attn_kda": 5, "attn_mla": 7, "ffn": 3, "ffn_moe": 10, "head": 5}  # launches of each phase
UNFUSED_KERNELS, EAGER_KERNELS = 3, 55  # launches in place of one, as `kda` counts them
KDA_FLOPS = 7  # FLOPs per state element and token: decay, two reductions, update (`kernels.md` section 7)
GATE_RANK = 128  # width between f_down and f_up, g_down and g_up: one head dim
PHASES = ("attn_kda", "attn_mla", "ffn", "ffn_moe", "head")


@dataclass(frozen=True)
class HybridConfig:
    """Sizes of one decode step. Every `mla_every`-th layer and the model's last one are MLA, the others KDA."""

    name: str
    model: str  # one phrase for the record
    gate: str  # form of the KDA decay, "kimi" or "k3"
    batch: int
    ctx: int  # tokens each sequence attends to, the new one included
    layers: int
    model_layers: int  # layers of the whole model
    hidden: int
    heads: int  # KDA and MLA heads alike
    experts: int
    top_k: int
    expert_ffn: int
    shared_ffn: int
    dense_layers: int  # the first so many layers have a dense FFN
    dense_ffn: int
    routed_scale: float  # what the weights of a row's experts add up to
    vocab: int
    head_dim: int = 128
    latent: int = 512
    rope: int = 64
    mla_every: int = 4
    dtype_bytes: int = 2

    @property
    def width(self) -> int:
        """Columns of all heads together."""
        return self.heads * self.head_dim

    @property
    def kda_in_rows(self) -> int:
        """Rows of the joint KDA projection: q, k, v, f_down, g_down, β."""
        return 3 * self.width + 2 * GATE_RANK + self.heads

    @property
    def query_dim(self) -> int:
        """Query columns of one MLA head, the rope part included."""
        return self.head_dim + self.rope

    @property
    def cache_dim(self) -> int:
        """Columns of one token in the MLA cache."""
        return self.latent + self.rope

    @property
    def mla_in_rows(self) -> int:
        """Rows of the joint MLA projection: q of all heads, the new token's latent and rope part."""
        return self.heads * self.query_dim + self.cache_dim

    @property
    def capacity(self) -> int:
        """Slots per expert that no routing can overflow, since a row takes at most one: whole tiles."""
        return -(-self.batch // SLOT_MULTIPLE) * SLOT_MULTIPLE

    def attention(self, layer: int) -> str:
        """Phase name of the layer's attention."""
        last = layer + 1 == self.model_layers
        return "attn_mla" if last or (layer + 1) % self.mla_every == 0 else "attn_kda"

    def feed_forward(self, layer: int) -> str:
        """Phase name of the layer's FFN."""
        return "ffn" if layer < self.dense_layers else "ffn_moe"

    def layer_phases(self, layer: int) -> tuple[str, str]:
        return self.attention(layer), self.feed_forward(layer)

    def count(self, phase: str) -> int:
        """Layers that have the phase; `head` is there once."""
        return sum(phase in self.layer_phases(layer) for layer in range(self.layers)) + (phase == "head")


def kernels_per_step(config: HybridConfig, starve: Mapping[str, str] | None = None) -> int:
    """Kernels of one step, `kernels.md` section 11; `starve` as `--starve` names kernels and forms.

    Up to 64 sequences: beyond, cuBLAS does the dense products and takes as many launches as it likes.
    """
    forms = starve or {}
    kernels = dict(KERNELS)
    eager = EAGER_KERNELS + (config.batch > 1)
    kernels["attn_kda"] += {"unfused": UNFUSED_KERNELS - 1, "eager": eager - 1}.get(forms.get("kda", ""), 0)
    kernels["ffn_moe"] += 2 * (config.experts - 1) if forms.get("moe") == "loop" else 0
    return sum(kernels[name] * config.count(name) for name in PHASES)


def experts_hit(config: HybridConfig) -> float:
    """Experts of one layer that a step is expected to read."""
    missed = (1 - config.top_k / config.experts) ** config.batch
    return config.experts * (1 - missed)


def expert_params(config: HybridConfig) -> int:
    """Parameters of one routed expert: gate, up and down."""
    return 3 * config.hidden * config.expert_ffn


def part_params(config: HybridConfig) -> dict[str, int]:
    """Parameters of one layer's part, or of the head, without routed experts and the embedding table."""
    c = config
    kda = c.kda_in_rows + c.width  # in- and out-projection rows of `hidden` columns
    mla = c.mla_in_rows + c.width
    return {
        "attn_kda": c.hidden + c.hidden * kda + 2 * c.width * GATE_RANK + _kda_small_params(c),
        "attn_mla": c.hidden + c.hidden * mla + c.latent + 2 * c.width * c.latent,
        "ffn": c.hidden + 3 * c.hidden * c.dense_ffn,
        "ffn_moe": c.hidden + c.experts * (c.hidden + 1) + 3 * c.hidden * c.shared_ffn,
        "head": c.hidden + c.vocab * c.hidden,
    }


def _kda_small_params(config: HybridConfig) -> int:
    """Conv weights, dt_bias, A_log and the output norm of one KDA layer, all fp32."""
    return (3 * CONV_TAPS + 1) * config.width + config.heads + config.head_dim


def params(config: HybridConfig) -> int:
    """All parameters, every expert and the (untied) embedding table included."""
    parts = part_params(config)
    routed = config.count("ffn_moe") * config.experts * expert_params(config)
    return sum(parts[name] * config.count(name) for name in PHASES) + routed + config.vocab * config.hidden


def active_params(config: HybridConfig) -> int:
    """Parameters that one step is expected to read: of the experts only those hit, nothing of the embedding table."""
    parts = part_params(config)
    routed = config.count("ffn_moe") * experts_hit(config) * expert_params(config)
    return sum(parts[name] * config.count(name) for name in PHASES) + round(routed)


def phase_bytes(config: HybridConfig) -> dict[str, int]:
    """Bytes each phase must move in one step, over all its layers."""
    c = config
    moved = {name: count * c.dtype_bytes for name, count in part_params(c).items()}
    moved["attn_kda"] += _kda_small_params(c) * (STATE_BYTES - c.dtype_bytes) + c.batch * _kda_row_bytes(c)
    moved["attn_mla"] += c.batch * (c.ctx + 1) * c.cache_dim * c.dtype_bytes  # read ctx, write one
    moved["ffn_moe"] += c.experts * (STATE_BYTES - c.dtype_bytes)  # the routing bias is fp32
    moved["ffn_moe"] += round(experts_hit(c) * expert_params(c)) * c.dtype_bytes
    moved["head"] += c.batch * c.hidden * c.dtype_bytes  # embedding rows of the new tokens
    return {name: moved[name] * c.count(name) for name in PHASES}


def _kda_row_bytes(config: HybridConfig) -> int:
    """State read and written, and conv ring (three tokens of q, k, v read, one written), of one row and layer."""
    state = 2 * config.width * config.head_dim * STATE_BYTES
    return state + CONV_TAPS * 3 * config.width * config.dtype_bytes


def phase_flops(config: HybridConfig) -> dict[str, int]:
    """FLOPs of each phase's products (2 a multiply-add) and of the KDA recurrence; norms and gates never bind."""
    c = config
    kda = c.hidden * (c.kda_in_rows + c.width) + 2 * c.width * GATE_RANK
    mla = c.hidden * (c.mla_in_rows + c.width) + 2 * c.width * c.latent + c.heads * c.ctx * (c.cache_dim + c.latent)
    moe = c.hidden * c.experts + c.top_k * expert_params(c) + 3 * c.hidden * c.shared_ffn
    per_row = {
        "attn_kda": 2 * kda + KDA_FLOPS * c.width * c.head_dim,
        "attn_mla": 2 * mla,
        "ffn": 6 * c.hidden * c.dense_ffn,
        "ffn_moe": 2 * moe,
        "head": 2 * c.vocab * c.hidden,
    }
    return {name: per_row[name] * c.batch * c.count(name) for name in PHASES}


def bytes_per_step(config: HybridConfig) -> int:
    return sum(phase_bytes(config).values())


def flops_per_step(config: HybridConfig) -> int:
    return sum(phase_flops(config).values())


def memory_bytes(config: HybridConfig) -> int:
    """Device memory for weights, caches and the rows of the experts ([experts, capacity, …]), in bytes."""
    c = config
    states = (
        c.count("attn_kda") * c.batch * _kda_row_bytes(c)
    )  # the state counts twice there: this errs on the safe side
    latents = c.count("attn_mla") * c.batch * c.ctx * c.cache_dim * c.dtype_bytes
    rows = c.experts * c.capacity * (2 * c.hidden + 3 * c.expert_ffn) * c.dtype_bytes
    return params(c) * c.dtype_bytes + states + latents + rows


def record(config: HybridConfig) -> dict[str, object]:
    """The workload record (`tracelab.workload` version 1) of one bf16 decode step, without its `variant`."""
    moved, flops = phase_bytes(config), phase_flops(config)
    return {
        "tracelab.workload": 1,
        "name": config.name,
        "model": f"{config.model}, {config.layers} layers, random weights",
        "params": params(config),
        "active_params": active_params(config),
        "dtype": "bf16",
        "batch": config.batch,
        "ctx": config.ctx,
        "tensor_parallel": 1,  # the sizes are those of one rank already
        "tokens_per_step": config.batch,
        "bytes_per_step": sum(moved.values()),
        "flops_per_step": sum(flops.values()),
        "phases": {trace_path(name): {"bytes": moved[name], "flops": flops[name]} for name in PHASES if moved[name]},
    }


def trace_path(phase: str) -> str:
    """The phase as a trace names it: layer ranges with their digits folded, the head outside of layers."""
    return phase if phase == "head" else f"L#/{phase}"
