"""Real pairs: the same program captured in separate processes, and captures with one kernel made slower."""

from itertools import permutations
from pathlib import Path

import pytest
from recorded import HOST_BOUND, PROGRAMS, capture_file, captured
from slowed import slowed

from tracelab.compare.compare import compare
from tracelab.compare.load import load_capture
from tracelab.compare.noise import Floors
from tracelab.compare.options import DiffOptions
from tracelab.compare.side import Capture, Side
from tracelab.difference import IMPROVEMENT, INCONCLUSIVE, NEUTRAL, REGRESSION, Diff
from tracelab.options import Facts, Selection

PAIRS = [(p, a, b) for p, count in PROGRAMS.items() for a, b in permutations(range(1, count + 1), 2)]


def _diff(before: Capture, after: Capture, options: DiffOptions | None = None) -> Diff:
    return compare(Side((before,)), Side((after,)), options or DiffOptions())


def _changed(diff: Diff) -> dict[str, str]:
    """The phases and kernels with another verdict than neutral."""
    rows = [(row.phase, row.time.verdict) for row in diff.phases]
    rows += [(f"{row.phase}/{' + '.join(row.after)}", row.time.verdict) for row in diff.kernels]
    return {name: verdict for name, verdict in rows if verdict != NEUTRAL}


@pytest.mark.parametrize(("program", "one", "other"), PAIRS)
def test_two_captures_of_one_program_do_not_differ(program: str, one: int, other: int) -> None:
    diff = _diff(captured(program, one), captured(program, other))
    assert _changed(diff) == {}
    assert diff.device_time.verdict == NEUTRAL
    assert diff.step.verdict == (INCONCLUSIVE if program in HOST_BOUND else NEUTRAL)
    assert diff.verdict == diff.step.verdict
    assert diff.regressed == ()
    assert diff.comparable
    assert [warning.code for warning in diff.warnings] == []


def test_step_times_that_differ_by_nearly_half_decide_nothing() -> None:
    """9.81 and 14.31 ms a step for the same program, with 3942.7 and 3939.5 µs of device time (0.1 %)."""
    diff = _diff(captured("llama_eager", 1), captured("llama_eager", 2))
    assert (diff.step.before_ns, diff.step.after_ns) == (9_806_961.0, 14_305_457.0)
    assert diff.step.change == pytest.approx(0.4587, abs=1e-4)
    assert diff.step.verdict == INCONCLUSIVE
    assert diff.noise_floor.step_time is None
    assert abs(diff.device_time.change or 0.0) < 0.001


def test_two_captures_a_side_measure_how_the_host_differs() -> None:
    """Captures 1 and 2 before are apart by 14.31 / 9.81 − 1 = 45.9 %, which is then the floor of the step time."""
    before = Side((captured("llama_eager", 1), captured("llama_eager", 2)))
    after = Side((captured("llama_eager", 3), captured("llama_eager", 4)))
    diff = compare(before, after, DiffOptions())
    assert diff.step.verdict == NEUTRAL
    assert diff.noise_floor.step_time == pytest.approx(0.4587, abs=1e-4)
    assert _changed(diff) == {}


def test_eager_against_graph_is_told_apart_by_the_gaps_not_by_the_kernels() -> None:
    """llama8b: the same 293 kernels, 293 launches or 1; device time the same within 0.4 %."""
    before, after = (
        Side((captured("llama_eager", 1), captured("llama_eager", 2))),
        Side((captured("llama_graph", 1), captured("llama_graph", 2))),
    )
    diff = compare(before, after, DiffOptions())
    assert diff.step.verdict == IMPROVEMENT
    assert diff.device_time.verdict == NEUTRAL
    assert {row.phase: row.time.verdict for row in diff.phases} == dict.fromkeys(
        ("L#/ffn", "L#/attn_gqa", "head"), NEUTRAL
    )
    launches = diff.metric("kernels", "launches_per_step")
    assert launches is not None
    assert (launches.before, launches.after) == (293, 1)
    found = next(finding for finding in diff.findings if finding.code == "launches-changed")
    assert found.title == "Launches 293 → 1 a step, device time unchanged within the noise."


@pytest.mark.parametrize("program", ["llama_eager", "llama_graph"])
@pytest.mark.parametrize(("factor", "verdict"), [(1.2, REGRESSION), (0.8, IMPROVEMENT)])
def test_one_kernel_slower_or_faster_is_named_with_its_phase(
    program: str, factor: float, verdict: str, tmp_path: Path
) -> None:
    """split_kv_decode takes 125 to 126 of 1053 µs of attention: 20 % of it are 2.4 % of the phase."""
    after = _slowed(program, factor, "split_kv_decode", tmp_path)
    diff = _diff(captured(program, 1), after)
    assert _changed(diff) == {"L#/attn_gqa": verdict, "L#/attn_gqa/split_kv_decode": verdict}
    assert diff.verdict == verdict
    assert diff.regressed == (("L#/attn_gqa",) if verdict == REGRESSION else ())
    phase = next(row for row in diff.phases if row.phase == "L#/attn_gqa")
    assert (
        phase.time.change == pytest.approx(factor - 1, rel=0.05, abs=0)
        or abs((phase.time.change or 0.0) - (factor - 1) * 0.12) < 0.002
    )
    kernel = next(row for row in diff.kernels if row.before == ("split_kv_decode",))
    assert kernel.time.change == pytest.approx(factor - 1, abs=1e-3)


@pytest.mark.parametrize("program", ["llama_eager", "llama_graph"])
def test_slowing_a_kernel_by_less_than_the_floor_is_no_change(program: str, tmp_path: Path) -> None:
    """All kernels of attention 1 % slower under a floor of 2 %; without that floor the same trace is a regression."""
    after = _slowed(program, 1.01, "split_kv_decode", tmp_path)
    floor = DiffOptions(floors=Floors(relative=0.02))
    none = DiffOptions(floors=Floors(relative=0.0, per_row_ns=0.0, from_steps=False))
    assert _changed(_diff(captured(program, 1), after, floor)) == {}
    quiet = _slowed("mla_perhead", 1.01, "", tmp_path)
    assert _changed(_diff(captured("mla_perhead", 1), quiet, floor)) == {}
    assert REGRESSION in _changed(_diff(captured("mla_perhead", 1), quiet, none)).values()


def test_slowed_traces_overlap_no_more_than_real_ones(tmp_path: Path) -> None:
    for program in ("llama_eager", "llama_graph"):
        real, made = captured(program, 1), _slowed(program, 1.2, "split_kv_decode", tmp_path)
        overlap = [c.report.main.steps.per_step for c in (real, made)]
        ahead = [max(step.sum_ns - step.busy_ns for step in steps) for steps in overlap]
        assert ahead[1] <= ahead[0]


def test_a_slow_phase_in_another_process_is_still_found(tmp_path: Path) -> None:
    """The slowed trace is made from another capture than the one before, so noise of both is in it."""
    source = capture_file("llama_graph", 2)
    path = slowed(source, tmp_path / "after.sqlite", 1.2, lambda name, _: name == "split_kv_decode")
    diff = _diff(captured("llama_graph", 1), load_capture(path, Selection(), Facts()))
    assert diff.regressed == ("L#/attn_gqa",)
    assert _changed(diff)["L#/attn_gqa/split_kv_decode"] == REGRESSION


def _slowed(program: str, factor: float, kernel: str, folder: Path) -> Capture:
    """The first capture of a program with all kernels of that name changed; the empty name stands for all kernels."""
    target = folder / f"{program}_{factor}.sqlite"
    slowed(capture_file(program, 1), target, factor, lambda name, _: kernel in name)
    return load_capture(target, Selection(), Facts())
