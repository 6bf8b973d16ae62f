"""How blocks of the grouped GEMM divide the work: the shipped tiles, which one for which rows, their constants."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from tracelab.kernels._device import sm_count
from tracelab.kernels._kernel import INTERPRETED

INTERPRETED_BLOCKS = 3  # the interpreter runs blocks one after another: few, so that each takes several tiles
TMA_STRIDE_BYTES = 16  # row strides of a tensor map are multiples of it (CUDA driver API, cuTensorMapEncodeTiled)


@dataclass(frozen=True)
class Tile:
    """One block: `rows` × `cols` of the output, `depth` of K at a time; `blocks` of them on a multiprocessor.

    tma_a, tma_b  A or B by tensor map instead of cp.async
    flatten       one loop over tiles and K together, so that the pipeline does not drain between tiles
    group         row tiles that go through the weights together (contiguous only)
    """

    rows: int
    cols: int
    depth: int
    warps: int
    stages: int
    blocks: int
    tma_a: bool = False
    tma_b: bool = False
    flatten: bool = False
    group: int = 8

    def fitted(self, k: int, element_size: int, gathered: bool = False) -> "Tile":
        """The same by cp.async where rows of `k` elements, or rows from all over, cannot come by tensor map."""
        if not (self.tma_a or self.tma_b):
            return self  # also saves the launch path a copy
        mapped = k > 0 and k * element_size % TMA_STRIDE_BYTES == 0
        return replace(self, tma_a=self.tma_a and mapped and not gathered, tma_b=self.tma_b and mapped)

    def constants(self, k: int) -> dict[str, Any]:
        """The compile-time constants that both kernels take."""
        return {
            "BM": self.rows, "BN": self.cols, "BK": self.depth, "EVEN_K": k % self.depth == 0, "TMA_A": self.tma_a,
            "TMA_B": self.tma_b, "FLATTEN": self.flatten, "UP": INTERPRETED,
        }  # fmt: skip

    def grid(self, device: torch.device) -> int:
        """Blocks of one launch: all that the GPU holds at a time, whatever the rows."""
        return self.blocks * multiprocessors(device)


# Registers and shared memory as compiled for sm_90 by Triton 3.6.0.
DECODE = Tile(16, 128, 128, warps=4, stages=3, blocks=2, flatten=True)  # 128 registers, 74 KB
NARROW = Tile(16, 64, 128, warps=4, stages=4, blocks=2)  # 72 registers, 61 KB; twice the tiles, for few experts
BM64 = Tile(64, 128, 64, warps=4, stages=4, blocks=2)  # 164 registers, 98 KB
BM128 = Tile(128, 128, 64, warps=8, stages=4, blocks=1)  # 128 registers, 131 KB
PREFILL = Tile(128, 256, 64, warps=8, stages=3, blocks=1, tma_a=True, tma_b=True, flatten=True)  # 206 registers, 180 KB


def tile_for(rows: float, busy_experts: int, n: int, device: torch.device) -> Tile:
    """The tile for about `rows` rows in each of `busy_experts` experts, the ones that have any, with N = `n`."""
    if rows <= DECODE.rows:
        wide_tiles = busy_experts * -(-n // DECODE.cols)
        return DECODE if wide_tiles >= multiprocessors(device) else NARROW
    return BM64 if rows <= BM64.rows else PREFILL


def multiprocessors(device: torch.device) -> int:
    """Of the GPU; in the interpreter a few."""
    return sm_count(device) if device.type == "cuda" else INTERPRETED_BLOCKS
