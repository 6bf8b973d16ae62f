"""Launches of flash attention, and what the compiler must make of their kernels."""

import math
from typing import Any

import torch
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as SwizzledMap
from triton.tools.tensor_descriptor import TensorDescriptor

from tracelab.kernels._attention_device import flash_kernel, serial_kernel
from tracelab.kernels._attention_hopper import hopper_kernel
from tracelab.kernels._attention_shape import FLASH, Tile
from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._device import sm_count
from tracelab.kernels._kernel import INTERPRETED

DIM = 128  # head_dim of the sm_90 kernel
MAP_ROWS = {"Q": 64, "K": 128, "V": 128, "OUT": 64}  # rows of its tensor maps, in the order of its parameters
QUERIES = 128  # of its tile
# Rows of 256 B in two halves of 128, swizzled as wgmma reads them.
LAYOUT = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, *, causal: bool = False) -> None:
    """out = softmax(q·kᵀ/√d)·v, all [batch, heads, length, head_dim] and contiguous; head_dim a power of two ≥ 16.

    One launch, no host sync, no scratch.
    """
    if q.numel() and _specialised(q):
        _launch_specialised(q, k, v, out, causal)
    else:
        flash_triton(q, k, v, out, causal=causal)


def flash_triton(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, *, causal: bool = False, tile: Tile = FLASH
) -> None:
    """As `flash`, by tl.dot alone."""
    _launch(flash_kernel, -(-q.shape[2] // tile.rows), q, k, v, out, causal, tile)


def flash_serial(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, *, causal: bool = False, tile: Tile = FLASH
) -> None:
    """As `flash`, with one block a head."""
    _launch(serial_kernel, 1, q, k, v, out, causal, tile)


def _launch(
    kernel: Any,
    blocks: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    causal: bool,
    tile: Tile,
) -> None:
    """Start `blocks` × heads blocks; tensor maps of three dimensions, so that no tile reaches into the next head."""
    batch, heads, length, dim = q.shape
    if not q.numel():
        return
    maps = [
        TensorDescriptor.from_tensor(x.flatten(0, 1), [1, rows, dim])
        for x, rows in ((q, tile.rows), (k, tile.keys), (v, tile.keys), (out, tile.rows))
    ]
    kernel[(blocks, batch * heads)](
        *maps,
        length,
        math.log2(math.e) / math.sqrt(dim),
        **_constants(tile, dim, causal),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _constants(tile: Tile, dim: int, causal: bool) -> dict[str, int | bool]:
    return {"CAUSAL": causal, "BM": tile.rows, "BN": tile.keys, "D": dim, "UP": INTERPRETED}


def _specialised(q: torch.Tensor) -> bool:
    """Whether the sm_90 kernel can do these queries; its tensor maps must not reach into the next head."""
    return (
        not INTERPRETED
        and q.is_cuda
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.shape[3] == DIM
        and q.shape[2] % QUERIES == 0
        and torch.cuda.get_device_capability(q.device)[0] == 9
    )


def _launch_specialised(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, causal: bool) -> None:
    per_head = q.shape[2] // QUERIES
    tiles = q.shape[0] * q.shape[1] * per_head
    # Causal tiles differ in length: a block a tile, started as others end, keeps all SMs busy to the end.
    blocks = tiles if causal else min(tiles, sm_count(q.device))
    maps = [
        SwizzledMap.from_tensor(x.view(-1, DIM), [rows, DIM], LAYOUT)
        for x, rows in zip((q, k, v, out), MAP_ROWS.values(), strict=True)
    ]
    scale_log2 = math.log2(math.e) / math.sqrt(DIM)
    hopper_kernel[(blocks,)](*maps, tiles, per_head, scale_log2, CAUSAL=causal, num_warps=4)


def compile_specs() -> tuple[CompileSpec, ...]:
    """The shipped configuration at head_dim 128; registers as compiled by Triton 3.6.0 and 8 more."""
    return (
        _hopper_spec("flash", causal=False),
        _hopper_spec("flash causal", causal=True),
        _spec("flash_triton", flash_kernel, causal=False, registers=251),
        _spec("flash_triton causal", flash_kernel, causal=True, registers=255),
        _spec("flash_serial", serial_kernel, causal=False, registers=255, stack=128),
    )


def _spec(name: str, kernel: Any, causal: bool, registers: int, stack: int = 0) -> CompileSpec:
    """One configuration; the default length is a multiple of 16."""
    tile, dim = FLASH, 128
    maps = {"Q": tile.rows, "K": tile.keys, "V": tile.keys, "OUT": tile.rows}
    types = {parameter: f"tensordesc<bf16[1,{rows},{dim}]>" for parameter, rows in maps.items()}
    types |= {"length": "i32", "scale_log2": "fp32"}
    return CompileSpec(
        name=name,
        fn=kernel,
        signature={parameter: types.get(parameter, "constexpr") for parameter in kernel.arg_names},
        constexprs=_constants(tile, dim, causal) | {"UP": False},
        num_warps=tile.warps,
        num_stages=tile.stages,
        divisible=("length",),
        max_registers=registers,
        min_blocks_per_sm=1,
        wgmma=True,
        stack_bytes=stack,
    )


def _hopper_spec(name: str, causal: bool) -> CompileSpec:
    """168 registers at the start, which warp groups then share out as 240, 240 and 24."""
    types = {parameter: f"tensordesc<bf16[{rows}, {DIM}],{LAYOUT!r}>" for parameter, rows in MAP_ROWS.items()}
    types |= {"tiles": "i32", "per_head": "i32", "scale_log2": "fp32"}
    return CompileSpec(
        name=name,
        fn=hopper_kernel,
        signature={parameter: types.get(parameter, "constexpr") for parameter in hopper_kernel.arg_names},
        constexprs={"CAUSAL": causal},
        num_warps=4,
        num_stages=1,
        divisible=("tiles", "per_head"),
        max_registers=168,
        min_blocks_per_sm=1,
        wgmma=True,
    )
