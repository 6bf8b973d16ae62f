"""The clock of a trace whose times are since 1970: from them to ns from the first event."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelab.table_source import NULL
from tracelab.trace import I64, TIME_LIMIT_NS

_REACH_NS = TIME_LIMIT_NS // 2  # on both sides of the median, so that a span of times stays within the limit


@dataclass(frozen=True)
class Clock:
    """`origin_ns` is the first time that is near the others: a lone 0 beside times since 1970 is damage."""

    origin_ns: int
    low_ns: int
    high_ns: int

    @classmethod
    def of(cls, starts: Sequence[I64]) -> "Clock":
        """The clock of all start times of a file; NULL is no time. Without any, all zero."""
        times = np.concatenate(starts)
        times = times[times != NULL]
        if len(times) == 0:
            return cls(0, 0, 0)
        median = int(np.partition(times, len(times) // 2)[len(times) // 2])
        low, high = median - _REACH_NS, median + _REACH_NS
        return cls(int(times[(times >= low) & (times <= high)].min()), low, high)

    def shifted(self, times: I64) -> I64:
        """Times in ns from the origin; NULL for those that are none."""
        near = (times != NULL) & (times >= self.low_ns) & (times <= self.high_ns)
        return np.where(near, times - self.origin_ns, NULL)
