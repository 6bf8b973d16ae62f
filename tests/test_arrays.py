"""Orders, counts and group numbers of whole columns against the plain loops that they stand for."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracelab import arrays
from tracelab.arrays import (
    ByCode,
    count_up_to,
    distinct_pairs,
    first_row_of,
    group_ids,
    in_order,
    order_by,
    rows_by,
    rows_by_group,
    spread,
)
from tracelab.trace import I64

BOUNDED = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FEW = st.integers(-2, 2)
WIDE = st.one_of(FEW, st.integers(-(2**62), 2**62 - 1), st.just(-(2**63)), st.just(2**63 - 1))
ROWS = st.lists(st.tuples(FEW, FEW, FEW, FEW), max_size=14)
Row = tuple[int, ...]


def columns(rows: Sequence[Row], width: int) -> list[I64]:
    return [np.array([row[i] for row in rows], np.int64) for i in range(width)]


def naive_order(keys: Sequence[Row]) -> list[int]:
    return sorted(range(len(keys)), key=lambda i: (keys[i], i))


def written_out(order: I64 | None, rows: int) -> list[int]:
    return list(range(rows)) if order is None else order.tolist()


# order_by and what stands on it


def assert_ordered(rows: Sequence[Row]) -> None:
    """By (group, first, two columns for ties), with and without the group and the ties."""
    group, first, one, two = columns(rows, 4)
    coded = ByCode(np.arange(-2, 3), (two + 2).astype(np.int32))  # the values of `two`, by their codes
    plain, tied, grouped = order_by(first), order_by(first, one, coded), order_by(first, one, coded, group=group)
    expected_keys = [row[1:2] for row in rows], [row[1:] for row in rows], list(rows)
    for keys, found in zip(expected_keys, (plain, tied, grouped), strict=True):
        expected = naive_order(keys)
        assert written_out(found, len(rows)) == expected
        assert (found is None) == (expected == list(range(len(rows))))


@BOUNDED
@given(ROWS)
def test_orders(rows: list[Row]) -> None:
    assert_ordered(rows)
    assert_ordered(sorted(rows))  # in order already: nothing to move
    assert_ordered(sorted(rows, key=lambda row: row[:2]))  # only ties to move


def test_control_ties_left_as_they_are_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelab.arrays.np.lexsort", lambda keys: np.arange(len(keys[0])))
    with pytest.raises(AssertionError):
        assert_ordered([(0, 1, 2, 0), (0, 1, 1, 0)])


def test_control_a_group_that_is_ignored_is_seen() -> None:
    rows = [(1, 0, 0, 0), (0, 1, 0, 0)]
    assert written_out(order_by(columns(rows, 2)[1]), 2) != naive_order(rows)


@BOUNDED
@given(ROWS)
def test_rows_by_is_the_order_written_out_and_in_order_follows_it(rows: list[Row]) -> None:
    _, first, one, _ = columns(rows, 4)
    expected = naive_order([row[1:3] for row in rows])
    assert rows_by(first, one).tolist() == expected
    order = order_by(first, one)
    assert in_order(one, order).tolist() == [rows[i][2] for i in expected]
    assert order is not None or in_order(one, order) is one  # nothing is copied where nothing moves


def test_control_in_order_by_another_order_is_seen() -> None:
    one = np.array([5, 3, 4])
    assert in_order(one, order_by(np.array([3, 1, 2]))).tolist() == [3, 4, 5]
    assert in_order(one, np.array([0, 1, 2])).tolist() != [3, 4, 5]


# values by code


@BOUNDED
@given(st.lists(FEW, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=9))
def test_spread_gives_each_row_its_value(values: list[int], codes: list[int]) -> None:
    usable = [code % len(values) for code in codes]
    found = spread(np.array(values), np.array(usable, np.int32))
    assert found.tolist() == [values[code] for code in usable]
    assert found.flags.writeable == (len(set(values)) > 1)  # one value for all takes no memory


def test_control_a_column_taken_for_one_value_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelab.arrays.np.broadcast_to", lambda value, rows: np.full(rows, value + 1))
    assert spread(np.array([4, 4]), np.array([0, 1], np.int32)).tolist() != [4, 4]
    assert spread(np.array([4, 5]), np.array([0, 1], np.int32)).tolist() == [4, 5]


def test_spread_of_nothing() -> None:
    assert spread(np.zeros(0, np.int64), np.zeros(0, np.int32)).tolist() == []
    assert spread(np.array([7]), np.zeros(0, np.int32)).tolist() == []


# counting and looking up


def assert_counted(values: Sequence[int], asked: Sequence[int]) -> None:
    ordered = sorted(values)
    found = count_up_to(np.array(ordered, np.int64), np.array(asked, np.int64))
    assert found.tolist() == [bisect_right(ordered, one) for one in asked]


@BOUNDED
@given(st.lists(WIDE, max_size=6), st.lists(WIDE, max_size=12))
def test_counts_up_to(values: list[int], asked: list[int]) -> None:
    assert_counted(values, asked)
    assert_counted(values, sorted(asked))  # more that are asked than there are, in order: the fast way


def _right_of(searched: Callable[..., I64], values: I64, asked: I64, **_: str) -> I64:
    return searched(values, asked, side="right")


def test_control_a_value_that_is_equal_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 asks for 1, 2 and 3 of (1, 2, 3): not above. The fast way, by the other side of an equal value, gives 2."""
    assert_counted([1, 2, 3], [0, 1, 2, 3, 9])
    monkeypatch.setattr("tracelab.arrays.np.searchsorted", partial(_right_of, np.searchsorted))
    with pytest.raises(AssertionError):
        assert_counted([1, 2, 3], [0, 1, 2, 3, 9])


def assert_found(keys: Sequence[int], asked: Sequence[int]) -> None:
    found = first_row_of(np.array(keys, np.int64), np.array(asked, np.int64))
    assert found.tolist() == [keys.index(one) if one in keys else -1 for one in asked]


@BOUNDED
@given(st.lists(WIDE, max_size=10), st.lists(WIDE, max_size=10))
def test_the_first_row_with_a_key(keys: list[int], others: list[int]) -> None:
    for rows in (keys, sorted(keys)):
        assert_found(rows, [*others, *keys])


def test_control_a_later_row_with_the_key_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found([5, 3, 5, 3], [3, 5, 4])
    monkeypatch.setattr(arrays, "order_by", lambda _: np.array([3, 1, 2, 0]))  # sorted by key, but not stable
    with pytest.raises(AssertionError):
        assert_found([5, 3, 5, 3], [3, 5, 4])


# groups


def assert_grouped(rows: Sequence[Row], width: int) -> None:
    ids, first = group_ids(columns(rows, width))
    distinct = sorted(set(rows))
    assert ids.tolist() == [distinct.index(row) for row in rows]
    assert first.tolist() == [list(rows).index(row) for row in distinct]


@BOUNDED
@given(st.lists(st.tuples(FEW, WIDE, st.integers(0, 9)), max_size=12), st.sampled_from((1, 2, 7, 40, 1 << 22)))
def test_group_numbers(monkeypatch: pytest.MonkeyPatch, rows: list[Row], countable: int) -> None:
    """However few keys may be counted, which decides when a column is sorted or the key made smaller."""
    monkeypatch.setattr(arrays, "_COUNTABLE", countable)
    assert_grouped(rows, 3)


def test_group_numbers_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths 4 × 5 = 20: counted at once where 20 keys may be, made smaller between the columns where 19 may."""
    rows = [(i % 4, i % 5) for i in range(20)]
    for countable in (3, 4, 5, 19, 20, 21):
        monkeypatch.setattr(arrays, "_COUNTABLE", countable)
        assert_grouped(rows, 2)


def test_group_numbers_of_truths_and_of_no_rows() -> None:
    ids, first = group_ids([np.array([True, False, True])])
    assert (ids.tolist(), first.tolist()) == ([1, 0, 1], [1, 0])
    assert [part.tolist() for part in group_ids([np.zeros(0, np.int64)] * 2)] == [[], []]


@pytest.mark.parametrize("countable", [1, 1 << 22])
def test_control_columns_of_another_weight_are_seen(monkeypatch: pytest.MonkeyPatch, countable: int) -> None:
    """A column taken for one number narrower than it is mixes groups: (0, 2) becomes (1, 0)."""
    monkeypatch.setattr(arrays, "_COUNTABLE", countable)
    whole: Callable[..., Any] = arrays._from_zero

    def narrower(column: I64, limit: int) -> tuple[I64, int]:
        values, width = whole(column, limit)
        return values, max(width - 1, 1)

    rows = [(0, 2), (1, 0), (0, 0), (1, 1), (2, 2)]
    assert_grouped(rows, 2)
    monkeypatch.setattr(arrays, "_from_zero", narrower)
    with pytest.raises((AssertionError, IndexError)):
        assert_grouped(rows, 2)


def assert_pairs(pairs: Sequence[Row]) -> None:
    found = distinct_pairs(*columns(pairs, 2))
    assert found.tolist() == [list(pairs).index(pair) for pair in sorted(set(pairs))]


@BOUNDED
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=12))
def test_first_positions_of_pairs(pairs: list[Row]) -> None:
    assert_pairs(pairs)
    assert_pairs(sorted(pairs))
    assert_pairs([pair for pair in pairs for _ in range(2)])  # equal pairs side by side


def test_first_positions_of_pairs_whose_items_are_all_different() -> None:
    assert_pairs([(0, 1), (0, 3), (2, 4), (2, 5)])  # in order
    assert_pairs([(2, 1), (0, 3), (2, 0), (1, 5), (1, 5)])  # not in order


def test_control_pairs_by_their_groups_alone_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "group_ids", lambda found: group_ids(found[:1]))
    with pytest.raises(AssertionError):
        assert_pairs([(1, 1), (0, 1), (0, 2)])


@pytest.mark.parametrize("highest", [3, 65_535, 65_536, 1 << 40])
def test_rows_by_group_keep_their_order(highest: int) -> None:
    """Sorted by counting up to 65 535; one more must not wrap around to 0."""
    ids = [highest, 0, 1, highest, 0, 2, 1]
    for kind in (np.int64, *([np.int32] if highest < 1 << 31 else [])):
        assert rows_by_group(np.array(ids, kind)).tolist() == [1, 4, 2, 6, 5, 0, 3]
    assert np.array(ids).astype(np.uint16).argsort(kind="stable").tolist() != [1, 4, 2, 6, 5, 0, 3] or highest < 65_536


def test_rows_by_group_of_nothing() -> None:
    assert rows_by_group(np.zeros(0, np.int32)).tolist() == []
