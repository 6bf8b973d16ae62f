"""The change of a median and its interval on logarithms, how far halves and captures are apart, weighted medians."""

from math import exp, hypot, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tracelab.compare.spread import capture_spread, half_spread, interval, weighted_median

F64 = NDArray[np.float64]
SAMPLES = st.lists(st.floats(1.0, 1e9), min_size=1, max_size=14).map(np.array)
CAPTURES = st.lists(SAMPLES, min_size=1, max_size=3)


def _ns(*values: float) -> F64:
    return np.array(values, np.float64)


NINE = _ns(*range(101, 110))  # median 105; the 2nd and the 8th are 102 and 108
FLAT = _ns(*[100.0] * 9)


def test_nine_steps_have_the_second_and_the_eighth_as_limits() -> None:
    """Of 9 steps, fewer than 2 lie below the median with 10/512 = 2.0 %, fewer than 3 with 46/512 = 9.0 %: rank 2. The
    side before has no spread, so the limits are 102/100 and 108/100."""
    assert interval([FLAT], [NINE]) == pytest.approx((log(1.02), log(1.08)))


def test_spreads_of_both_sides_add_up_as_squares() -> None:
    """After is twice before. Downwards count how low after may be (105 to 102) and how high before (105 to 108)."""
    half = hypot(log(105 / 102), log(108 / 105))  # 0.0404
    assert interval([NINE], [2 * NINE]) == pytest.approx((log(2) - half, log(2) + half))


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (20, 6), (100, 40)])
def test_ranks_are_those_of_the_binomial_table(count: int, rank: int) -> None:
    """Ranks of the 95 % interval of a median as in tables of the sign test (Conover, table A3 with p = 0.5)."""
    samples = np.exp(np.arange(1, count + 1) / 100)
    middle = float(np.median(samples))
    low, high = interval([np.full(count, middle)], [samples]) or (0.0, 0.0)
    assert (low, high) == pytest.approx((rank / 100 - log(middle), (count + 1 - rank) / 100 - log(middle)))


def test_from_six_steps_on_the_longest_step_says_nothing() -> None:
    late = NINE.copy()
    late[-1] = 1e6
    assert interval([FLAT], [late]) == interval([FLAT], [NINE])


def test_control_with_five_steps_it_does() -> None:
    """Student's t over logarithms sees every step."""
    late = NINE[:5].copy()
    late[-1] = 1e6
    assert interval([FLAT], [late]) != interval([FLAT], [NINE[:5]])


def test_two_steps_have_students_interval() -> None:
    """100 and 102: the deviation of the logarithms is log(1.02)/√2, of their mean log(1.02)/2 = 0.0099; t is 12.706."""
    half = 12.7062047 * log(1.02) / 2  # 0.1258
    assert interval([_ns(100, 100)], [_ns(100, 102)]) == pytest.approx((log(1.01) - half, log(1.01) + half))


def test_five_steps_have_students_interval() -> None:
    """Logarithms 0, 0.01 … 0.04: deviation √(0.001/4) = 0.01581, of the mean ÷√5 = 0.00707; t with 4 is 2.776."""
    half = 2.7764451 * 0.0070711
    found = interval([_ns(1, 1, 1, 1, 1)], [np.exp(np.arange(5) / 100)])
    assert found == pytest.approx((0.02 - half, 0.02 + half), abs=1e-7)


@pytest.mark.parametrize(("before", "after"), [(FLAT[:1], NINE), (NINE, FLAT[:1]), (FLAT[:1], FLAT[:1])])
def test_a_single_step_has_no_interval(before: F64, after: F64) -> None:
    assert interval([before], [after]) is None


def test_steps_of_the_same_time_count_each() -> None:
    """90, 95, five times 100, 105, 110: the 2nd and 8th are 95 and 105."""
    tied = _ns(100, 90, 100, 105, 100, 95, 100, 110, 100)
    assert interval([FLAT], [tied]) == pytest.approx((log(0.95), log(1.05)))
    assert interval([FLAT], [FLAT]) == (0.0, 0.0)


# Two captures a side of 6 steps each without any spread of their own, 0 and 0.02 before, 0.10 and 0.12 after (log).
FAR_BEFORE = [np.full(6, 1.0), np.full(6, exp(0.02))]
FAR_AFTER = [np.full(6, exp(0.10)), np.full(6, exp(0.12))]


def test_several_captures_have_at_least_welchs_interval() -> None:
    """Means 0.01 and 0.11, variances 0.0002 each, of the means 0.0001: together √0.0002 = 0.014142. The degrees of
    freedom are 0.0002² ÷ (0.0001² + 0.0001²) = 2, so t is 4.30265 and the half 0.060849."""
    found = interval(FAR_BEFORE, FAR_AFTER)
    assert found == pytest.approx((0.10 - 0.060849, 0.10 + 0.060849), abs=1e-6)


def test_control_a_single_capture_on_a_side_has_the_interval_of_the_steps() -> None:
    """The same steps in one capture: the 3rd and 10th of 12, so 0 and 0.02 around their median 0.01005 on each side."""
    found = interval([np.concatenate(FAR_BEFORE)], FAR_AFTER)
    half = hypot(log((1 + exp(0.02)) / 2), 0.02 - log((1 + exp(0.02)) / 2))  # 0.01414
    assert found == pytest.approx((0.10 - half, 0.10 + half))


def test_captures_that_agree_keep_the_interval_of_their_steps() -> None:
    """Welch's interval has no width here; that of the steps has. Three times 102 … 109 are 24 steps: the 7th is 104,
    the 18th 107, the median 105.5."""
    alike = [NINE[1:], NINE[1:], NINE[1:]]
    half = hypot(log(105.5 / 104), log(107 / 105.5))
    assert interval(alike, alike) == pytest.approx((-half, half))


@given(before=CAPTURES, after=CAPTURES)
def test_swapped_sides_mirror_the_interval_exactly(before: list[F64], after: list[F64]) -> None:
    found, swapped = interval(before, after), interval(after, before)
    assert (found is None) == (swapped is None)
    if found is not None and swapped is not None:
        assert swapped == (-found[1], -found[0])


@given(data=st.data(), before=CAPTURES, after=CAPTURES)
def test_the_order_of_steps_says_nothing(data: st.DataObject, before: list[F64], after: list[F64]) -> None:
    mixed = [np.array(data.draw(st.permutations(samples.tolist()))) for samples in before]
    assert interval(mixed, after) == interval(before, after)


@given(before=CAPTURES, after=CAPTURES)
def test_the_change_lies_in_its_interval(before: list[F64], after: list[F64]) -> None:
    found = interval(before, after)
    change = log(np.median(np.concatenate(after))) - log(np.median(np.concatenate(before)))
    if found is not None:
        assert found[0] <= change + 1e-12
        assert change - 1e-12 <= found[1]


def test_half_spread_sets_odd_against_even_steps() -> None:
    assert half_spread(_ns(100, 110, 100, 110, 100)) == pytest.approx(log(1.1))
    assert half_spread(_ns(110, 100, 110, 100)) == pytest.approx(log(1.1))  # whichever is slower
    assert half_spread(_ns(100, 100, 110, 110)) == 0.0  # a drift over the run is no difference of halves
    assert half_spread(_ns(100)) is None


def test_capture_spread_is_from_the_lowest_to_the_highest_median() -> None:
    assert capture_spread([_ns(100, 1), _ns(50.5), _ns(49.5)]) == pytest.approx(log(50.5 / 49.5))
    assert capture_spread([NINE]) == 0.0


@pytest.mark.parametrize(
    ("values", "weights", "middle"),
    [
        ([1, 2, 3], [1, 1, 1], 2),
        ([1, 2, 3], [1, 1, 5], 3),  # 3 has more than half of the weight
        ([3, 1, 2], [5, 1, 1], 3),
        ([1, 2], [1, 1], 1.5),  # half on either side
        ([1, 2, 3], [1, 1, 2], 2.5),
        ([4], [7], 4),
        ([5, 5, 1], [1, 1, 1], 5),
        ([1, 9, 1, 9], [1, 1, 1, 1], 5),
    ],
)
def test_weighted_median(values: list[float], weights: list[float], middle: float) -> None:
    assert weighted_median(values, weights) == middle


@given(st.data(), st.lists(st.tuples(st.floats(-1, 1), st.integers(1, 1000)), min_size=1, max_size=9))
def test_a_weighted_median_knows_no_order_and_mirrors(data: st.DataObject, rows: list[tuple[float, int]]) -> None:
    mixed = data.draw(st.permutations(rows))
    found = weighted_median([v for v, _ in rows], [w for _, w in rows])
    assert weighted_median([v for v, _ in mixed], [w for _, w in mixed]) == found
    assert weighted_median([-v for v, _ in rows], [w for _, w in rows]) == -found
