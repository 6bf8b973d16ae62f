"""llama8b: the byte model against arithmetic by hand, the record, the options, and the step's numerics on a CPU."""

import contextlib
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import INVALID, FakeCuda
from kernel_cpu import kernel_on_cpu
from llama_reference import reference_logits, relative_l2

from tracelab.capture.recordings import normalised, workload_defaults
from tracelab.kernels import _llama_shape as shape
from tracelab.kernels import _record, _step_main, llama8b
from tracelab.kernels._guard import Guard
from tracelab.phase_work import belongs
from tracelab.registry import literal

LLAMA_8B = shape.LlamaConfig(batch=1, ctx=8192)
TINY = shape.LlamaConfig(
    batch=2, ctx=37, layers=2, hidden=64, heads=8, kv_heads=2, head_dim=16, ffn=96, vocab=101, dtype_bytes=4
)


def test_parameters_are_those_of_llama_3_1_8b() -> None:
    # a layer: qkv 6144·4096 = 25 165 824, out 4096·4096 = 16 777 216, gate, up, down 3·4096·14336 = 176 160 768,
    # two norms 8192: 218 112 000. 32 of them 6 979 584 000, final norm 4096, lm_head 128256·4096 = 525 336 576:
    # 7 504 924 672; with the embedding table 8 030 261 248, the published count.
    assert shape.active_params(LLAMA_8B) == 7_504_924_672
    assert shape.params(LLAMA_8B) == 8_030_261_248


def test_bytes_of_a_step_by_hand() -> None:
    # weights 2·7 504 924 672 = 15 009 849 344. KV of a token: 32 layers·2·8 heads·128·2 B = 131 072; 8192 read and one
    # written: 1 073 872 896. One embedding row: 4096·2 = 8192.
    assert shape.kv_bytes_per_token(LLAMA_8B) == 131_072
    assert shape.bytes_per_step(LLAMA_8B) == 15_009_849_344 + 1_073_872_896 + 8192


def test_floor_on_h200_is_that_of_the_reference() -> None:
    # nsys-exports.md section 12: 3.13 ms for the weights and 0.22 ms for 8192 tokens of KV at 4.8e12 B/s
    weights_ms = 2 * shape.active_params(LLAMA_8B) / 4.8e12 * 1e3
    assert round(weights_ms, 2) == 3.13
    assert round(shape.bytes_per_step(LLAMA_8B) / 4.8e12 * 1e3 - weights_ms, 2) == 0.22


def test_batch_multiplies_kv_and_embedding_rows_but_not_weights() -> None:
    # a sequence more adds (1024 + 1)·131 072 B of KV and one embedding row of 8192 B
    one, two = (shape.bytes_per_step(shape.LlamaConfig(batch=b, ctx=1024)) for b in (1, 2))
    assert two - one == 1025 * 131_072 + 8192


def test_flops_of_a_step_by_hand() -> None:
    # products: 2·(7 504 924 672 − 65·4096 norm weights) = 15 009 316 864; attention: 4·32 layers·4096·8192
    assert shape.flops_per_step(LLAMA_8B) == 15_009_316_864 + 4 * 32 * 4096 * 8192


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("layers", [1, 32])
def test_record_adds_up_and_survives_json(batch: int, layers: int) -> None:
    config = shape.LlamaConfig(batch=batch, ctx=512, layers=layers)
    read = json.loads(_record.encode(shape.record(config)))
    assert read["tracelab.workload"] == 1
    assert read["tokens_per_step"] == read["batch"] == batch
    assert read["tensor_parallel"] == 1
    assert list(read["phases"]) == ["L#/attn_gqa", "L#/ffn", "head"]
    for unit in ("bytes", "flops"):
        assert sum(phase[unit] for phase in read["phases"].values()) == read[f"{unit}_per_step"]


def test_record_is_one_compact_line() -> None:
    text = _record.encode(shape.record(LLAMA_8B))
    assert " " not in text.replace("Llama-8B shape, 32 layers, random weights", "")
    assert len(text) < 1000


def test_defaults_are_a_literal_readable_without_import() -> None:
    read = workload_defaults(Path(llama8b.__file__))
    assert read == normalised(llama8b.DEFAULTS)
    assert {"--starve": "none", "--fail": "none"}.items() <= read.items()


WRONG = [
    ["--batch", "0"], ["--ctx", "-3"], ["--steps", "x"], ["--nonsense"], ["--gra"], ["--starve", "gqa=split"],
    ["--starve", "mla=serial"], ["--fail", "ffn"], ["--fail", "ffn@32"], ["--fail", "attn_mla@0"],
    ["--fail", "ffn@0", "--graph"],
]  # fmt: skip


@pytest.mark.parametrize("argv", WRONG, ids=" ".join)
def test_bad_options_are_one_sentence_and_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert llama8b.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert argv[0] in captured.err


def test_without_torch_or_gpu_is_one_sentence_and_exit_5(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert llama8b.main([]) == 5
    assert len(capsys.readouterr().err.splitlines()) == 1


def options(*argv: str) -> _step_main.Options:
    return _step_main.parse(llama8b.workload(), argv)


def test_a_graph_is_padded_to_the_next_bucket_and_the_record_counts_what_was_asked_for() -> None:
    asked = options("--batch", "5", "--graph")
    plan = llama8b.plan(asked)
    assert asked.rows == 8
    assert plan.record["batch"] == 5
    assert plan.record == shape.record(shape.LlamaConfig(batch=5, ctx=1024))
    assert plan.memory_bytes == shape.memory_bytes(shape.LlamaConfig(batch=8, ctx=1024))
    assert _step_main.padding_note(asked) == "batch 5 runs in the graph for 8: 3 of 8 rows (37.5%) are padding"
    for exact in (options("--batch", "5"), options("--batch", "64", "--graph")):
        assert exact.rows == exact.numbers["batch"]
        assert _step_main.padding_note(exact) is None


def test_phases_of_the_record_are_those_of_a_trace() -> None:
    # a trace's paths are the range names with digits folded, the step itself left out (tracelab/paths.py)
    paths = {f"{re.sub('[0-9]+', '#', layer)}/{name}" for layer in ("L0", "L31") for name in ("attn_gqa", "ffn")}
    phases: Any = shape.record(LLAMA_8B)["phases"]
    for path in [*paths, "head"]:
        assert [name for name in phases if belongs(path, name)] == [path]


def test_starved_forms_are_variants_of_the_attention_kernel() -> None:
    variants = literal(Path(llama8b.__file__).with_name("split_kv.py"), "VARIANTS")
    assert isinstance(variants, dict)
    for form in llama8b.STARVED["gqa"]:
        assert variants[form].startswith("starved")


def model(torch: Any, config: shape.LlamaConfig, **how: Any) -> Any:
    """A step on the CPU in float32, its Triton kernels interpreted."""
    from tracelab.kernels._llama_model import LlamaStep

    torch.manual_seed(1)
    how.setdefault("phase", lambda _name, _layer: contextlib.nullcontext())
    return LlamaStep(config, torch.device("cpu"), torch.float32, **how)


# What differs from TINY, what the step is built with, and the path it reaches: attention splits by tiles of 64 tokens
FORMS: list[tuple[dict[str, int], dict[str, Any], str]] = [
    ({"batch": 1}, {}, "one row on CUDA cores, one tile of keys"),
    ({"batch": 2}, {}, "tiles, one tile of keys"),
    ({"batch": 1, "ctx": 300}, {}, "attention split"),
    ({"batch": 1, "ctx": 300, "layers": 1}, {"gate": 300}, "attention gated"),
    ({"batch": 1, "ctx": 150, "layers": 1}, {"starved": "serial"}, "one block a KV head"),
    ({"batch": 1, "ctx": 150, "layers": 1}, {"starved": "per_head"}, "one block a query head"),
    ({"batch": 1, "ctx": 1100, "layers": 1}, {"starved": "fixed_cap"}, "at most 8 slices"),
    ({"batch": 65, "heads": 2, "kv_heads": 1, "layers": 1, "ctx": 3}, {}, "cuBLAS above 64 rows"),
]
SPLITS = {"attention split": 5, "at most 8 slices": 6}  # 18 tiles for 8 slices: slices of 3 tiles, so 6 of them


@pytest.mark.parametrize(("sizes", "how", "path"), FORMS, ids=[path for _, _, path in FORMS])
def test_two_steps_equal_a_float64_reference(sizes: dict[str, int], how: dict[str, Any], path: str) -> None:
    torch, _ = kernel_on_cpu("_llama_model")
    config = dataclasses.replace(TINY, **sizes)
    with torch.inference_mode():
        step = model(torch, config, **how)
        assert step.attention.splits == SPLITS.get(path, 1)
        for _ in range(2):  # the second is fed by the first one's argmax
            fed = step.token.clone()
            want = reference_logits(torch, step, fed, config.ctx - 1)
            got = step.step()
            assert relative_l2(got, want) <= 2e-6
            assert torch.equal(step.token, want.argmax(-1))


@pytest.mark.parametrize("position", [0, TINY.ctx - 2])
def test_a_wrong_position_is_far_from_the_reference(position: int) -> None:
    """Negative control: no rotation at all (position 0), and one position off, exceed the tolerance by far."""
    torch, _ = kernel_on_cpu("_llama_model")
    with torch.inference_mode():
        step = model(torch, TINY)
        wrong = reference_logits(torch, step, step.token.clone(), position)
        assert relative_l2(step.step(), wrong) > 1e-2


def test_control_a_row_of_the_cache_that_is_not_read_is_seen() -> None:
    torch, _ = kernel_on_cpu("_llama_model")
    with torch.inference_mode():
        step = model(torch, TINY)
        fed = step.token.clone()
        got = step.step().clone()
        for cache in step.cache:
            cache.values[:, 3].zero_()
        assert relative_l2(got, reference_logits(torch, step, fed, TINY.ctx - 1)) > 1e-2


def test_phases_hold_everything_and_the_cache_changes_only_at_the_last_position() -> None:
    torch, _ = kernel_on_cpu("_llama_model")
    with torch.inference_mode():
        entered: list[tuple[str, int | None]] = []
        left: list[tuple[str, int | None]] = []

        def phase(name: str, layer: int | None) -> contextlib.nullcontext[None]:
            entered.append((name, layer))
            return contextlib.nullcontext()

        step = model(torch, TINY, phase=phase, before_phase_exit=lambda *place: left.append(place))
        before = [(cache.keys.clone(), cache.values.clone()) for cache in step.cache]
        step.step()
        layers = [(name, layer) for layer in range(TINY.layers) for name in ("attn_gqa", "ffn")]
        assert entered == left == [*layers, ("head", None)]
        for pair, cache in zip(before, step.cache, strict=True):
            for old, new in zip(pair, (cache.keys, cache.values), strict=True):
                assert torch.equal(old[:, :-1], new[:, :-1])
                assert not torch.equal(old[:, -1], new[:, -1])


@pytest.mark.parametrize(
    ("layer", "ctx", "how"), [(9, 150, {}), (8, 150, {"gate": 150}), (8, 37, {}), (8, 150, {"starved": "per_head"})]
)
def test_launches_of_a_step(layer: int, ctx: int, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer 9, with un-split attention 8, and 5 for the head: 32·9 + 5 = 293 or 32·8 + 5 = 261 for Llama-8B."""
    torch, _ = kernel_on_cpu("_llama_model")
    from triton.runtime.interpreter import GridExecutor

    launched: list[str] = []
    run = GridExecutor.__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        launched.append(self.fn.__name__)
        run(self, *args, **kwargs)

    monkeypatch.setattr(GridExecutor, "__call__", counted)
    with torch.inference_mode():
        model(torch, dataclasses.replace(TINY, ctx=ctx), **how).step()
    assert len(launched) == layer * TINY.layers + 5


@pytest.mark.parametrize(("batch", "starved", "splits"), [(1, None, 16), (8, None, 2), (9, None, 1), (1, "serial", 1)])
def test_llama_8b_splits_1024_tokens_up_to_batch_8(batch: int, starved: str | None, splits: int) -> None:
    # 16 tiles of 64 tokens; 132 SMs / (8 KV heads · batch) slices: 16, 2, 1
    torch, module = kernel_on_cpu("_llama_model")
    config = shape.LlamaConfig(batch=batch, ctx=1024)
    assert module.Attention(config, torch.device("cpu"), starved=starved, gate=0).splits == splits


def test_a_launch_that_shall_fail_is_reported_at_its_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, _ = kernel_on_cpu("_llama_model")
    cuda = FakeCuda()
    guard = Guard("collect", hooks=cuda.hooks())
    monkeypatch.setattr(llama8b, "UncheckedLaunch", lambda: lambda: cuda.launch(INVALID))
    failing = llama8b.failing(options("--fail", "ffn@1").fail)
    with torch.inference_mode():
        model(torch, TINY, phase=guard.phase, before_phase_exit=failing).step()
        assert [failure.path for failure in guard.failures] == ["L1/ffn"]
        model(torch, TINY, phase=guard.phase, before_phase_exit=llama8b.failing(None)).step()
        assert len(guard.failures) == 1
