"""The line on a terminal that says how far the reading of a large trace is; nothing where stderr is no terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tracelab.reading import watched

_ERASE_LINE = "\r\x1b[2K"
_QUIET_S = 1.0  # what is read sooner needs no line
_BETWEEN_S = 0.25


class ReadingLine:
    """Redrawn while a trace is read: how much, how fast, and how long it will take."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began_s = self._drawn_s = time.monotonic()
        self._total = 0
        self._shown = False

    def __call__(self, done: int, total: int, unit: str) -> None:
        """Redraw, if it is time to."""
        now_s = time.monotonic()
        if total != self._total:  # another table or file begins
            self._began_s, self._total = now_s, total
        elapsed_s = now_s - self._began_s
        if elapsed_s < _QUIET_S or now_s - self._drawn_s < _BETWEEN_S or done == 0:
            return
        self._drawn_s, self._shown = now_s, True
        self._stream.write(_ERASE_LINE + reading_text(done, total, unit, elapsed_s))
        self._stream.flush()

    def erase(self) -> None:
        """Remove the line."""
        if self._shown:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()


def reading_text(done: int, total: int, unit: str, elapsed_s: float) -> str:
    """What the line says.

    >>> reading_text(3_000_000, 12_000_000, "rows", 2.0)
    'reading: 3.0 of 12.0 million rows, 1.5 million/s, 6 s left'
    """
    rate = done / elapsed_s
    left_s = (total - done) / rate
    counts = f"{done / 1e6:.1f} of {total / 1e6:.1f} million {unit}"
    return f"reading: {counts}, {rate / 1e6:.1f} million/s, {left_s:.0f} s left"


@contextmanager
def reading_line() -> Iterator[None]:
    """Show the line for what is read inside, if stderr is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    line = ReadingLine(sys.stderr)
    try:
        with watched(line):
            yield
    finally:
        line.erase()
