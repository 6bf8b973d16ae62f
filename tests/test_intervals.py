"""Unions, coverage and even shares against counting every nanosecond."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelab.intervals import even_shares, largest_remainder, new_coverage, shift_apart, union
from tracelab.trace import I64

Interval = tuple[int, int]
INTERVALS = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=9)
BOUNDED = settings(max_examples=60, deadline=None)


def arrays(intervals: Sequence[Interval]) -> tuple[I64, I64]:
    ordered = sorted(intervals)
    return np.array([a for a, _ in ordered], np.int64), np.array([b for _, b in ordered], np.int64)


def covered_ns(intervals: Sequence[Interval]) -> set[int]:
    return {t for a, b in intervals for t in range(a, b)}


@BOUNDED
@given(INTERVALS, st.integers(-25, 35), st.integers(0, 30))
def test_union_covers_what_any_interval_covers(intervals: list[Interval], low: int, length: int) -> None:
    blocks = union(*arrays(intervals))
    assert covered_ns(list(zip(blocks.start.tolist(), blocks.end.tolist(), strict=True))) == covered_ns(intervals)
    found = blocks.covered(np.array([low]), np.array([low + length]))[0] if intervals else 0
    assert found == len(covered_ns(intervals) & set(range(low, low + length)))


@BOUNDED
@given(INTERVALS)
def test_blocks_are_apart_and_name_their_ends(intervals: list[Interval]) -> None:
    start, end = arrays(intervals)
    blocks = union(start, end)
    assert (blocks.start[1:] > blocks.end[:-1]).all()
    np.testing.assert_array_equal(start[blocks.first], blocks.start)
    np.testing.assert_array_equal(end[blocks.last], blocks.end)


@BOUNDED
@given(st.lists(INTERVALS, min_size=1, max_size=3))
def test_new_coverage_adds_up_to_the_union_of_each_group(groups: list[list[Interval]]) -> None:
    parts = [arrays(intervals) for intervals in groups]
    group = np.repeat(np.arange(len(groups)), [len(i) for i in groups])
    found = new_coverage(group, np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
    for number, intervals in enumerate(groups):
        assert found[group == number].sum() == len(covered_ns(intervals))


@BOUNDED
@given(st.lists(INTERVALS, min_size=1, max_size=3))
def test_even_shares_split_every_instant(groups: list[list[Interval]]) -> None:
    parts = [arrays(intervals) for intervals in groups]
    group = np.repeat(np.arange(len(groups)), [len(i) for i in groups])
    found = even_shares(group, np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
    expected = [_share(sorted(g), a, b) for g in groups for a, b in sorted(g)]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def _share(intervals: Sequence[Interval], low: int, high: int) -> float:
    return sum(1 / sum(a <= t < b for a, b in intervals) for t in range(low, high))


def test_touching_intervals_are_one_block_and_empty_ones_cover_nothing() -> None:
    blocks = union(np.array([0, 10, 20, 30]), np.array([10, 15, 20, 31]))
    assert blocks.start.tolist() == [0, 20, 30]
    assert blocks.end.tolist() == [15, 20, 31]
    assert int((blocks.end - blocks.start).sum()) == 16


def test_nothing_of_nothing() -> None:
    none = np.zeros(0, np.int64)
    assert len(union(none, none).start) == 0
    assert union(none, none).covered(np.array([0]), np.array([9])).tolist() == [0]
    assert len(even_shares(none, none, none)) == len(new_coverage(none, none, none)) == 0


def test_shifting_groups_apart_keeps_lengths_and_order() -> None:
    start, end = shift_apart(np.array([0, 0, 1]), np.array([5, 7, 6]), np.array([9, 8, 30]))
    assert (end - start).tolist() == [4, 1, 24]
    assert start[2] > end[:2].max()


@BOUNDED
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8))
def test_whole_numbers_add_up_to_the_total(values: list[float]) -> None:
    total = round(sum(values))
    found = largest_remainder(np.array(values), total)
    assert found.sum() == total
    assert np.abs(found - np.array(values)).max() <= 1.5


def test_the_largest_fraction_is_rounded_up_first() -> None:
    assert largest_remainder(np.array([1.2, 2.5, 3.3]), 7).tolist() == [1, 3, 3]


def test_sums_would_differ_from_the_union() -> None:
    start, end = np.array([0, 5, 20]), np.array([10, 15, 30])
    assert int((end - start).sum()) == 30
    assert new_coverage(np.zeros(3, np.int64), start, end).tolist() == [10, 5, 10]
    assert even_shares(np.zeros(3, np.int64), start, end).tolist() == pytest.approx([7.5, 7.5, 10])
