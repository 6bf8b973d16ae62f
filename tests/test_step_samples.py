"""Times of every used step: which samples there are, and the places in the step that they belong to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import shuffled, view
from compare_fixture import Kernel, program, sequence
from tiny_programs import eager, replays
from tiny_trace import US, Shape, TinyTrace

from tracelab.step_samples import StepSamples, step_samples


def _samples(trace: TinyTrace, folder: Path, **selection: Any) -> StepSamples:
    return step_samples(view(trace.save(folder), **selection))


def test_samples_of_an_eager_loop(tmp_path: Path) -> None:
    """Three steps of 1000 ns (see `eager`): attention 100, gemm 100 and silu 100, of which 10 overlap: busy 290. Shared
    evenly, gemm and silu have 95 each: mlp 190. Two periods; kernels of a place are plain sums."""
    found = _samples(eager(), tmp_path)
    assert found.step_ns.tolist() == [1000, 1000]
    assert found.busy_ns.tolist() == [290, 290, 290]
    assert {name: times.tolist() for name, times in found.phases.items()} == {"attn": [100] * 3, "mlp": [190] * 3}
    at = found.places
    assert (at.ordered, at.phase, at.name) == (True, ("attn", "mlp", "mlp"), ("attention", "gemm", "silu"))
    assert (at.family, at.run) == (("attention", "gemm", "elementwise"), (0, 0, 0))
    assert (at.calls.tolist(), at.time_ns.tolist()) == ([1, 1, 1], [[100, 100, 100]] * 3)
    assert at.grid.tolist() == [[132, 1, 1]] * 3
    assert (at.block.tolist(), at.registers.tolist()) == ([[128, 1, 1]] * 3, [32] * 3)


def test_only_used_steps_are_samples(tmp_path: Path) -> None:
    found = _samples(eager(5), tmp_path, skip_steps=2)
    assert (len(found.busy_ns), len(found.step_ns), found.places.time_ns.shape) == (3, 2, (3, 3))
    assert {len(times) for times in found.phases.values()} == {3}


def test_kernels_of_a_replay_have_a_place_each(tmp_path: Path) -> None:
    at = _samples(replays(), tmp_path).places
    assert (at.name, at.time_ns.tolist()) == (("attention", "gemm", "silu"), [[100, 100, 100]] * 3)


def test_a_graph_recorded_as_a_whole_is_one_place(tmp_path: Path) -> None:
    trace = TinyTrace().graph_mode("graph")
    for i in range(4):
        at = 1000 * i
        trace.range(f"step {i}", at, at + 20).call(at, at + 5, "cudaGraphLaunch_v10000")
        trace.graph_trace(at + 30, at + 330)
    places = _samples(trace, tmp_path).places
    assert (places.time_ns.tolist(), places.grid.tolist()) == ([[300]] * 4, [[0, 0, 0]])


LAYER = [*sequence("attn", "attention"), *sequence("mlp", "gemm_a", "silu")]


def test_a_phase_is_entered_once_a_layer(tmp_path: Path) -> None:
    at = _samples(program(LAYER * 3), tmp_path).places
    assert at.run == (0, 0, 0, 1, 1, 1, 2, 2, 2)
    assert at.phase == ("attn", "mlp", "mlp") * 3


def test_places_stand_in_the_order_of_their_launches(tmp_path: Path) -> None:
    """silu is launched last but runs first, on another stream."""
    trace = TinyTrace()
    for i in range(3):
        at = 1000 * i
        trace.range(f"step {i}", at, at + 400).range("p", at + 1, at + 300)
        trace.launch(at + 10, "gemm", at + 200, at + 300).launch(at + 50, "silu", at + 60, at + 90, stream=8)
    found = _samples(trace, tmp_path).places
    assert (found.name, found.time_ns[0].tolist()) == (("gemm", "silu"), [100, 30])


def test_the_grid_is_that_of_a_step_in_the_middle(tmp_path: Path) -> None:
    """Grids that grow with the context: 10, 11, 12, 13, 14 blocks."""
    trace = TinyTrace()
    for i in range(5):
        at = 1000 * i
        trace.range(f"step {i}", at, at + 400)
        trace.launch(at + 10, "attention", at + 20, at + 100, shape=Shape(grid=(10 + i, 2, 1)))
    assert _samples(trace, tmp_path).places.grid.tolist() == [[12, 2, 1]]


def _loop(steps: Sequence[Sequence[str]]) -> TinyTrace:
    """Steps that run these kernels, the k-th for k + 1 µs."""
    trace = TinyTrace()
    for i, names in enumerate(steps):
        at = 1_000 * US * i
        trace.range(f"step {i}", at, at + 900 * US)
        for k, name in enumerate(names):
            begin = at + 20 * US * k
            trace.range("p", begin, begin + 15 * US).launch(begin + 1, name, begin + 10, begin + 10 + (k + 1) * US)
    return trace


def test_steps_of_another_sequence_are_no_samples_of_the_places(tmp_path: Path) -> None:
    """Two of five steps run their kernels in other phases: the names are alike, so that all five are used."""
    trace = TinyTrace()
    for i in range(5):
        at = 1000 * i
        trace.range(f"step {i}", at, at + 400).range("q" if i > 2 else "p", at + 1, at + 90)
        trace.launch(at + 10, "gemm", at + 20, at + 120 + i)
    found = _samples(trace, tmp_path)
    assert (found.places.ordered, found.places.phase, found.places.time_ns.tolist()) == (
        True,
        ("p",),
        [[100], [101], [102]],
    )
    assert {name: times.tolist() for name, times in found.phases.items()} == {
        "p": [100, 101, 102, 0, 0],
        "q": [0, 0, 0, 103, 104],
    }


def test_without_one_sequence_each_name_of_a_phase_is_a_place(tmp_path: Path) -> None:
    """Three sequences in three steps: gemm runs 1 + 2 + 3 times, so twice a step; times are sums of each step."""
    found = _samples(_loop([["gemm"], ["gemm"] * 2, ["silu", *["gemm"] * 3]]), tmp_path).places
    assert (found.ordered, found.name, found.run) == (False, ("gemm", "silu"), (0, 0))
    assert found.calls.tolist() == [2, pytest.approx(1 / 3)]
    assert found.time_ns.tolist() == [[1 * US, 0], [3 * US, 0], [9 * US, 1 * US]]


@pytest.mark.parametrize("third", ["norm_1", "kRSe", "norm_23", "TqIs", "norm_77"])
def test_of_two_halves_of_the_steps_none_speaks_for_all(third: str, tmp_path: Path) -> None:
    """silu and gemm in turn: which half is the more common one would depend on the names of others."""
    found = _samples(_loop([("attention", "gemm" if i % 2 else "silu", third) for i in range(8)]), tmp_path).places
    assert not found.ordered
    calls = dict(zip(found.name, found.calls.tolist(), strict=True))
    assert calls == {"attention": 1, "silu": 0.5, third: 1, "gemm": 0.5}


def test_control_more_than_half_of_the_steps_do(tmp_path: Path) -> None:
    steps = [("attention", "gemm" if i > 3 else "silu") for i in range(9)]  # four and five
    found = _samples(_loop(steps), tmp_path, skip_steps=0).places
    assert (found.ordered, found.name, len(found.time_ns)) == (True, ("attention", "gemm"), 5)


def test_the_order_of_rows_in_the_file_says_nothing(tmp_path: Path) -> None:
    path = program([*LAYER, Kernel("head", "argmax")]).save(tmp_path / "a.sqlite")
    one, other = (step_samples(view(p)) for p in (path, shuffled(path, tmp_path / "b.sqlite", seed=7)))
    np.testing.assert_array_equal(one.places.time_ns, other.places.time_ns)
    assert (one.places.name, one.places.phase) == (other.places.name, other.places.phase)
    assert one.phases.keys() == other.phases.keys()
    assert all((times == other.phases[name]).all() for name, times in one.phases.items())
    assert (one.step_ns.tolist(), one.busy_ns.tolist()) == (other.step_ns.tolist(), other.busy_ns.tolist())
