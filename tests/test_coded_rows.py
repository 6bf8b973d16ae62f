"""Rows by their distinct values, against a dictionary: every row comes back, the distinct ones are in order."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracelab import coded_rows
from tracelab.coded_rows import CodedRows, code_batch, code_rows, merged, totals
from tracelab.trace import I64

BOUNDED = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NAMES = ("y", "x")  # the order of the columns counts, not that of their names
VALUE = st.one_of(st.integers(-2, 3), st.sampled_from((-(2**63), 2**63 - 1, 2**40)))
ROWS = st.lists(st.tuples(VALUE, VALUE), max_size=12)
Row = tuple[int, ...]


def columns(rows: Sequence[Row], names: Sequence[str] = NAMES) -> dict[str, I64]:
    return {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}


def coded(rows: Sequence[Row]) -> CodedRows:
    whole = columns(rows)
    return code_rows(lambda first, stop: {name: column[first:stop] for name, column in whole.items()}, len(rows))


def distinct_rows(found: Mapping[str, I64]) -> list[Row]:
    return list(zip(*(found[name].tolist() for name in NAMES), strict=True))


def assert_coded(found: CodedRows, rows: Sequence[Row]) -> None:
    """What a dictionary of the rows would say."""
    number = {row: code for code, row in enumerate(sorted(set(rows)))}
    assert distinct_rows(found.distinct) == list(number)
    assert list(found.distinct) == list(NAMES)
    assert found.codes.tolist() == [number[row] for row in rows]
    assert found.codes.dtype == np.int32
    assert (len(found), found.count) == (len(rows), len(number))
    for i, name in enumerate(NAMES):
        assert found[name].tolist() == [row[i] for row in rows]


@BOUNDED
@given(rows=ROWS, batch=st.sampled_from((1, 2, 3, 12, 1 << 16)))
def test_rows_and_their_distinct_values(monkeypatch: pytest.MonkeyPatch, rows: list[Row], batch: int) -> None:
    monkeypatch.setattr(coded_rows, "_BATCH_ROWS", batch)
    assert_coded(coded(rows), rows)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8, 9])
def test_as_many_rows_as_a_batch_and_one_more(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Batches of 4: none, a part of one, exactly one and two, and one row beyond; each row is asked for once."""
    monkeypatch.setattr(coded_rows, "_BATCH_ROWS", 4)
    rows, asked = [(i % 3, -i) for i in range(count)], list[int]()

    def some(first: int, stop: int) -> dict[str, I64]:
        asked.extend(range(first, stop))
        return columns(rows[first:stop])

    assert_coded(code_rows(some, count), rows)
    assert sorted(asked) == list(range(count))


@BOUNDED
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_parts_stand_one_behind_the_other(parts: list[list[Row]]) -> None:
    assert_coded(merged([code_batch(columns(part), len(part)) for part in parts]), [row for p in parts for row in p])


def test_rows_without_columns_are_only_counted() -> None:
    parts = [code_rows(lambda *_: {}, rows) for rows in (3, 0, 2)]
    assert [len(part) for part in parts] == [3, 0, 2]
    whole = merged(parts)
    assert (whole.codes.tolist(), dict(whole.distinct), whole.count) == ([0] * 5, {}, 0)


@BOUNDED
@given(rows=st.lists(st.tuples(VALUE, VALUE, st.booleans()), max_size=12))
def test_kept_rows_and_only_their_distinct_ones(rows: list[tuple[int, int, bool]]) -> None:
    keep = np.array([row[2] for row in rows], bool)
    assert_coded(coded([row[:2] for row in rows]).kept(keep), [row[:2] for row in rows if row[2]])


def test_all_rows_kept_are_the_same_object() -> None:
    found = coded([(1, 2), (1, 3)])
    assert found.kept(np.ones(2, bool)) is found
    assert found.kept(np.zeros(2, bool)).count == 0


@BOUNDED
@given(rows=st.lists(st.tuples(VALUE, VALUE, st.integers(-9, 9)), max_size=12), batch=st.sampled_from((1, 5, 1 << 16)))
def test_totals_of_the_distinct_rows(monkeypatch: pytest.MonkeyPatch, rows: list[Row], batch: int) -> None:
    monkeypatch.setattr(coded_rows, "_BATCH_ROWS", batch)
    distinct, counts, sums = totals(
        lambda first, stop: columns(rows[first:stop]),
        lambda first, stop: np.array([row[2] for row in rows[first:stop]], np.int64),
        len(rows),
    )
    expected: dict[Row, list[int]] = {}
    for row in rows:
        expected.setdefault(row[:2], []).append(row[2])
    assert distinct_rows(distinct) == sorted(expected)
    assert counts.tolist() == [len(expected[row]) for row in sorted(expected)]
    assert sums.tolist() == [sum(expected[row]) for row in sorted(expected)]


# Negative controls


def test_control_parts_in_another_order_are_seen() -> None:
    rows = [(1, 1), (2, 2), (0, 0)]
    one, other = code_batch(columns(rows[:2]), 2), code_batch(columns(rows[2:]), 1)
    assert_coded(merged([one, other]), rows)
    with pytest.raises(AssertionError):
        assert_coded(merged([other, one]), rows)


def test_control_distinct_rows_in_the_order_of_their_names_are_seen() -> None:
    """(y, x) = (1, 5), (2, 0): by y first they are in this order, by x first in the other."""
    found = code_batch({"x": np.array([5, 0]), "y": np.array([1, 2])}, 2)
    with pytest.raises(AssertionError):
        assert_coded(CodedRows(found.codes, {name: found.distinct[name] for name in NAMES}), [(1, 5), (2, 0)])


def test_control_a_distinct_row_that_nobody_has_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, keep = [(1, 1), (2, 2)], np.array([True, False])
    found = coded(rows)
    assert_coded(found.kept(keep), rows[:1])
    monkeypatch.setattr("tracelab.coded_rows.np.bincount", lambda _, minlength: np.ones(minlength, int))
    with pytest.raises(AssertionError):
        assert_coded(found.kept(keep), rows[:1])


def test_control_a_lost_edge_of_a_batch_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coded_rows, "_BATCH_ROWS", 2)
    rows = [(i, i) for i in range(5)]
    assert_coded(coded(rows), rows)
    monkeypatch.setattr(
        coded_rows, "code_batch", lambda found, rows: code_batch({n: c[:1] for n, c in found.items()}, rows)
    )
    with pytest.raises(AssertionError):
        assert_coded(coded(rows), rows)
