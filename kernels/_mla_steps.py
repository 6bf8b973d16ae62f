"""Inputs, reference and launches of mla, of one configuration: for its cases and its tables."""

import math
from dataclasses import dataclass

import torch

from tracelab.kernels._kernel import Tensors, Work, poisoned, random
from tracelab.kernels._mla_launch import Config, Scratch, attend, decode, decode_plan, merge
from tracelab.kernels._split_plan import ceil_div

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
class Inputs:
    """Query and cache of one call, and the weights that W_UV names."""

    query: torch.Tensor
    cache: torch.Tensor
    w_uv: torch.Tensor


def inputs_of(shape: Shape, copy: int, device: torch.device, dtype: torch.dtype) -> Inputs:
    """Random inputs. The cache is longer than the context, and NaN where nothing may be read."""
    query = random(3 * copy, shape.batch, shape.heads, shape.width, device=device, dtype=dtype)
    cache = random(3 * copy + 1, shape.batch, shape.ctx + PAST_END, shape.width, device=device, dtype=dtype)
    cache[:, shape.ctx :] = math.nan
    size = (shape.heads, shape.latent, shape.value_dim)
    return Inputs(query, cache, random(3 * copy + 2, *size, device=device, dtype=dtype, std=shape.latent**-0.5))


@dataclass(frozen=True)
class Steps:
    """The two launches of one configuration on input sets of their own."""

    shape: Shape
    sets: list[Inputs]
    scratch: Scratch
    out: list[torch.Tensor]
    config: Config

    def attend(self, copy: int) -> None:
        """The first launch alone."""
        s = self.sets[copy]
        attend(s.query, s.cache, self.scratch, self.shape.ctx, self.shape.scale, self.config)

    def merge(self, copy: int) -> None:
        """The second alone, on what the first has left."""
        latent, value = self.out
        merge(self.sets[copy].w_uv, latent, value, self.scratch)

    def both(self, copy: int) -> None:
        """A decode step: the second overlaps the end of the first, where the GPU can."""
        s, shape = self.sets[copy], self.shape
        latent, value = self.out
        decode(s.query, s.cache, s.w_uv, latent, value, self.scratch, shape.ctx, shape.scale, self.config)


def steps_of(
    shape: Shape,
    config: Config,
    device: torch.device,
    dtype: torch.dtype,
    copies: int,
    *,
    gate: int = 0,
    splits: int | None = None,
) -> Steps:
    """Launches on random inputs, in as many slices as the plan says, or in `splits`; the first result is still NaN."""
    plan = decode_plan(shape.ctx, shape.batch, shape.heads, device, config, latent=shape.latent, gate=gate)
    splits = plan.splits if splits is None or shape.ctx <= gate else splits
    rows = shape.batch * shape.heads
    scratch = Scratch.of(splits, rows, device, latent=shape.latent, value_dim=shape.value_dim)
    sets = [inputs_of(shape, copy, device, dtype) for copy in range(copies)]
    out = [
        poisoned(shape.batch, shape.heads, size, device=device, dtype=dtype) for size in (shape.latent, shape.value_dim)
    ]
    return Steps(shape, sets, scratch, out, config)
