"""What every bundled kernel offers: cases to launch, check against float64 and time, with their bytes and FLOPs."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

Options = Mapping[str, int | str | bool]
Tensors = Sequence[torch.Tensor]

# Triton reads the variable when a kernel is decorated, so it is constant for the life of the process. Interpreted bf16
# products are garbage (a known limit up to 3.9): kernels upcast both operands of a dot there.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

# Relative L2 error against float64 that a right kernel stays under, with room: seen are 4e-7, 2.7e-4 and 5.4e-3.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}


@dataclass(frozen=True)
class Work:
    """What one call must do, whatever the variant does on top.

    `bytes` counts each input read once and each output written once; `flops` the useful FLOPs (2 a multiply-add);
    `executed_flops` also those on padding rows of a tile.
    """

    bytes: int
    flops: int
    executed_flops: int


@dataclass(frozen=True)
class Case:
    """One variant of a kernel on inputs of its own.

    launch      runs once on input set `i` (0 ≤ i < copies) and returns its outputs; launches only, never synchronises
    reference   the same outputs in float64, in the same order, computed by other means; changes nothing. Where `launch`
                works in place, call it first
    poison      fills every output and scratch buffer with NaN
    copies      input sets; a timing rotates through them so that it reads HBM, not L2
    kernels     GPU kernels that one launch starts
    remark      one short phrase for the printed table, such as "η_tile 50 %"; may be empty
    tolerance   where the case's own rounding, a bf16 state say, is coarser than its dtype's: the error allowed instead
    """

    launch: Callable[[int], Tensors]
    reference: Callable[[int], Tensors]
    poison: Callable[[], None]
    copies: int
    work: Work
    kernels: int
    remark: str = ""
    tolerance: float | None = None


@dataclass(frozen=True)
class Table:
    """A table of a kernel's own, such as a sweep: a title with the shape, columns with units, and what to note."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def relative_l2(got: torch.Tensor, want: torch.Tensor) -> float:
    """‖got − want‖ / ‖want‖ in float64; infinite if anything is not finite, so that NaN never passes."""
    got64, want64 = got.double(), want.double().to(got.device)
    error = float((got64 - want64).norm() / want64.norm().clamp_min(1e-300))
    return error if math.isfinite(error) else math.inf


def worst_error(case: Case, copy: int = 0) -> float:
    """The largest relative L2 error of the case's outputs after one launch on poisoned buffers."""
    want = case.reference(copy)
    case.poison()
    got = case.launch(copy)
    return max(relative_l2(g, w) for g, w in zip(got, want, strict=True))


def random(seed: int, *size: int, device: torch.device, dtype: torch.dtype, std: float = 1.0) -> torch.Tensor:
    """Normal values of mean 0; the same for the same seed and device."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.empty(size, device=device, dtype=dtype).normal_(0.0, std, generator=generator)


def poisoned(*size: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """A buffer of NaN: what nobody wrote shows in the result."""
    return torch.full(size, float("nan"), device=device, dtype=dtype)
