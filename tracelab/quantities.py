"""Quantities as people write them on a command line: 8B parameters, 1.5GB, 4.8TB/s, 0.2s:250ms."""

import re
from decimal import Decimal

from tracelab.errors import UsageError

_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ/]*)\s*$")
_PERCENT = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*%\s*$")
_SIGNED = re.compile(r"^\s*(-?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ]*)\s*$")
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_BYTES = {
    "": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
_SLOWEST_MEMORY = 1e9  # bytes/s: below it a unit was forgotten; no GPU's memory is that slow
_FLOPS = {"": 1.0, "flop": 1.0, "gflop": 1e9, "tflop": 1e12, "g": 1e9, "t": 1e12}
_LATEST_NS = 1 << 52  # 52 days: the loader takes no time beyond
_TIMES_NS = {"": 1e9, "s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0}


def count(option: str, text: str | None) -> float | None:
    """A number of parameters: `8B`, `70e9`, `405b`."""
    return _parse(option, text, _COUNTS, "8B or 70e9")


def byte_count(option: str, text: str | None) -> float | None:
    """A size in bytes: `134MB`, `1.5GiB`, `2e9`."""
    return _parse(option, text, _BYTES, "134MB or 2e9")


def flop_count(option: str, text: str | None) -> float | None:
    """FLOPs: `16e9`, `1.2TFLOP`."""
    return _parse(option, text, _FLOPS, "16e9 or 1.2TFLOP")


def bandwidth(option: str, text: str | None) -> float | None:
    """A bandwidth in bytes per second: `4.8TB/s`, `3350GB/s`, `4.8e12`."""
    value = _parse(option, text.removesuffix("/s") if text else text, _BYTES, "4.8TB/s or 4.8e12")
    if value is not None and value < _SLOWEST_MEMORY:
        raise UsageError(f"{option} {text!r} is less than 1 GB/s; give the unit, as in 4.8TB/s.")
    return value


def percentage(option: str, text: str | None) -> float:
    """A share written in per cent (`3%`), as a ratio; 0 where it is left out."""
    if text is None:
        return 0.0
    hit = _PERCENT.match(text)
    if hit is None:
        raise UsageError(f"{option} {text!r} is not a percentage; write it like 3%.")
    return float(Decimal(hit[1]) / 100)


def window_ns(option: str, text: str | None) -> tuple[int, int] | None:
    """A time window START:END in ns from the start of the collection; seconds unless a unit is given.

    Whether it is inverted or outside the capture is judged where the bounds of the capture are known.
    """
    if text is None:
        return None
    parts = text.split(":")
    if len(parts) != 2:
        raise UsageError(f"{option} {text!r}: give START:END, as in 0.5:1.5 or 200ms:250ms.")
    return _time_ns(option, parts[0]), _time_ns(option, parts[1])


def _time_ns(option: str, text: str) -> int:
    hit = _SIGNED.match(text)
    if hit is None or hit[2].lower() not in _TIMES_NS:
        raise UsageError(f"{option}: {text!r} is not a time; write 0.5, 200ms or 30us.")
    time_ns = float(hit[1]) * _TIMES_NS[hit[2].lower()]
    if abs(time_ns) > _LATEST_NS:
        raise UsageError(f"{option}: {text!r} lies outside every capture.")
    return round(time_ns)


def _parse(option: str, text: str | None, units: dict[str, float], example: str) -> float | None:
    if text is None:
        return None
    hit = _NUMBER.match(text)
    known = hit is not None and hit[2].lower() in units
    # In decimal, so that 8.03B is the number 8030000000 and not a neighbour of it.
    value = float(Decimal(hit[1]) * Decimal(units[hit[2].lower()])) if hit and known else 0.0
    if value <= 0.0 or value == float("inf"):
        raise UsageError(f"{option} {text!r} is not a positive quantity; write it like {example}.")
    return value
