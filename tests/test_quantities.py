"""Quantities as people write them."""

import pytest

from tracelab.errors import UsageError
from tracelab.quantities import bandwidth, byte_count, count, flop_count, window_ns


@pytest.mark.parametrize(
    ("text", "value"),
    [("8B", 8e9), ("70e9", 70e9), ("405b", 405e9), ("1.5T", 1.5e12), ("500 M", 5e8), (".5k", 500), ("7", 7)],
)
def test_counts(text: str, value: float) -> None:
    assert count("--params", text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"), [("134MB", 134e6), ("1.5GiB", 1.5 * 2**30), ("2e9", 2e9), ("512 KiB", 2**19), ("3tb", 3e12)]
)
def test_bytes(text: str, value: float) -> None:
    assert byte_count("--kv-bytes", text) == pytest.approx(value)


@pytest.mark.parametrize(("text", "value"), [("16e9", 16e9), ("1.2TFLOP", 1.2e12), ("3G", 3e9)])
def test_flops(text: str, value: float) -> None:
    assert flop_count("--flops", text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"), [("4.8TB/s", 4.8e12), ("3350GB/s", 3.35e12), ("4.8e12", 4.8e12), ("1GB", 1e9)]
)
def test_bandwidths(text: str, value: float) -> None:
    assert bandwidth("--bandwidth", text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "8X", "-8B", "0", "1e999", "nan", "inf", "8B8", "eight", "1,5GB", "1e", "."])
def test_what_is_no_positive_quantity(text: str) -> None:
    for parse in (count, byte_count, flop_count, bandwidth):
        with pytest.raises(UsageError, match="--option"):
            parse("--option", text)


def test_nothing_said_is_nothing() -> None:
    assert count("", None) is byte_count("", None) is flop_count("", None) is bandwidth("", None) is None
    assert window_ns("", None) is None


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("0.5:1.5", (500_000_000, 1_500_000_000)), ("200ms:250ms", (200_000_000, 250_000_000)), ("0:30us", (0, 30_000)),
        ("1s:2", (1_000_000_000, 2_000_000_000)), ("-1ms:5µs", (-1_000_000, 5_000)), ("7ns:8ns", (7, 8)),
        ("9:2", (9_000_000_000, 2_000_000_000)),  # refused by the analysis, which knows the bounds
    ],
)  # fmt: skip
def test_windows(text: str, window: tuple[int, int]) -> None:
    assert window_ns("--window", text) == window


@pytest.mark.parametrize("text", ["1", "1:2:3", "a:b", ":", "1:", "1e999:2", "1h:2h", "0:1e999"])
def test_pitfall_b7_windows_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--window"):
        window_ns("--window", text)


def test_decimal_quantities_are_exact() -> None:
    assert count("--params", "8.03B") == 8.03e9
    assert byte_count("--kv-bytes", "134.2MB") == 134.2e6
