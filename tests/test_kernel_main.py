"""The driver of a bundled kernel: JSON lines of a run, the record of a profile, options; and a kernel that is wrong."""

import dataclasses
import importlib
import json
import sys
from types import ModuleType
from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu


def driver(stem: str = "grouped_gemm") -> tuple[ModuleType, Any]:
    """The driver, and a kernel for it."""
    _, module = kernel_on_cpu(stem)
    return sys.modules["tracelab.kernels._kernel_main"], module


def test_a_run_says_what_ran_and_checks_every_variant(capsys: pytest.CaptureFixture[str]) -> None:
    main, module = driver()
    assert main.main(module, ["--run"]) == 0
    head, *rows = map(json.loads, capsys.readouterr().out.splitlines())
    assert head == {
        "tracelab.run": 1, "kernel": "grouped-gemm", "dtype": "float32", "options": dict(module.CHECK),
        "variants": list(module.VARIANTS), "gpu": None,
    }  # fmt: skip
    assert [row["variant"] for row in rows] == list(module.VARIANTS)
    assert all(row["ok"] and row["error"] <= row["tolerance"] == 2e-6 for row in rows)
    assert not any("ns" in row for row in rows), "nothing is timed without a GPU"


def test_only_the_asked_variant_runs_at_the_asked_shape() -> None:
    main, module = driver()
    head, row = main.run_lines(module, {"variant": "bm64", "k": 33})
    assert head["options"]["k"] == 33
    # 3 experts of 5 rows, N 70, K 33: A and counted rows of OUT once, all of B once, in fp32, and the counts
    assert row["variant"] == "bm64" and row["bytes"] == 4 * (15 * 33 + 3 * 70 * 33 + 15 * 70) + 4 * 3


def test_control_a_wrong_kernel_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    main, module = driver()
    right = module.case

    def wrong(*arguments: Any) -> Any:
        case = right(*arguments)
        return dataclasses.replace(case, reference=lambda copy: [x * 1.05 for x in case.reference(copy)])

    monkeypatch.setattr(module, "case", wrong)
    _, row = main.run_lines(module, {"variant": "masked"})
    assert row["ok"] is False and row["error"] == pytest.approx(0.05 / 1.05, rel=1e-3)


def test_control_what_nobody_wrote_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    main, module = driver()
    right = module.case

    def lazy(*arguments: Any) -> Any:
        case = right(*arguments)
        out = case.launch(0)
        return dataclasses.replace(case, launch=lambda _copy: out)  # the buffers of an earlier launch, poisoned since

    monkeypatch.setattr(module, "case", lazy)
    _, row = main.run_lines(module, {"variant": "masked"})
    assert row["ok"] is False and row["error"] == float("inf")


def test_a_case_may_be_coarser_than_its_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    main, module = driver()
    right = module.case

    def coarse(*arguments: Any) -> Any:
        case = right(*arguments)
        return dataclasses.replace(case, tolerance=0.06, reference=lambda i: [x * 1.05 for x in case.reference(i)])

    monkeypatch.setattr(module, "case", coarse)
    _, row = main.run_lines(module, {"variant": "masked"})
    assert row["ok"] is True and row["tolerance"] == 0.06 and row["error"] > 0.04


def failing(error: Exception) -> Any:
    def case(*_arguments: Any) -> Any:
        raise error

    return case


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("k must be even\nmore"), "(k must be even)"),
        (RuntimeError("x" * 999), f"({'x' * 160})"),
        (OverflowError("too large"), "(too large)"),
        (AssertionError(), "(AssertionError)"),
        (MemoryError(), "(MemoryError)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_given_shape_that_fails_is_one_sentence_and_the_kernels_own_a_traceback(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main, module = driver()
    monkeypatch.setattr(module, "case", failing(error))
    assert main.main(module, ["--run", "--k", "33"]) == 2
    assert capsys.readouterr().err == f"grouped-gemm: this shape cannot be run {said}; give other sizes.\n"
    for argv in ([], ["--variant", "bm64"]):
        with pytest.raises(type(error)):
            main.main(module, ["--run", *argv])


def test_a_compiler_error_is_named_by_its_reason_not_by_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main, module = driver()
    errors = importlib.import_module("triton.compiler.errors")
    monkeypatch.setattr(module, "case", failing(errors.CompilationError("def f(): pass", None, "no such tile")))
    assert main.main(module, ["--run", "--k", "33"]) == 2
    assert "cannot be run (no such tile)" in capsys.readouterr().err


def test_a_full_gpu_keeps_its_own_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch, module = kernel_on_cpu("grouped_gemm")
    monkeypatch.setattr(module, "case", failing(torch.OutOfMemoryError("CUDA out of memory")))
    assert driver()[0].main(module, ["--run", "--k", "33"]) == 2
    assert "the GPU's memory is too small" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stem", "words"),
    [
        ("mla", "--latent 33"),
        ("split_kv", "--heads 7"),
        ("split_kv", "--page 0"),
        ("attention", "--head-dim 33"),
        ("attention", "--length 9999999999"),
        ("attention", "--causal 2"),
        ("grouped_gemm", "--experts 0"),
        ("kda", "--batch 0"),
        ("kda", "--heads 99999999999999999999"),
    ],
)
def test_shapes_that_make_no_sense_are_one_sentence(stem: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    main, module = driver(stem)
    assert main.main(module, ["--run", *words.split()]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_zero_stays_where_it_means_something() -> None:
    for stem, words in (("split_kv", "--gate 0"), ("kda", "--null-rows 0"), ("attention", "--causal 0")):
        main, module = driver(stem)
        assert 0 in main._parse(module, words.split()).values()


@pytest.mark.parametrize(
    "argv", [["--variant", "nope"], ["--k", "0"], ["--k", "-1"], ["--k", "x"], ["--nonsense"], ["--gra"]]
)
def test_bad_options_are_one_sentence_and_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main, module = driver()
    assert main.main(module, argv) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_profile_needs_a_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    main, module = driver()
    assert main.main(module, []) == 5
    assert capsys.readouterr().err == "grouped-gemm: torch finds no CUDA GPU; a profile needs one.\n"


def test_the_record_counts_every_call_of_a_step() -> None:
    torch, module = kernel_on_cpu("grouped_gemm")
    main = sys.modules["tracelab.kernels._kernel_main"]
    options = {**module.DEFAULTS, **module.CHECK}
    case = module.case(options, torch.device("cpu"), torch.float32, 3)
    record = main._record("grouped_gemm", options, case)
    assert record["bytes_per_step"] == 3 * case.work.bytes == record["phases"]["grouped_gemm"]["bytes"]
    assert record["variant"]["calls_per_step"] == 3 and record["variant"]["variant"] == "masked"
