"""_step_main: options, starved forms by name, padding of graphs, and what is missing, as kimi-linear-mini has them."""

import pytest

from tracelab.errors import UsageError
from tracelab.kernels import _hybrid_shape as shape
from tracelab.kernels import _step_main, kimi_linear_mini


def options(*argv: str) -> _step_main.Options:
    return _step_main.parse(kimi_linear_mini.workload(), argv)


def test_starved_forms_come_from_commas_and_from_repeating_the_option() -> None:
    assert options("--starve", "none").starve == {}
    both = {"kda": "unfused", "moe": "loop"}
    assert options("--starve", "kda=unfused,moe=loop").starve == both
    assert options("--starve", "kda=unfused", "--starve", "moe=loop").starve == both
    assert options("--starve", "kda=unfused,kda=unfused").starve == {"kda": "unfused"}
    assert options("--starve", "kda=unfused").variant == {"graph": False, "layers": 12, "kda": "unfused"}


def test_a_graph_is_padded_to_the_next_bucket_and_the_record_counts_what_was_asked_for() -> None:
    asked = options("--batch", "5", "--graph")
    plan = kimi_linear_mini.workload().plan(asked)
    assert asked.rows == 8
    assert plan.record == shape.record(kimi_linear_mini.config(5, 8192, 12))
    assert plan.memory_bytes == shape.memory_bytes(kimi_linear_mini.config(8, 8192, 12))
    assert asked.variant["graph_rows"] == 8
    assert _step_main.padding_note(asked) == "batch 5 runs in the graph for 8: 3 of 8 rows (37.5%) are padding"
    assert [_step_main.graph_rows(batch) for batch in (1, 2, 3, 16, 17, 64, 65)] == [1, 2, 4, 16, 32, 64, 128]


def test_without_torch_or_gpu_is_one_sentence_and_exit_5(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for package in ("torch", "triton"):
        with monkeypatch.context() as without:
            without.setattr(_step_main, "_is_installed", lambda name, package=package: name != package)
            assert kimi_linear_mini.main([]) == 5
            assert len(capsys.readouterr().err.splitlines()) == 1
    assert kimi_linear_mini.main([]) == 5
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_help_names_what_can_be_starved(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options("--help")
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "kda=unfused|eager|warps8|bv128; mla=unsplit|perhead_serial|perhead_split|bh32_maxnreg; moe=loop|bm128" in told
    )


@pytest.mark.parametrize(("argv", "said"), [
    (["--starve", "gqa=serial"], "there is no kernel 'gqa' here, only kda, mla or moe"),
    (["--starve", "moe=x"], "the starved forms of moe are loop or bm128"),
    (["--starve", "moe=loop,moe=bm128"], "moe is already loop; it can have one form"),
    (["--fail", "ffn"], "'ffn' is not of the form phase@layer"),
    (["--fail", "ffn@0", "--graph"], "--fail excludes --graph"),
])  # fmt: skip
def test_a_wrong_option_is_told_what_is_right(argv: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        options(*argv)
    assert said in str(refused.value)


def test_a_phase_that_the_layer_has_not_is_told_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert kimi_linear_mini.main(["--fail", "ffn_moe@0"]) == 2
    assert "the phases of layer 0 are attn_kda or ffn" in capsys.readouterr().err
    assert kimi_linear_mini.main(["--fail", "ffn@99"]) == 2
    assert "there is no layer 99, the last one is 11" in capsys.readouterr().err
