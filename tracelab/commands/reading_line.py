"""The line on a terminal that says how far the reading of a large trace is; nothing where stderr is no terminal."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
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
        self._began_at, self._done = 0, -1
        self._shown = False

    def __call__(self, done: int, total: int, unit: str) -> None:
        """Redraw, if it is time to."""
        now_s = time.monotonic()
        if self._done < 0 or done < self._done:  # the first file begins, or another one
            self._began_s, self._began_at = now_s, done
        self._done = done
        elapsed_s = now_s - self._began_s
        if elapsed_s < _QUIET_S or now_s - self._drawn_s < _BETWEEN_S or done == self._began_at:
            return
        self._drawn_s, self._shown = now_s, True
        self._draw(reading_text(done, total, unit, elapsed_s, self._began_at))

    def say(self, text: str) -> None:
        """Show what is done after the reading, if that took long enough to have been shown."""
        if self._shown:
            self._draw(text)

    def _draw(self, text: str) -> None:
        """Within the width of the terminal: a line that wraps would not be erased whole."""
        columns = shutil.get_terminal_size().columns
        self._stream.write(f"{_ERASE_LINE}{text[: columns - 1]}")
        self._stream.flush()

    def erase(self) -> None:
        """Remove the line."""
        if self._shown:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()


def reading_text(done: int, total: int, unit: str, elapsed_s: float, before: int = 0) -> str:
    """What the line says; `before` was read before the time that elapsed.

    >>> reading_text(3_000_000, 12_000_000, "rows", 2.0)
    'reading: 3.0 of 12.0 million rows, 1.5 million/s, 6 s left'
    """
    per_s = (done - before) / elapsed_s
    counts = f"{done / 1e6:.1f} of {total / 1e6:.1f} million {unit}"
    return f"reading: {counts}, {per_s / 1e6:.1f} million/s, {(total - done) / per_s:.0f} s left"


@contextmanager
def reading_line() -> Iterator[Callable[[str], None]]:
    """Show the line for what is read inside, if stderr is a terminal; gives what shows a text in its place."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    line = ReadingLine(sys.stderr)
    try:
        with watched(line):
            yield line.say
    finally:
        line.erase()
