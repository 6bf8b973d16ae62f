"""llama8b: the byte model against arithmetic by hand, the record, the options, and the step's numerics on a CPU."""

import ast
import contextlib
import importlib.util
import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracelab.kernels import _llama_shape as shape
from tracelab.kernels import _record, llama8b

LLAMA_8B = shape.LlamaConfig(batch=1, ctx=8192)
TINY = shape.LlamaConfig(
    batch=2, ctx=37, layers=2, hidden=64, heads=8, kv_heads=2, head_dim=16, ffn=96, vocab=101, dtype_bytes=4
)


def torch_or_skip() -> Any:
    """Torch, or a skip without it; a failure instead where the environment promises it."""
    if importlib.util.find_spec("torch") is None:
        if os.environ.get("TRACELAB_REQUIRE_TORCH"):
            pytest.fail("TRACELAB_REQUIRE_TORCH is set but torch is not installed")
        pytest.skip("torch is not installed")
    return importlib.import_module("torch")


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
    read = json.loads(_record.encode(shape.record(config, {"graph": True})))
    assert read["tracelab.workload"] == 1
    assert read["tokens_per_step"] == read["batch"] == batch
    assert read["tensor_parallel"] == 1
    assert read["variant"] == {"graph": True}
    assert list(read["phases"]) == ["norm", "attn", "ffn", "head"]
    for unit in ("bytes", "flops"):
        assert sum(phase[unit] for phase in read["phases"].values()) == read[f"{unit}_per_step"]


def test_record_is_one_compact_line() -> None:
    text = _record.encode(shape.record(LLAMA_8B, {}))
    assert " " not in text.replace("Llama-8B shape, 32 layers, random weights", "")
    assert len(text) < 1000


def fake_nvtx(marks: list[str], *, domain_is_on: bool | None) -> SimpleNamespace:
    """An nvtx package that notes marks as "domain message"; None stands for a version without `get_domain`."""
    domain = SimpleNamespace(get_event_attributes=lambda message: message if domain_is_on else None)
    fake = SimpleNamespace(mark=lambda message, domain: marks.append(f"{domain} {message}"))
    return fake if domain_is_on is None else SimpleNamespace(**vars(fake), get_domain=lambda _: domain)


@pytest.mark.parametrize(("domain_is_on", "want"), [(None, "tracelab"), (True, "tracelab"), (False, "default")])
def test_record_goes_to_our_domain_else_to_the_default_one(
    domain_is_on: bool | None, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[str] = []
    monkeypatch.setitem(sys.modules, "nvtx", fake_nvtx(marks, domain_is_on=domain_is_on))
    monkeypatch.setattr(_record, "_mark_in_default_domain", lambda text: marks.append(f"default {text}"))
    _record.emit({"a": 1})
    assert marks == [f'{want} {{"a":1}}']


def test_record_needs_no_nvtx_package(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[str] = []
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(_record, "_mark_in_default_domain", marks.append)
    _record.emit({"a": 1})
    assert marks == ['{"a":1}']


def test_defaults_are_a_literal_readable_without_import() -> None:
    tree = ast.parse(Path(llama8b.__file__).read_text(encoding="utf-8"))
    values = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "DEFAULTS"]
    assert [ast.literal_eval(v) for v in values] == [llama8b.DEFAULTS]


@pytest.mark.parametrize("argv", [["--batch", "0"], ["--ctx", "-3"], ["--steps", "x"], ["--nonsense"], ["--gra"]])
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


def model(torch: Any, config: shape.LlamaConfig) -> Any:
    """A step on the CPU in float32."""
    from tracelab.kernels._llama_model import LlamaStep

    torch.manual_seed(1)
    return LlamaStep(config, torch.device("cpu"), torch.float32, contextlib.nullcontext)


def reference_logits(torch: Any, step: Any, tokens: Any, position: int) -> Any:
    """The step's logits in float64, written independently: one sequence, head and position at a time."""
    c = step.config
    rows = []
    for b in range(c.batch):
        x = step.embedding[tokens[b]].double()
        for weights, cache in zip(step.layers, step.cache, strict=True):
            x = x + reference_attention(torch, c, weights, cache[:, b].double(), norm(x, weights.attn_norm), position)
            h = norm(x, weights.ffn_norm)
            gate, up = weights.gate_up[: c.ffn].double() @ h, weights.gate_up[c.ffn :].double() @ h
            x = x + weights.down.double() @ (gate / (1 + torch.exp(-gate)) * up)
        rows.append(step.lm_head.double() @ norm(x, step.final_norm))
    return torch.stack(rows)


def reference_attention(torch: Any, c: shape.LlamaConfig, weights: Any, cache: Any, h: Any, position: int) -> Any:
    """Attention output of one token; `cache` is [2, kv_heads, ctx, head_dim] and its last position is replaced."""
    rows = (weights.qkv.double() @ h).view(-1, c.head_dim)
    outputs = []
    for head in range(c.heads):
        kv = head // (c.heads // c.kv_heads)
        keys, values = cache[0, kv].clone(), cache[1, kv].clone()
        keys[-1] = rotate(torch, rows[c.heads + kv], position)
        values[-1] = rows[c.heads + c.kv_heads + kv]
        scores = keys @ rotate(torch, rows[head], position) / math.sqrt(c.head_dim)
        outputs.append(torch.softmax(scores, 0) @ values)
    return weights.out.double() @ torch.cat(outputs)


def rotate(torch: Any, x: Any, position: int) -> Any:
    """RoPE as a complex product: element i and i + d/2 are one number, turned by position·500000^(−2i/d)."""
    half = len(x) // 2
    turn = torch.tensor([position * 500_000.0 ** (-2 * i / len(x)) for i in range(half)], dtype=torch.float64)
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(turn), turn)
    return torch.cat((turned.real, turned.imag))


def norm(x: Any, weight: Any) -> Any:
    return x / (x.pow(2).mean() + 1e-5).sqrt() * weight.double()


def relative_l2(got: Any, want: Any) -> float:
    return float((got.double() - want).norm() / want.norm())


def test_two_steps_equal_a_float64_reference() -> None:
    torch = torch_or_skip()
    with torch.inference_mode():
        step = model(torch, TINY)
        for _ in range(2):  # the second is fed by the first one's argmax
            fed = step.token.clone()
            want = reference_logits(torch, step, fed, TINY.ctx - 1)
            got = step.step()
            assert relative_l2(got, want) <= 2e-6
            assert torch.equal(step.token, want.argmax(-1))


@pytest.mark.parametrize("position", [0, TINY.ctx - 2])
def test_a_wrong_position_is_far_from_the_reference(position: int) -> None:
    """Negative control: no rotation at all (position 0), and one position off, exceed the tolerance by far."""
    torch = torch_or_skip()
    with torch.inference_mode():
        step = model(torch, TINY)
        wrong = reference_logits(torch, step, step.token.clone(), position)
        assert relative_l2(step.step(), wrong) > 1e-2


def test_phases_are_flat_and_the_cache_changes_only_at_the_last_position() -> None:
    torch = torch_or_skip()
    with torch.inference_mode():
        step = model(torch, TINY)
        entered: list[str] = []

        def phase(name: str) -> contextlib.nullcontext[None]:
            entered.append(name)
            return contextlib.nullcontext()

        step.phase = phase
        before = [cache.clone() for cache in step.cache]
        step.step()
        assert entered == ["norm", "attn", "norm", "ffn"] * TINY.layers + ["norm", "head"]
        for old, new in zip(before, step.cache, strict=True):
            assert torch.equal(old[..., :-1, :], new[..., :-1, :])
            assert not torch.equal(old[..., -1, :], new[..., -1, :])
