"""Phases inside CUDA graphs: by node creation, else by an eager step, else by kernel names; the method is said."""

from pathlib import Path
from typing import Any

import pytest
from asking import ask, column, metric, result, view
from tiny_programs import eager, replays
from tiny_trace import TinyTrace

from tracelab.analysis import view_of

CAPTURED, INSTANTIATED = 1 << 32, 2 << 32


def with_creation(trace: TinyTrace, *, wrapped: bool = False) -> TinyTrace:
    """Capture before the steps: attn holds the node of `attention`, mlp those of `gemm` and `silu`; then the clone."""
    if wrapped:
        trace.range("capture", -1000, -500)
    trace.range("attn", -990, -900).node(-950, CAPTURED)
    trace.range("mlp", -890, -800).node(-880, CAPTURED | 1).node(-870, CAPTURED | 2)
    for k in range(3):  # instantiation logs each node twice, and one that never runs
        trace.node(-400 + k, INSTANTIATED | k).node(-390 + k, INSTANTIATED | k, CAPTURED | k)
    return trace.node(-380, INSTANTIATED | 9)


def methods(path: Path, **selection: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Kernels per step by phase, and share by method."""
    answer = result("phases", view(path, **selection))
    return column(answer, "phases", "phase", "kernels_per_step"), column(answer, "attribution", "method", "share")


def test_by_the_ranges_open_when_the_node_was_created(tmp_path: Path) -> None:
    found, how = methods(with_creation(replays()).save(tmp_path), steps="graph_step")
    assert found == {"attn": 1, "mlp": 2}
    assert how == {"graph-node": 1.0}


def test_a_range_around_the_whole_capture_says_nothing(tmp_path: Path) -> None:
    found, how = methods(with_creation(replays(), wrapped=True).save(tmp_path), steps="graph_step")
    assert found == {"attn": 1, "mlp": 2}
    assert how == {"graph-node": 1.0}


def test_by_an_eager_step_with_the_same_kernels(tmp_path: Path) -> None:
    found, how = methods(replays(4, eager(3), start=10_000).save(tmp_path), steps="graph_step")
    assert found == {"attn": 1, "mlp": 2}
    assert how == {"aligned": 1.0}


def test_node_creation_goes_before_alignment(tmp_path: Path) -> None:
    trace = with_creation(replays(4, eager(3), start=10_000))
    _, how = methods(trace.save(tmp_path), steps="graph_step")
    assert how == {"graph-node": 1.0}


@pytest.mark.parametrize("renamed", ["gemm_2", "attention"])
def test_another_sequence_is_refused(tmp_path: Path, renamed: str) -> None:
    """The replay runs another second kernel than the eager steps: nothing is transferred, not even the rest."""
    trace = replays(4, eager(3), start=10_000)
    code = trace.string(renamed)
    trace.sql(
        f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = {code}, shortName = {code} "
        f"WHERE graphNodeId = {INSTANTIATED | 1}"
    )
    _, how = methods(trace.save(tmp_path), steps="graph_step")
    assert "aligned" not in how


def test_a_graph_of_part_of_the_step_is_aligned_by_its_place(tmp_path: Path) -> None:
    trace = eager(3)
    for i in range(3):
        t = 10_000 + i * 1000
        trace.range(f"graph_step {i}", t, t + 8)
        trace.replay(t, [("gemm", t + 10, t + 110, INSTANTIATED), ("silu", t + 120, t + 220, INSTANTIATED | 1)])
    found, how = methods(trace.save(tmp_path), steps="graph_step")
    assert found == {"mlp": 2}
    assert how == {"aligned": 1.0}


def test_last_by_kernel_names(tmp_path: Path) -> None:
    answer = result("phases", view(replays(4).save(tmp_path)))
    shares = column(answer, "attribution", "method", "share")
    assert set(shares) <= {"rules", "none"}
    assert shares["rules"] > 0
    assert metric(answer, "attributed_share") == pytest.approx(shares["rules"])


def test_modes_stop_where_they_are_told(tmp_path: Path) -> None:
    path = replays(4, eager(3), start=10_000).save(tmp_path)
    assert methods(path, steps="graph_step", phases="nvtx")[1] == {"none": 1.0}
    assert methods(path, steps="graph_step", phases="graph")[1] == {"aligned": 1.0}
    assert set(methods(path, steps="graph_step", phases="kernels")[1]) <= {"rules", "none"}


def test_the_launching_range_goes_in_front(tmp_path: Path) -> None:
    """A replay inside a phase of its own step: the phases of the graph lie below it."""
    trace = with_creation(TinyTrace())
    for i in range(3):
        t = i * 1000
        ops = [("attention", t + 10, t + 110, INSTANTIATED), ("gemm", t + 120, t + 220, INSTANTIATED | 1)]
        trace.range(f"step {i}", t, t + 50).range("decoder", t, t + 40).replay(t + 1, ops)
    found, _ = methods(trace.save(tmp_path), steps="^step")
    assert found == {"decoder/attn": 1, "decoder/mlp": 1}


def test_replays_of_one_graph_share_one_answer(tmp_path: Path) -> None:
    analysis = ask(with_creation(replays(5)).save(tmp_path), steps="graph_step")
    codes = analysis.phases.op_phase.reshape(5, 3)
    assert (codes == codes[0]).all()


def test_pitfall_a4_kernels_of_replays_are_listed_by_name(tmp_path: Path) -> None:
    """40 replays of 100 kernels: kernels have names and the range of their launch, none is 'graph launch, other'."""
    trace = TinyTrace()
    for i in range(40):
        t = i * 100_000
        ops = [(f"k{k % 4}", t + 100 + 20 * k, t + 115 + 20 * k, INSTANTIATED | k) for k in range(100)]
        trace.range(f"step {i}", t, t + 60).range("decode", t, t + 50).replay(t + 1, ops)
    seen = view(trace.save(tmp_path))
    rows = result("kernels", seen).tables["kernels"]
    assert {r["name"]: r["calls_per_step"] for r in rows} == {f"k{k}": 25 for k in range(4)}
    assert {r["phase"] for r in rows} == {"decode"}


def test_a_name_around_both_capture_and_replay_is_said_once(tmp_path: Path) -> None:
    trace = TinyTrace().range("decoder", -1000, -800).range("attn", -990, -900).node(-950, CAPTURED)
    trace.range("mlp", -890, -850).node(-880, CAPTURED | 1)
    other = TinyTrace().range("attn", -990, -900).node(-950, CAPTURED)
    for t in (0, 1000, 2000):
        ops = [("attention", t + 10, t + 110, CAPTURED), ("gemm", t + 120, t + 220, CAPTURED | 1)]
        trace.range(f"step {t}", t, t + 50).range("mlp", t, t + 40).replay(t + 1, ops)
        other.range(f"step {t}", t, t + 50).range("attn", t, t + 40).replay(t + 1, ops[:1])
    assert methods(trace.save(tmp_path))[0] == {"mlp/attn": 1, "mlp": 1}
    assert methods(other.save(tmp_path))[0] == {"attn": 1}


def test_rules_reach_every_group_of_steps(tmp_path: Path) -> None:
    """Each device shows the group with most time there: names speak on both."""
    trace = TinyTrace().gpu(id=1, name="NVIDIA H200", smCount=132, cuDevice=1)
    for t in (0, 1000, 2000):
        trace.range(f"target {t}", t, t + 8).replay(t, [("gemm", t + 10, t + 400, INSTANTIATED)])
        trace.range(f"draft {t}", t + 500, t + 508)
        trace.replay(t + 500, [("gemm", t + 510, t + 600, 3 << 32)], device=1)
    analysis = ask(trace.save(tmp_path))
    for device in (0, 1):
        answer = result("phases", view_of(analysis, device))
        assert column(answer, "attribution", "method", "share") == {"rules": 1.0}
