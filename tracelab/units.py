"""Numbers as text: one unit per table or sentence, and columns that add up as printed.

Inside, times are integer nanoseconds; rounding happens here and nowhere else.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TimeUnit:
    """How a group of times is printed."""

    symbol: str
    ns: int
    decimals: int


MICROSECONDS = TimeUnit("µs", 1_000, 1)
MILLISECONDS = TimeUnit("ms", 1_000_000, 2)
_MILLISECONDS_FROM_NS = 10_000_000
_BYTE_STEPS = ((1e12, "T", 2), (1e9, "G", 2), (1e6, "M", 1), (1e3, "k", 1))
_UNKNOWN = "–"


def time_unit(values_ns: Iterable[float]) -> TimeUnit:
    """The unit for times that stand together: µs, or ms where the largest is 10 ms or more."""
    largest = max((abs(v) for v in values_ns if math.isfinite(v)), default=0)
    return MILLISECONDS if largest >= _MILLISECONDS_FROM_NS else MICROSECONDS


def number(value_ns: float, unit: TimeUnit) -> str:
    """A time without its unit."""
    return f"{value_ns / unit.ns:.{unit.decimals}f}" if math.isfinite(value_ns) else _UNKNOWN


def time(value_ns: float) -> str:
    """A time that stands alone, with its unit."""
    unit = time_unit([value_ns])
    return f"{number(value_ns, unit)} {unit.symbol}"


def times(*values_ns: float) -> tuple[str, ...]:
    """Times of one sentence, each with the unit that fits the largest."""
    unit = time_unit(values_ns)
    return tuple(f"{number(value, unit)} {unit.symbol}" for value in values_ns)


def less(whole_ns: float, part_ns: float) -> str:
    """What is left of a time, so that whole − part = rest as printed."""
    unit = time_unit([whole_ns])
    rest = round(whole_ns / unit.ns, unit.decimals) - round(part_ns / unit.ns, unit.decimals)
    return f"{rest:.{unit.decimals}f} {unit.symbol}"


def round_column(values_ns: Sequence[float], unit: TimeUnit, total_ns: float | None = None) -> list[str]:
    """A column of times, rounded so that it adds up to the printed total.

    `total_ns` is what stands below the column (None: the sum of the values). Where it is not their sum, there is
    nothing to add up and each value is rounded by itself.
    """
    return _column([v / unit.ns for v in values_ns], unit.decimals, None if total_ns is None else total_ns / unit.ns)


def round_shares(shares: Sequence[float], total: float | None = None, decimals: int = 1) -> list[str]:
    """A column of shares (1 is the whole) as percentages without the sign, adding up like `round_column`."""
    return _column([s * 100 for s in shares], decimals, None if total is None else total * 100)


def percent(share: float, decimals: int = 1) -> str:
    """A share as a percentage: `25.2 %`."""
    return f"{share * 100:.{decimals}f} %" if math.isfinite(share) else _UNKNOWN


def ratio(value: float) -> str:
    """How many times as much: `7.6×`, `1398×`."""
    return f"{value:.{1 if value < 10 else 0}f}×" if math.isfinite(value) else _UNKNOWN


def count(value: float) -> str:
    """A count: whole if it is whole, else with one decimal."""
    if not math.isfinite(value):
        return _UNKNOWN
    return str(round(value)) if value == round(value) or abs(value) >= 1000 else f"{value:.1f}"


def data(size_bytes: float) -> str:
    """A size in decimal units: `16.06 GB`."""
    return _scaled(size_bytes, "B")


def work(flops: float) -> str:
    """Floating-point operations in decimal units: `15.55 GFLOP`."""
    return _scaled(flops, "FLOP")


def bandwidth(bytes_per_s: float) -> str:
    """A bandwidth in decimal units: `4.80 TB/s`, `300 GB/s`."""
    if 1e9 <= bytes_per_s < 1e12 and float(bytes_per_s / 1e9).is_integer():
        return f"{bytes_per_s / 1e9:.0f} GB/s"
    return _scaled(bytes_per_s, "B/s")


def _scaled(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return _UNKNOWN
    for step, prefix, decimals in _BYTE_STEPS:
        if abs(value) >= step:
            return f"{value / step:.{decimals}f} {prefix}{unit}"
    return f"{value:.0f} {unit}"


def _column(values: Sequence[float], decimals: int, total: float | None) -> list[str]:
    """Largest remainder: round down, then lift the values with the largest remainders until the sum is right."""
    if not all(math.isfinite(v) for v in values):
        return [f"{v:.{decimals}f}" if math.isfinite(v) else _UNKNOWN for v in values]
    scaled = [v * 10**decimals for v in values]
    floors = [math.floor(v) for v in scaled]
    target = _printed(math.fsum(values) if total is None else total, decimals)
    missing = target - sum(floors)
    if not 0 <= missing <= len(values):
        floors, missing = [_printed(v, decimals) for v in values], 0
    order = sorted(range(len(values)), key=lambda i: (floors[i] - scaled[i], i))
    lifted = set(order[:missing])
    return [f"{(floors[i] + (i in lifted)) / 10**decimals:.{decimals}f}" for i in range(len(values))]


def _printed(value: float, decimals: int) -> int:
    """What `format` prints, in units of the last digit; rounding the scaled value would differ at halves."""
    return int(f"{value:.{decimals}f}".replace(".", ""))
