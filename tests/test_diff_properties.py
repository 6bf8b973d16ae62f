"""What holds for every pair of traces: swapped sides mirror, the order of rows says nothing, all numbers are finite."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from math import isfinite, log1p
from pathlib import Path
from typing import Any

import pytest
from asking import shuffled
from compare_fixture import NOISY, Kernel, capture, loaded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_properties import traces
from tiny_trace import TinyTrace

from tracelab.compare.compare import compare
from tracelab.compare.options import DiffOptions
from tracelab.compare.side import Side
from tracelab.difference import (
    FUSED,
    GONE,
    IMPROVEMENT,
    INCONCLUSIVE,
    NEUTRAL,
    NEW,
    REGRESSION,
    SPLIT,
    Change,
    Diff,
)

Draw = Callable[[st.SearchStrategy[Any]], Any]
BOUNDED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
MIRRORED = {REGRESSION: IMPROVEMENT, IMPROVEMENT: REGRESSION, NEW: GONE, GONE: NEW, SPLIT: FUSED, FUSED: SPLIT}
FORCED = DiffOptions(force=True)

_PLACES = (
    ("attn", "attention"),
    ("attn", "gemm_8"),
    ("mlp", "gemm_8"),
    ("mlp", "gemm_16"),
    ("mlp", "silu"),
    ("head", "x"),
)
KERNELS = st.builds(
    lambda at, us, blocks: Kernel(at[0], at[1], us * 1000.0, blocks),
    st.sampled_from(_PLACES),
    st.integers(1, 200),
    st.sampled_from((66, 132)),
)
STEPS = st.lists(st.sampled_from((0.98, *NOISY, 1.03)), min_size=1, max_size=10)


@st.composite
def sides(draw: Draw) -> Side:
    """One to three captures of a program of up to six kernels, with failed launches and any bound."""
    kernels = draw(st.lists(KERNELS, min_size=1, max_size=6))
    bound = draw(st.sampled_from(("device", "host")))
    failed = draw(st.sampled_from(({}, {}, {"mlp": 2})))
    return Side(
        tuple(
            capture(
                kernels, draw(STEPS), bound=bound, step_factor=draw(st.sampled_from((1.0, 1.2, 4.0))), failed=failed
            )
            for _ in range(draw(st.integers(1, 3)))
        )
    )


def _assert_mirrored(one: Change, other: Change) -> None:
    """The same change seen from the other side."""
    assert other.verdict == MIRRORED.get(one.verdict, one.verdict)
    assert (other.before_ns, other.after_ns, other.floor) == (one.after_ns, one.before_ns, one.floor)
    assert (one.change is None) == (other.change is None)
    if one.change is not None and other.change is not None:
        assert _are_inverse(one.change, other.change)
    assert (one.interval is None) == (other.interval is None)
    if one.interval is not None and other.interval is not None:
        assert _are_inverse(one.interval[0], other.interval[1])
        assert _are_inverse(one.interval[1], other.interval[0])


def _are_inverse(change: float, other: float) -> bool:
    """Whether the changes' logarithms have the same size and opposite signs, as far as −99.99… % tells its own: a
    rounding error of 1e-16 there counts as much more in its inverse."""
    one, two = 1 + change, 1 + other
    return abs(one * two - 1) <= 1e-9 + 1e-15 * max(one, two)


def _assert_swapped(diff: Diff, back: Diff) -> None:
    _assert_mirrored(diff.step, back.step)
    _assert_mirrored(diff.device_time, back.device_time)
    phases = {row.phase: row for row in back.phases}
    assert len(phases) == len(diff.phases)
    for phase in diff.phases:
        _assert_mirrored(phase.time, phases[phase.phase].time)
        assert phase.control == phases[phase.phase].control
    kernels = {(row.phase, row.pairing, row.after, row.before): row for row in back.kernels}
    assert len(kernels) == len(back.kernels) == len(diff.kernels)
    for row in diff.kernels:
        other = kernels[row.phase, MIRRORED.get(row.pairing, row.pairing), row.before, row.after]
        _assert_mirrored(row.time, other.time)
        assert (other.calls_before, other.calls_after) == (row.calls_after, row.calls_before)
    assert {reason.code for reason in diff.reasons} == {reason.code for reason in back.reasons}


@BOUNDED
@given(before=sides(), after=sides())
def test_swapped_sides_swap_signs_and_verdicts(before: Side, after: Side) -> None:
    _assert_swapped(compare(before, after, FORCED), compare(after, before, FORCED))


def test_control_the_mirror_sees_a_wrong_sign() -> None:
    made = Side((capture([Kernel("mlp", "silu")], NOISY),)), Side((capture([Kernel("mlp", "silu", 120_000)], NOISY),))
    diff = compare(*made, FORCED)
    assert diff.device_time.verdict == REGRESSION
    with pytest.raises(AssertionError):
        _assert_swapped(diff, diff)


@BOUNDED
@given(side=sides())
def test_a_side_against_itself_changed_in_nothing(side: Side) -> None:
    diff = compare(side, side, DiffOptions())
    times = [diff.step, diff.device_time, *(p.time for p in diff.phases), *(k.time for k in diff.kernels)]
    assert {time.change for time in times} == {0.0}
    assert {time.verdict for time in times} == {NEUTRAL}
    assert (diff.verdict, diff.regressed, diff.comparable) == (NEUTRAL, (), True)


@BOUNDED
@given(before=sides(), after=sides())
def test_a_change_beyond_the_floor_is_needed_for_an_alarm(before: Side, after: Side) -> None:
    diff = compare(before, after, FORCED)
    for time in (diff.step, diff.device_time, *(p.time for p in diff.phases), *(k.time for k in diff.kernels)):
        if time.verdict in (REGRESSION, IMPROVEMENT):
            assert time.change is not None
            assert time.floor is not None
            assert abs(log1p(time.change)) > log1p(time.floor)
        if time.verdict == INCONCLUSIVE:
            assert time.remark


def _odd_numbers(value: object, where: str = "diff") -> list[str]:
    """Where a number is not finite, anywhere in the result."""
    if is_dataclass(value):
        items = [(field.name, getattr(value, field.name)) for field in fields(value)]
    elif isinstance(value, dict):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(str(i), item) for i, item in enumerate(value)]
    else:
        return [where] if isinstance(value, float) and not isfinite(value) else []
    return [odd for name, item in items for odd in _odd_numbers(item, f"{where}.{name}")]


@BOUNDED
@given(one=traces(), other=traces(), skip=st.integers(0, 1))
def test_any_two_traces_can_be_asked_about(one: TinyTrace, other: TinyTrace, skip: int, tmp_path: Path) -> None:
    before, after = loaded(one.save(tmp_path / "a.sqlite"), skip_steps=skip), loaded(other.save(tmp_path / "b.sqlite"))
    diff, back = compare(before, after, FORCED), compare(after, before, FORCED)
    assert _odd_numbers(diff) == []
    _assert_swapped(diff, back)


def test_control_the_walk_sees_what_is_no_number() -> None:
    assert _odd_numbers([Change(1.0, float("nan"), None, (0.0, float("inf")), 0.1, NEUTRAL)]) == [
        "diff.0.after_ns",
        "diff.0.interval.1",
    ]


@BOUNDED
@given(one=traces(), other=traces(), seed=st.integers(0, 1000))
def test_the_order_of_rows_says_nothing(one: TinyTrace, other: TinyTrace, seed: int, tmp_path: Path) -> None:
    """Mixed rows under the same name, so that the whole result must be equal."""
    path, after = one.save(tmp_path / "a.sqlite"), loaded(other.save(tmp_path / "b.sqlite"))
    plain = compare(loaded(path), after, FORCED)
    mixed = shuffled(path, tmp_path / "mixed.sqlite", seed)
    mixed.replace(path)
    assert compare(loaded(path), after, FORCED) == plain
