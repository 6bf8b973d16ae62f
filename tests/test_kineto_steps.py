"""Steps of PyTorch profiler files, and what its names of ROCm and its silence on return codes mean for them."""

from pathlib import Path

import pytest
from kineto_fixture import ROCM, TinyKineto, load
from test_kineto_pages import STEP, ask, decode

from tracelab.analysis import attribute, report, view_of
from tracelab.attribution import fold
from tracelab.failures import is_graph_launch, is_host_wait, is_launch, is_module_load
from tracelab.gap_classes import SYNC
from tracelab.launch_state import launches_without_work
from tracelab.options import Facts, Selection


@pytest.mark.parametrize(
    ("name", "folded"),
    [("ProfilerStep#12", "ProfilerStep#"), ("step 7/8", "step #/#"), ("C# code", "C# code"), ("a##3", "a##")],
)
def test_a_number_sign_belongs_to_its_number(name: str, folded: str) -> None:
    assert fold(name) == folded


def test_profiler_steps_have_their_name(tmp_path: Path) -> None:
    assert view_of(ask(decode(), tmp_path), 0).group.pattern == "ProfilerStep#"


def test_operators_are_no_steps(tmp_path: Path) -> None:
    # Two operators, each with one kernel, recur in turn; nobody marked a step, and two kernels are no loop.
    trace = decode()
    trace.events = [event for event in trace.events if event["cat"] != "user_annotation"]
    seen = view_of(ask(trace, tmp_path), 0)
    assert (seen.group.source, seen.steps_used) == ("whole-trace", 1)


def test_operators_can_be_asked_for(tmp_path: Path) -> None:
    asked = attribute(load(decode(), tmp_path), Facts(), Selection(steps="aten::mm", skip_steps=0))
    seen = view_of(asked, 0)
    assert (seen.group.pattern, seen.busy_ns.tolist()) == ("aten::mm", [30_000] * 5)


@pytest.mark.parametrize(
    ("name", "launch", "graph", "wait", "module"),
    [
        ("hipLaunchKernel", True, False, False, False),
        ("hipModuleLaunchKernel", True, False, False, False),
        ("hipExtModuleLaunchKernel", True, False, False, False),
        ("hipGraphLaunch", True, True, False, False),
        ("hipLaunchHostFunc", False, False, False, False),
        ("hipDeviceSynchronize", False, False, True, False),
        ("hipMemcpy", False, False, True, False),
        ("hipMemcpyWithStream", False, False, True, False),
        ("hipMemcpyAsync", False, False, False, False),
        ("hipFree", False, False, True, False),
        ("hipFreeAsync", False, False, False, False),
        ("hipModuleLoadData", False, False, False, True),
    ],
)
def test_names_of_rocm(name: str, launch: bool, graph: bool, wait: bool, module: bool) -> None:
    assert (is_launch(name), is_graph_launch(name), is_host_wait(name), is_module_load(name)) == (
        launch, graph, wait, module
    )  # fmt: skip


def test_a_wait_of_rocm_makes_a_sync_gap(tmp_path: Path) -> None:
    # The host waits until 100 µs, launches at 110; the GPU idles from 80 to 120.
    trace = TinyKineto(ROCM).annotation("all", 0, 300_000).launch(0, "a", 20_000, 60_000, api="hipLaunchKernel")
    trace.call(10_000, "hipDeviceSynchronize", dur=90_000).launch(110_000, "b", 120_000, 5_000, api="hipLaunchKernel")
    seen = view_of(ask(trace, tmp_path), 0)
    assert int(seen.gaps.of_class(SYNC)[1].sum()) == 40_000
    assert int((seen.gaps.end - seen.gaps.start).sum()) == 40_000


def test_launches_under_capture_rightly_leave_no_work(tmp_path: Path) -> None:
    trace = decode(ROCM).call(2 * STEP - 9_000, "hipStreamBeginCapture", dur=1_000)
    trace.call(2 * STEP - 7_000, "hipLaunchKernel", dur=1_000).call(2 * STEP - 5_000, "hipStreamEndCapture", dur=1_000)
    assert len(launches_without_work(ask(trace, tmp_path).trace)) == 0
    trace.call(2 * STEP - 3_000, "hipLaunchKernel", dur=1_000)
    assert len(launches_without_work(ask(trace, tmp_path).trace)) == 1


def test_launches_without_work_are_not_said_to_have_returned_0(tmp_path: Path) -> None:
    said = report(ask(decode().call(2 * STEP - 9_000, dur=1_000), tmp_path)).trace.warnings
    (message,) = (warning.message for warning in said if warning.code == "launches-without-work")
    assert message.startswith("1 launch calls have no GPU work in the trace: they failed, or rows are missing")
