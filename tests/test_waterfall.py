"""The analyzer `waterfall`: rows that add up to one representative step, to the nanosecond."""

from pathlib import Path

import pytest
from asking import column, result, view
from tiny_programs import eager
from tiny_trace import MAIN, Thread, TinyTrace

from tracelab.options import Facts
from tracelab.trace import I64

OTHER = Thread(pid=200, tid=200)


def test_rows_of_an_eager_step(tmp_path: Path) -> None:
    answer = result("waterfall", view(eager().save(tmp_path)))
    # 290 busy, 10 dependency, 700 between steps.
    assert column(answer, "waterfall", "component", "ns") == {
        "kernels": 290, "other work": 0, "launch gaps": 0, "sync gaps": 0, "dependency gaps": 10, "profiler gaps": 0,
        "unknown gaps": 0, "between steps": 700,
    }  # fmt: skip
    assert sum(r["share"] for r in answer.tables["waterfall"]) == pytest.approx(1.0)
    assert answer.checks[0].ok


def test_the_floor_splits_the_kernels(tmp_path: Path) -> None:
    # 50 bytes x 2 at 1 byte per ns: 100 ns of floor in 290 ns of kernels.
    answer = result("waterfall", view(eager().save(tmp_path), Facts(params=50, bandwidth_bytes_per_s=1e9)))
    rows = column(answer, "waterfall", "component", "ns")
    assert (rows["floor"], rows["above the floor"]) == (100, 190)


def test_a_floor_above_the_kernels_leaves_them_one_row(tmp_path: Path) -> None:
    answer = result("waterfall", view(eager().save(tmp_path), Facts(params=500, bandwidth_bytes_per_s=1e9)))
    assert column(answer, "waterfall", "component", "ns")["kernels"] == 290


def two_processes() -> TinyTrace:
    """The eager steps, and a second process whose kernel runs 150 ns after each of them (400 … 550)."""
    trace = eager()
    for i in range(3):
        trace.launch(i * 1000 + 380, "guest", i * 1000 + 400, i * 1000 + 550, on=OTHER)
    return trace


def test_other_work_is_neither_idle_nor_mine(tmp_path: Path) -> None:
    answer = result("waterfall", view(two_processes().save(tmp_path)))
    rows = column(answer, "waterfall", "component", "ns")
    assert (rows["kernels"], rows["other work"], rows["between steps"]) == (290, 150, 550)
    assert sum(rows.values()) == 1000


def test_a_sum_in_place_of_the_union_no_longer_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = view(eager().save(tmp_path))

    def plain(view: object, row: int, stop: int) -> int:
        del view, row, stop
        return 300

    monkeypatch.setattr("tracelab.analyzers.waterfall._own_busy", plain)
    rows = column(result("waterfall", seen), "waterfall", "component", "ns")
    assert rows["kernels"] == 300
    assert rows["other work"] == -10  # the mistake would show as negative time


def test_the_representative_step_is_the_lower_median(tmp_path: Path) -> None:
    trace = TinyTrace()
    starts = (0, 1000, 3000, 7000, 15000)  # periods 1000, 2000, 4000, 8000: the lower of the two middle ones is 2000
    for i, t in enumerate(starts):
        trace.range(f"step {i}", t, t + 100).launch(t, "k", t + 10, t + 60)
    answer = result("waterfall", view(trace.save(tmp_path)))
    assert sum(r["ns"] for r in answer.tables["waterfall"]) == 2000


def test_a_step_that_reaches_into_the_next_one_still_adds_up(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(4):
        t = i * 1000
        trace.range(f"step {i}", t, t + 100, on=MAIN).launch(t, "k", t + 10, t + 60)
        trace.launch(t + 20, "tail", t + 600, t + 1200, stream=8)  # runs 190 ns into the next step
    answer = result("waterfall", view(trace.save(tmp_path)))
    rows = column(answer, "waterfall", "component", "ns")
    # Step 1, up to the start of step 2: own 50 + 410; the tail of step 0 alone from 1060 to 1200; idle 1200 … 1600.
    assert rows["kernels"] == 460
    assert rows["other work"] == 140
    assert sum(rows.values()) == 1000
    assert answer.checks[0].ok


def test_numbers_of_one_step_alone(tmp_path: Path) -> None:
    answer = result("waterfall", view(TinyTrace().launch(0, "k", 10, 60).launch(5, "k", 80, 90).save(tmp_path)))
    rows: dict[str, I64] = column(answer, "waterfall", "component", "ns")
    assert rows["kernels"] == 60
    assert rows["dependency gaps"] == 20  # no period: the step is its span, 80


def test_work_after_the_next_step_began_is_not_this_steps_part(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(4):
        t = i * 1000
        trace.range(f"step {i}", t, t + 100).launch(t, "k", t + 10, t + 60)
        trace.launch(t + 20, "tail", t + 1100, t + 1200, stream=8)  # 90 … 190 ns into the next step
    answer = result("waterfall", view(trace.save(tmp_path)))
    # Step 1 runs from 1010 to 2010: `k` 50, the tail of step 0 100, and 40 + 810 idle: `k` of step 2 is called at 2000.
    rows = {name: ns for name, ns in column(answer, "waterfall", "component", "ns").items() if ns}
    assert rows == {"kernels": 50, "other work": 100, "dependency gaps": 40, "launch gaps": 810}
    assert answer.checks[0].ok
