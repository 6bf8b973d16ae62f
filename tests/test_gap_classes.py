"""Every idle nanosecond in exactly one class, by the rules in their order."""

from pathlib import Path

import numpy as np
import pytest
from asking import view
from tiny_trace import GRAPH_LAUNCH, MAIN, SYNC, Thread, TinyTrace

from tracelab.gap_classes import CLASSES
from tracelab.view import View

WORKER = Thread(pid=100, tid=101)
OTHER = Thread(pid=200, tid=200)


def idle(trace: TinyTrace, folder: Path) -> dict[str, int]:
    """Idle time of the one step by class, classes without any left out."""
    return by_class(view(trace.save(folder), steps="step"))


def by_class(seen: View) -> dict[str, int]:
    return {name: int(ns) for name, ns in zip(CLASSES, seen.idle_by_class[:, 0], strict=True) if ns}


def two_kernels(call_at: int, *, call_ns: int = 5, on: Thread = MAIN) -> TinyTrace:
    """One step: a kernel 100 … 200, a gap 200 … 300, a kernel 300 … 400 that is called at `call_at`."""
    trace = TinyTrace().range("step 0", 0, 1000).launch(90, "a", 100, 200)
    return trace.launch(call_at, "b", 300, 400, api_ns=call_ns, on=on)


def test_a_late_call_is_a_launch_gap(tmp_path: Path) -> None:
    assert idle(two_kernels(250), tmp_path) == {"launch": 100}


def test_a_call_exactly_when_the_gap_begins_is_late(tmp_path: Path) -> None:
    assert idle(two_kernels(200), tmp_path) == {"launch": 100}


def test_a_call_still_running_when_the_gap_begins_is_late(tmp_path: Path) -> None:
    assert idle(two_kernels(150, call_ns=51), tmp_path) == {"launch": 100}


def test_queued_work_is_a_dependency(tmp_path: Path) -> None:
    assert idle(two_kernels(150, call_ns=50), tmp_path) == {"dependency": 100}


def test_a_launch_after_a_wait_is_sync(tmp_path: Path) -> None:
    trace = two_kernels(250).call(110, 230, SYNC)
    assert idle(trace, tmp_path) == {"sync": 100}


@pytest.mark.parametrize(
    "name", ["cudaDeviceSynchronize_v3020", "cuStreamSynchronize", "cudaMemcpy_v3020", "cuMemcpyDtoH_v2"]
)
def test_every_host_wait_counts(tmp_path: Path, name: str) -> None:
    assert idle(two_kernels(250).call(110, 230, name), tmp_path) == {"sync": 100}


@pytest.mark.parametrize(
    "name", ["cudaEventQuery_v3020", "cudaStreamWaitEvent_v3020", "cudaEventRecord_v3020", "cudaMemcpyAsync_v3020"]
)
def test_what_does_not_wait_is_no_sync(tmp_path: Path, name: str) -> None:
    assert idle(two_kernels(250).call(110, 230, name), tmp_path) == {"launch": 100}


def test_a_wait_that_ended_before_the_gap_is_not_its_cause(tmp_path: Path) -> None:
    assert idle(two_kernels(250).call(110, 190, SYNC), tmp_path) == {"launch": 100}


def test_the_wait_of_another_thread_is_not_its_cause(tmp_path: Path) -> None:
    assert idle(two_kernels(250).call(110, 230, SYNC, on=WORKER), tmp_path) == {"launch": 100}


def test_work_without_a_call_is_unknown(tmp_path: Path) -> None:
    trace = TinyTrace().launch(90, "a", 100, 200).kernel("b", 300, 400, correlation=999)
    assert by_class(view(trace.save(tmp_path))) == {"unknown": 100}


def test_gaps_inside_a_replay_are_dependencies(tmp_path: Path) -> None:
    ops = [("a", 100, 200, 2 << 32), ("b", 300, 400, 2 << 32 | 1)]
    # The call still runs when the first gap begins: for kernels of their own that would be a launch gap.
    assert idle(TinyTrace().range("step 0", 0, 900).replay(50, ops, api_ns=300), tmp_path) == {"dependency": 100}


def test_profiler_overhead_cuts_the_gap(tmp_path: Path) -> None:
    assert idle(two_kernels(250).overhead(190, 240), tmp_path) == {"profiler": 40, "launch": 60}


def test_overheads_that_nest_count_once(tmp_path: Path) -> None:
    trace = two_kernels(250).overhead(210, 240).overhead(215, 220).overhead(230, 250)
    assert idle(trace, tmp_path) == {"profiler": 40, "launch": 60}


def test_overhead_of_another_thread_counts_only_if_it_flushes(tmp_path: Path) -> None:
    assert idle(two_kernels(250).overhead(210, 240, on=WORKER), tmp_path) == {"launch": 100}
    assert idle(two_kernels(250).overhead(210, 240, "CUPTI Buffer flush", on=WORKER), tmp_path) == {
        "profiler": 30,
        "launch": 70,
    }
    assert idle(two_kernels(250).overhead(210, 240, "CUPTI Buffer flush", on=OTHER), tmp_path) == {"launch": 100}


def test_pitfall_b13_b5_overhead_outside_the_gaps_is_nobodys(tmp_path: Path) -> None:
    trace = two_kernels(250).overhead(110, 190).overhead(5_000, 320_005_000, "CUDA profiling data flush")
    assert idle(trace, tmp_path) == {"launch": 100}


def test_pitfall_b2_another_streams_work_is_no_gap(tmp_path: Path) -> None:
    trace = two_kernels(250).launch(95, "busy", 150, 350, stream=8)
    assert idle(trace, tmp_path) == {}


def test_another_processs_work_is_no_gap_but_other_time(tmp_path: Path) -> None:
    seen = view(two_kernels(250).launch(95, "guest", 220, 260, on=OTHER).save(tmp_path), steps="step")
    assert seen.other_ns.tolist() == [40]
    # 200 … 220 ends with the guest's kernel, called at 95: queued. 260 … 300 ends with ours, called at 250: queued.
    assert by_class(seen) == {"dependency": 60}


def test_pitfall_b10_synchronisation_rows_are_no_work(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "k", 0, 10_000)
    trace.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=0, end=100_000, deviceId=0, streamId=7, correlationId=101,
              globalPid=MAIN.global_pid, syncType=2)  # fmt: skip
    assert view(trace.save(tmp_path)).busy_ns.tolist() == [10_000]


def test_pitfall_b14_small_gaps_count(tmp_path: Path) -> None:
    """1000 kernels of 4 µs with gaps of 6 µs: 60 % idle, though no gap is long."""
    trace = TinyTrace().range("step 0", 0, 11_000_000)
    for k in range(1000):
        trace.launch(k * 10_000, "k", k * 10_000 + 100, k * 10_000 + 4_100)
    seen = view(trace.save(tmp_path), steps="step")
    assert seen.busy_ns.tolist() == [4_000_000]
    assert by_class(seen) == {"launch": 999 * 6_000}


def test_pitfall_a9_idle_of_a_replay(tmp_path: Path) -> None:
    """24 kernels of 10 µs with gaps of 1 µs: busy 240, window 263, idle 23 µs."""
    ops = [("k", 11_000 * k, 11_000 * k + 10_000, 2 << 32 | k) for k in range(24)]
    seen = view(TinyTrace().range("step 0", -100, 5).replay(-50, ops).save(tmp_path), steps="step")
    assert (seen.busy_ns.tolist(), seen.span_ns.tolist()) == ([240_000], [263_000])
    assert by_class(seen) == {"dependency": 23_000}


def test_pitfall_a8_whole_graphs_are_busy_time(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(20):
        trace.range(f"step {i}", i * 18_000, i * 18_000 + 9).call(i * 18_000, i * 18_000 + 5, GRAPH_LAUNCH)
        trace.graph_trace(100 + i * 18_000, 100 + (i + 1) * 18_000)
    seen = view(trace.save(tmp_path))
    assert seen.busy_ns.tolist() == [18_000] * 20
    assert (seen.gaps.end - seen.gaps.start).sum() == 0


def test_gaps_between_steps_are_classed_apart(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(3):
        t = i * 1000
        trace.range(f"step {i}", t, t + 90).launch(t, "k", t + 10, t + 110).call(t + 20, t + 150, SYNC)
    trace.launch(2900, "afterwards", 3000, 3100)
    seen = view(trace.save(tmp_path))
    between = dict(zip(CLASSES, seen.between_by_class.tolist(), strict=True))
    assert between["sync"] == [900, 900, 0]  # the last step of a group has no next one
    assert seen.idle_by_class.sum() == 0


def test_classes_add_up_to_the_idle_time(tmp_path: Path) -> None:
    seen = view(two_kernels(250).overhead(210, 240).launch(500, "c", 600, 700).save(tmp_path), steps="step")
    np.testing.assert_array_equal(seen.busy_ns + seen.other_ns + seen.idle_by_class.sum(axis=0), seen.span_ns)
    assert by_class(seen) == {"profiler": 30, "launch": 270}
