"""Unions, time alone and even shares of grouped intervals, against counting every nanosecond."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelab import intervals
from tracelab.intervals import even_shares, time_alone, union
from tracelab.trace import I64

BOUNDED = settings(max_examples=150, deadline=None)
Interval = tuple[int, int]
Grouped = tuple[int, int, int]
SPAN = st.tuples(st.integers(-12, 12), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair)))
SPANS = st.lists(SPAN, max_size=9)
# Behind each other with room between: nothing touches anything.
APART = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=6)
GROUPS = st.lists(st.tuples(st.integers(0, 2), SPAN).map(lambda pair: (pair[0], *pair[1])), max_size=10)


def arrays(rows: Sequence[tuple[int, ...]], width: int = 2) -> list[I64]:
    return [np.array([row[i] for row in rows], np.int64) for i in range(width)]


def apart(steps: Sequence[tuple[int, int]]) -> list[Interval]:
    """Intervals of the second lengths, each as far behind the one before as the first number says."""
    found, at = list[Interval](), 0
    for room, length in steps:
        found.append((at + room, at + room + length))
        at = found[-1][1]
    return found


# The union


def blocks(spans: Sequence[Interval]) -> list[tuple[int, int, int, int]]:
    """Start, end, first and last row of each block, taken interval by interval; what touches is one block."""
    found = list[list[int]]()
    for row, (start, end) in enumerate(spans):
        if found and start <= found[-1][1]:
            if end > found[-1][1]:  # the first row to reach so far
                found[-1][1], found[-1][3] = end, row
        else:
            found.append([start, end, row, row])
    return [(start, end, first, last) for start, end, first, last in found]


def assert_united(spans: Sequence[Interval]) -> None:
    line = union(*arrays(spans))
    found = list(zip(*(column.tolist() for column in (line.start, line.end, line.first, line.last)), strict=True))
    assert found == blocks(spans)
    covered = [{t for start, end in spans for t in range(start, end) if t < block} for block in line.start.tolist()]
    assert line.before.tolist() == [len(times) for times in covered]


@BOUNDED
@given(SPANS)
def test_unions(spans: list[Interval]) -> None:
    assert_united(sorted(spans))
    assert_united(sorted(spans, key=lambda span: span[0]))  # in one block a longer one may stand before a shorter


@BOUNDED
@given(APART)
def test_unions_of_what_touches_nothing(steps: list[tuple[int, int]]) -> None:
    spans = apart(steps)
    assert_united(spans)
    line = union(*arrays(spans))
    assert line.first.tolist() == line.last.tolist() == list(range(len(spans)))


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 5), (6, 9)], [(0, 5, 0, 0), (6, 9, 1, 1)]),  # 1 ns between them: two blocks, the fast way
        ([(0, 5), (5, 9)], [(0, 9, 0, 1)]),  # they touch
        ([(0, 9), (2, 9), (3, 4)], [(0, 9, 0, 0)]),  # row 0 reaches 9 before row 1 does
        ([(0, 3), (1, 9), (9, 9), (11, 11)], [(0, 9, 0, 1), (11, 11, 3, 3)]),  # empty at the end, and alone
        ([(4, 4), (4, 4)], [(4, 4, 0, 0)]),
        ([(0, 0), (0, 3)], [(0, 3, 0, 1)]),  # an empty one begins the block
        ([(0, 9), (1, 2), (10, 12), (20, 21)], [(0, 9, 0, 0), (10, 12, 2, 2), (20, 21, 3, 3)]),
    ],
)
def test_first_and_last_rows(spans: list[Interval], expected: list[tuple[int, ...]]) -> None:
    assert blocks(spans) == expected  # the loop above says so too
    assert_united(spans)


def test_control_the_last_row_for_the_first_to_reach_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_united([(0, 9), (2, 9)])

    def last_to_reach(end: I64, first: I64, block_end: I64) -> I64:
        return np.array([np.flatnonzero(end == reached)[-1] for reached in block_end[: len(first)]])

    monkeypatch.setattr(intervals, "_enders", last_to_reach)
    with pytest.raises(AssertionError):
        assert_united([(0, 9), (2, 9)])


# Groups


def active(rows: Sequence[Grouped]) -> dict[tuple[int, int], int]:
    """How many intervals of a group are active in each nanosecond."""
    found = defaultdict[tuple[int, int], int](int)
    for group, start, end in rows:
        for t in range(start, end):
            found[group, t] += 1
    return found


def assert_split(rows: Sequence[Grouped]) -> None:
    """Time alone and even share of each interval; `rows` by group and start."""
    busy = active(rows)
    alone = [sum(busy[group, t] == 1 for t in range(start, end)) for group, start, end in rows]
    shares = [float(sum(Fraction(1, busy[group, t]) for t in range(start, end))) for group, start, end in rows]
    np.testing.assert_allclose(time_alone(*arrays(rows, 3)), alone, rtol=0, atol=1e-9)
    np.testing.assert_allclose(even_shares(*arrays(rows, 3)), shares, rtol=0, atol=1e-9)
    assert sum(shares) == pytest.approx(len(busy))  # all time is given away, none twice


@BOUNDED
@given(GROUPS)
def test_time_of_groups(rows: list[Grouped]) -> None:
    assert_split(sorted(rows))
    assert_split(sorted(rows, key=lambda row: (row[0], row[1], -row[2])))


@BOUNDED
@given(st.lists(APART, max_size=3))
def test_time_of_groups_in_which_nothing_meets(groups: list[list[tuple[int, int]]]) -> None:
    """The fast way: every interval is alone, though the groups overlap each other."""
    rows = [(group, *span) for group, steps in enumerate(groups) for span in apart(steps)]
    assert_split(rows)
    assert time_alone(*arrays(rows, 3)).tolist() == [end - start for _, start, end in rows]


def test_a_long_interval_over_a_short_one_and_one_alone() -> None:
    """0 … 10 with 4 … 6 inside: 8 alone, 2 shared; 12 … 15 meets neither. Shares 8 + 1, 1 and 3."""
    rows = [(0, 0, 10), (0, 4, 6), (0, 12, 15)]
    assert_split(rows)
    assert time_alone(*arrays(rows, 3)).tolist() == [8, 0, 3]
    assert even_shares(*arrays(rows, 3)).tolist() == [9, 1, 3]


def test_an_interval_that_meets_only_one_long_before_it() -> None:
    """0 … 20, then 2 … 3 and 5 … 5; 8 … 9 does not meet its neighbour, but the first."""
    assert_split([(0, 0, 20), (0, 2, 3), (0, 5, 5), (0, 8, 9)])


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("shift_apart", lambda _, start, end: (start, end)),  # the groups are not told apart
        ("_weighted", lambda left, right, _: (right - left).astype(float)),  # what overlaps counts in full
    ],
)
def test_control_each_part_is_needed(monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., object]) -> None:
    rows = [(0, 0, 10), (0, 4, 6), (1, 5, 15)]
    assert_split(rows)
    monkeypatch.setattr(intervals, name, broken)
    with pytest.raises(AssertionError):
        assert_split(rows)
