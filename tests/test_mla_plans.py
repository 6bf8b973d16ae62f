"""Plans, sweep, tables and the bytes and FLOPs of multi-head latent attention: what its launches are to be."""

from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu


def chosen(torch: Any, monkeypatch: pytest.MonkeyPatch, heads: int, **other: Any) -> Any:
    """The configuration for `heads` heads of 512 + 64 in bf16, or `other`, on an sm_90 as if there was one."""
    from tracelab.kernels import _mla_launch

    monkeypatch.setattr(_mla_launch, "INTERPRETED", other.get("interpreted", False))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (other.get("major", 9), 0))
    dtype, width = other.get("dtype", torch.bfloat16), other.get("width", 576)
    return _mla_launch.config_for(heads, width, dtype, torch.device("cuda"))


@pytest.mark.parametrize(
    ("heads", "name"),
    [(1, "FEW"), (12, "FEW"), (16, "FEW"), (17, "FEW"), (32, "FEW"), (33, "SOME"), (64, "SOME"), (65, "SOME"),
     (96, "SOME"), (97, "MANY"), (128, "MANY"), (192, "MANY")],
)  # fmt: skip
def test_the_configuration_follows_the_heads(heads: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, _ = kernel_on_cpu("mla")
    from tracelab.kernels import _mla_launch

    assert chosen(torch, monkeypatch, heads) is getattr(_mla_launch, name)


def test_tl_dot_where_the_specialised_kernels_do_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another width, float32, another architecture, the interpreter."""
    torch, _ = kernel_on_cpu("mla")
    for other in ({"width": 48}, {"dtype": torch.float32}, {"major": 10}, {"major": 8}, {"interpreted": True}):
        assert chosen(torch, monkeypatch, 12, **other).engine == "dot"


@pytest.mark.parametrize("dependent", [False, True])
def test_the_merge_overlaps_the_split_where_the_gpu_can(dependent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decode step asks for it; the merge timed alone does not, as merges of a row would overlap each other."""
    torch, module = kernel_on_cpu("mla")
    from tracelab.kernels import _mla_launch

    asked = []

    class Recorded:
        def __getitem__(self, _grid: tuple[int, ...]) -> Any:
            return lambda *_, PDL, launch_pdl, **__: asked.append((PDL, launch_pdl))  # noqa: N803

    monkeypatch.setattr(_mla_launch, "mla_merge", Recorded())
    monkeypatch.setattr(_mla_launch, "dependent_launches", lambda _: dependent)
    launches = module.parts({**module.DEFAULTS, **module.CHECK}, torch.device("cpu"), 2)
    for name in ("split", "merge", "sum"):
        launches[name](1)
    assert asked == [(False, False), (dependent, dependent)]


@pytest.mark.parametrize(
    ("rows", "pieces"),
    [(1, 8), (12, 8), (16, 8), (32, 8), (33, 8), (34, 4), (66, 4), (67, 2), (96, 2), (128, 2), (132, 2), (133, 1)],
)
def test_all_blocks_of_the_merge_run_at_once(rows: int, pieces: int) -> None:
    """132 SMs hold 264 blocks of 8, of 4 and of 2 pieces a head."""
    kernel_on_cpu("mla")
    from tracelab.kernels._mla_launch import merge_chunk, merge_pieces

    assert merge_pieces(rows, 512, 132) == pieces
    assert merge_pieces(rows, 128, 132) <= 2  # 64 columns each
    # 4 warps × 32 threads × 32 floats hold 64 slices of 64 columns
    assert merge_chunk(128, 8, 512) == 64 and merge_chunk(3, 8, 512) == 4 and merge_chunk(1, 8, 512) == 1
    assert merge_chunk(44, 2, 512) == 8  # 4 × 32 × 16 floats: 8 slices of 256 columns


def test_tables_put_registers_beside_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep, fastest first, without what cannot launch; then the launches of a step."""
    torch, module = kernel_on_cpu("mla")
    from tracelab.kernels._bench import Timing
    from tracelab.kernels._compile import Compiled

    times = iter(range(99, 0, -1))
    monkeypatch.setattr(module, "time_launches", lambda *_: Timing(1e3 * next(times), 0.0, 1, 1))
    shape = {**module.DEFAULTS, **module.CHECK}
    for blocks, rows in ((2, len(module.sweep()) - 3), (0, 0)):  # the warp-specialised three know no such columns
        monkeypatch.setattr(module, "compile_spec", lambda *_, b=blocks: Compiled(96, 0, 1024, b, 0, 1))
        sweep, launches = module.tables(shape, torch.device("cpu"))
        assert len(sweep.rows) == rows and all(len(row) == len(sweep.columns) for row in sweep.rows)
        assert [float(row[5]) for row in sweep.rows] == sorted(float(row[5]) for row in sweep.rows)
        assert all(row[8:10] == ("96", "2") for row in sweep.rows)
        assert [row[0] for row in launches.rows] == ["split", "merge", "sum"]


def test_bytes_and_flops_by_hand() -> None:
    _, module = kernel_on_cpu("mla")
    from tracelab.kernels._mla_launch import DOT_MANY, FEW, MANY

    # 131 072 rows of 1152 B are 150 994 944 B; of 96 heads the query has 96·576, the results 96·(512 + 128) and W_UV
    # 96·512·128 elements of 2 B: 110 592 + 122 880 + 12 582 912
    shape = module.Shape(1, 96, 131_072, 512, 64, 128)
    work = shape.work(2, MANY)
    assert work.bytes == 150_994_944 + 110_592 + 122_880 + 12_582_912
    # 2·96·131 072·1088 = 27 380 416 512 and 2·96·512·128 = 12 582 912; the padding of 96 heads to 128 is 4/3 of it
    assert work.flops == 27_380_416_512 + 12_582_912
    assert shape.work(2, DOT_MANY).executed_flops == 27_380_416_512 * 4 // 3 + 12_582_912
    # both warp groups of "many" compute the scores: 2·128·131 072·(2·576 + 512)
    assert work.executed_flops == 55_834_574_848 + 12_582_912
    assert module.Shape(1, 12, 10, 512, 64, 128).work(2, FEW).executed_flops == 2 * 16 * 10 * 1088 + 2 * 12 * 512 * 128


@pytest.mark.parametrize("heads", [96, 48, 24, 12, 8, 1])
def test_plans_fill_the_gpu(heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 131 072 tokens 128 to 132 blocks; §5 of the plan asks for 0.9 of 132."""
    torch, _ = kernel_on_cpu("mla")
    from tracelab.kernels import _mla_launch as launching

    config = chosen(torch, monkeypatch, heads)
    plan = launching.decode_plan(131_072, 1, heads, torch.device("cpu"), config)
    assert 0.9 * 132 <= -(-heads // config.block_heads) * plan.splits <= 132


def test_the_sweep_names_each_configuration_once() -> None:
    _, module = kernel_on_cpu("mla")
    names = [config.name for config, _ in module.sweep()]
    assert len(names) == len(set(names)) >= 15
    assert {config.block_heads for config, _ in module.sweep()} == {16, 32, 64}
    for config, spec in module.sweep():
        assert set(spec.constexprs) == {name for name, kind in spec.signature.items() if kind == "constexpr"}
        assert spec.min_blocks_per_sm == config.blocks_per_sm
