"""Failed calls: which count, where they are placed, and which are one failure seen twice."""

from pathlib import Path

import pytest
from asking import view
from tiny_programs import eager, replays
from tiny_trace import LAUNCH, Thread, TinyTrace

from tracelab.failed_calls import failed_calls
from tracelab.result import Row

WORKER = Thread(pid=100, tid=101)


def failures(trace: TinyTrace, folder: Path) -> list[Row]:
    return failed_calls(view(trace.save(folder)))


def test_nothing_failed(tmp_path: Path) -> None:
    assert failures(eager(), tmp_path) == []


def test_a_failure_outside_the_steps(tmp_path: Path) -> None:
    (row,) = failures(eager().call(9000, 9005, LAUNCH, code=701), tmp_path)
    assert (row["step"], row["phase"], row["error"]) == (None, "(no phase)", "cudaErrorLaunchOutOfResources")
    assert (row["launch"], row["severity"], row["count"]) == (True, "error", 1)


def test_runtime_and_driver_row_of_one_failure_are_one(tmp_path: Path) -> None:
    trace = eager().call(250, 280, LAUNCH, code=1).call(255, 270, "cuLaunchKernel", code=1, event_class=1)
    (row,) = failures(trace, tmp_path)
    assert (row["api"], row["count"], row["phase"]) == ("cudaLaunchKernel", 1, "mlp")


def test_the_same_time_on_two_threads_are_two(tmp_path: Path) -> None:
    trace = eager().call(250, 280, LAUNCH, code=1).call(255, 270, LAUNCH, code=1, on=WORKER)
    assert sum(row["count"] for row in failures(trace, tmp_path)) == 2


def test_a_failure_on_another_thread_is_placed_in_the_open_step(tmp_path: Path) -> None:
    (row,) = failures(eager().call(1250, 1255, LAUNCH, code=1, on=WORKER), tmp_path)
    assert (row["step"], row["phase"]) == ("step 1", "mlp")


def test_failures_in_a_step_that_nobody_marked(tmp_path: Path) -> None:
    trace = replays(5).without("NVTX_EVENTS").call(2500, 2505, LAUNCH, code=1)
    (row,) = failures(trace, tmp_path)
    assert row["step"] == "step 2"


@pytest.mark.parametrize(
    ("name", "code", "severity"),
    [
        ("cudaStreamSynchronize_v3020", 719, "fatal"), ("cudaMemcpyAsync_v3020", 1, "warning"),
        ("cuGraphLaunch", 1, "error"), ("cudaMalloc_v3020", 2, "warning"), ("cudaFoo", 12345, "warning"),
    ],
)  # fmt: skip
def test_severities(tmp_path: Path, name: str, code: int, severity: str) -> None:
    (row,) = failures(eager().call(500, 501, name, code=code), tmp_path)
    assert (row["severity"], row["code"]) == (severity, code)


@pytest.mark.parametrize(
    ("name", "code"),
    [("cudaStreamQuery_v3020", 600), ("cuGetProcAddress_v2", 500), ("cudaDeviceEnablePeerAccess", 704)],
)
def test_harmless_codes(tmp_path: Path, name: str, code: int) -> None:
    assert failures(eager().call(500, 501, name, code=code), tmp_path) == []


def test_unloading_errors_are_harmless_only_at_the_end(tmp_path: Path) -> None:
    assert failures(eager().call(9000, 9001, "cuModuleUnload", code=4, event_class=1), tmp_path) == []
    assert len(failures(eager().call(50, 51, "cuModuleUnload", code=4, event_class=1), tmp_path)) == 1


def test_the_worst_comes_first(tmp_path: Path) -> None:
    trace = eager().call(500, 501, "cudaMalloc_v3020", code=2)
    trace.call(510, 511, LAUNCH, code=1).call(520, 521, "cudaDeviceSynchronize_v3020", code=700)
    assert [row["severity"] for row in failures(trace, tmp_path)] == ["fatal", "error", "warning"]


def test_without_return_values_nothing_can_be_said(tmp_path: Path) -> None:
    trace = eager().call(500, 501, LAUNCH, code=1).without("CUPTI_ACTIVITY_KIND_RUNTIME.returnValue")
    assert failures(trace, tmp_path) == []


def test_driver_calls_inside_one_failing_runtime_call_are_one_failure(tmp_path: Path) -> None:
    trace = eager().call(9000, 9100, LAUNCH, code=1)
    trace.call(9010, 9020, "cuFuncGetAttribute", code=1, event_class=1)
    trace.call(9030, 9040, "cuLaunchKernel", code=1, event_class=1)  # inside the first, not inside the second
    (row,) = failures(trace, tmp_path)
    assert (row["api"], row["count"]) == ("cudaLaunchKernel", 1)
