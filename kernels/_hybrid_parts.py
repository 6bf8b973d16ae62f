"""The attentions and the mixture of experts of a hybrid model, from a normed row to what the last product takes.

Each has its buffers once, for all layers, and its kernels in their good form or in the starved one that it is told.
Rows from `live` on are there to fill up a graph's batch: they have no KDA slot, no context and no experts.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from tracelab.kernels import _mla_launch as mla
from tracelab.kernels import kda
from tracelab.kernels._device import sm_count
from tracelab.kernels._gemv import gate_up_silu, linear
from tracelab.kernels._grouped_tiles import BM128, Tile, tile_for
from tracelab.kernels._hybrid_ops import expand, latent_append
from tracelab.kernels._hybrid_shape import GATE_RANK, HybridConfig, experts_hit
from tracelab.kernels._hybrid_weights import KdaLayer, Maker, MlaLayer, MoeFfn
from tracelab.kernels._kda_chain import eager
from tracelab.kernels._moe_ops import assignment, combine, route, scatter, silu_mul
from tracelab.kernels.grouped_gemm import loop_matmul, masked_matmul

RMS_EPS = 1e-5  # rms_norm_eps in Kimi-Linear's config.json
PER_HEAD_SPLITS = 8  # as in mla's `per_head_split`


class Kda:
    """KDA between the norm and the out projection: 3 launches, 5 unfused."""

    def __init__(self, maker: Maker, live: int, starved: str | None) -> None:
        c = maker.config
        self.mixed = maker.empty(c.batch, c.width)
        self._projected = maker.empty(c.batch, c.kda_in_rows)
        expanded = maker.empty(2, c.batch, c.width)
        x, low, b = self._projected.split([3 * c.width, 2 * GATE_RANK, c.heads], 1)
        self._low, self._expanded = low.unflatten(1, (2, GATE_RANK)), expanded.transpose(0, 1)
        g, gate = expanded.unflatten(2, (c.heads, c.head_dim))
        self._token = kda.Token(x, g, b, gate)
        self._out = self.mixed.unflatten(1, (c.heads, c.head_dim))
        rows = torch.arange(c.batch, device=maker.device)
        self._row_of = torch.where(rows < live, rows, -1)
        self._slots = self._row_of.to(torch.int32)
        self._sms = sm_count(maker.device)
        self._mix = self._form(c, maker, starved)

    def __call__(
        self, normed: torch.Tensor, weights: KdaLayer, cache: kda.Cache, position: torch.Tensor
    ) -> torch.Tensor:
        """[batch, width] from [batch, hidden]; `position` [1] int32 is that of the new token."""
        linear(normed, weights.project, self._projected)
        expand(self._low, weights.expand, self._expanded)
        self._mix(weights.mixing, cache, position)
        return self.mixed

    def _form(
        self, config: HybridConfig, maker: Maker, starved: str | None
    ) -> Callable[[kda.Weights, kda.Cache, torch.Tensor], None]:
        """What runs the recurrence of one layer."""
        token, out, slots, gate = self._token, self._out, self._slots, config.gate
        good = kda.decode_plan(config.batch * config.heads, config.head_dim, self._sms)
        if starved == "eager":
            return lambda weights, cache, pos: eager(token, weights, cache, slots, self._row_of, pos, out, gate)
        if starved == "unfused":
            chain = kda.Chain(maker.empty(config.batch, 3 * config.width), torch.empty_like(out))
            tiles = kda.unfused_plan(config.batch * config.heads, config.head_dim, self._sms)
            return lambda weights, cache, pos: kda.step_unfused(
                token, weights, cache, slots, pos, out, chain, tiles, gate
            )
        plan = {
            "warps8": replace(kda.WARPS8, block_v=config.head_dim),
            "bv128": kda.Plan(config.head_dim, warps=4),
        }.get(starved or "", good)
        scratch = kda.Scratch.of(config.batch, config.heads, config.head_dim, maker.device)
        return lambda weights, cache, pos: kda.step(token, weights, cache, slots, pos, out, scratch, plan, gate)


class Mla:
    """Absorbed MLA between the norm and the out projection: 5 launches."""

    def __init__(self, maker: Maker, live: int, starved: str | None) -> None:
        c = maker.config
        self.mixed = maker.empty(c.batch, c.width)
        self._projected = maker.empty(c.batch, c.mla_in_rows)
        query, self._new = self._projected.split([c.heads * c.query_dim, c.cache_dim], 1)
        self._heads = query.unflatten(1, (c.heads, c.query_dim))
        self._query, self._latent = maker.empty(c.batch, c.heads, c.cache_dim), maker.empty(c.batch, c.heads, c.latent)
        self._value = self.mixed.unflatten(1, (c.heads, c.head_dim))
        self._scale = float(c.query_dim**-0.5)  # that of the head before W_UK is absorbed
        self._last = torch.full((1,), c.ctx - 1, device=maker.device, dtype=torch.int32)
        self._length = c.ctx if live == c.batch else _lengths(c, live, maker.device)
        self._config, splits = _mla_form(c, maker, starved)
        plan = mla.decode_plan(c.ctx, c.batch, c.heads, maker.device, self._config, latent=c.latent)
        self.splits = splits or plan.splits
        rows = c.batch * c.heads
        self._scratch = mla.Scratch.of(self.splits, rows, maker.device, latent=c.latent, value_dim=c.head_dim)

    def __call__(self, normed: torch.Tensor, weights: MlaLayer, cache: torch.Tensor) -> torch.Tensor:
        """[batch, width] from [batch, hidden]; the new token takes the last place of the context."""
        linear(normed, weights.project, self._projected)
        latent_append(self._new, weights.latent_norm, cache, self._last, eps=RMS_EPS)
        expand(self._heads, weights.absorb, self._query)
        mla.decode(
            self._query, cache, weights.value, self._latent, self._value, self._scratch, self._length, self._scale,
            self._config,
        )  # fmt: skip
        return self.mixed


def _lengths(config: HybridConfig, live: int, device: torch.device) -> torch.Tensor:
    """Tokens of each row: rows that only fill up the batch have none."""
    rows = torch.arange(config.batch, device=device)
    return torch.where(rows < live, config.ctx, 0).to(torch.int32)


def _mla_form(config: HybridConfig, maker: Maker, starved: str | None) -> tuple[mla.Config, int | None]:
    """Configuration, and the number of slices where a starved form does not take its plan's."""
    forms: dict[str, tuple[mla.Config, int | None]] = {
        "unsplit": (mla.WALK, 1),
        "perhead_serial": (mla.PER_HEAD, 1),
        "perhead_split": (mla.PER_HEAD, PER_HEAD_SPLITS),
        "bh32_maxnreg": (mla.CAPPED, None),
    }
    if starved is not None:
        return forms[starved]
    return mla.config_for(config.heads, config.cache_dim, maker.dtype, maker.device), None


class Moe:
    """A mixture of experts between its norm and the shared expert's down projection: 8 launches."""

    def __init__(self, maker: Maker, live: int, starved: str | None) -> None:
        c = maker.config
        self.routing = assignment(c.batch, c.experts, c.top_k, c.capacity, maker.device)
        self.shared = maker.empty(c.batch, c.shared_ffn)
        self._scale = c.routed_scale
        self._live = torch.full((1,), live, device=maker.device, dtype=torch.int32)
        self._logits = maker.empty(c.batch, c.experts)
        # Zeros: the loop multiplies slots that nothing was put into, too.
        self._rows = maker.empty(c.experts, c.capacity, c.hidden).zero_()
        self._gate_up = maker.empty(c.experts, c.capacity, 2 * c.expert_ffn)
        self._inner = maker.empty(c.experts, c.capacity, c.expert_ffn).zero_()
        self._results = maker.empty(c.experts, c.capacity, c.hidden)
        self._tiles = [_tile(c, n, maker.device, starved) for n in (2 * c.expert_ffn, c.hidden)]
        self._loop = starved == "loop"

    def __call__(self, normed: torch.Tensor, weights: MoeFfn, hidden: torch.Tensor) -> torch.Tensor:
        """Adds the routed experts to `hidden` in place; returns what the shared expert's down projection takes."""
        linear(normed, weights.router, self._logits)
        route(self._logits, weights.bias, self._live, self.routing, scale=self._scale)
        scatter(normed, self.routing, self._rows)
        self._multiply(self._rows, weights.gate_up, self._gate_up, self._tiles[0])
        silu_mul(self._gate_up, self.routing, self._inner)
        self._multiply(self._inner, weights.down, self._results, self._tiles[1])
        combine(self._results, hidden, self.routing, hidden)
        gate_up_silu(normed, weights.shared_gate_up, self.shared)
        return self.shared

    def _multiply(self, a: torch.Tensor, weights: torch.Tensor, out: torch.Tensor, tile: Tile) -> None:
        if self._loop:
            loop_matmul(a, weights, [self.routing.capacity] * weights.shape[0], out)
        else:
            masked_matmul(a, weights, self.routing.count, out, tile=tile)


def _tile(config: HybridConfig, outputs: int, device: torch.device, starved: str | None) -> Tile:
    """The tile of a grouped product with `outputs` columns, for as many rows an expert as are expected."""
    if starved == "bm128":
        return BM128
    busy = experts_hit(config)
    return tile_for(config.batch * config.top_k / busy, round(busy), outputs, device)
