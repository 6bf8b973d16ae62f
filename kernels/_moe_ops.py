"""What a mixture of experts does around its grouped products: choose experts, give slots, move rows there and back.

Rows lie as the masked grouped GEMM wants them, [E, C, K] with count[E] (`kernels.md` section 8). Counts stay on the GPU
and every grid depends on shapes alone, so a CUDA graph can replay the four launches. Slots are given in row order by
one block, without atomics: the same input always lies in the same slots.

A row chooses an expert at most once, so a capacity of `batch` never overflows. With less, the rows that come last lose
that expert: their slot is -1, every launch here skips it, and `Assignment.dropped` says how many there were.

Routing is that of Kimi-Linear and DeepSeek-V3 (`moe_router_activation_func`, `moe_renormalize` and
`routed_scaling_factor` in config.json): the experts are the top k of sigmoid(logit) + bias, their weights are
sigmoid(logit) scaled to a given sum.
"""

from dataclasses import dataclass

import torch
import triton

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._moe_device import combine_kernel, route_kernel, scatter_kernel, silu_mul_kernel

ROUTE_ROWS = 8  # rows routed at a time, one warp each: with 256 experts 16 rows spill registers
COLUMNS = 512  # columns of a row that one block moves: 4 or 8 bytes-wide loads a thread, 5 to 14 blocks a row
TINY = 1e-20  # keeps the sum of the chosen scores from 0, as in DeepSeek-V3's gate


@dataclass(frozen=True)
class Assignment:
    """Where each choice of each row went: choice j of row b is row `slot` of expert `expert`; -1 and -1 for nowhere."""

    expert: torch.Tensor  # [batch, top_k] int32
    slot: torch.Tensor  # [batch, top_k] int32
    weight: torch.Tensor  # [batch, top_k] float32
    count: torch.Tensor  # [experts] int32, rows each expert has, at most the capacity
    dropped: torch.Tensor  # [1] int32, choices of the last launch that found no slot
    capacity: int

    @property
    def top_k(self) -> int:
        """Choices of a row."""
        return int(self.expert.shape[1])


def assignment(batch: int, experts: int, top_k: int, capacity: int, device: torch.device) -> Assignment:
    """Buffers for `route`. Raises ValueError if a row cannot choose `top_k` different experts."""
    if not 1 <= top_k <= experts:
        raise ValueError(f"top_k {top_k} is not between 1 and the {experts} experts")
    choices = torch.full((2, batch, top_k), -1, device=device, dtype=torch.int32)
    return Assignment(
        expert=choices[0],
        slot=choices[1],
        weight=torch.zeros(batch, top_k, device=device, dtype=torch.float32),
        count=torch.zeros(experts, device=device, dtype=torch.int32),
        dropped=torch.zeros(1, device=device, dtype=torch.int32),
        capacity=capacity,
    )


def route(logits: torch.Tensor, bias: torch.Tensor, live: torch.Tensor, into: Assignment, *, scale: float) -> None:
    """Choose experts and slots for the first `live` of the rows of `logits` [batch, experts]; the others get none.

    `bias` [experts] float32 counts for the choice alone; `live` is an int32 on the device; the weights of a row's
    choices add up to `scale` as long as none was dropped.
    """
    rows, experts = logits.shape
    lot, warps = _route_config(rows)
    route_kernel[(1,)](
        logits, bias, live, into.expert, into.slot, into.weight, into.count, into.dropped,
        rows, experts, into.capacity, scale,
        TOP_K=into.top_k, BB=lot, BE=triton.next_power_of_2(experts), EPS=TINY, num_warps=warps, num_stages=1,
    )  # fmt: skip


def _route_config(rows: int) -> tuple[int, int]:
    """Rows at a time and warps. A row's maximum is found within one warp, so there is one warp for each row."""
    lot = min(ROUTE_ROWS, triton.next_power_of_2(max(1, rows)))
    return lot, lot


def scatter(x: torch.Tensor, to: Assignment, out: torch.Tensor) -> None:
    """Copy rows of `x` [batch, K] to their slots in `out` [experts, capacity, K]; other slots are left as they are."""
    width = x.shape[1]
    grid = (to.expert.numel(), triton.cdiv(width, COLUMNS))
    scatter_kernel[grid](
        x, to.expert, to.slot, out, to.capacity, width, TOP_K=to.top_k, BC=COLUMNS, num_warps=4, num_stages=1
    )


def silu_mul(h: torch.Tensor, at: Assignment, out: torch.Tensor) -> None:
    """`out` [experts, capacity, I] = silu(gate) · up, with gate and up side by side in `h` [experts, capacity, 2 I]."""
    width = out.shape[2]
    grid = (at.expert.numel(), triton.cdiv(width, COLUMNS))
    silu_mul_kernel[grid](h, at.expert, at.slot, out, at.capacity, width, BC=COLUMNS, num_warps=4, num_stages=1)


def combine(y: torch.Tensor, residual: torch.Tensor, of: Assignment, out: torch.Tensor) -> None:
    """`out` [batch, K] = `residual` + each row's weighted experts from `y` [experts, capacity, K]; may be in place."""
    width = residual.shape[1]
    grid = (residual.shape[0], triton.cdiv(width, COLUMNS))
    combine_kernel[grid](
        y, residual, of.expert, of.slot, of.weight, out, of.capacity, width,
        TOP_K=of.top_k, BC=COLUMNS, num_warps=4, num_stages=1,
    )  # fmt: skip


def compile_specs() -> tuple[CompileSpec, ...]:
    """Routing over Kimi-Linear's 256 experts at batch 1 and 8 and more, and the three kernels that move rows."""
    route_types = {
        "LOGITS": "*bf16",
        "BIAS": "*fp32",
        **dict.fromkeys(("LIVE", "EXPERT", "SLOT"), "*i32"),
        "WEIGHT": "*fp32",
        **dict.fromkeys(("COUNT", "DROPPED"), "*i32"),
        **dict.fromkeys(("rows", "experts", "capacity"), "i32"),
        "scale": "fp32",
        **dict.fromkeys(("TOP_K", "BB", "BE", "EPS"), "constexpr"),
    }
    specs = [
        CompileSpec(
            name=f"route {lot}x256",
            fn=route_kernel,
            signature=route_types,
            constexprs={"TOP_K": 8, "BB": lot, "BE": 256, "EPS": TINY},
            num_warps=lot,
            num_stages=1,
            divisible=("LOGITS", "BIAS", "experts", "capacity"),
            max_registers=registers,
            min_blocks_per_sm=1,
            wgmma=False,
        )
        for lot, registers in ((1, 144), (ROUTE_ROWS, 176))
    ]
    sizes = {"capacity": "i32", "width": "i32"}
    places = {"EXPERT": "*i32", "SLOT": "*i32"}
    return (
        *specs,
        _mover("scatter", scatter_kernel, {"X": "*bf16", **places, "OUT": "*bf16", **sizes}, {"TOP_K": 8}),
        _mover("silu_mul", silu_mul_kernel, {"H": "*bf16", **places, "OUT": "*bf16", **sizes}, {}),
        _mover(
            "combine",
            combine_kernel,
            {"Y": "*bf16", "RESIDUAL": "*bf16", **places, "WEIGHT": "*fp32", "OUT": "*bf16", **sizes},
            {"TOP_K": 8},
        ),
    )


def _mover(name: str, fn: object, types: dict[str, str], constexprs: dict[str, object]) -> CompileSpec:
    constexprs = {**constexprs, "BC": COLUMNS}
    return CompileSpec(
        name=name,
        fn=fn,
        signature={**types, **dict.fromkeys(constexprs, "constexpr")},
        constexprs=constexprs,
        num_warps=4,
        num_stages=1,
        divisible=tuple(types),
        max_registers=64,
        min_blocks_per_sm=8,
        wgmma=False,
    )
