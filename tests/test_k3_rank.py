"""k3-rank: parameters, bytes and FLOPs by hand, the options, and the step's numerics in the interpreter."""

import json
from pathlib import Path
from typing import Any

import pytest
from hybrid_reference import HybridReference, relative_l2, tiny, tiny_step, two_errors

from tracelab.capture.recordings import normalised, workload_defaults
from tracelab.kernels import _hybrid_shape as shape
from tracelab.kernels import _record, _step_main, k3_rank, kimi_linear_mini
from tracelab.registry import literal

ALL_HEADS = k3_rank.config(batch=1, ctx=131072, layers=24, heads=96)
EIGHTH = k3_rank.config(batch=1, ctx=131072, layers=24, heads=12)
TINY = tiny(ALL_HEADS)
TOLERANCE = 2e-6  # float32 against float64; seen are 2e-7 to 7e-7
H200_BYTES_PER_S = 4.8e12


def test_three_layers_of_four_are_kda_and_all_have_experts() -> None:
    assert [ALL_HEADS.count(phase) for phase in shape.PHASES] == [18, 6, 0, 24, 1]
    # the whole model: 69 KDA layers and 24 MLA, the last one of which does not come fourth
    whole = k3_rank.config(1, 1, 93, 96)
    assert [whole.count(phase) for phase in shape.PHASES] == [69, 24, 0, 93, 1]
    assert [layer + 1 for layer in range(93) if whole.attention(layer) == "attn_mla"][-2:] == [92, 93]


def test_kernels_per_step() -> None:
    # kernels.md section 11: 18·5 + 6·7 + 24·10 + 5 = 377, whatever the heads; 93 layers 69·5 + 24·7 + 930 + 5 = 1448
    assert shape.kernels_per_step(ALL_HEADS) == shape.kernels_per_step(EIGHTH) == 377
    assert shape.kernels_per_step(k3_rank.config(1, 1, 93, 96)) == 1448
    # 2·15 launches more in each of 24 mixtures
    assert shape.kernels_per_step(ALL_HEADS, {"moe": "loop"}) == 377 + 720


def test_parameters_by_hand() -> None:
    # KDA, 96 heads: rows 3·12 288 + 256 + 96 = 37 216, with out 12 288: 49 504·7168 = 354 844 672; f_up and g_up
    # 2·12 288·128 = 3 145 728; norm 7168; 13·12 288 + 96 + 128 = 159 968: 358 157 536. MLA: rows 96·192 + 576 = 19 008,
    # with out 31 296·7168 = 224 329 728; W_UK, W_UV 2·12 288·512 = 12 582 912; norms 7168 + 512: 236 920 320.
    # Experts: router 16·7169 + shared 3·7168·1536 + norm 7168 = 33 152 016, and 16 of 33 030 144. Head 163841·7168.
    assert shape.part_params(ALL_HEADS) == {
        "attn_kda": 358_157_536, "attn_mla": 236_920_320, "ffn": 7168, "ffn_moe": 33_152_016, "head": 1_174_412_288,
    }  # fmt: skip
    assert shape.expert_params(ALL_HEADS) == 33_030_144
    read = 18 * 358_157_536 + 6 * 236_920_320 + 24 * (33_152_016 + 8 * 33_030_144) + 1_174_412_288
    assert shape.active_params(ALL_HEADS) == read
    assert shape.params(ALL_HEADS) == read + 24 * 8 * 33_030_144 + 163_840 * 7168


def test_a_kda_layer_is_that_of_the_reference() -> None:
    # kernels.md section 11: projections 714 MB = 149 µs (q, k, v, out, f, g; β adds 1.4 MB); section 7: state read and
    # written 12.58 MB
    projections = 2 * (4 * 7168 * 12_288 + 2 * (7168 * 128 + 128 * 12_288))
    assert (round(projections / 1e6), round(projections / H200_BYTES_PER_S * 1e6)) == (715, 149)
    state = 2 * 96 * 128 * 128 * 4
    layer = shape.phase_bytes(ALL_HEADS)["attn_kda"] / 18
    assert round(state / 1e6, 2) == 12.58
    assert layer == 2 * 358_157_536 + 2 * 159_968 + state + 4 * 3 * 12_288 * 2


def test_the_latent_cache_is_shared_by_all_heads() -> None:
    # 131 073 tokens of 1152 B in each of 6 layers, for 96 heads and for 12; each head costs 512·128·2 parameters twice,
    # 192 rows of q and 128 columns of out
    each_head = 2 * (192 * 7168 + 128 * 7168 + 2 * 512 * 128)
    more = shape.phase_bytes(ALL_HEADS)["attn_mla"] - shape.phase_bytes(EIGHTH)["attn_mla"]
    assert more == 6 * 84 * each_head
    cache = shape.phase_bytes(EIGHTH)["attn_mla"] - 6 * 2 * shape.part_params(EIGHTH)["attn_mla"]
    assert cache == 6 * 131_073 * 1152


@pytest.mark.parametrize(("batch", "hit"), [(1, 8.0), (2, 12.0), (4, 15.0), (64, 16.0)])
def test_experts_hit_by_hand(batch: int, hit: float) -> None:
    # half of the experts are missed by one row: 16·(1 − 2^−batch)
    assert shape.experts_hit(k3_rank.config(batch, 1, 24, 96)) == pytest.approx(hit)


def test_flops_of_a_step_by_hand() -> None:
    # MLA: 2·(31 296·7168 + 12 582 912 + 96·131 072·1088); experts: 2·(16·7168 + 9·33 030 144)
    flops = shape.phase_flops(ALL_HEADS)
    assert flops["attn_mla"] == 6 * 2 * (224_329_728 + 12_582_912 + 13_690_208_256)
    assert flops["ffn_moe"] == 24 * 2 * (114_688 + 297_271_296)
    assert flops["ffn"] == 0


@pytest.mark.parametrize("heads", [96, 12])
@pytest.mark.parametrize("batch", [1, 32])
def test_record_adds_up_and_survives_json(batch: int, heads: int) -> None:
    read = json.loads(_record.encode(shape.record(k3_rank.config(batch, 512, 24, heads))))
    assert (read["name"], read["tokens_per_step"], read["tensor_parallel"]) == ("k3-rank", batch, 1)
    assert list(read["phases"]) == ["L#/attn_kda", "L#/attn_mla", "L#/ffn_moe", "head"]
    for unit in ("bytes", "flops"):
        assert sum(phase[unit] for phase in read["phases"].values()) == read[f"{unit}_per_step"]


def test_defaults_are_a_literal_readable_without_import() -> None:
    assert workload_defaults(Path(k3_rank.__file__)) == normalised(k3_rank.DEFAULTS)


WRONG = [
    ["--heads", "0"], ["--heads", "24"], ["--heads", "x"], ["--layers", "94"], ["--starve", "moe=masked"],
    ["--fail", "ffn@0"], ["--fail", "ffn_moe@24"], ["--fail", "head@0"], ["--fail", "none@"],
]  # fmt: skip


@pytest.mark.parametrize("argv", WRONG, ids=" ".join)
def test_bad_options_are_one_sentence_and_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert k3_rank.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert argv[0] in captured.err


def test_without_a_gpu_is_one_sentence_and_exit_5(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert k3_rank.main(["--heads", "12", "--fail", "attn_mla@3", "--starve", "kda=eager"]) == 5
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_heads_are_part_of_the_variant() -> None:
    asked = _step_main.parse(k3_rank.workload(), ["--heads", "12", "--fail", "attn_mla@3"])
    assert asked.variant == {"graph": False, "layers": 24, "heads": 12, "fail": "attn_mla@3"}
    assert k3_rank.workload().plan(asked).record["model"] == (
        "Kimi K3 shape, 12 heads and 16 experts of one rank, 24 layers, random weights"
    )


def test_starved_forms_stand_for_variants_of_the_kernels() -> None:
    """Each form is a variant of the kernel it names, which says there what is wrong with it."""
    names = {
        "kda": {"unfused": "unfused", "eager": "eager", "warps8": "warps8", "bv128": "bv128"},
        "mla": {
            "unsplit": "batched_unsplit", "perhead_serial": "per_head_serial", "perhead_split": "per_head_split",
            "bh32_maxnreg": "bh32_maxnreg",
        },
        "moe": {"loop": "loop", "bm128": "bm128"},
    }  # fmt: skip
    files = {"kda": "kda.py", "mla": "mla.py", "moe": "grouped_gemm.py"}
    offered = {kernel: tuple(forms) for kernel, forms in names.items()}
    assert k3_rank.STARVED == kimi_linear_mini.STARVED == offered
    for kernel, forms in names.items():
        variants = literal(Path(k3_rank.__file__).with_name(files[kernel]), "VARIANTS")
        assert isinstance(variants, dict)
        assert set(forms.values()) <= set(variants)
    assert literal(Path(k3_rank.__file__).with_name("kda.py"), "EAGER_KERNELS") == shape.EAGER_KERNELS


# Sizes that differ from TINY, starved forms, and the path they reach.
FORMS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({}, {}, "K3's gate, experts after KDA and MLA"),
    ({"heads": 3, "layers": 1, "top_k": 4}, {}, "every expert chosen by every row"),
    ({"layers": 1, "mla_every": 1, "ctx": 130}, {"mla": "unsplit"}, "MLA unsplit"),
    ({"layers": 1, "mla_every": 1, "ctx": 70}, {"mla": "perhead_serial"}, "MLA by head, unsplit"),
    ({"layers": 1, "mla_every": 1, "ctx": 70}, {"mla": "perhead_split"}, "MLA by head, split, some slices empty"),
    ({"layers": 1, "mla_every": 1, "ctx": 130}, {"mla": "bh32_maxnreg"}, "MLA with 32 heads a block, split"),
    ({"layers": 1, "mla_every": 1}, {"moe": "loop"}, "experts one by one"),
    ({"layers": 1, "mla_every": 1}, {"moe": "bm128"}, "experts in tiles of 128 rows"),
]
SLICES = {"MLA unsplit": 1, "MLA by head, unsplit": 1, "MLA by head, split, some slices empty": 8}


@pytest.mark.parametrize(("sizes", "starve", "path"), FORMS, ids=[path for _, _, path in FORMS])
def test_two_steps_equal_a_float64_reference(sizes: dict[str, Any], starve: dict[str, str], path: str) -> None:
    config = tiny(ALL_HEADS, **sizes)
    errors = two_errors(config, starve=starve)
    assert max(errors) <= TOLERANCE and min(errors) >= 0
    if path in SLICES:
        assert tiny_step(config, starve=starve)[1].mla.splits == SLICES[path]


def test_controls_what_is_left_out_or_taken_from_elsewhere_is_seen() -> None:
    """The reference with one thing wrong: the next expert, no shared expert, no rope, no decay, Kimi's gate."""
    torch, step = tiny_step(TINY)
    with torch.inference_mode():
        broken = {
            fault: HybridReference(torch, step, fault).step(step.token.tolist())
            for fault in ("expert", "shared", "rope", "decay", "gate")
        }
        got = step.step()
    assert {fault: error for fault, want in broken.items() if (error := relative_l2(got, want)) <= 1e-2} == {}


def test_padding_rows_have_no_context_in_mla() -> None:
    torch, step = tiny_step(tiny(ALL_HEADS, batch=4, layers=1, mla_every=1, ctx=70), live=3)
    with torch.inference_mode():
        reference = HybridReference(torch, step)
        want = reference.step(step.token.tolist())
        assert relative_l2(step.step()[:3], want[:3]) <= TOLERANCE
        assert not step.mla.mixed[3].any()
        assert step.mla.mixed[:3].abs().min() > 0


def test_the_loop_has_a_launch_for_each_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own products are not Triton launches, so they are counted where they are called."""
    config = tiny(ALL_HEADS, layers=1, mla_every=1)
    torch, step = tiny_step(config, starve={"moe": "loop"})
    from triton.runtime.interpreter import GridExecutor

    launched: list[str] = []
    run, multiply = GridExecutor.__call__, torch.mm

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        launched.append(self.fn.__name__)
        run(self, *args, **kwargs)

    def product(*args: Any, **kwargs: Any) -> Any:
        launched.append("mm")
        return multiply(*args, **kwargs)

    monkeypatch.setattr(GridExecutor, "__call__", counted)
    monkeypatch.setattr(torch, "mm", product)
    with torch.inference_mode():
        step.step()
    assert launched.count("mm") == 2 * config.experts
    assert len(launched) == shape.kernels_per_step(config, {"moe": "loop"})
