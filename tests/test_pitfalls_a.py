"""Correlation and attribution: inputs on which trace tools go wrong, with the right numbers (others stand by topic)."""

from pathlib import Path

import pytest
from asking import ask, column, document, metric, result, row, view
from tiny_programs import eager
from tiny_trace import GRAPH_LAUNCH, US, Thread, TinyTrace

from tracelab.load import load_trace

WORKER = Thread(pid=100, tid=101)
OTHER = Thread(pid=200, tid=200)


def test_a1_start_end_ranges_hold_their_launches(tmp_path: Path) -> None:
    """Three type-60 ranges, the second overlapping the first, the third ended on another thread: none is lost."""
    trace = TinyTrace()
    trace.range("one", 0, 300, kind=60).range("two", 200, 500, kind=60)
    trace.range("three", 600, 900, kind=60, ended_by=WORKER)
    for at in (100, 400, 700):
        trace.launch(at, "k", at + 1000, at + 1050)
    answer = result("phases", view(trace.save(tmp_path)))
    assert column(answer, "phases", "phase", "kernels_per_step") == {"one": 1, "two": 1, "three": 1}


def test_a2_attributed_time_never_exceeds_the_kernel_table(tmp_path: Path) -> None:
    """Correlation ids 100 … 199 in two processes, 10 µs kernels in one and 1000 µs in the other."""
    trace = TinyTrace()
    for on, ns in ((Thread(), 10 * US), (OTHER, 1000 * US)):
        for k in range(100):
            t = k * 2_000_000 + on.pid
            trace.range(f"step {k}", t, t + 100, on=on).range(f"p{on.pid}", t, t + 50, on=on)
            trace.launch(t + 10, "k", t + 1000, t + 1000 + ns, on=on)
    path = trace.save(tmp_path)
    seen = view(path)
    assert len(seen.trace.ops) == 200
    assert (seen.trace.ops.call >= 0).all()
    answer = result("phases", seen)
    assert row(answer, "attribution", method="nvtx")["kernels_per_step"] * seen.steps_used == 200
    assert document(path)["trace"]["kernel_sum_ns"] == 100 * 1010 * US


def test_a3_one_launch_owns_the_whole_replay(tmp_path: Path) -> None:
    trace = TinyTrace().range("step 0", 0, 50)
    trace.replay(10, [("k", 100 + 20 * k, 110 + 20 * k, 2 << 32 | k) for k in range(24)])
    for k in range(7):
        trace.copy(600 + 20 * k, 610 + 20 * k, node=2 << 32 | 24 + k)
    answer = result("kernels", view(trace.save(tmp_path), steps="step"))
    found = [metric(answer, f"{what}_per_step") for what in ("kernels", "copies", "launches")]
    assert found == [24, 7, 1]


@pytest.mark.parametrize("api", ["cudaGraphLaunch_v10000", "cuGraphLaunch", "cudaGraphLaunch_v10000_ptsz"])
def test_a6_graph_launches_are_launches(tmp_path: Path, api: str) -> None:
    trace = TinyTrace()
    for i in range(3):
        t = 1000 * i
        trace.call(t, t + 5, api).kernel("k", t + 10, t + 200, node=2 << 32)
    seen = view(trace.save(tmp_path))
    assert seen.table.launches.tolist() == [1, 1, 1]
    assert metric(result("gaps", seen), "launch_api_ns") == 5
    assert metric(result("gaps", seen), "between_steps_late_ns") == 810  # 200 … 1010


@pytest.mark.parametrize("api", ["cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC_v11060", "cuFutureLaunch"])
def test_a7_any_call_with_gpu_work_is_a_launch(tmp_path: Path, api: str) -> None:
    trace = TinyTrace()
    for i in range(3):
        t = 1000 * i
        trace.range(f"step {i}", t, t + 400).launch(t, "a", t + 10, t + 50)
        trace.launch(t + 100, "triton", t + 110, t + 150, api=api).launch(t + 200, "b", t + 210, t + 250)
    path = trace.save(tmp_path)
    assert (load_trace(path).ops.call >= 0).all()
    assert view(path).table.launches.tolist() == [3, 3, 3]


def test_a10_work_without_a_launch_row_is_counted_and_never_negative(tmp_path: Path) -> None:
    trace = TinyTrace()
    for k in range(2):
        trace.kernel("early", k * 100, k * 100 + 50, correlation=90_000 + k)
    for k in range(10):
        trace.launch(500 + 100 * k, "k", 520 + 100 * k, 560 + 100 * k)
    said = document(trace.save(tmp_path))
    (warning,) = [w for w in said["trace"]["warnings"] if w["code"] == "no-launch-row"]
    assert warning["message"].startswith("2 rows")


def test_a11_the_innermost_range_has_the_kernel(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(2):
        t = 100 * i
        trace.range(f"step {i}", t, t + 90).range("A", t + 1, t + 80)
        trace.range("B", t + 2, t + 70).range("B", t + 3, t + 60).launch(t + 10, "k", t + 20, t + 30)
    answer = result("phases", view(trace.save(tmp_path)))
    assert column(answer, "phases", "phase", "kernels_per_step") == {"A/B/B": 1}


def test_a14_gpu_time_is_the_kernels_not_the_ranges(tmp_path: Path) -> None:
    """A range of 20 µs; its kernel runs 5 ms later for 300 µs."""
    trace = TinyTrace()
    for i in range(2):
        t = i * 10_000 * US
        trace.range(f"step {i}", t, t + 30 * US).range("attn", t, t + 20 * US)
        trace.launch(t + 5 * US, "k", t + 5_000 * US, t + 5_300 * US)
    answer = result("phases", view(trace.save(tmp_path)))
    assert column(answer, "phases", "phase", "busy_ns") == {"attn": 300 * US}


def test_a15_a_start_end_range_does_not_break_the_nesting(tmp_path: Path) -> None:
    """A start/end range opens before a push/pop range and closes inside it: the later one is innermost."""
    trace = TinyTrace()
    for i in range(2):
        t = 1000 * i
        trace.range(f"step {i}", t, t + 900)
        trace.range("upload", t + 100, t + 400, kind=60).range("attn", t + 200, t + 700)
        for at in (150, 300, 500):
            trace.launch(t + at, "k", t + at + 10, t + at + 20)
    answer = result("phases", view(trace.save(tmp_path)))
    kernels = column(answer, "phases", "phase", "kernels_per_step")
    assert kernels["upload"] == 1
    assert sum(n for path, n in kernels.items() if path.split("/")[-1] == "attn") == 2


def test_a18_the_depth_of_phases_can_be_cut(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(2):
        t = 10_000 * i
        trace.range(f"step {i}", t, t + 9_000).range("mlp", t, t + 8_000)
        for k in range(50):
            trace.range(f"aten::op_{k}", t + 100 * k, t + 100 * k + 90)
            trace.launch(t + 100 * k + 10, "k", t + 100 * k + 20, t + 100 * k + 60)
    answer = result("phases", view(trace.save(tmp_path), depth=1))
    assert column(answer, "phases", "phase", "kernels_per_step") == {"mlp": 50}


def test_a20_an_open_outer_range_is_flagged_and_breaks_nothing(tmp_path: Path) -> None:
    trace = eager().range("decode", -10, None).range("inverted", 10, 9)
    said = document(trace.save(tmp_path))
    assert said["steps"]["pattern"] == "step #"
    assert {w["code"] for w in said["trace"]["warnings"]} == {"open-ranges", "inverted-ranges"}


def test_a21_two_thirds_of_a_training_step_from_another_thread(tmp_path: Path) -> None:
    """10 launches on the main thread and 14 on another one inside its time: 24 kernels in the step, 14 marked."""
    trace = TinyTrace()
    for i in range(3):
        t = 10_000 * i
        trace.range(f"train_step {i}", t, t + 9_000)
        for k in range(24):
            at = t + 100 * k + 50
            trace.launch(at, f"k{k}", at + 10, at + 60, on=Thread() if k < 10 else WORKER)
    answer = result("phases", view(trace.save(tmp_path)))
    assert column(answer, "attribution", "method", "kernels_per_step") == {"cross-thread": 14, "none": 10}
    assert metric(answer, "attributed_share") == 0.0  # to a step, but to no phase


def test_a8_the_kernels_of_whole_graphs_are_said_to_be_unavailable(tmp_path: Path) -> None:
    trace = TinyTrace().graph_mode("Graph")
    for i in range(10):
        trace.call(i * 100, i * 100 + 5, GRAPH_LAUNCH).graph_trace(1000 + i * 18_000, 1000 + (i + 1) * 18_000)
    path = trace.save(tmp_path)
    assert "graph-level" in {w["code"] for w in document(path)["trace"]["warnings"]}
    seen = view(path)
    assert metric(result("gaps", seen), "gap_share") == 0.0
    assert seen.group.source == "graph-launch"
    assert ask(path).trace.graph_mode == "graph"
