"""Multi-head latent attention of one new token per sequence, in its absorbed form.

Math, for each head: o = softmax(scale·q·[c|r]ᵀ)·c over the cache rows [c|r] that all heads share, c the latent part and
r the rotary part of the keys; q = [W_UKᵀ·q_nope | q_rope] comes absorbed. Then value = o·W_UV of that head. Values are
the first `latent` columns of what serves as keys, so that a tile is loaded once for both. The context is cut into
slices as in split_kv; W_UV comes after their merge, in the same kernel.

query   [batch, heads, latent + rope]
cache   [batch, ctx_max, latent + rope], rows of any stride
W_UV    [heads, latent, value_dim]
out     latent [batch, heads, latent] and value [batch, heads, value_dim]

At latent 512 and rope 64 a token is 1152 B in bf16 and 2·1088 FLOPs a head: memory-bound at 12 heads (23 FLOPs a byte;
the H200 has 206), at its ridge with 96, compute-bound with 128. `scale` is that of the un-absorbed head,
(value_dim + rope)^-½.

Sources: DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1; its absorption of W_UK and W_UV, appendix C; the shapes are
those of DeepSeek-V3, Kimi K2 and Kimi-Linear.
"""

import math
import sys
from dataclasses import dataclass

import torch

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._kernel import Case, Options, Tensors, Work, poisoned, random
from tracelab.kernels._kernel_main import main
from tracelab.kernels._mla_launch import (
    CAPPED,
    DOT_FEW,
    DOT_MANY,
    FEW,
    MANY,
    PER_HEAD,
    SOME,
    WALK,
    Config,
    Scratch,
    config_for,
    decode,
    decode_plan,
    dot_config_for,
)
from tracelab.kernels._mla_specs import SWEEP, merge_spec, spec_of
from tracelab.kernels._split_plan import ceil_div

VARIANTS = {
    "batched_split": "blocks of heads on slices of the cache; copies and products by warps of their own",
    "batched_dot": "the same with tl.dot: the next tile is asked for only after the products of this one",
    "bh32_maxnreg": "32 heads a block and registers capped for 2 blocks per SM, yet slower than 1",
    "batched_unsplit": "starved: blocks of 16 heads walk the whole context, 6 blocks for 96 heads",
    "per_head_split": "starved: one head a block, 8 slices; each head streams the cache again, without tensor cores",
    "per_head_serial": "starved: one head a block walks the whole context",
}
DEFAULTS = {
    "variant": "batched_split",
    "batch": 1,
    "heads": 96,
    "ctx": 131072,
    "latent": 512,
    "rope": 64,
    "value_dim": 128,
    "gate": 0,
    "steps": 12,
    "graph": False,
}
CHECK = {"batch": 2, "heads": 3, "ctx": 203, "latent": 32, "rope": 16, "value_dim": 16}

PER_HEAD_SPLITS = 8  # whatever the grid: 768 blocks of 96 heads, one per SM, are 6 waves
PAST_END = 64  # rows of the cache behind the context, which hold NaN


@dataclass(frozen=True)
class Shape:
    """Sizes of one call."""

    batch: int
    heads: int
    ctx: int
    latent: int
    rope: int
    value_dim: int

    @property
    def width(self) -> int:
        """Columns of a query and of a cache row."""
        return self.latent + self.rope

    @property
    def scale(self) -> float:
        """That of the un-absorbed head."""
        return float((self.value_dim + self.rope) ** -0.5)

    def work(self, element_bytes: int, config: Config) -> Work:
        """Bytes and FLOPs of one call: query, cache, W_UV and both results once; scores, values and W_UV."""
        rows = self.batch * self.heads
        elements = rows * (self.width + self.latent + self.value_dim) + self.batch * self.ctx * self.width
        last = 2 * rows * self.latent * self.value_dim
        flops = 2 * rows * self.ctx * (self.width + self.latent) + last
        blocks = self.batch * ceil_div(self.heads, config.block_heads)
        scores = 2 * self.width if config.engine == "many" else self.width  # both of its warp groups compute them
        executed = 2 * blocks * config.block_heads * self.ctx * (scores + self.latent) + last
        return Work((elements + self.heads * self.latent * self.value_dim) * element_bytes, flops, executed)


def reference(query: torch.Tensor, cache: torch.Tensor, w_uv: torch.Tensor, length: int, scale: float) -> Tensors:
    """Both results in float64, one sequence at a time, by plain softmax over keys and values apart."""
    latent = w_uv.shape[1]
    merged = []
    for q, rows in zip(query.double(), cache, strict=True):
        keys = rows[:length].double()
        merged.append((q @ keys.T * scale).softmax(1) @ keys[:, :latent])
    stacked = torch.stack(merged)
    return [stacked, torch.einsum("bhc,hcv->bhv", stacked, w_uv.double())]


@dataclass(frozen=True)
class _Inputs:
    query: torch.Tensor
    cache: torch.Tensor
    w_uv: torch.Tensor


def _inputs(shape: Shape, copy: int, device: torch.device, dtype: torch.dtype) -> _Inputs:
    """Random inputs. The cache is longer than the context, and NaN where nothing may be read."""
    query = random(3 * copy, shape.batch, shape.heads, shape.width, device=device, dtype=dtype)
    cache = random(3 * copy + 1, shape.batch, shape.ctx + PAST_END, shape.width, device=device, dtype=dtype)
    cache[:, shape.ctx :] = math.nan
    size = (shape.heads, shape.latent, shape.value_dim)
    return _Inputs(query, cache, random(3 * copy + 2, *size, device=device, dtype=dtype, std=shape.latent**-0.5))


def case(options: Options, device: torch.device, dtype: torch.dtype, copies: int = 1) -> Case:
    """One variant on random inputs."""
    variant = str(options["variant"])
    shape = Shape(*(int(options[name]) for name in ("batch", "heads", "ctx", "latent", "rope", "value_dim")))
    configs = {"batched_dot": dot_config_for(shape.heads), "bh32_maxnreg": CAPPED, "batched_unsplit": WALK,
               "per_head_split": PER_HEAD, "per_head_serial": PER_HEAD}  # fmt: skip
    config = configs.get(variant) or config_for(shape.heads, shape.width, dtype, device)
    splits = {"per_head_split": PER_HEAD_SPLITS, "per_head_serial": 1, "batched_unsplit": 1}.get(variant)
    return case_of(shape, config, device, dtype, copies, gate=int(options["gate"]), splits=splits)


def case_of(
    shape: Shape,
    config: Config,
    device: torch.device,
    dtype: torch.dtype,
    copies: int = 1,
    *,
    gate: int = 0,
    splits: int | None = None,
) -> Case:
    """One configuration on random inputs, in as many slices as its plan says, or in `splits`."""
    plan = decode_plan(shape.ctx, shape.batch, shape.heads, device, config, latent=shape.latent, gate=gate)
    splits = plan.splits if splits is None or shape.ctx <= gate else splits
    rows = shape.batch * shape.heads
    scratch = Scratch.of(splits, rows, device, latent=shape.latent, value_dim=shape.value_dim)
    sets = [_inputs(shape, copy, device, dtype) for copy in range(copies)]
    latent, value = (
        poisoned(shape.batch, shape.heads, size, device=device, dtype=dtype) for size in (shape.latent, shape.value_dim)
    )

    def launch(copy: int) -> Tensors:
        s = sets[copy]
        decode(s.query, s.cache, s.w_uv, latent, value, scratch, shape.ctx, shape.scale, config)
        return [latent, value]

    def poison() -> None:
        scratch.poison()
        latent.fill_(math.nan)
        value.fill_(math.nan)

    blocks = shape.batch * ceil_div(shape.heads, config.block_heads) * splits
    return Case(
        launch=launch,
        reference=lambda i: reference(sets[i].query, sets[i].cache, sets[i].w_uv, shape.ctx, shape.scale),
        poison=poison,
        copies=copies,
        work=shape.work(dtype.itemsize, config),
        kernels=2,
        remark=f"{blocks} blocks, {config.name}",
    )


def sweep() -> tuple[tuple[Config, CompileSpec], ...]:
    """Blocks of 16, 32 and 64 heads to compare: `case_of` runs one, its spec gives registers and blocks per SM."""
    return tuple((config, spec_of(config)) for config in SWEEP)


def compile_specs() -> tuple[CompileSpec, ...]:
    """The shipped configurations; registers as compiled by Triton 3.6.0 and 8 more."""
    return (
        spec_of(MANY, registers=168, stack_bytes=72, on_device=True),
        spec_of(FEW, registers=128),
        spec_of(SOME, registers=128, stack_bytes=16),
        spec_of(DOT_MANY, registers=255),
        spec_of(DOT_FEW, registers=136),
        spec_of(CAPPED, registers=128),
        spec_of(WALK, registers=136),
        spec_of(PER_HEAD, registers=172),
        merge_spec(pieces=8, splits=128, registers=128),
        merge_spec(pieces=4, splits=64, registers=128),
    )


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
