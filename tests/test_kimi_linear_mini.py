"""kimi-linear-mini: parameters, bytes and FLOPs by hand, the options, and the step's numerics in the interpreter."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import INVALID, FakeCuda
from hybrid_reference import HybridReference, relative_l2, tiny, tiny_step, two_errors

from tracelab.capture.recordings import normalised, workload_defaults
from tracelab.kernels import _hybrid_shape as shape
from tracelab.kernels import _record, _step_main, kimi_linear_mini
from tracelab.kernels._guard import Guard
from tracelab.phase_work import belongs

MINI = kimi_linear_mini.config(batch=1, ctx=8192, layers=12)
WHOLE = kimi_linear_mini.config(batch=1, ctx=8192, layers=27)
TINY = tiny(MINI)
TOLERANCE = 2e-6  # float32 against float64; seen are 2e-7 to 7e-7


def test_every_fourth_layer_and_the_last_one_are_mla_and_the_first_ffn_is_dense() -> None:
    # config.json: full_attn_layers 4, 8, 12, 16, 20, 24, 27, counted from 1; first_k_dense_replace 1
    mla = [layer + 1 for layer in range(27) if WHOLE.attention(layer) == "attn_mla"]
    assert mla == [4, 8, 12, 16, 20, 24, 27]
    assert [WHOLE.feed_forward(layer) for layer in range(3)] == ["ffn", "ffn_moe", "ffn_moe"]
    assert [MINI.count(phase) for phase in shape.PHASES] == [9, 3, 1, 11, 1]


def test_kernels_per_step() -> None:
    # kernels.md section 11: 9·5 + 3·7 + 1·3 + 11·10 + 5 = 184; all 27 layers 20·5 + 7·7 + 3 + 26·10 + 5 = 417
    assert shape.kernels_per_step(MINI) == 184
    assert shape.kernels_per_step(WHOLE) == 417
    # two launches more in each of 9 KDA layers; 54 more for torch; 2·255 more in each of 11 mixtures
    assert shape.kernels_per_step(MINI, {"kda": "unfused"}) == 184 + 18
    assert shape.kernels_per_step(MINI, {"kda": "eager"}) == 184 + 9 * 54
    assert shape.kernels_per_step(MINI, {"moe": "loop"}) == 184 + 11 * 510
    assert shape.kernels_per_step(MINI, {"kda": "warps8", "mla": "unsplit", "moe": "bm128"}) == 184


def test_parameters_by_hand() -> None:
    # KDA: projection rows 3·4096 + 2·128 + 32 = 12 576, with out 4096: 16 672·2304 = 38 412 288; f_up and g_up
    # 2·4096·128 = 1 048 576; norm 2304; conv 3·4·4096 + dt_bias 4096 + A_log 32 + norm 128 = 53 408: 39 516 576.
    # MLA: rows 32·192 + 576 = 6720, with out 10 816·2304 = 24 920 064; W_UK and W_UV 2·32·128·512 = 4 194 304; norms
    # 2304 + 512: 29 117 184. FFN 3·2304·9216 + 2304 = 63 703 296. Experts: router 256·2305 + shared 3·2304·1024
    # + norm 2304 = 7 670 272, and 256 experts of 3·2304·1024 = 7 077 888. Head 163840·2304 + 2304 = 377 489 664.
    assert list(shape.part_params(MINI).values()) == [39_516_576, 29_117_184, 63_703_296, 7_670_272, 377_489_664]
    assert shape.expert_params(MINI) == 7_077_888
    read = 9 * 39_516_576 + 3 * 29_117_184 + 63_703_296 + 11 * (7_670_272 + 8 * 7_077_888) + 377_489_664
    assert shape.active_params(MINI) == read == 1_591_420_832
    assert shape.params(MINI) == read + 11 * 248 * 7_077_888 + 163_840 * 2304
    # the published model: 48B parameters, 3B active
    assert round(shape.params(WHOLE) / 1e9, 1) == 49.1
    assert round(shape.active_params(WHOLE) / 1e9, 1) == 3.1


def test_bytes_of_the_experts_are_those_of_the_reference() -> None:
    # kernels.md section 11: 14.2 MB an expert, 8 of them 113 MB, the shared one 14 MB, all of a layer 3.6 GB
    expert = 2 * shape.expert_params(MINI)
    assert (round(expert / 1e6, 1), round(8 * expert / 1e6), round(256 * expert / 1e9, 1)) == (14.2, 113, 3.6)


def test_bytes_of_a_step_by_hand() -> None:
    # a KDA layer: bf16 weights 2·39 516 576, fp32 small ones 2·53 408 more, state 2·32·128·128·4 = 4 194 304, ring
    # 4·3·4096·2 = 98 304. An MLA layer: 2·29 117 184 and 8193 tokens of 576·2 B. Experts: 2·(7 670 272 + 8·7 077 888)
    # and 256·2 B more for the bias in fp32. Head: the weights and one embedding row of 4608 B.
    assert shape.phase_bytes(MINI) == {
        "attn_kda": 9 * (79_033_152 + 106_816 + 4_194_304 + 98_304),
        "attn_mla": 3 * (58_234_368 + 8193 * 1152),
        "ffn": 127_406_592,
        "ffn_moe": 11 * (2 * (7_670_272 + 56_623_104) + 512),
        "head": 754_979_328 + 4608,
    }


@pytest.mark.parametrize(("batch", "hit"), [(1, 8.0), (2, 15.75), (3, 23.2578125), (4096, 256.0)])
def test_experts_hit_by_hand(batch: int, hit: float) -> None:
    # an expert is missed by one row with 31/32: 256·(1 − (31/32)²) = 15.75, 256·(1 − (31/32)³) = 23.2578125
    assert shape.experts_hit(kimi_linear_mini.config(batch, 1, 12)) == pytest.approx(hit)


def test_flops_of_a_step_by_hand() -> None:
    # a row: KDA 2·(16 672·2304 + 1 048 576) + 7·32·128·128; MLA 2·(10 816·2304 + 4 194 304 + 32·8192·1088), the scores
    # over 576 columns and the values over 512; FFN 6·2304·9216; experts 2·(256·2304 + 9·7 077 888); head 2·163840·2304
    assert shape.phase_flops(kimi_linear_mini.config(2, 8192, 12)) == {
        "attn_kda": 2 * 9 * (2 * (38_412_288 + 1_048_576) + 3_670_016),
        "attn_mla": 2 * 3 * 2 * (24_920_064 + 4_194_304 + 285_212_672),
        "ffn": 2 * 127_401_984,
        "ffn_moe": 2 * 11 * 2 * (589_824 + 63_700_992),
        "head": 2 * 754_974_720,
    }


def test_memory_holds_weights_caches_and_slots() -> None:
    # 2·21 277 386 656 B of weights; 9 layers of 64 states and rings, 3 of 64·8192 latents; 256·64 slots of
    # 2·2304 + 3·1024 columns
    config = kimi_linear_mini.config(64, 8192, 12)
    caches = 9 * 64 * (4_194_304 + 98_304) + 3 * 64 * 8192 * 1152
    assert shape.memory_bytes(config) == 2 * 21_277_386_656 + caches + 256 * 64 * 7680 * 2


@pytest.mark.parametrize(("batch", "slots"), [(1, 16), (16, 16), (17, 32)])
def test_slots_hold_every_row_in_whole_tiles(batch: int, slots: int) -> None:
    assert kimi_linear_mini.config(batch, 1, 1).capacity == slots


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("layers", [1, 12])
def test_record_adds_up_and_survives_json(batch: int, layers: int) -> None:
    config = kimi_linear_mini.config(batch, 512, layers)
    read = json.loads(_record.encode(shape.record(config)))
    assert (read["tracelab.workload"], read["name"], read["tensor_parallel"]) == (1, "kimi-linear-mini", 1)
    assert read["tokens_per_step"] == read["batch"] == batch
    names = ["L#/attn_kda", "L#/ffn", "head"] if layers == 1 else [f"L#/{p}" for p in shape.PHASES[:4]] + ["head"]
    assert list(read["phases"]) == names
    for unit in ("bytes", "flops"):
        assert sum(phase[unit] for phase in read["phases"].values()) == read[f"{unit}_per_step"]


def test_phases_of_the_record_are_those_of_a_trace() -> None:
    # a trace's paths are the range names with digits folded, the step itself left out (tracelab/paths.py)
    paths = {f"{re.sub('[0-9]+', '#', f'L{layer}')}/{name}" for layer in (0, 11) for name in MINI.layer_phases(layer)}
    phases: Any = shape.record(MINI)["phases"]
    for path in [*paths, "L#/attn_kda", "L#/ffn_moe", "head"]:
        assert [name for name in phases if belongs(path, name)] == [path]


def test_defaults_are_a_literal_readable_without_import() -> None:
    read = workload_defaults(Path(kimi_linear_mini.__file__))
    assert read == normalised(kimi_linear_mini.DEFAULTS)
    assert {"--starve": "none", "--fail": "none"}.items() <= read.items()


WRONG = [
    ["--batch", "0"], ["--ctx", "-3"], ["--steps", "x"], ["--nonsense"], ["--gra"], ["--layers", "28"],
    ["--heads", "12"], ["--starve", "kda"], ["--starve", "kda=fused"], ["--starve", "gqa=serial"],
    ["--starve", "mla=bv128"], ["--starve", "kda=eager,kda=bv128"], ["--fail", "ffn"], ["--fail", "ffn@12"],
    ["--fail", "ffn@1"],
    ["--fail", "attn_mla@0"], ["--fail", "ffn@0", "--graph"],
]  # fmt: skip


@pytest.mark.parametrize("argv", WRONG, ids=" ".join)
def test_bad_options_are_one_sentence_and_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert kimi_linear_mini.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert argv[0] in captured.err


# Sizes that differ from TINY, starved forms, and the path they reach. MLA never leaves its context whole unless asked.
FORMS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({}, {}, "two rows, tiles of a KDA state, MLA in one tile"),
    ({"batch": 1, "ctx": 130}, {}, "one row on CUDA cores, MLA in three slices"),
    ({"layers": 4, "mla_every": 4}, {}, "three KDA layers and an MLA layer"),
    ({"ctx": 1, "experts": 5, "top_k": 1}, {}, "a context of one token, one expert a row"),
    ({"layers": 1}, {"kda": "unfused"}, "KDA in three launches"),
    ({"layers": 1}, {"kda": "eager"}, "KDA in torch"),
    ({"layers": 1}, {"kda": "warps8"}, "KDA with 8 warps"),
    ({"layers": 1}, {"kda": "bv128"}, "KDA with one block a state"),
]


@pytest.mark.parametrize(("sizes", "starve", "path"), FORMS, ids=[path for _, _, path in FORMS])
def test_two_steps_equal_a_float64_reference(sizes: dict[str, Any], starve: dict[str, str], path: str) -> None:
    errors = two_errors(tiny(MINI, **sizes), starve=starve)
    assert max(errors) <= TOLERANCE and min(errors) >= 0, path


def test_a_row_that_only_fills_up_a_graph_changes_nothing_and_costs_no_expert() -> None:
    torch, step = tiny_step(tiny(MINI, batch=3), live=2)
    with torch.inference_mode():
        reference = HybridReference(torch, step)
        before = [cache.state[2].clone() for cache in step.caches[:1]]
        for _ in range(2):
            want = reference.step(step.token.tolist())
            got = step.step()
            assert relative_l2(got[:2], want[:2]) <= TOLERANCE
            assert got.isfinite().all()
            assert step.moe.routing.expert[2].tolist() == [-1, -1]
            assert int(step.moe.routing.count.sum()) == 2 * TINY.top_k
        assert torch.equal(step.caches[0].state[2], before[0])


def test_controls_what_is_left_out_or_taken_from_elsewhere_is_seen() -> None:
    """The reference with one thing wrong: the next expert, no shared expert, no residual, no rope, decay, β or past."""
    torch, step = tiny_step(TINY)
    faults = ("expert", "shared", "residual", "rope", "decay", "beta", "conv")
    with torch.inference_mode():
        broken = [HybridReference(torch, step, fault).step(step.token.tolist()) for fault in faults]
        got = step.step()
    errors = {fault: relative_l2(got, want) for fault, want in zip(faults, broken, strict=True)}
    assert {fault: error for fault, error in errors.items() if error <= 1e-2} == {}


@pytest.mark.parametrize("part", ["state", "ring"])
def test_control_a_state_that_is_not_carried_on_is_seen(part: str) -> None:
    torch, step = tiny_step(TINY)
    with torch.inference_mode():
        reference = HybridReference(torch, step)
        before = getattr(step.caches[0], part).clone()
        assert relative_l2(step.step(), reference.step(list(range(TINY.batch)))) <= TOLERANCE
        getattr(step.caches[0], part).copy_(before)
        want = reference.step(step.token.tolist())
        assert relative_l2(step.step(), want) > 1e-2


def test_control_rows_in_a_wrong_slot_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, step = tiny_step(tiny(MINI, batch=4, layers=1, dense_layers=0))
    from tracelab.kernels._moe_ops import combine as right

    def combine(y: Any, hidden: Any, routing: Any, out: Any) -> None:
        routing.slot.copy_((routing.slot + 1) % routing.count[routing.expert.long()])
        right(y, hidden, routing, out)

    monkeypatch.setattr("tracelab.kernels._hybrid_parts.combine", combine)
    with torch.inference_mode():
        want = HybridReference(torch, step).step(step.token.tolist())
        got = step.step()
        assert int(step.moe.routing.count.max()) > 1
        assert relative_l2(got, want) > 1e-2


def test_phases_and_what_a_step_changes() -> None:
    """Only the last latent of a cache, the state, one place of the ring, and the position."""
    entered: list[tuple[str, int | None]] = []

    def phase(name: str, layer: int | None) -> contextlib.nullcontext[None]:
        entered.append((name, layer))
        return contextlib.nullcontext()

    torch, step = tiny_step(TINY, phase=phase)
    with torch.inference_mode():
        ring, latents = step.caches[0].ring.clone(), step.caches[1].clone()
        step.step()
        layers = [("attn_kda", 0), ("ffn", 0), ("attn_mla", 1), ("ffn_moe", 1)]
        assert entered == [*layers, ("head", None)]
        assert torch.equal(step.caches[1][:, :-1], latents[:, :-1])
        assert not torch.equal(step.caches[1][:, -1], latents[:, -1])
        # position 36 lies at place 36 % 4 = 0
        assert torch.equal(step.caches[0].ring[:, 1:], ring[:, 1:])
        assert not torch.equal(step.caches[0].ring[:, 0], ring[:, 0])
        assert step.position.tolist() == [37]


LAUNCHES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"layers": 4, "mla_every": 4}, {}),
    ({}, {"kda": "unfused", "mla": "perhead_split", "moe": "bm128"}),
]


@pytest.mark.parametrize(("sizes", "starve"), LAUNCHES)
def test_launches_of_a_step(sizes: dict[str, Any], starve: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(MINI, **sizes)
    torch, step = tiny_step(config, starve=starve)
    from triton.runtime.interpreter import GridExecutor

    launched: list[str] = []
    run = GridExecutor.__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        launched.append(self.fn.__name__)
        run(self, *args, **kwargs)

    monkeypatch.setattr(GridExecutor, "__call__", counted)
    with torch.inference_mode():
        step.step()
    assert len(launched) == shape.kernels_per_step(config, starve)


@pytest.mark.parametrize(("phase", "layer"), [("attn_kda", 0), ("ffn", 0), ("attn_mla", 1), ("ffn_moe", 1)])
def test_a_launch_that_shall_fail_is_reported_at_its_phase_and_its_result_is_missing(phase: str, layer: int) -> None:
    cuda = FakeCuda()
    guard = Guard("collect", hooks=cuda.hooks())
    failing = lambda: cuda.launch(INVALID)  # noqa: E731
    torch, step = tiny_step(TINY, phase=guard.phase, fault=(phase, layer), failing=failing)
    with torch.inference_mode():
        want = HybridReference(torch, step).step(step.token.tolist())
        assert relative_l2(step.step(), want) > 1e-2
    assert [failure.path for failure in guard.failures] == [f"L{layer}/{phase}"]
    assert _step_main.failure_lines(guard) == [
        f"L{layer}/{phase}: cudaErrorInvalidValue (1) in 1 step, warm-up included"
    ]
