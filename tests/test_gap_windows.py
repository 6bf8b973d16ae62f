"""Idle time by class inside windows, and the gaps inside them, against a loop over gaps and windows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelab import gap_classes
from tracelab.gap_classes import CLASSES, LAUNCH, PROFILER, UNKNOWN, Gaps

BOUNDED = settings(max_examples=150, deadline=None)
NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Gap:
    """One gap, its cause, and the part of it that the profiler took."""

    start: int
    end: int
    cause: int
    profiler_ns: int


@st.composite
def gap_lists(draw: st.DrawFn) -> list[Gap]:
    """Gaps in order with work between them; of each some, all or nothing is the profiler's."""
    found, at = list[Gap](), draw(st.integers(-20, 5))
    for _ in range(draw(st.integers(0, 8))):
        at += draw(st.integers(1, 4))
        length = draw(st.integers(1, 6))
        cause = draw(st.sampled_from([code for code in range(len(CLASSES)) if code != PROFILER]))
        found.append(Gap(at, at + length, cause, draw(st.sampled_from((0, 0, 1, length)))))
        at += length
    return found


WINDOWS = st.lists(st.tuples(st.integers(-25, 50), st.integers(-3, 40)), max_size=5)


def columns(gaps: Sequence[Gap]) -> Gaps:
    start, end, profiler = (
        np.array([getattr(gap, name) for gap in gaps], np.int64) for name in ("start", "end", "profiler_ns")
    )
    numbers = np.arange(len(gaps))
    return Gaps(start, end, numbers, numbers + 1, np.array([gap.cause for gap in gaps], np.uint8), profiler)


def of_class(gap: Gap, code: int) -> int:
    """Time of one gap in one class."""
    if code == PROFILER:
        return gap.profiler_ns
    return gap.end - gap.start - gap.profiler_ns if gap.cause == code else 0


def assert_windows(gaps: Sequence[Gap], windows: Sequence[tuple[int, int]]) -> None:
    """A gap is inside a window if it lies in it as a whole."""
    found = columns(gaps)
    low, high = (np.array([window[i] for window in windows], np.int64) for i in (0, 1))
    inside = [[g for g in gaps if a <= g.start and g.end <= b] for a, b in windows]
    expected = [[sum(of_class(gap, code) for gap in some) for some in inside] for code in range(len(CLASSES))]
    assert found.within(low, high).tolist() == expected
    rows = [number for number, gap in enumerate(gaps) if any(gap in some for some in inside)]
    assert found.rows_within(low, high).tolist() == rows


def assert_classes(gaps: Sequence[Gap]) -> None:
    """A gap is of its cause's class, even where the profiler took all of it, and of the profiler's if it took any."""
    for code in range(len(CLASSES)):
        rows, time_ns = columns(gaps).of_class(code)
        wanted = [n for n, g in enumerate(gaps) if (g.profiler_ns > 0 if code == PROFILER else g.cause == code)]
        assert rows.tolist() == wanted
        assert time_ns.tolist() == [of_class(gaps[number], code) for number in wanted]


@BOUNDED
@given(gap_lists(), WINDOWS)
def test_windows(gaps: list[Gap], windows: list[tuple[int, int]]) -> None:
    """Windows anywhere, also empty and inverted ones, overlapping and in any order."""
    assert_windows(gaps, [(low, low + length) for low, length in windows])


@BOUNDED
@given(gap_lists())
def test_windows_at_the_edges_of_gaps(gaps: list[Gap]) -> None:
    edges = sorted({edge for gap in gaps for edge in (gap.start, gap.end)})
    assert_windows(gaps, [(low, high) for low in edges for high in edges])


@BOUNDED
@given(gap_lists())
def test_classes(gaps: list[Gap]) -> None:
    assert_classes(gaps)
    if gaps:
        everything = columns(gaps).within(np.array([gaps[0].start]), np.array([gaps[-1].end]))
        assert everything.sum() == sum(gap.end - gap.start for gap in gaps)  # every nanosecond in one class


def test_a_gap_that_the_profiler_took_in_part() -> None:
    """10 … 20 late launch, 3 of them the profiler's; 30 … 34 unknown: 7 launch, 3 profiler, 4 unknown."""
    found = columns([Gap(10, 20, LAUNCH, 3), Gap(30, 34, UNKNOWN, 0)]).within(np.array([0, 11]), np.array([40, 40]))
    assert dict(zip(CLASSES, found.tolist(), strict=True)) == {
        "launch": [7, 0], "sync": [0, 0], "dependency": [0, 0], "profiler": [3, 0], "unknown": [4, 4],
    }  # fmt: skip


def test_no_gaps_and_no_windows() -> None:
    assert columns([]).within(NONE, NONE).shape == (len(CLASSES), 0)
    assert columns([]).rows_within(np.array([0]), np.array([9])).tolist() == []
    assert columns([Gap(1, 2, LAUNCH, 0)]).rows_within(NONE, NONE).tolist() == []


# Negative controls

TWO = [Gap(10, 20, LAUNCH, 3), Gap(30, 34, UNKNOWN, 0)]


def test_control_a_gap_at_the_edge_that_is_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_windows(TWO, [(10, 34)])
    inside = Gaps._inside
    monkeypatch.setattr(Gaps, "_inside", lambda self, low, high: inside(self, low + 1, high))
    with pytest.raises(AssertionError):
        assert_windows(TWO, [(10, 34)])


def test_control_a_gap_that_stands_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_windows(TWO, [(0, 40), (0, 40)])
    monkeypatch.setattr(gap_classes, "_covered_rows", lambda *_: np.array([0, 0, 1, 1]))
    with pytest.raises(AssertionError):
        assert_windows(TWO, [(0, 40), (0, 40)])


def test_control_the_profilers_part_counted_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_classes(TWO)
    monkeypatch.setattr(gap_classes, "PROFILER", -1)
    with pytest.raises(AssertionError):
        assert_classes(TWO)
