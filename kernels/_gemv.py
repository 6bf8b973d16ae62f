"""Decode projections: y = W·x for a few rows x, bound by reading W once; gate and up joined with silu(gate)·up.

Shapes: x [B, K], weight [N, K] (rows are outputs, K contiguous), y [B, N]; the gated form has weight [2I, K], gate rows
first, and y [B, I]. What limits it is bytes in flight (`kernels.md` sections 1 and 10): 128 KiB or more on each SM, so
the weights come by cp.async, several tiles ahead, in blocks that fill 132 SMs.

B = 1        CUDA cores: a block walks K for 16 rows. `tl.range(num_stages=…)` pipelines loads that feed no dot.
2 ≤ B ≤ 64   tensor cores, weight rows on M and tokens on N. A grid that underfills splits K; the block that comes last
             to a tile adds the parts in their order, so the same input always gives the same result.
B > 64       cuBLAS: the product is on its way to the compute bound there.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._gemv_device import gemv_row, gemv_tile, silu_mul
from tracelab.kernels._kernel import INTERPRETED
from tracelab.kernels._split_plan import SMS

WHOLE_ROW = 4096  # elements of x that 4 warps hold beside 4 weight rows without spilling
MIN_BLOCKS = 120  # of a grid: fewer than a tenth of the SMs stay empty
LARGEST_TILED_BATCH = 64
SCRATCH_BYTES = 64 << 20  # parts of split products, and gate and up of large batches
TILES = 1 << 14  # tiles of one product that can be split, one counter each
LARGEST_SPLIT = 8
SILU_COLUMNS = 1024


@dataclass(frozen=True)
class RowConfig:
    """One row x: `rows` weight rows a block (gate and up together), `columns` of K a tile, `stages` - 1 tiles held."""

    rows: int
    columns: int
    warps: int
    stages: int


@dataclass(frozen=True)
class TileConfig:
    """Several rows x: as RowConfig, with up to `tokens` rows x, and K cut in about `split` parts."""

    rows: int
    tokens: int
    columns: int
    warps: int
    stages: int
    split: int = 1


@dataclass(frozen=True)
class Scratch:
    """What split products leave for the last of their blocks. One stream at a time may use it."""

    partial: torch.Tensor  # float32
    count: torch.Tensor  # [TILES] int32, 0 between launches


Config = RowConfig | TileConfig


def linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, *, residual: torch.Tensor | None = None) -> None:
    """out [B, N] = x [B, K]·weightᵀ (+ residual [B, N], which may be `out` itself). One launch.

    All are contiguous and of one dtype.
    """
    batch, columns = x.shape
    config = config_for(batch, weight.shape[0], columns, gated=False)
    if config is not None:
        launch(config, x, weight, out, residual)
    elif residual is None:
        torch.mm(x, weight.T, out=out)
    else:
        torch.addmm(residual, x, weight.T, out=out)


def gate_up_silu(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """out [B, I] = silu(x·gateᵀ)·(x·upᵀ), weight [2I, K] = gate above up. One launch, two or more where B > 64."""
    batch, columns = x.shape
    config = config_for(batch, weight.shape[0], columns, gated=True)
    if config is not None:
        launch(config, x, weight, out, None, gated=True)
        return
    both = scratch(x.device).partial.view(x.dtype)
    at_once = both.numel() // weight.shape[0]
    for first in range(0, batch, at_once):
        rows = min(at_once, batch - first)
        product = both[: rows * weight.shape[0]].view(rows, -1)
        torch.mm(x[first : first + rows], weight.T, out=product)
        grid = (rows, triton.cdiv(out.shape[1], SILU_COLUMNS))
        silu_mul[grid](product, out[first:], out.shape[1], BLOCK=SILU_COLUMNS, num_warps=4)


def config_for(batch: int, weight_rows: int, columns: int, *, gated: bool) -> Config | None:
    """The configuration for a weight [weight_rows, columns]; None where cuBLAS is used."""
    if batch > LARGEST_TILED_BATCH:
        return None
    return _row_config(weight_rows, columns) if batch == 1 else _tile_config(batch, weight_rows, columns, gated)


def _row_config(weight_rows: int, columns: int) -> RowConfig:
    """Many weight rows: whole rows of x and weights in registers. Else 16 rows a block in 4 stages, fewer where the
    grid would leave SMs empty. Measured on an H200 against wider, longer and shallower tiles.
    """
    wide = max(16, min(512, triton.next_power_of_2(columns)))
    if weight_rows >= 128 * SMS and WHOLE_ROW // 4 <= columns <= WHOLE_ROW and columns & (columns - 1) == 0:
        return RowConfig(4, columns, warps=4, stages=1)
    rows = 16
    while rows > 4 and -(-weight_rows // rows) < SMS:
        rows //= 2
    return RowConfig(rows, wide, warps=8 if rows * wide >= 8192 else 4, stages=4)


def _tile_config(batch: int, weight_rows: int, columns: int, gated: bool) -> TileConfig:
    """128 weight rows a block where there are many, else 64 and longer tiles; K split until nearly every SM has one."""
    tokens = max(16, triton.next_power_of_2(batch))
    many = gated or weight_rows >= 128 * SMS
    rows, longest = (128, 64) if many else (64, 128)
    wide = max(16, min(longest, triton.next_power_of_2(columns)))
    split = min(-(-MIN_BLOCKS // -(-weight_rows // rows)), columns // wide, LARGEST_SPLIT)
    return TileConfig(rows, tokens, wide, warps=rows // 16, stages=4, split=max(1, split))


def launch(
    config: Config,
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor | None,
    *,
    gated: bool = False,
) -> None:
    """Run one product as `config` says; the shapes are those of `linear` and `gate_up_silu`."""
    (batch, columns), rows = x.shape, out.shape[1]
    block = config.rows // 2 if gated else config.rows
    tiles = triton.cdiv(rows, block)
    options: dict[str, Any] = {
        "BM": block, "BK": config.columns, "GATED": gated, "RES": residual is not None,
        "EVEN": columns % config.columns == 0, "num_warps": config.warps,
    }  # fmt: skip
    added = out if residual is None else residual
    if isinstance(config, RowConfig):
        gemv_row[(tiles,)](x, weight, added, out, rows, columns, STAGES=config.stages, **options)
        return
    part = triton.cdiv(triton.cdiv(columns, config.columns), config.split) * config.columns
    split = triton.cdiv(columns, part)
    room = scratch(x.device) if split > 1 else Scratch(out, out)
    gemv_tile[(tiles, split)](
        x, weight, added, out, room.partial, room.count, batch, rows, columns, part, BT=config.tokens, SPLIT=split,
        UP=INTERPRETED, num_stages=config.stages, **options,
    )  # fmt: skip


@functools.cache
def scratch(device: torch.device) -> Scratch:
    """The scratch of `device`, made at the first call, which must not be inside a graph capture: warm up before."""
    partial = torch.empty(SCRATCH_BYTES // 4, device=device, dtype=torch.float32)
    return Scratch(partial, torch.zeros(TILES, device=device, dtype=torch.int32))


def compile_specs() -> tuple[CompileSpec, ...]:
    """The configurations of Llama-8B and Kimi-Linear projections; registers as compiled by Triton 3.6.0 and 8 more."""
    return (
        _spec("row", _row_config(6144, 4096), 4096, 56, 4),
        _spec("row, residual", _row_config(4096, 14336), 14336, 56, 4, residual=True),
        _spec("row, gated", _row_config(28672, 4096), 4096, 104, 4, gated=True),
        _spec("row, odd K", _row_config(6144, 2304), 2304, 56, 4),
        _spec("tile 16, split", _tile_config(16, 4096, 4096, False), 4096, 56, 2, residual=True),
        _spec("tile 16, gated", _tile_config(16, 28672, 4096, True), 4096, 46, 3, gated=True),
        _spec("tile 64, split", _tile_config(64, 4096, 14336, False), 14336, 100, 1, residual=True),
        _spec("tile 64, gated", _tile_config(64, 28672, 4096, True), 4096, 72, 2, gated=True),
        _spec("tile 64, wide", _tile_config(64, 128256, 4096, False), 4096, 72, 2),
    )


def _spec(
    name: str, config: Config, columns: int, registers: int, blocks: int, *, gated: bool = False, residual: bool = False
) -> CompileSpec:
    constants: dict[str, object] = {
        "BM": config.rows // 2 if gated else config.rows, "BK": config.columns,
        "GATED": gated, "RES": residual, "EVEN": columns % config.columns == 0,
    }  # fmt: skip
    if isinstance(config, TileConfig):
        fn, more = gemv_tile, {"BT": config.tokens, "SPLIT": config.split, "UP": False}
    else:
        fn, more = gemv_row, {"STAGES": config.stages}
    constants |= more
    types = {"PARTIAL": "*fp32", "COUNT": "*i32", "B": "i32", "N": "i32", "K": "i32", "PART": "i32"}
    signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in fn.arg_names}
    return CompileSpec(
        name=name,
        fn=fn,
        signature=signature,
        constexprs=constants,
        num_warps=config.warps,
        num_stages=config.stages,
        divisible=tuple(name for name, kind in signature.items() if kind != "constexpr" and name != "B"),
        max_registers=registers,
        min_blocks_per_sm=blocks,
        wgmma=isinstance(config, TileConfig),
    )
