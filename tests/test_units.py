"""Printed numbers: units by the largest value, and columns that add up as printed."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelab.units import (
    MICROSECONDS,
    MILLISECONDS,
    bandwidth,
    count,
    data,
    number,
    percent,
    ratio,
    round_column,
    round_shares,
    time,
    time_unit,
    work,
)


def test_the_largest_value_chooses_the_unit() -> None:
    assert time_unit([1, 9_999_999]) == MICROSECONDS
    assert time_unit([1, 10_000_000]) == MILLISECONDS
    assert time_unit([]) == MICROSECONDS
    assert time_unit([float("nan"), -20_000_000.0]) == MILLISECONDS


def test_single_times() -> None:
    assert [time(v) for v in (0, 1_167_100, 9_999_949, 25_000_000)] == ["0.0 µs", "1167.1 µs", "9999.9 µs", "25.00 ms"]
    assert number(float("nan"), MICROSECONDS) == "–"


def test_the_waterfall_of_the_sketch_adds_up() -> None:
    assert round_column([293_040, 793_920, 4_260, 69_120], MICROSECONDS) == ["293.0", "793.9", "4.3", "69.1"]
    assert round_column([40, 40, 40], MICROSECONDS) == ["0.1", "0.0", "0.0"]  # 0.12 is printed 0.1
    assert round_shares([1 / 3, 1 / 3, 1 / 3]) == ["33.4", "33.3", "33.3"]


@pytest.mark.parametrize("total_ns", [50, 150, 250, 350])
def test_halves_round_as_the_total_is_printed(total_ns: int) -> None:
    (text,) = round_column([total_ns], MICROSECONDS)
    assert text == number(total_ns, MICROSECONDS)


def test_a_total_that_is_not_the_sum_changes_nothing() -> None:
    assert round_column([1_000, 2_000], MICROSECONDS, total_ns=9_000_000) == ["1.0", "2.0"]
    assert round_column([float("nan"), 2_000], MICROSECONDS) == ["–", "2.0"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (percent(0.252), "25.2 %"),
        (percent(float("nan")), "–"),
        (count(48), "48"),
        (count(47.96), "48.0"),
        (count(float("inf")), "–"),
        (count(41_960.4), "41960"),
        (data(16.06e9), "16.06 GB"),
        (data(512), "512 B"),
        (data(131_072), "131.1 kB"),
        (data(float("nan")), "–"),
        (bandwidth(4.8e12), "4.80 TB/s"),
        (bandwidth(4_814_304_000_000), "4.81 TB/s"),
        (bandwidth(300e9), "300 GB/s"),
        (bandwidth(192_192_000_000), "192.19 GB/s"),
    ],
)
def test_other_numbers(text: str, expected: str) -> None:
    assert text == expected


times = st.lists(st.integers(0, 10**11), min_size=1, max_size=40)


@given(times)
def test_printed_times_add_up_to_the_printed_total(values: list[int]) -> None:
    unit = time_unit([sum(values)])
    printed = round_column(values, unit, sum(values))
    assert sum(Decimal(text) for text in printed) == Decimal(number(sum(values), unit))
    assert all(
        abs(Decimal(text) - Decimal(value) / unit.ns) <= Decimal(10) ** -unit.decimals
        for text, value in zip(printed, values, strict=True)
    )


@given(times)
def test_printed_shares_add_up_to_a_hundred(values: list[int]) -> None:
    total = sum(values)
    if total:
        assert sum(Decimal(text) for text in round_shares([v / total for v in values], total=1.0)) == 100


def test_work_is_printed_in_decimal_units() -> None:
    assert [work(v) for v in (15_546_187_776, 1.2e12, 900.0)] == ["15.55 GFLOP", "1.20 TFLOP", "900 FLOP"]


def test_ratios_keep_two_digits_and_never_an_exponent() -> None:
    assert [ratio(value) for value in (1.44, 7.55, 129.2, 1398.0, float("nan"))] == [
        "1.4×",
        "7.5×",
        "129×",
        "1398×",
        "–",
    ]
