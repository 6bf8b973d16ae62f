"""The driver of a bundled kernel: JSON lines of a run, the record of a profile, options; and a kernel that is wrong."""

import dataclasses
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


@pytest.mark.parametrize("argv", [["--variant", "nope"], ["--k", "-1"], ["--k", "x"], ["--nonsense"], ["--gra"]])
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
