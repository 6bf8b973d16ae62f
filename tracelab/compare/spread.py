"""The change of a median, its interval, and what counts as no change: the statistics of a diff, on natural logarithms.

Logarithms make both directions alike: swapping the sides only swaps signs.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

F64 = NDArray[np.float64]

CONFIDENCE = 0.95
_TAIL = (1.0 - CONFIDENCE) / 2


def median_log(samples: F64) -> float:
    """Logarithm of the median of positive samples."""
    return float(np.log(np.median(samples)))


def interval(before: Sequence[F64], after: Sequence[F64]) -> tuple[float, float] | None:
    """95 % interval of log(median after ÷ median before); one array of step samples per capture.

    None where a side has a single step. From the steps: the medians' own intervals, put together by the method of
    Zou and Donner (Statistics in Medicine 27, 2008). Where both sides have several captures, these are what repeats,
    so the interval is at least that of Student's t-test over their medians.
    """
    found = _of_steps(np.concatenate(before), np.concatenate(after))
    if found is None or min(len(before), len(after)) < 2:
        return found
    low, high = _of_captures(np.array([median_log(s) for s in before]), np.array([median_log(s) for s in after]))
    return min(found[0], low), max(found[1], high)


def half_spread(samples: F64) -> float | None:
    """How far the medians of the odd and the even steps are apart (log); None with fewer than two steps."""
    if len(samples) < 2:
        return None
    return abs(median_log(samples[::2]) - median_log(samples[1::2]))


def capture_spread(captures: Sequence[F64]) -> float:
    """How far the medians of several captures of one program are apart (log); 0 for a single one."""
    logs = [median_log(samples) for samples in captures]
    return max(logs) - min(logs)


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value at which half of the weight is reached; the mean of two where exactly half lies on either side."""
    order = np.argsort(values, kind="stable")
    ordered = np.asarray(values, np.float64)[order]
    reached = np.cumsum(np.asarray(weights, np.float64)[order])
    half = reached[-1] / 2
    at = int(np.searchsorted(reached, half * (1 - 1e-12)))
    if abs(reached[at] - half) <= half * 1e-12 and at + 1 < len(ordered):
        return float((ordered[at] + ordered[at + 1]) / 2)
    return float(ordered[at])


def _of_steps(before: F64, after: F64) -> tuple[float, float] | None:
    if min(len(before), len(after)) < 2:
        return None
    low_b, mid_b, high_b = _median_limits(before)
    low_a, mid_a, high_a = _median_limits(after)
    middle = mid_a - mid_b
    down = np.hypot(mid_a - low_a, high_b - mid_b)
    up = np.hypot(high_a - mid_a, mid_b - low_b)
    return float(middle - down), float(middle + up)


def _median_limits(samples: F64) -> tuple[float, float, float]:
    """Lower limit, median and upper limit (log): by ranks where there are enough steps, else by Student's t."""
    ordered = np.log(np.sort(samples))
    count, middle = len(ordered), median_log(samples)
    rank = _rank(count)
    if rank:
        return float(ordered[rank - 1]), middle, float(ordered[count - rank])
    half = float(special.stdtrit(count - 1, 1 - _TAIL) * np.std(ordered, ddof=1) / np.sqrt(count))
    return middle - half, middle, middle + half


@cache
def _rank(count: int) -> int:
    """The rank r so that the r-th smallest and r-th largest of `count` samples enclose the median with 95 % certainty
    (binomial, free of any distribution); 0 where there are too few samples, which is below 6."""
    cumulative = special.bdtr(np.arange(count // 2 + 1, dtype=np.float64), count, 0.5)
    return int(np.searchsorted(cumulative, _TAIL, side="right"))


def _of_captures(before: F64, after: F64) -> tuple[float, float]:
    """Student's interval of the difference of means; both sides are taken to vary alike, since two captures a side,
    which is what people make, tell little of each side's own variance."""
    freedom = len(before) + len(after) - 2
    squares = np.sum((before - before.mean()) ** 2) + np.sum((after - after.mean()) ** 2)
    error = np.sqrt(squares / freedom * (1 / len(before) + 1 / len(after)))
    middle = float(after.mean() - before.mean())
    half = float(special.stdtrit(freedom, 1 - _TAIL) * error)
    return middle - half, middle + half
