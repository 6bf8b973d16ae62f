"""The grouped GEMM in Triton's interpreter: three blocks walk all tiles, so that each takes several."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu

DTYPES = ("float32", "float16", "bfloat16")
# tiles far smaller than the shipped ones, so that small shapes have many of them, whole and partial, in N and K
SMALL = {"rows": 16, "cols": 16, "depth": 16, "warps": 4, "stages": 3, "blocks": 1}
FORMS: dict[str, dict[str, bool]] = {
    "cp.async": {},
    "tma": {"tma_a": True, "tma_b": True},
    "tma weights": {"tma_b": True},
    "flat": {"flatten": True},
}


@dataclass(frozen=True)
class Problem:
    a: Any
    b: Any
    count: Any
    out: Any
    counts: list[int]

    def wrong_by(self) -> float:
        """‖out − reference‖ / ‖reference‖ over the rows that count; fails if any other row was written."""
        got, want = [], []
        for e, count in enumerate(self.counts):
            got.append(self.out[e, :count].double())
            want.append(self.a[e, :count].double() @ self.b[e].double().T)
            assert self.out[e, count:].isnan().all()
        return relative(got, want)


def relative(got: list[Any], want: list[Any]) -> float:
    difference = sum(float(((g - w) ** 2).sum()) for g, w in zip(got, want, strict=True))
    return float((difference / max(1e-300, sum(float((w**2).sum()) for w in want))) ** 0.5)


def problem(torch: Any, counts: list[int], n: int, k: int, dtype: str = "float32", slots: int = 20) -> Problem:
    """Random rows and weights; rows that no count covers are NaN in A, as the dispatch may leave them, and in OUT."""
    generator = torch.Generator().manual_seed(len(counts) * n + k)
    a = torch.randn(len(counts), slots, k, generator=generator)
    for e, count in enumerate(counts):
        a[e, count:] = float("nan")
    b = torch.randn(len(counts), n, k, generator=generator) * max(1, k) ** -0.5
    kind = getattr(torch, dtype)
    return Problem(
        a=a.to(kind),
        b=b.to(kind),
        count=torch.tensor(counts, dtype=torch.int32),
        out=torch.full((len(counts), slots, n), float("nan"), dtype=kind),
        counts=counts,
    )


def tolerance(torch: Any, dtype: str) -> float:
    from tracelab.kernels._kernel import TOLERANCE

    return TOLERANCE[getattr(torch, dtype)]


def run_case(torch: Any, module: Any, dtype: str, **options: int | str) -> float:
    from tracelab.kernels._kernel import worst_error

    asked = {**module.DEFAULTS, **module.CHECK, **options}
    return worst_error(module.case(asked, torch.device("cpu"), getattr(torch, dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["masked", "contiguous", "dynamic", "bm64", "bm128", "loop", "bmm"])
def test_every_variant_against_float64(variant: str, dtype: str) -> None:
    """Shipped tiles on the odd shape: one row tile, a partial column tile, a partial K block (150 of 2 × 128)."""
    torch, module = kernel_on_cpu("grouped_gemm")
    assert list(module.VARIANTS) == ["masked", "contiguous", "dynamic", "bm64", "bm128", "loop", "bmm"]
    assert run_case(torch, module, dtype, variant=variant) <= tolerance(torch, dtype)


@pytest.mark.parametrize(
    ("variant", "rows", "n", "k"),
    [
        ("masked", 5, 1000, 128),  # 3 experts × 8 wide tiles fill the 6 blocks: DECODE, whole K blocks
        ("masked", 40, 70, 64),  # BM64
        ("masked", 130, 260, 64),  # PREFILL: two row tiles an expert, by tensor map
        ("contiguous", 130, 260, 64),  # PREFILL, segments padded to 256 rows
        ("contiguous", 130, 40, 30),  # rows of 120 bytes cannot come by tensor map: cp.async
        ("dynamic", 40, 200, 64),
    ],
)
def test_the_tile_follows_the_rows(variant: str, rows: int, n: int, k: int) -> None:
    torch, module = kernel_on_cpu("grouped_gemm")
    assert run_case(torch, module, "float32", variant=variant, rows=rows, n=n, k=k) <= 2e-6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("counts", [[0, 1, 16, 17, 20], [0, 0, 0], [0, 20, 0, 0, 0], [99, 3]])
def test_masked_counts(counts: list[int], form: str) -> None:
    """None, one, a whole tile, one more, full; all empty; one hot expert; a count beyond the slots. 3 column tiles."""
    torch, module = kernel_on_cpu("grouped_gemm")
    p = problem(torch, [min(20, count) for count in counts], n=37, k=48)
    count = torch.tensor(counts, dtype=torch.int32)
    module.masked_matmul(p.a, p.b, count, p.out, tile=module.Tile(**SMALL, **FORMS[form]))
    assert p.wrong_by() <= 2e-6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [0, 1, 50, 64])
def test_depths(k: int, form: str) -> None:
    """No product at all, one column, a partial last block (no tensor map: 200 bytes a row), whole blocks."""
    torch, module = kernel_on_cpu("grouped_gemm")
    p = problem(torch, [3, 0, 18], n=20, k=k)
    module.masked_matmul(p.a, p.b, p.count, p.out, tile=module.Tile(**SMALL, **FORMS[form]))
    assert p.wrong_by() <= 2e-6


def test_no_output_is_no_launch() -> None:
    torch, module = kernel_on_cpu("grouped_gemm")
    for experts, slots, n in [(0, 4, 8), (2, 0, 8), (2, 4, 0)]:
        out = torch.empty(experts, slots, n)
        a, b, count = torch.empty(experts, slots, 8), torch.empty(experts, n, 8), torch.zeros(experts).int()
        module.masked_matmul(a, b, count, out)
        module.contiguous_matmul(a.flatten(0, 1), b, torch.zeros(experts * slots).int(), out.flatten(0, 1))
    assert run_case(torch, module, "float32", variant="masked", rows=0) == 0
    with pytest.raises(ValueError, match="at least one expert"):
        run_case(torch, module, "float32", experts=0)


def test_the_queue_is_ready_for_the_next_launch() -> None:
    """Every launch of the dynamic form computes all tiles and leaves both counters at 0, as a graph's replays need."""
    torch, module = kernel_on_cpu("grouped_gemm")
    queue = torch.zeros(2, dtype=torch.int32)
    for counts in ([20, 0, 17], [0, 0, 0], [1, 2, 3]):
        p = problem(torch, counts, n=37, k=32)
        module.masked_matmul(p.a, p.b, p.count, p.out, tile=module.Tile(**SMALL), queue=queue)
        assert p.wrong_by() <= 2e-6
        assert queue.tolist() == [0, 0]
    queue[0] = 1  # negative control: a counter not set back loses a tile
    p = problem(torch, [20, 0, 17], n=37, k=32)
    module.masked_matmul(p.a, p.b, p.count, p.out, tile=module.Tile(**SMALL), queue=queue)
    assert p.out[0, :16, :16].isnan().all()


@pytest.mark.parametrize("form", FORMS)
def test_gathered_rows_equal_copied_ones(form: str) -> None:
    """Bit for bit; unused slots hold token numbers that would read far outside."""
    torch, module = kernel_on_cpu("grouped_gemm")
    tile, counts, slots = module.Tile(**SMALL, **FORMS[form]), [17, 0, 4], 20
    p = problem(torch, counts, n=37, k=48)
    tokens = torch.randn(30, 48)
    token = torch.randint(30, (3, slots), dtype=torch.int32)
    copied = tokens[token.long()]
    for e, count in enumerate(counts):
        token[e, count:] = 2147480000
    gathered = p.out.clone()
    module.masked_matmul(tokens, p.b, p.count, gathered, tile=tile, token=token)
    module.masked_matmul(copied, p.b, p.count, p.out, tile=tile)
    assert torch.equal(gathered.nan_to_num(7), p.out.nan_to_num(7))
    assert replace(p, a=copied).wrong_by() <= 2e-6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("counts", [[17, 0, 5, 48], [0, 1], [16, 16]])
def test_contiguous_padding_is_not_written(counts: list[int], form: str) -> None:
    """Segments padded to 16 rows, an expert without rows, then two tiles of padding alone and a partial one (-1)."""
    torch, module = kernel_on_cpu("grouped_gemm")
    p = problem(torch, counts, n=37, k=48, slots=48)
    expert, rows = [], []
    for e, count in enumerate(counts):
        padded = -(-count // 16) * 16
        expert += [e] * count + [-1] * (padded - count)
        rows.append(p.a[e, :padded])
    expert += [-1] * 37
    a = torch.cat([*rows, torch.full((37, 48), float("nan"))])
    out = torch.full((len(expert), 37), float("nan"))
    tile = module.Tile(**SMALL, **FORMS[form], group=2)
    module.contiguous_matmul(a, p.b, torch.tensor(expert, dtype=torch.int32), out, tile=tile)
    taken = torch.tensor(expert) >= 0
    assert out[~taken].isnan().all()
    want = torch.cat([p.a[e, :count].double() @ p.b[e].double().T for e, count in enumerate(counts)])
    assert relative([out[taken].double()], [want]) <= 2e-6


@pytest.mark.parametrize("tile", ["DECODE", "NARROW", "BM64", "BM128", "PREFILL"])
def test_rounding_is_that_of_bfloat16_alone(tile: str) -> None:
    """1 − 2Σxy/Σ(x² + y²) < 1e-5, DeepGEMM's bound. Rounding the result gives 1.3e-6, cutting it off, as the
    interpreter does, 5e-6. Partial column tiles, 3 or 6 whole K blocks."""
    torch, module = kernel_on_cpu("grouped_gemm")
    p = problem(torch, [20, 0, 9], n=150, k=384, dtype="bfloat16")
    module.masked_matmul(p.a, p.b, p.count, p.out, tile=getattr(module, tile))
    got = torch.cat([p.out[e, :count].double() for e, count in enumerate(p.counts)])
    want = torch.cat([p.a[e, :count].double() @ p.b[e].double().T for e, count in enumerate(p.counts)])
    assert float(1 - 2 * (got * want).sum() / (got**2 + want**2).sum()) < 1e-5


def test_the_next_experts_weights_are_noticed() -> None:
    """Negative control: an expert index off by one."""
    torch, module = kernel_on_cpu("grouped_gemm")
    p = problem(torch, [3, 18, 5], n=37, k=48)
    module.masked_matmul(p.a, p.b.roll(1, 0), p.count, p.out, tile=module.Tile(**SMALL))
    assert p.wrong_by() > 1e-2


def test_a_dropped_block_of_k_is_noticed() -> None:
    """Negative control at the real depth: one of 56 blocks of 128 missing is an error of √(1/56) = 0.13."""
    torch, module = kernel_on_cpu("grouped_gemm")
    p = problem(torch, [2], n=8, k=7168, slots=2)
    whole = p.a.clone()
    p.a[:, :, 5 * 128 : 6 * 128] = 0
    module.masked_matmul(p.a, p.b, p.count, p.out)
    assert p.wrong_by() <= 2e-6
    assert 0.05 < replace(p, a=whole).wrong_by() < 0.3


def test_tile_efficiency_by_hand() -> None:
    _, module = kernel_on_cpu("grouped_gemm")
    eta = module.tile_efficiency
    # 8 rows: 8 of 16, of 64, of 128 rows computed; 16 rows of C = 32 slots; 17 rows need two tiles of 16
    assert [eta([8] * 32, t) for t in (16, 64, 128)] == [0.5, 0.125, 0.0625]
    assert eta([16] * 4, 32) == 0.5
    assert eta([17, 0], 16) == 17 / 32
    assert eta([0, 0], 16) == 1


def test_tile_efficiency_of_random_routing() -> None:
    """2048 rows to 256 experts at random: 8 each, nearly all in one tile of 32; numbers of kernels.md, section 8."""
    torch, module = kernel_on_cpu("grouped_gemm")
    generator = torch.Generator().manual_seed(1)
    chosen = torch.multinomial(torch.ones(256), 2048, replacement=True, generator=generator)
    counts = torch.bincount(chosen, minlength=256).tolist()
    for tile, wanted in [(128, 0.0625), (64, 0.125), (32, 0.25), (16, 0.496)]:
        assert module.tile_efficiency(counts, tile) == pytest.approx(wanted, rel=0.02)


def test_work_by_hand() -> None:
    _, module = kernel_on_cpu("grouped_gemm")
    # gate-up: 32·4096·7168 weights, 256 rows of 7168 in and of 4096 out, 2 B each: 1.8848 GB, and 32 counts of 4 B
    work = module.work([8] * 32, 4096, 7168, 2, 16)
    assert work.bytes == 2 * (939_524_096 + 1_835_008 + 1_048_576) + 128
    assert work.flops == 15_032_385_536  # 2·256·4096·7168
    assert work.executed_flops == 2 * work.flops
    assert module.work([8] * 32, 4096, 7168, 2, 128).executed_flops == 16 * work.flops
    # one of three experts with rows: only its 5·7 weights are read, 2 rows of 7 in and of 5 out
    assert module.work([0, 2, 0], 5, 7, 4, 16).bytes == 4 * (35 + 14 + 10) + 12
    assert module.work([0, 0], 5, 7, 4, 16) == type(work)(bytes=8, flops=0, executed_flops=0)


def test_the_remark_names_the_tile_efficiency() -> None:
    torch, module = kernel_on_cpu("grouped_gemm")

    def remark(variant: str, rows: int) -> str:
        options = {**module.DEFAULTS, "n": 8, "k": 8, "variant": variant, "rows": rows}
        return str(module.case(options, torch.device("cpu"), torch.float32).remark)

    assert remark("masked", 8) == "η_tile 50 %"
    assert remark("bm64", 8) == "η_tile 12.5 %"
    assert remark("bm128", 8) == "η_tile 6.25 %"
    assert remark("bmm", 8) == "η_tile 25 %"
    assert remark("masked", 17) == "η_tile 26.56 %"
    assert remark("loop", 8) == "32 launches"


def test_tiles_for_rows() -> None:
    """The interpreter counts as 3 multiprocessors: four tiles of 128 columns give each a block, two do not."""
    torch, module = kernel_on_cpu("grouped_gemm")
    cpu = torch.device("cpu")
    assert module.tile_for(8, 32, 4096, cpu) is module.DECODE
    assert module.tile_for(16, 2, 256, cpu) is module.DECODE
    assert module.tile_for(16, 1, 256, cpu) is module.NARROW
    assert module.tile_for(17, 32, 4096, cpu) is module.BM64
    assert module.tile_for(65, 1, 16, cpu) is module.PREFILL
