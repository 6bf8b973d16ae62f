"""The innermost range at any time, against trying every range."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelab.nesting import build_forest
from tracelab.trace import ABSENT, PUSH_POP, Ranges

Range = tuple[int, int, int]  # thread, start, end
RANGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-10, 15), st.integers(0, 15)).map(lambda r: (r[0], r[1], r[1] + r[2])),
    max_size=12,
)
BOUNDED = settings(max_examples=80, deadline=None)


def table(ranges: list[Range]) -> Ranges:
    """Ranges in the order of the model: thread, start, descending end."""
    ordered = sorted(ranges, key=lambda r: (r[0], r[1], -r[2]))
    thread, start, end = (np.array([r[i] for r in ordered], np.int64) for i in range(3))
    count = len(ordered)
    return Ranges(
        start=start,
        end=end,
        thread=thread.astype(np.int32),
        name=np.zeros(count, np.int32),
        domain=np.zeros(count, np.int32),
        kind=np.full(count, PUSH_POP, np.uint8),
        open=np.zeros(count, bool),
    )


def slowly(ranges: Ranges, keep: list[bool], thread: int, time: int) -> int:
    """The open range that started last; of equal starts the one that ends first, then the later row."""
    rows = [
        i
        for i in range(len(ranges))
        if keep[i] and ranges.thread[i] == thread and ranges.start[i] <= time <= ranges.end[i]
    ]
    return max(rows, key=lambda i: (int(ranges.start[i]), -int(ranges.end[i]), i), default=ABSENT)


@BOUNDED
@given(RANGES, st.data())
def test_innermost_of_nested_and_overlapping_ranges(ranges: list[Range], data: st.DataObject) -> None:
    rows = table(ranges)
    keep = data.draw(st.lists(st.booleans(), min_size=len(ranges), max_size=len(ranges)))
    forest = build_forest(rows, np.array(keep, bool))
    asked = [(thread, time) for thread in range(4) for time in range(-12, 32)]
    threads, times = np.array(asked, np.int64).T
    found = forest.innermost(threads.astype(np.int32), times)
    assert found.tolist() == [slowly(rows, keep, thread, time) for thread, time in asked]


@BOUNDED
@given(RANGES)
def test_parents_enclose_their_children(ranges: list[Range]) -> None:
    rows = table(ranges)
    parent = build_forest(rows, np.ones(len(rows), bool)).parent_rows(len(rows))
    for row in range(len(rows)):
        around = [
            i for i in range(row) if rows.thread[i] == rows.thread[row] and rows.end[i] >= rows.end[row]
        ]  # fmt: skip
        assert parent[row] == (max(around) if around else ABSENT)


def test_a_range_that_only_overlaps_is_no_parent() -> None:
    rows = table([(0, 0, 10), (0, 5, 15)])
    forest = build_forest(rows, np.ones(2, bool))
    assert forest.parent_rows(2).tolist() == [ABSENT, ABSENT]
    asked = np.array([4, 7, 12, 16])
    assert forest.innermost(np.zeros(4, np.int32), asked).tolist() == [0, 1, 1, ABSENT]


def test_pitfall_a12_deep_nesting_is_swept_not_joined() -> None:
    """20 000 ranges nested 20 deep: every question finds its leaf (a join over containment would make 400 000 rows)."""
    ranges = [(0, 100 * block + k, 100 * block + 99 - k) for block in range(1000) for k in range(20)]
    rows = table(ranges)
    forest = build_forest(rows, np.ones(len(rows), bool))
    times = np.arange(1000) * 100 + 50
    found = forest.innermost(np.zeros(1000, np.int32), times)
    assert found.tolist() == [20 * block + 19 for block in range(1000)]


@pytest.mark.parametrize("thread", [0, 7])
def test_no_range_at_all(thread: int) -> None:
    forest = build_forest(table([]), np.zeros(0, bool))
    assert forest.innermost(np.array([thread], np.int32), np.array([5])).tolist() == [ABSENT]
