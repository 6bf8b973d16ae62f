"""Grouped GEMM of a mixture of experts: each expert multiplies rows of its own.

Math: OUT_e[:M_e] = A_e[:M_e]·B_eᵀ for every expert e, accumulated in float32; B is [E, N, K], as linear layers keep it.
Layouts, those of DeepGEMM:

masked      A [E, C, K], OUT [E, C, N], count [E] int32 on the GPU. Rows from count[e] on are neither read nor written.
            The grid depends on shapes alone, so a CUDA graph can replay the launch with other counts. With `token`
            [E, C] int32, A is [T, K] and slot j of expert e reads row token[e, j].
contiguous  A [R, K], OUT [R, N], expert [R] int32: rows sorted by expert, each expert's segment padded to whole tiles,
            -1 in the padding, whose rows are not written.

At 8 rows an expert the time is that of reading the weights (8 FLOPs a byte; the H200 has 206), and what counts is how
many bytes of them are on their way. A tile of T rows executes the FLOPs of T rows whatever it holds: η_tile =
ΣM_e / Σ⌈M_e/T⌉T is 50 % at 8 rows for T = 16, and 6.25 % for T = 128, where FLOPs on padding take longer than the
weights. Shapes: DeepSeek-V3's technical report (7168 → 2·2048 → 7168).
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._grouped_device import contiguous_kernel, masked_kernel
from tracelab.kernels._grouped_tiles import BM64, BM128, DECODE, NARROW, PREFILL, Tile, tile_for
from tracelab.kernels._kernel import Case, Options, Tensors, Work, poisoned, random
from tracelab.kernels._kernel_main import main

VARIANTS = {
    "masked": "slots [E, C, K] with counts on the GPU; one persistent grid of small row tiles",
    "contiguous": "rows sorted by expert and padded to whole tiles; one persistent grid",
    "dynamic": "masked, with blocks that take their tiles from an atomic queue",
    "bm64": "masked with tiles of 64 rows: most FLOPs are on padding",
    "bm128": "masked with tiles of 128 rows: FLOPs on padding take longer than the weights",
    "loop": "one torch.mm an expert: as many launches, each on a part of the GPU, counts known to the host",
    "bmm": "one torch.bmm over all slots, filled or not",
}

DEFAULTS = {
    "variant": "masked",
    "experts": 32,
    "rows": 8,
    "capacity": 32,
    "n": 4096,
    "k": 7168,
    "steps": 12,
    "graph": False,
}

CHECK = {"experts": 3, "rows": 5, "capacity": 7, "n": 70, "k": 150}


def masked_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    count: torch.Tensor,
    out: torch.Tensor,
    *,
    tile: Tile = DECODE,
    token: torch.Tensor | None = None,
    queue: torch.Tensor | None = None,
) -> None:
    """out[e, :count[e]] = a[e, :count[e]]·b[e]ᵀ; the other rows of `out` stay as they are. One launch, no host sync.

    a [E, C, K], or [T, K] with `token` [E, C] int32; b [E, N, K]; count [E] int32, where more than C counts as C;
    out [E, C, N]; all contiguous. With `queue`, two int32 zeros that each launch leaves zero, blocks take their tiles
    from a counter, not every grid-th; launches that overlap need a queue each.
    """
    experts, n, k = b.shape
    if not out.numel():
        return
    tile = tile.fitted(k, b.element_size(), gathered=token is not None)
    masked_kernel[(tile.grid(out.device),)](
        _operand(a, tile.tma_a, tile.rows, tile.depth),
        _operand(b, tile.tma_b, tile.cols, tile.depth),
        count,
        count if token is None else token,  # not read without GATHER
        out,
        count if queue is None else queue,  # not touched without DYNAMIC
        experts,
        out.shape[1],
        n,
        k,
        **_masked_constants(tile, experts, k, token is not None, queue is not None),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def contiguous_matmul(
    a: torch.Tensor, b: torch.Tensor, expert: torch.Tensor, out: torch.Tensor, *, tile: Tile = PREFILL
) -> None:
    """out[r] = a[r]·b[expert[r]]ᵀ where expert[r] ≥ 0; the other rows of `out` stay as they are. One launch.

    a [R, K], b [E, N, K], expert [R] int32, out [R, N]; all contiguous. Each `tile.rows` rows are of one expert, which
    the first of them names; from any of them on the rest is padding (-1).
    """
    n, k = b.shape[1:]
    if not out.numel():
        return
    tile = tile.fitted(k, b.element_size())
    contiguous_kernel[(tile.grid(out.device),)](
        _operand(a, tile.tma_a, tile.rows, tile.depth),
        _operand(b, tile.tma_b, tile.cols, tile.depth),
        expert,
        out,
        out.shape[0],
        n,
        k,
        **_contiguous_constants(tile, k),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def loop_matmul(a: torch.Tensor, b: torch.Tensor, counts: Sequence[int], out: torch.Tensor) -> None:
    """What `masked_matmul` does, as one torch.mm an expert; the host must know `counts`."""
    for expert, count in enumerate(counts):
        torch.mm(a[expert, :count], b[expert].T, out=out[expert, :count])


def _operand(matrices: torch.Tensor, mapped: bool, rows: int, depth: int) -> Any:
    """The tensor, or a tensor map over all its rows."""
    if not mapped:
        return matrices
    return TensorDescriptor.from_tensor(matrices.view(-1, matrices.shape[-1]), [rows, depth])


def _masked_constants(tile: Tile, experts: int, k: int, gather: bool, dynamic: bool) -> dict[str, Any]:
    own = {"EP": triton.next_power_of_2(experts), "GATHER": gather, "DYNAMIC": dynamic}
    return tile.constants(k) | own


def _contiguous_constants(tile: Tile, k: int) -> dict[str, Any]:
    return tile.constants(k) | {"GROUP": tile.group}


def tile_efficiency(counts: Sequence[int], tile_rows: int) -> float:
    """η_tile: the rows asked for, of those that tiles of `tile_rows` rows compute; 1 where there are none."""
    computed = sum(-(-count // tile_rows) * tile_rows for count in counts)
    return sum(counts) / computed if computed else 1.0


def work(counts: Sequence[int], n: int, k: int, element_size: int, tile_rows: int) -> Work:
    """Read are the weights of experts that have rows, their rows of A and the int32 counts; written the rows of OUT."""
    rows, busy = sum(counts), sum(count > 0 for count in counts)
    flops = 2 * rows * n * k
    return Work(
        bytes=(busy * n * k + rows * (n + k)) * element_size + 4 * len(counts),
        flops=flops,
        executed_flops=round(flops / tile_efficiency(counts, tile_rows)),
    )


@dataclass(frozen=True)
class _Inputs:
    a: torch.Tensor  # [E, C, K], NaN in the rows that no count covers
    b: torch.Tensor  # [E, N, K]
    count: torch.Tensor  # [E]
    expert: torch.Tensor  # [E·C], -1 in the same rows
    queue: torch.Tensor
    out: torch.Tensor  # [E, C, N]


def _inputs(seed: int, experts: int, rows: int, slots: int, n: int, k: int, **where: Any) -> _Inputs:
    """Every expert has `rows` of `slots` rows; the weights keep outputs near 1."""
    a = random(2 * seed, experts, slots, k, **where)
    a[:, rows:] = float("nan")
    index = {"device": where["device"], "dtype": torch.int32}
    expert = torch.arange(experts, **index)[:, None].repeat(1, slots)
    expert[:, rows:] = -1
    return _Inputs(
        a=a,
        b=random(2 * seed + 1, experts, n, k, std=max(1, k) ** -0.5, **where),
        count=torch.full((experts,), rows, **index),
        expert=expert.flatten(),
        queue=torch.zeros(2, **index),
        out=poisoned(experts, slots, n, **where),
    )


def _launcher(variant: str, tile: Tile, counts: Sequence[int]) -> Callable[[_Inputs], None]:
    """One variant on one input set."""
    if variant == "contiguous":
        return lambda i: contiguous_matmul(i.a.flatten(0, 1), i.b, i.expert, i.out.flatten(0, 1), tile=tile)
    if variant == "dynamic":
        return lambda i: masked_matmul(i.a, i.b, i.count, i.out, tile=tile, queue=i.queue)
    if variant == "loop":
        return lambda i: loop_matmul(i.a, i.b, counts, i.out)
    if variant == "bmm":
        return lambda i: torch.bmm(i.a, i.b.transpose(1, 2), out=i.out)
    return lambda i: masked_matmul(i.a, i.b, i.count, i.out, tile=tile)


def _executed_rows(variant: str, tile: Tile, capacity: int) -> int:
    """Rows that a product computes at a time; what cuBLAS adds to them is not known, so 1 for the loop."""
    return {"loop": 1, "bmm": capacity}.get(variant, tile.rows)


def case(options: Options, device: torch.device, dtype: torch.dtype, copies: int = 1) -> Case:
    """One variant on random inputs in which every expert has `rows` rows; `capacity` is at least that.

    Outputs: [E, rows, N]. Raises ValueError without an expert.
    """
    experts, rows, n, k = (int(options[name]) for name in ("experts", "rows", "n", "k"))
    if not experts:
        raise ValueError("there must be at least one expert")
    variant, counts = str(options["variant"]), [rows] * experts
    tile = {"bm64": BM64, "bm128": BM128}.get(variant) or tile_for(rows, experts, n, device)
    slots = max(rows, int(options["capacity"]))
    if variant == "contiguous":
        slots = -(-rows // tile.rows) * tile.rows
    sets = [_inputs(seed, experts, rows, slots, n, k, device=device, dtype=dtype) for seed in range(copies)]
    run = _launcher(variant, tile, counts)

    def launch(copy: int) -> Tensors:
        run(sets[copy])
        return (sets[copy].out[:, :rows],)

    def reference(copy: int) -> Tensors:
        inputs = sets[copy]
        products = [inputs.a[e, :rows].double() @ inputs.b[e].double().T for e in range(experts)]
        return (torch.stack(products),)

    def poison() -> None:
        for inputs in sets:
            inputs.out.fill_(float("nan"))

    executed = _executed_rows(variant, tile, slots)
    efficiency = 100 * tile_efficiency(counts, executed)
    return Case(
        launch=launch,
        reference=reference,
        poison=poison,
        copies=copies,
        work=work(counts, n, k, dtype.itemsize, executed),
        kernels=experts if variant == "loop" else 1,
        remark=f"{experts} launches" if variant == "loop" else f"η_tile {efficiency:.4g} %",
    )


def _spec(name: str, kernel: Any, tile: Tile, constants: dict[str, Any], registers: int) -> CompileSpec:
    """One configuration at the default shape, every number of which is a multiple of 16."""
    types = {
        "A": f"tensordesc<bf16[{tile.rows},{tile.depth}]>" if tile.tma_a else "*bf16",
        "B": f"tensordesc<bf16[{tile.cols},{tile.depth}]>" if tile.tma_b else "*bf16",
        "OUT": "*bf16",
        **dict.fromkeys(("COUNT", "TOKEN", "QUEUE", "EXPERT"), "*i32"),
        **dict.fromkeys(("E", "CAP", "ROWS", "N", "K"), "i32"),
    }
    signature = {parameter: types.get(parameter, "constexpr") for parameter in kernel.arg_names}
    return CompileSpec(
        name=name,
        fn=kernel,
        signature=signature,
        constexprs=constants,
        num_warps=tile.warps,
        num_stages=tile.stages,
        divisible=tuple(name for name, kind in signature.items() if kind in ("*bf16", "*i32", "i32")),
        max_registers=registers,
        min_blocks_per_sm=tile.blocks,
        wgmma=tile.rows >= 64,  # with fewer rows the compiler takes mma.sync
    )


def compile_specs() -> tuple[CompileSpec, ...]:
    """The shipped configurations; registers as compiled by Triton 3.6.0 and 8 more."""
    experts, k = 32, 7168
    masked = [("decode", DECODE, 136), ("narrow", NARROW, 80), ("bm64", BM64, 172), ("bm128", BM128, 136),
              ("prefill", PREFILL, 212)]  # fmt: skip
    return (
        *(
            _spec(name, masked_kernel, tile, _masked_constants(tile, experts, k, False, False), registers)
            for name, tile, registers in masked
        ),
        _spec("gather", masked_kernel, DECODE, _masked_constants(DECODE, experts, k, True, False), 136),
        _spec("dynamic", masked_kernel, DECODE, _masked_constants(DECODE, experts, k, False, True), 112),
        _spec("contiguous decode", contiguous_kernel, DECODE, _contiguous_constants(DECODE, k), 136),
        _spec("contiguous prefill", contiguous_kernel, PREFILL, _contiguous_constants(PREFILL, k), 212),
    )


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
