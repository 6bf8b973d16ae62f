"""Does every kernel have its launch and every launch its kernels? Lost, cut, hidden, doubled and failed work."""

from pathlib import Path

import pytest
from tiny_trace import GRAPH_LAUNCH, KERNEL, RUNTIME, SYNC, US, Thread, TinyTrace
from trust_asking import GPU_ROWS, IDLE, WORK, check, codes, healthy, judged, names, verdicts

OTHER = Thread(pid=200, tid=200)
# Correlation ids of `healthy` are 101 … 116; steps 1 … 7 (1000 … 8000 µs) are used.


def test_healthy_launches_show_nothing(tmp_path: Path) -> None:
    trust = judged(healthy(), tmp_path)
    assert codes(trust) == set()
    fine = {"launch of every kernel", "work of every launch", "whole graphs", "duplicate rows", "failed launches"}
    assert fine <= set(trust.fine)


def ids_to(last: int, trace: TinyTrace) -> TinyTrace:
    """A call after everything whose correlation id is `last`, so that smaller ones were recorded or lost."""
    return trace.call(9_000 * US, 9_001 * US, "cudaMalloc_v3020", correlation=last)


def test_work_whose_launch_is_lost(tmp_path: Path) -> None:
    # 10 µs of 16 × 100 + 10: 0.6 %.
    trace = ids_to(300, healthy()).kernel("k", 2500 * US, 2510 * US, correlation=200)
    trust = judged(trace, tmp_path)
    found = check(trust, "work-without-launch")
    assert found.numbers == {"rows": 1, "time_ns": 10 * US, "share": pytest.approx(10 / 1610)}
    assert "10.0 µs, 0.6 % of the GPU time, at 2500.0 µs" in found.seen
    assert names(found.limits) == WORK
    assert verdicts(trust, "limited") == WORK


def test_without_the_launch_of_most_work_there_are_no_phases(tmp_path: Path) -> None:
    # 1700 µs of 3300: 51.5 %.
    trace = ids_to(300, healthy()).kernel("k", 2500 * US, 4200 * US, correlation=200)
    assert check(judged(trace, tmp_path), "work-without-launch").refuses == ("phases",)


def test_work_without_launch_outside_the_steps_touches_nothing(tmp_path: Path) -> None:
    trace = ids_to(300, healthy()).kernel("k", 9_500 * US, 9_510 * US, correlation=200)
    found = check(judged(trace, tmp_path), "work-without-launch")
    assert found.severity == "note"
    assert found.seen.endswith("at 9500.0 µs, outside the steps.")


@pytest.mark.parametrize(
    ("correlation", "at_us", "code"),
    [
        (50, 2500, "cut-launches"),  # before the first recorded id
        (999, 9500, "cut-launches"),  # behind the last one, and behind the last call, at 7120 µs
        (999, 2500, "work-without-launch"),  # calls were recorded after it started: its own was not cut
    ],
)
def test_work_whose_launch_was_cut_off(tmp_path: Path, correlation: int, at_us: int, code: str) -> None:
    trace = healthy().kernel("k", at_us * US, (at_us + 10) * US, correlation=correlation)
    assert codes(judged(trace, tmp_path)) == {code}


def test_an_export_without_api_calls(tmp_path: Path) -> None:
    trust = judged(healthy().without(RUNTIME), tmp_path)
    found = check(trust, "no-api-calls")
    assert found.numbers == {"rows": 16}
    assert {"phases", "launches"} <= verdicts(trust, "refused")
    assert "kernels" in verdicts(trust, "limited")
    assert "work-without-launch" not in codes(trust)


def test_launches_that_left_no_work(tmp_path: Path) -> None:
    # 14 launches in the 7 used steps and one without work: 1 of 15 is 6.7 %, above 5 %.
    trust = judged(healthy().call(3400 * US, 3405 * US), tmp_path)
    found = check(trust, "launches-without-work")
    assert found.numbers == {"launches": 1, "launches_near_steps": 1}
    assert "1 launch call returned 0 and left no GPU work, at 3400.0 µs" in found.seen
    assert (names(found.limits), names(found.refuses)) == (GPU_ROWS - IDLE, IDLE)


def test_few_launches_without_work_only_limit(tmp_path: Path) -> None:
    # 39 used steps launch 78 kernels: 1 of 79 is 1.3 %.
    found = check(judged(healthy(40).call(3400 * US, 3405 * US), tmp_path), "launches-without-work")
    assert (names(found.limits), found.refuses) == (GPU_ROWS, ())


def test_a_launch_without_work_in_the_warm_up_touches_nothing(tmp_path: Path) -> None:
    found = check(judged(healthy().call(200 * US, 205 * US), tmp_path), "launches-without-work")
    assert found.severity == "note"
    assert found.seen.endswith("0 of them among the steps used: rows are missing.")


def test_launches_at_the_edge_of_the_trace_were_cut(tmp_path: Path) -> None:
    trace = healthy().call(-50 * US, -45 * US).call(9_000 * US, 9_005 * US)
    assert codes(judged(trace, tmp_path)) == set()


def test_graph_replays_without_rows(tmp_path: Path) -> None:
    trust = judged(healthy().call(3400 * US, 3405 * US, GRAPH_LAUNCH), tmp_path)
    assert check(trust, "gpu-time-incomplete").numbers == {"replays": 1, "replays_near_steps": 1}
    assert verdicts(trust, "refused") == GPU_ROWS
    assert verdicts(trust, "reliable") == {"launches"}
    assert "launches-without-work" not in codes(trust)


def test_graph_replays_without_rows_in_the_warm_up_leave_idle_time_untold(tmp_path: Path) -> None:
    trust = judged(healthy().call(200 * US, 205 * US, GRAPH_LAUNCH), tmp_path)
    assert verdicts(trust, "refused") == IDLE


def graphs(steps: int = 8) -> TinyTrace:
    """Steps of 1000 µs that are one graph traced as a whole, of 300 µs."""
    trace = TinyTrace().workload(bytes_per_step=480_000_000)
    for i in range(steps):
        t = i * 1000 * US
        trace.range(f"step {i}", t, t + 30 * US).call(t, t + 5 * US, GRAPH_LAUNCH)
        trace.graph_trace(t + 10 * US, t + 310 * US)
    return trace


def test_graphs_traced_as_a_whole_hide_their_kernels(tmp_path: Path) -> None:
    trust = judged(graphs(), tmp_path)
    found = check(trust, "graph-level")
    assert found.numbers == {"replays": 8, "replays_used": 7, "share": 1.0}
    assert verdicts(trust, "refused") == {"grids"}
    assert verdicts(trust, "limited") == WORK
    assert verdicts(trust, "reliable") == {"launches"}


def test_one_whole_graph_among_kernels_limits_and_one_outside_the_steps_does_not(tmp_path: Path) -> None:
    inside = healthy().call(3130 * US, 3135 * US, GRAPH_LAUNCH).graph_trace(3250 * US, 3260 * US)
    found = check(judged(inside, tmp_path), "graph-level")
    assert found.numbers["share"] == pytest.approx(10 / 1410)  # 7 steps of 200 µs and 10
    assert (names(found.limits), found.refuses) == (GPU_ROWS, ())
    outside = healthy().call(9_000 * US, 9_005 * US, GRAPH_LAUNCH).graph_trace(9_010 * US, 9_020 * US)
    assert check(judged(outside, tmp_path), "graph-level").severity == "note"


def test_rows_that_stand_there_twice(tmp_path: Path) -> None:
    trace = healthy().sql(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL} WHERE start = {2030 * US}")
    found = check(judged(trace, tmp_path), "rows-twice")
    assert found.numbers == {"rows": 1, "time_ns": 100 * US, "distinct_rows": 16}
    assert names(found.limits) == {"kernels", "phases", "grids"}


def test_equal_times_on_other_streams_or_of_other_nodes_are_no_repeats(tmp_path: Path) -> None:
    trace = healthy().call(9_000 * US, 9_001 * US, GRAPH_LAUNCH)
    for stream, node in ((7, 1), (7, 2), (8, 1)):
        trace.kernel("k", 9_010 * US, 9_020 * US, stream=stream, node=2 << 32 | node)
    assert codes(judged(trace, tmp_path)) == set()


def test_failed_launches_make_the_steps_shorter(tmp_path: Path) -> None:
    trust = judged(healthy().call(3050 * US, 3055 * US, code=1), tmp_path)
    found = check(trust, "failed-launches")
    assert found.numbers == {"launches": 1, "launches_in_steps": 1}
    assert verdicts(trust, "limited") == WORK
    assert verdicts(trust, "reliable") == {"launches", "grids"}


def test_a_failed_launch_outside_the_steps_touches_nothing(tmp_path: Path) -> None:
    assert check(judged(healthy().call(900 * US, 905 * US, code=1), tmp_path), "failed-launches").severity == "note"


def test_nothing_is_certain_after_a_fatal_error(tmp_path: Path) -> None:
    found = check(judged(healthy().call(3250 * US, 3300 * US, SYNC, code=700), tmp_path), "fatal-error")
    assert "cudaErrorIllegalAddress (700)" in found.seen
    assert names(found.limits) == GPU_ROWS


def test_codes_that_mean_no_harm_are_none(tmp_path: Path) -> None:
    assert codes(judged(healthy().call(3250 * US, 3251 * US, "cudaEventQuery_v3020", code=600), tmp_path)) == set()


def test_work_of_a_process_without_any_call_has_no_launch(tmp_path: Path) -> None:
    trace = healthy().kernel("k", 2500 * US, 2510 * US, on=OTHER, correlation=101)
    seen = codes(judged(trace, tmp_path))
    assert seen == {"work-without-launch", "several-processes"}
