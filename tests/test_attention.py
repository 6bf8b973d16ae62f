"""Attention in Triton's interpreter, with the shipped tile of 128 queries and 128 keys, against float64."""

from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu

DTYPES = ("float32", "float16", "bfloat16")
VARIANTS = ["flash", "flash_triton", "naive", "naive_folded", "sdpa", "flash_serial"]
WRONG = 1e-2  # an invariant that is broken must show at least so much
H200_TABLE = {"batch": 1, "heads": 32, "head_dim": 128, "causal": 0}  # the shapes of the traffic table


def error(torch: Any, module: Any, dtype: str = "float32", **options: int | str) -> float:
    """Relative L2 error of one launch on buffers full of NaN."""
    from tracelab.kernels._kernel import worst_error

    asked = {**module.DEFAULTS, **module.CHECK, **options}
    return worst_error(module.case(asked, torch.device("cpu"), getattr(torch, dtype)))


def tolerance(torch: Any, dtype: str = "float32") -> float:
    from tracelab.kernels._kernel import TOLERANCE

    return TOLERANCE[getattr(torch, dtype)]


def model() -> Any:
    """The module of bytes and FLOPs, which imports torch."""
    kernel_on_cpu("attention")
    from tracelab.kernels import _attention_shape

    return _attention_shape


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_against_float64(variant: str, dtype: str, causal: int) -> None:
    """301 of 3 · 128 queries and keys: two tiles in the loop without a mask, the last in the one with."""
    torch, module = kernel_on_cpu("attention")
    assert list(module.VARIANTS) == VARIANTS
    assert error(torch, module, dtype, variant=variant, causal=causal) <= tolerance(torch, dtype)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("length", [1, 127, 128, 129, 256])
@pytest.mark.parametrize("variant", ["flash", "flash_serial"])
def test_lengths_beside_the_tile(variant: str, length: int, causal: int) -> None:
    """One masked tile alone; at 128 one without a mask alone; at 129 both; at 256 two without, nothing is padding."""
    torch, module = kernel_on_cpu("attention")
    assert error(torch, module, variant=variant, length=length, causal=causal, heads=1) <= tolerance(torch)


def test_batch_and_heads() -> None:
    """Six heads of 150 keys each: a tile that reaches past a head's last key must not read the next head's."""
    torch, module = kernel_on_cpu("attention")
    assert error(torch, module, batch=2, heads=3, length=150, head_dim=16) <= tolerance(torch)


@pytest.mark.parametrize("head_dim", [16, 64, 128])
def test_head_dimensions(head_dim: int) -> None:
    """Two tiles of keys, the second masked."""
    torch, module = kernel_on_cpu("attention")
    assert error(torch, module, heads=1, length=200, head_dim=head_dim, causal=1) <= tolerance(torch)


@pytest.mark.parametrize("head_dim", [0, 8, 48])
def test_head_dimension_that_cannot_be_tiled_is_refused(head_dim: int) -> None:
    torch, module = kernel_on_cpu("attention")
    with pytest.raises(ValueError, match="power of two"):
        error(torch, module, head_dim=head_dim)


@pytest.mark.parametrize("variant", ["flash", "naive", "naive_folded", "flash_serial"])
@pytest.mark.parametrize("empty", ["batch", "heads", "length"])
def test_nothing_to_attend(variant: str, empty: str) -> None:
    """An empty tensor launches nothing of ours and fails nowhere."""
    torch, module = kernel_on_cpu("attention")
    sizes = {"batch": 1, "heads": 2, "length": 5, empty: 0}
    options: dict[str, int | str] = {**module.DEFAULTS, **module.CHECK, **sizes, "variant": variant}
    case = module.case(options, torch.device("cpu"), torch.float32)
    assert case.launch(0)[0].numel() == 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [64, 128])
def test_tiles_that_are_not_shipped(rows: int, causal: bool) -> None:
    """64 keys, as a sweep uses them; with 128 queries and a causal mask two tiles of keys need the mask."""
    torch, module = kernel_on_cpu("attention")
    tile = model().Tile(rows=rows, keys=64, warps=4, stages=2)
    q, k, v = (torch.randn(1, 1, 301, 32, generator=torch.Generator().manual_seed(i)) for i in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    out = torch.full_like(q, float("nan"))
    module.flash_triton(q, k, v, out, causal=causal, tile=tile)
    assert float((out - want).norm() / want.norm()) <= tolerance(torch)


def test_scores_that_grow_along_the_keys() -> None:
    """Each tile's maximum is far above the last one's, from either end: sums shrink by factors down to 2^-100."""
    torch, module = kernel_on_cpu("attention")
    q = torch.ones(1, 1, 130, 16)
    v = torch.randn(1, 1, 130, 16, generator=torch.Generator().manual_seed(1))
    ramp = torch.linspace(-9, 9, 130)[None, None, :, None].expand(1, 1, 130, 16)
    for k in (ramp.contiguous(), ramp.flip(2).contiguous()):
        out = torch.full_like(q, float("nan"))
        module.flash(q, k, v, out)
        want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
        assert float((out - want).norm() / want.norm()) <= 5 * tolerance(torch)  # scores of 36 and exp2 in float32


@pytest.mark.parametrize("variant", ["flash", "flash_serial"])
def test_without_the_rescale_the_result_is_wrong(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: sums are not multiplied by exp2(m_old − m_new) when the maximum grows."""
    torch, module = kernel_on_cpu("attention")
    from tracelab.kernels import _attention_device as device

    right = device._softmax

    def forgetful(*arguments: Any) -> Any:
        p, shrink, m, total = right(*arguments)
        return p, shrink * 0.0 + 1.0, m, total

    assert error(torch, module, variant=variant) <= tolerance(torch)
    monkeypatch.setattr(device, "_softmax", forgetful)
    assert error(torch, module, variant=variant) > WRONG


def test_one_key_of_the_future_makes_the_result_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the causal mask admits the key after the query's own."""
    torch, module = kernel_on_cpu("attention")
    from tracelab.kernels import _attention_device as device

    right = device._seen
    assert error(torch, module, causal=1) <= tolerance(torch)
    monkeypatch.setattr(device, "_seen", lambda row, *rest: right(row + 1, *rest))
    assert error(torch, module, causal=1) > WRONG


def test_a_mask_left_out_makes_the_result_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the zeros that pad the last tile of keys take part in the softmax."""
    torch, module = kernel_on_cpu("attention")
    from tracelab.kernels import _attention_device as device

    right = device._seen
    monkeypatch.setattr(device, "_seen", lambda row, key, length, *rest: right(row, key, length + 83, *rest))
    assert error(torch, module) > WRONG


def test_long_prompts_are_checked_on_every_row_of_a_tile() -> None:
    """4096 rows: every 9th, 456 of them, ending at the last; 9 is odd, so all 128 rows of a tile have their turn."""
    torch, module = kernel_on_cpu("attention")
    options = {**module.DEFAULTS, "variant": "sdpa", "heads": 1, "head_dim": 16}
    case = module.case(options, torch.device("cpu"), torch.float32)
    assert case.launch(0)[0].shape == case.reference(0)[0].shape == (1, 1, 456, 16)
    assert {row % 128 for row in range(4095 % 9, 4096, 9)} == set(range(128))


def test_work_by_hand() -> None:
    """4096: 4·4096·128·32·2 B = 134 217 728; 4·4096²·128·32 = 274 877 906 944 FLOPs, with a causal mask half."""
    shape = model()
    full = shape.work(shape.Shape(1, 32, 128, 4096, False), "flash", 2)
    assert (full.bytes, full.flops, full.executed_flops) == (134_217_728, 274_877_906_944, 274_877_906_944)
    causal = shape.work(shape.Shape(1, 32, 128, 4096, True), "flash", 2)
    assert (causal.bytes, causal.flops) == (134_217_728, 137_438_953_472)
    # 32 query tiles meet 1 + 2 + … + 32 = 528 key tiles of 128 × 128: 4·128·32·528·128² FLOPs
    assert causal.executed_flops == 4 * 128 * 32 * 528 * 128**2 == 141_733_920_768
    assert shape.work(shape.Shape(1, 32, 128, 4096, True), "naive", 2).executed_flops == 274_877_906_944
    # 301 rows are padded to 384 on both sides
    assert shape.work(shape.Shape(1, 1, 16, 301, False), "flash", 4).executed_flops == 4 * 16 * 384 * 384


def test_traffic_by_hand() -> None:
    """A pass is 2·32·4096² B = 1 073 741 824; 6 of them and the inputs and output 6.58 GB, 4 of them 4.43 GB."""
    shape = model()
    at_4k = {**H200_TABLE, "length": 4096}
    assert shape.traffic_bytes(at_4k, "flash") == shape.traffic_bytes(at_4k, "sdpa") == 134_217_728
    assert shape.traffic_bytes(at_4k, "naive") == 6 * 1_073_741_824 + 134_217_728 == 6_576_668_672
    assert shape.traffic_bytes(at_4k, "naive_folded") == 4 * 1_073_741_824 + 134_217_728 == 4_429_185_024
    assert shape.traffic_bytes({**at_4k, "causal": 1}, "naive") == 8 * 1_073_741_824 + 134_217_728
    # 16 times as much at 16 384: 103.6 and 69.3 GB against 537 MB, 193 and 129 times
    at_16k = {**H200_TABLE, "length": 16384}
    ratios = [shape.traffic_bytes(at_16k, v) / shape.traffic_bytes(at_16k, "flash") for v in ("naive", "naive_folded")]
    assert ratios == [193, 129]


def test_traffic_rows_time_each_variant_at_each_length() -> None:
    """With a clock of our own: every row is a launch that ran, its rate bytes over time."""
    torch, module = kernel_on_cpu("attention")
    from tracelab.kernels._bench import Timing

    launched: list[int] = []

    def measure(launch: Any, copies: int) -> Timing:
        launch(copies - 1)
        launched.append(copies)
        return Timing(ns=1000.0, spread=0.0, calls=1, replays=1)

    options = {**module.DEFAULTS, "heads": 1, "head_dim": 16}
    rows = list(module.traffic_rows(options, torch.device("cpu"), torch.float32, lengths=(8, 16), measure=measure))
    assert [(row.length, row.variant) for row in rows] == [
        (length, variant) for length in (8, 16) for variant in ("naive", "naive_folded", "flash")
    ]
    # 16 · 16 scores of 4 B, 6 times, and 4 · 16 · 16 elements of Q, K, V and OUT; over 1 µs
    assert rows[3].bytes == 6 * 1024 + 4096
    assert rows[3].bytes_per_s == pytest.approx(10_240 / 1e-6)
    assert launched == [64] * 6


def test_kernels_counted() -> None:
    """One of ours; four of torch with a scale of its own, three without; one more with a mask."""
    torch, module = kernel_on_cpu("attention")

    def kernels(variant: str, causal: int) -> int:
        options = {**module.DEFAULTS, **module.CHECK, "variant": variant, "causal": causal}
        return int(module.case(options, torch.device("cpu"), torch.float32).kernels)

    assert [kernels(variant, 0) for variant in VARIANTS] == [1, 1, 4, 3, 1, 1]
    assert [kernels(variant, 1) for variant in VARIANTS] == [1, 1, 5, 4, 1, 1]


def test_shipped_configurations_are_those_of_the_launch() -> None:
    _, module = kernel_on_cpu("attention")
    specs = {spec.name: spec for spec in module.compile_specs()}
    assert list(specs) == ["flash", "flash causal", "flash_triton", "flash_triton causal", "flash_serial"]
    for name in ("flash_triton", "flash_triton causal", "flash_serial"):
        tile = model().FLASH
        assert (specs[name].num_warps, specs[name].num_stages) == (tile.warps, tile.stages)
        assert specs[name].constexprs["BM"] == tile.rows
        assert specs[name].constexprs["UP"] is False
