"""Decode projections: every path against float64 in the interpreter, their grids, and controls that must fail."""

from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu

DTYPES = ["float32", "float16", "bfloat16"]
# [N, K] of Llama-8B's projections (gate and up joined), then of hidden sizes 2304 and 7168.
LLAMA = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)]
OTHERS = [(12832, 2304), (2304, 4096), (18432, 2304), (2304, 9216), (7168, 12288), (24576, 7168)]
SMS = 132


class Product:
    """Random x, weight and residual of one product, a poisoned output, and the truth in float64."""

    def __init__(self, torch: Any, batch: int, rows: int, columns: int, dtype: str, gated: bool = False) -> None:
        torch.manual_seed(batch * 1000 + columns)
        kind, self.rows = getattr(torch, dtype), rows
        self.x = torch.randn(batch, columns).to(kind)
        self.weight = (torch.randn(rows * (2 if gated else 1), columns) * columns**-0.5).to(kind)
        self.residual = torch.randn(batch, rows).to(kind)
        self.out = torch.full((batch, rows), float("nan"), dtype=kind)

    def plain(self) -> Any:
        return self.x.double() @ self.weight.double().T

    def gated(self) -> Any:
        """In torch's exp, independent of the kernel's silu."""
        both = self.plain()
        gate, up = both[:, : self.rows], both[:, self.rows :]
        return gate / (1 + (-gate).exp()) * up


def error(got: Any, want: Any) -> float:
    """Relative L2 error; NaN counts as infinite."""
    value = float((got.double() - want).norm() / want.norm())
    return value if value == value else float("inf")


def tolerance(torch: Any, dtype: str) -> float:
    from tracelab.kernels._kernel import TOLERANCE

    return TOLERANCE[getattr(torch, dtype)]


# batch, rows, columns, path: columns that are no multiple of a tile, rows that are no multiple of a block, one of each
SHAPES = [
    (1, 37, 50, "row"),
    (1, 533, 1100, "row"),
    (1, 1, 1, "row"),
    (2, 37, 50, "tile"),
    (3, 1, 1, "tile"),
    (17, 130, 100, "tile"),
    (5, 130, 1100, "tile, split"),
    (64, 70, 600, "tile, split"),
    (65, 37, 50, "cuBLAS"),
]


def path_of(gemv: Any, batch: int, rows: int, columns: int, gated: bool) -> str:
    config = gemv.config_for(batch, rows, columns, gated=gated)
    if config is None:
        return "cuBLAS"
    if isinstance(config, gemv.RowConfig):
        return "row"
    return "tile, split" if config.split > 1 else "tile"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "rows", "columns", "path"), SHAPES)
def test_linear(batch: int, rows: int, columns: int, path: str, dtype: str) -> None:
    torch, gemv = kernel_on_cpu("_gemv")
    assert path_of(gemv, batch, rows, columns, False) == path
    case = Product(torch, batch, rows, columns, dtype)
    gemv.linear(case.x, case.weight, case.out)
    assert error(case.out, case.plain()) <= tolerance(torch, dtype)
    want = case.residual.double() + case.plain()
    gemv.linear(case.x, case.weight, case.residual, residual=case.residual)  # in place, as a decode step adds
    assert error(case.residual, want) <= tolerance(torch, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "rows", "columns", "path"), SHAPES)
def test_gate_up_silu(batch: int, rows: int, columns: int, path: str, dtype: str) -> None:
    torch, gemv = kernel_on_cpu("_gemv")
    assert path_of(gemv, batch, 2 * rows, columns, True) == path
    case = Product(torch, batch, rows, columns, dtype, gated=True)
    gemv.gate_up_silu(case.x, case.weight, case.out)
    assert error(case.out, case.gated()) <= tolerance(torch, dtype)


@pytest.mark.parametrize("gated", [False, True])
def test_the_block_of_large_products(gated: bool) -> None:
    """16 rows and tiles of 1024 columns, as every product of Llama-8B gets; here on 50 rows."""
    torch, gemv = kernel_on_cpu("_gemv")
    config = gemv.config_for(1, 28672, 4096, gated=gated)
    case = Product(torch, 1, 50, 2100, "float32", gated)
    gemv.launch(config, case.x, case.weight, case.out, None, gated=gated)
    assert error(case.out, case.gated() if gated else case.plain()) <= 2e-6


def test_large_batches_are_cut_to_the_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, gemv = kernel_on_cpu("_gemv")
    case = Product(torch, 70, 37, 50, "float32", gated=True)
    room = gemv.Scratch(torch.full((2 * 37 * 32,), float("nan")), torch.zeros(1, dtype=torch.int32))  # 32 rows fit
    monkeypatch.setattr(gemv, "scratch", lambda _: room)
    gemv.gate_up_silu(case.x, case.weight, case.out)
    assert error(case.out, case.gated()) <= 2e-6


def split_product(torch: Any, gemv: Any, monkeypatch: pytest.MonkeyPatch, counted: int) -> tuple[Any, Any, Product]:
    """Runs a product of three parts a tile on poisoned scratch whose counters begin at `counted`."""
    case = Product(torch, 4, 130, 700, "float32")
    room = gemv.Scratch(torch.full((1 << 20,), float("nan")), torch.full((64,), counted, dtype=torch.int32))
    monkeypatch.setattr(gemv, "scratch", lambda _: room)
    config = gemv.TileConfig(rows=64, tokens=16, columns=64, warps=4, stages=6, split=3)

    def launch() -> None:
        gemv.launch(config, case.x, case.weight, case.out, None)

    return launch, room, case


def test_parts_are_added_and_counters_come_back_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, gemv = kernel_on_cpu("_gemv")
    launch, room, case = split_product(torch, gemv, monkeypatch, 0)
    launch()
    first = case.out.clone()
    assert error(first, case.plain()) <= 2e-6
    assert int(room.count.abs().sum()) == 0
    case.out.fill_(float("nan"))
    launch()  # a replayed graph finds the counters as the first launch did
    assert torch.equal(case.out, first)


def test_control_a_counter_that_was_not_reset_gives_a_wrong_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, gemv = kernel_on_cpu("_gemv")
    launch, _, case = split_product(torch, gemv, monkeypatch, 1)
    launch()
    assert error(case.out, case.plain()) > 1e-2


@pytest.mark.parametrize("batch", [1, 4])
def test_control_what_a_wrong_kernel_would_compute_is_far(batch: int) -> None:
    """Up before gate, a column of K left out, weight rows off by one: each is seen at these sizes."""
    torch, gemv = kernel_on_cpu("_gemv")
    case = Product(torch, batch, 40, 70, "float32", gated=True)
    gemv.gate_up_silu(case.x, case.weight, case.out)
    x, weight = case.x, case.weight
    damaged = {
        "halves": (x, weight.roll(40, 0)),
        "column": (torch.cat((x[:, :-1], torch.zeros(batch, 1)), 1), weight),
        "row": (x, weight.roll(1, 0)),
    }
    for name, (case.x, case.weight) in damaged.items():
        assert error(case.out, case.gated()) > 1e-2, name


@pytest.mark.parametrize(("rows", "columns"), LLAMA + OTHERS)
@pytest.mark.parametrize("batch", [1, 2, 16, 64])
@pytest.mark.parametrize("gated", [False, True])
def test_grids_fill_the_gpu(rows: int, columns: int, batch: int, gated: bool) -> None:
    """At most 10 % of the SMs get no block, and a split product fits its scratch."""
    _, gemv = kernel_on_cpu("_gemv")
    config = gemv.config_for(batch, rows, columns, gated=gated)
    split = getattr(config, "split", 1)
    blocks = -(-rows // config.rows) * split
    assert blocks >= 0.9 * SMS
    if split > 1:
        assert blocks * 2 * config.rows * config.tokens * 4 <= gemv.SCRATCH_BYTES
        assert blocks <= gemv.TILES


def test_bytes_in_flight_by_hand() -> None:
    # 4 blocks an SM (48 registers · 256 threads, 52 KB: the compile gate) × 3 tiles held × 16 rows × 512 × 2 B
    # = 196 608 B, more than the 128 KiB that the memory-bound kernels need
    _, gemv = kernel_on_cpu("_gemv")
    config = gemv.config_for(1, 6144, 4096, gated=False)
    assert 4 * (config.stages - 1) * config.rows * config.columns * 2 == 196_608 >= 128 << 10


def test_small_outputs_get_smaller_blocks() -> None:
    # 256 rows (a router): 4 a block make 64 blocks; 16 would make 16
    _, gemv = kernel_on_cpu("_gemv")
    assert gemv.config_for(1, 256, 2304, gated=False).rows == 4
    assert gemv.config_for(1, 2304, 4096, gated=False).rows == 16
