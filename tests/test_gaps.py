"""The analyzer `gaps`: idle time of hand-made steps by class, and the rules that would give other numbers."""

from pathlib import Path

import numpy as np
import pytest
from asking import metric, result, row, view
from tiny_programs import eager, replays, synchronised_replays
from tiny_trace import SYNC, US, TinyTrace

from tracelab.gap_classes import LAUNCH
from tracelab.trace import I64, U8, Trace


def test_times_of_an_eager_step(tmp_path: Path) -> None:
    answer = result("gaps", view(eager().save(tmp_path)))
    expected = {
        "step_ns": 1000, "span_ns": 300, "busy_ns": 290, "other_ns": 0, "idle_ns": 10, "launch_gap_ns": 0,
        "sync_gap_ns": 0, "dependency_gap_ns": 10, "profiler_gap_ns": 0, "unknown_gap_ns": 0, "between_steps_ns": 700,
        "between_steps_late_ns": 700, "idle_per_launch_ns": 3, "launch_api_ns": 15,
    }  # fmt: skip
    assert {name: metric(answer, name) for name in expected} == expected
    assert metric(answer, "gap_share") == pytest.approx(0.71)  # (10 + 700) / 1000
    assert metric(answer, "launch_gap_share") == 0.0
    assert metric(answer, "bound") == "host"  # 700 / 1000 > 0.3
    gap = row(answer, "gaps", after_kernel="attention")
    assert (gap["before_kernel"], gap["class"], gap["count_per_step"], gap["ns_per_step"]) == (
        "gemm",
        "dependency",
        1,
        10,
    )


def test_the_host_that_waits_for_each_replay_binds(tmp_path: Path) -> None:
    answer = result("gaps", view(synchronised_replays().save(tmp_path), skip_steps=1))
    # Period 5 ms, busy 0.3 ms: idle 4.7 of 5 ms, all of it after a stream synchronise.
    assert metric(answer, "step_ns") == 5_000 * US
    assert metric(answer, "gap_share") == pytest.approx(0.94)
    assert metric(answer, "bound") == "host"
    assert metric(answer, "between_steps_late_ns") == 4_700 * US


def test_without_the_idle_between_steps_the_waiting_host_would_go_unseen(tmp_path: Path) -> None:
    seen = view(synchronised_replays().save(tmp_path))
    assert (seen.idle_by_class.sum(axis=0) == 0).all()
    assert float(np.median(seen.idle_by_class[LAUNCH] / 5_000_000)) < 0.05  # would read "device"


def test_a_device_bound_loop(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(4):  # each step's one call returns long before the step before it ends
        trace.range(f"step {i}", i * 10, i * 10 + 8).launch(i * 10, "gemm", 100 + i * 1000, 1095 + i * 1000)
    answer = result("gaps", view(trace.save(tmp_path)))
    assert metric(answer, "gap_share") == pytest.approx(0.005)  # 5 of 1000
    assert metric(answer, "bound") == "device"


def test_pitfall_b15_gaps_inside_a_replay_are_no_launch_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = replays().save(tmp_path)
    answer = result("gaps", view(path))
    assert (metric(answer, "launch_gap_ns"), metric(answer, "dependency_gap_ns")) == (0, 10)

    def all_launch(trace: Trace, gap_start: I64, after: I64) -> U8:
        del trace, after
        return np.full(len(gap_start), LAUNCH, np.uint8)

    monkeypatch.setattr("tracelab.gap_classes._causes", all_launch)
    assert metric(result("gaps", view(path)), "launch_gap_ns") == 10


def test_pitfall_b15_backlog_is_no_launch_gap(tmp_path: Path) -> None:
    """Ten replays 310 µs apart, launched 80 µs apart: latency rises from 0.2 to 2.3 ms and the host is ahead."""
    trace = TinyTrace()
    for i in range(10):
        at, start = i * 80 * US, 200 * US + i * 310 * US
        ops = [("a", start, start + 100 * US, 2 << 32), ("b", start + 104 * US, start + 306 * US, 2 << 32 | 1)]
        trace.range(f"step {i}", at, at + 50 * US).replay(at, ops, api_ns=40 * US)
    answer = result("gaps", view(trace.save(tmp_path)))
    assert metric(answer, "launch_gap_ns") == 0
    assert metric(answer, "between_steps_late_ns") == 0
    assert metric(answer, "dependency_gap_ns") == 4 * US
    assert metric(answer, "bound") == "device"


def test_pitfall_a5_api_time_counts_once_per_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [("k", 60 * US + i * US, 60 * US + i * US + 500, 2 << 32 | i) for i in range(500)]
    path = TinyTrace().range("step 0", 0, 55 * US).replay(0, ops, api_ns=50 * US).save(tmp_path)
    assert metric(result("gaps", view(path, steps="step")), "launch_api_ns") == 50 * US  # not 500 x 50 µs

    def every_row(groups: I64, _: I64) -> I64:
        return np.arange(len(groups))

    monkeypatch.setattr("tracelab.view.distinct_pairs", every_row)
    assert metric(result("gaps", view(path, steps="step")), "launch_api_ns") == 25_000 * US


def test_pitfall_b1_b3_sum_in_place_of_union(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels 0-10, 5-15, 20-30 µs: sum 30, busy 25, window 30, idle 5. The sum would say 0 idle."""
    trace = TinyTrace()
    for stream, (start, end) in enumerate(((0, 10), (5, 15), (20, 30))):
        trace.launch(-1000 + stream, f"k{stream}", start * US, end * US, stream=stream)
    path = trace.save(tmp_path)
    answer = result("gaps", view(path))
    assert (metric(answer, "span_ns"), metric(answer, "busy_ns"), metric(answer, "idle_ns")) == (
        30 * US,
        25 * US,
        5 * US,
    )

    def plain(group: I64, start: I64, end: I64) -> I64:
        del group
        return end - start

    monkeypatch.setattr("tracelab.step_table.new_coverage", plain)
    assert metric(result("gaps", view(path)), "busy_ns") == 30 * US


def test_replays_without_gpu_rows_give_no_idle_verdict(tmp_path: Path) -> None:
    trace = replays(6)
    trace.call(2_500, 2_505, "cudaGraphLaunch_v10000")  # between two replays that were recorded
    answer = result("gaps", view(trace.save(tmp_path)))
    assert answer.skipped is not None
    assert metric(answer, "bound") == "unknown"
    assert "idle_ns" not in answer.metrics
    assert result("waterfall", view(tmp_path / "tiny.sqlite")).skipped is not None


def test_a_wait_inside_the_step_is_sync(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(3):
        t = i * 1000
        trace.range(f"step {i}", t, t + 500).launch(t, "a", t + 10, t + 110).call(t + 20, t + 150, SYNC)
        trace.launch(t + 200, "b", t + 210, t + 310)
    answer = result("gaps", view(trace.save(tmp_path)))
    assert (metric(answer, "sync_gap_ns"), metric(answer, "launch_gap_ns")) == (100, 0)  # 110 … 210


def test_the_last_step_has_no_pause_to_speak_of(tmp_path: Path) -> None:
    answer = result("gaps", view(eager(2).save(tmp_path)))
    assert metric(answer, "between_steps_ns") == 700  # of the one step that has a next one, not the median of 700 and 0
    assert metric(answer, "between_steps_late_ns") == 700
