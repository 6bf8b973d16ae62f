"""The analyzer `launches`: failures are counted whatever steps are used, and captured launches are none."""

from pathlib import Path

import pytest
from asking import metric, result, row, view
from tiny_programs import eager
from tiny_trace import GRAPH_LAUNCH, LAUNCH, MAIN, Thread, TinyTrace

from tracelab.result import Row
from tracelab.view import View


def failing(steps: int = 10) -> TinyTrace:
    """`eager` steps; in each, a driver launch inside mlp returns 1 and leaves no kernel."""
    trace = eager(steps)
    for i in range(steps):
        trace.call(i * 1000 + 250, i * 1000 + 255, "cuLaunchKernel", code=1, event_class=1)
    return trace


@pytest.mark.parametrize("skip_steps", [0, 1, 5, 99])
def test_failures_count_whatever_is_left_out(tmp_path: Path, skip_steps: int) -> None:
    answer = result("launches", view(failing().save(tmp_path), skip_steps=skip_steps))
    assert metric(answer, "failed_launches") == 10
    assert metric(answer, "launches_without_work") == 0
    first = row(answer, "failed", step="step 0")
    assert (first["phase"], first["process"], first["api"], first["code"]) == ("mlp", 100, "cuLaunchKernel", 1)
    assert (first["error"], first["severity"], first["count"]) == ("cudaErrorInvalidValue", "error", 1)
    assert answer.findings[0].title.startswith("10 × cuLaunchKernel failed in mlp")


def test_counting_only_the_used_steps_would_hide_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracelab.failed_calls import failed_calls

    def of_used_steps(seen: View) -> list[Row]:
        used = {seen.group.names[int(seen.table.step[r])] for r in seen.used}
        return [r for r in failed_calls(seen) if r["step"] in used]

    monkeypatch.setattr("tracelab.analyzers.launches.failed_calls", of_used_steps)
    answer = result("launches", view(failing().save(tmp_path), skip_steps=4))
    assert metric(answer, "failed_launches") == 6


def test_pitfall_c12_one_failed_launch_in_one_step(tmp_path: Path) -> None:
    trace = TinyTrace()
    for step in range(10):
        t = step * 10_000
        trace.range(f"step {step}", t, t + 5_000)
        for k in range(48):
            at = t + k * 100
            if (step, k) == (4, 20):
                trace.call(at, at + 5, LAUNCH, code=1)
            else:
                trace.launch(at, "k", at + 10, at + 60)
    seen = view(trace.save(tmp_path))
    answer = result("launches", seen)
    assert metric(answer, "failed_launches") == 1
    assert row(answer, "failed", step="step 4")["error"] == "cudaErrorInvalidValue"
    assert seen.table.kernels[4] == 47
    assert 4 not in seen.used.tolist()  # its kernel sequence is unlike the others'


def test_a_captured_graph_is_no_failure(tmp_path: Path) -> None:
    trace = eager(2)
    trace.call(2000, 2010, "cudaStreamBeginCapture_v10000")
    for k in range(48):
        trace.call(2020 + k * 10, 2025 + k * 10, LAUNCH)
    trace.call(2600, 2610, "cudaStreamEndCapture_v10000")
    trace.range("step 2", 3000, 3400).launch(3020, "attention", 3030, 3130)
    answer = result("launches", view(trace.save(tmp_path)))
    assert (metric(answer, "failed_launches"), metric(answer, "launches_without_work")) == (0, 0)


def test_every_launch_without_a_kernel_is_not_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule for captures, the 48 captured launches would be a warning."""
    import numpy as np

    monkeypatch.setattr("tracelab.launch_state._captured", lambda _, rows: np.zeros(len(rows), bool))
    trace = eager(2).call(1500, 1510, "cudaStreamBeginCapture_v10000")
    for k in range(48):
        trace.call(1520 + k, 1521 + k, LAUNCH)
    trace.call(1600, 1610, "cudaStreamEndCapture_v10000").launch(1700, "k", 1710, 1720)
    assert metric(result("launches", view(trace.save(tmp_path))), "launches_without_work") == 48


def test_lost_rows_are_a_warning_and_edges_are_not(tmp_path: Path) -> None:
    trace = eager(3).call(450, 455, LAUNCH)  # in the middle: its kernel is missing
    trace.call(-500, -495, LAUNCH).call(9000, 9005, LAUNCH)  # before the first and after the last recorded work
    answer = result("launches", view(trace.save(tmp_path)))
    assert (metric(answer, "failed_launches"), metric(answer, "launches_without_work")) == (0, 1)


def test_pitfall_c7_replays_without_rows(tmp_path: Path) -> None:
    """100 graph launches, GPU rows for 18, the first and last among them: 82 are missing and no idle is claimed."""
    trace = TinyTrace()
    for i in range(100):
        t = i * 1000
        trace.call(t, t + 10, GRAPH_LAUNCH)
        if i % 6 == 0 or i == 99:  # 0, 6 … 96 and 99: 17 + 1
            trace.kernel("k", t + 20, t + 500, node=2 << 32)
    seen = view(trace.save(tmp_path))
    assert metric(result("launches", seen), "launches_without_work") == 82
    assert metric(result("gaps", seen), "bound") == "unknown"


def test_harmless_codes_and_others_calls(tmp_path: Path) -> None:
    other = Thread(pid=7, tid=7)
    trace = eager().call(500, 501, "cudaEventQuery_v3020", code=600).call(510, 511, "cudaMalloc_v3020", code=2)
    trace.call(520, 521, "cudaLaunchKernel_v7000", code=700, on=other)
    answer = result("launches", view(trace.save(tmp_path)))
    assert metric(answer, "failed_launches") == 1
    fatal = answer.tables["failed"][0]
    assert (fatal["severity"], fatal["process"], fatal["step"]) == ("fatal", 7, None)
    assert {r["api"] for r in answer.tables["failed"]} == {"cudaLaunchKernel", "cudaMalloc"}
    assert answer.findings[0].code == "fatal-error"


def test_calls_of_the_used_steps(tmp_path: Path) -> None:
    answer = result("launches", view(eager().save(tmp_path)))
    calls = row(answer, "calls", api="cudaLaunchKernel")
    assert (calls["calls_per_step"], calls["host_ns_per_step"], calls["median_ns"]) == (3, 15, 5)
    assert MAIN.tid == 100


def test_modules_loaded_inside_a_step_are_said(tmp_path: Path) -> None:
    trace = eager(5).call(2050, 2090, "cuModuleLoadData", event_class=1)
    seen = view(trace.save(tmp_path))
    assert [finding.code for finding in result("launches", seen).findings] == ["module-load"]
    assert 2 not in seen.used.tolist()


def test_only_loads_inside_the_steps_are_counted(tmp_path: Path) -> None:
    # 40 ns inside step 2; 900 ns before every step and 30 ns of another process at the same time count for nothing.
    other = Thread(pid=900, tid=901)
    trace = eager(5).call(2050, 2090, "cuModuleLoadData", event_class=1).call(-1000, -100, "cuModuleLoadData")
    trace.call(2050, 2080, "cuModuleLoadData", on=other)
    (finding,) = result("launches", view(trace.save(tmp_path))).findings
    assert finding.title == "Modules were loaded or compiled inside step 2: 1 call, 0.0 µs of host time."
