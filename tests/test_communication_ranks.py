"""Collectives of several devices: which one comes last, which wait for it, and what is not compared."""

from pathlib import Path
from typing import Any

import pytest
from asking import ask, assert_sound, document, metric, result, shuffled, view
from rank_programs import ALL_REDUCE, RANKS, STEP_NS, one_rank, two_gpus, two_ranks
from tiny_schema import H200
from tiny_trace import Thread, TinyTrace

from tracelab.analysis import view_of
from tracelab.result import Result


def asked(trace: TinyTrace, folder: Path) -> Result:
    return result("communication", view(trace.save(folder)))


def test_the_rank_that_comes_last(tmp_path: Path) -> None:
    """Rank 0 starts its all-reduce at T+400, rank 1 at T+800: rank 0 waits 400 of its 600."""
    analysis = ask(two_ranks().save(tmp_path))
    first, second = (result("communication", view_of(analysis, device)) for device in (0, 1))
    assert (metric(first, "exposed_ns"), metric(second, "exposed_ns")) == (500, 200)
    assert (metric(first, "arrival_skew_ns"), metric(second, "arrival_skew_ns")) == (400, 0)
    assert metric(first, "last_device") == metric(second, "last_device") == 1
    arrivals = [
        {"device": 0, "collectives": 3, "came_last": 0, "wait_median_ns": 400},
        {"device": 1, "collectives": 3, "came_last": 3, "wait_median_ns": 0},
    ]
    assert first.tables["arrivals"] == second.tables["arrivals"] == arrivals


def test_a_rank_that_waits_is_told_for_whom(tmp_path: Path) -> None:
    analysis = ask(two_ranks().save(tmp_path))
    (waiting,), (late,) = (result("communication", view_of(analysis, d)).findings for d in (0, 1))
    assert waiting.evidence == (
        "This device waits 0.4 µs a step inside collectives for the last one, most often device 1 (3 of 3 times): "
        "find out why that one comes late."
    )
    assert late.evidence.startswith("Overlap it with compute")


def test_the_devices_left_out_by_the_selection_are_still_waited_for(tmp_path: Path) -> None:
    said = document(two_ranks().save(tmp_path), device=0)
    assert "devices" not in said
    assert said["results"]["communication"]["metrics"]["arrival_skew_ns"]["value"] == 400


@pytest.mark.parametrize("of_the_second", [{"first": 1, "steps": 2}, {"name": "rank{rank} step {}"}])
def test_collectives_are_matched_by_step(tmp_path: Path, of_the_second: dict[str, Any]) -> None:
    """By name, where a rank misses its first step; by place, where every rank has names of its own."""
    answer = asked(two_ranks(**of_the_second), tmp_path)
    assert metric(answer, "arrival_skew_ns") == 400
    assert metric(answer, "collectives_compared") == of_the_second.get("steps", 3)


def test_collectives_that_do_not_overlap_are_not_one(tmp_path: Path) -> None:
    """Unnumbered steps, and rank 1 misses the first: its k-th step is another than rank 0's, 2000 ns apart."""
    trace = one_rank(4, trace=two_gpus(), name="step")
    trace = one_rank(3, trace=trace, rank=1, name="step", first=1)
    assert "arrival_skew_ns" not in asked(trace, tmp_path).metrics


def test_a_step_with_another_number_of_collectives_is_not_matched(tmp_path: Path) -> None:
    trace = two_ranks()
    trace.range("step 9", 30_000, 30_400).range("step 9", 30_000, 30_400, on=RANKS[1])
    trace.launch(30_100, ALL_REDUCE, 30_200, 30_900).launch(30_150, ALL_REDUCE, 31_000, 31_200)
    trace.launch(30_100, ALL_REDUCE, 30_500, 30_900, on=RANKS[1], device=1)
    assert metric(asked(trace, tmp_path), "collectives_compared") == 3


def test_two_processes_with_like_steps_on_one_device_are_not_told_apart(tmp_path: Path) -> None:
    """Each device runs both ranks: which of two collectives of a step belongs to which nobody can tell."""
    trace = two_ranks()
    for device, on in enumerate((Thread(300, 300), Thread(400, 400))):
        trace.cuda_device(device, device, pid=on.pid)
        for i in range(3):
            t = i * STEP_NS
            trace.range(f"step {i}", t, t + 400, on=on)
            trace.launch(t + 120, ALL_REDUCE, t + 400 + device, t + 1000, on=on, device=device)
    assert "arrivals" not in asked(trace, tmp_path).tables


def test_one_thread_that_drives_both_devices(tmp_path: Path) -> None:
    """One process, one range a step: the collective of device 1 starts 50 later."""
    trace = TinyTrace().gpu(**{**H200, "id": 1, "cuDevice": 1})
    for i in range(3):
        t = i * STEP_NS
        trace.range(f"step {i}", t, t + 400)
        for device in (0, 1):
            trace.launch(t + 20 + device, ALL_REDUCE, t + 100 + 50 * device, t + 500, device=device)
    assert metric(asked(trace, tmp_path), "arrival_skew_ns") == 50


def test_shuffled_rows_change_nothing(tmp_path: Path) -> None:
    path = two_ranks().save(tmp_path)
    said = document(path)
    for seed in (1, 2):
        assert document(shuffled(path, tmp_path / "mixed.sqlite", seed)) == said


def test_the_report_is_sound(tmp_path: Path) -> None:
    path = two_ranks().save(tmp_path)
    for device in (0, 1):
        assert_sound(view(path, device=device), document(path, device=device))
