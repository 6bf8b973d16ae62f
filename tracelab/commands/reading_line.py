"""The line on a terminal that says how far the unpacking and the reading of a large trace is.

Nothing is shown where stderr is no terminal.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from tracelab.reading import watched

_ERASE_LINE = "\r\x1b[2K"
_QUIET_S = 1.0  # what is read sooner needs no line
_BETWEEN_S = 0.25


class ReadingLine:
    """Redrawn while a trace is unpacked or read: how much, how fast, and how long it will take."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began_s = self._drawn_s = time.monotonic()
        self._began_at = self._done = 0
        self._doing = ""
        self._shown = False

    def __call__(self, done: int, total: int, unit: str, doing: str = "reading") -> None:
        """Redraw, if it is time to; at once where nobody knows how much there is, as nothing more may be told of it."""
        now_s = time.monotonic()
        if doing != self._doing or done < self._done:  # the first file begins, or another one, or something else
            self._began_s, self._began_at, self._doing = now_s, done, doing
        self._done = done
        if total and not self._is_time(now_s, done):
            return
        self._drawn_s, self._shown = now_s, True
        elapsed_s = now_s - self._began_s
        self._draw(reading_text(done, total, unit, elapsed_s, self._began_at, doing) if total else doing)

    def _is_time(self, now_s: float, done: int) -> bool:
        """A line that is there already is not left to speak of what is over."""
        quiet_s = _BETWEEN_S if self._shown else _QUIET_S
        return now_s - self._began_s >= quiet_s and now_s - self._drawn_s >= _BETWEEN_S and done != self._began_at

    def say(self, text: str) -> None:
        """Show what is done after the reading, if that took long enough to have been shown."""
        if self._shown:
            self._draw(text)

    def _draw(self, text: str) -> None:
        """Within the width of the terminal: a line that wraps would not be erased whole."""
        self._stream.write(f"{_ERASE_LINE}{text[: _columns(self._stream) - 1]}")
        self._stream.flush()

    def erase(self) -> None:
        """Remove the line."""
        if self._shown:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()


def _columns(stream: TextIO) -> int:
    """The width of the terminal that the line is on; stdout may be a file, which has none."""
    with suppress(OSError):
        if columns := os.get_terminal_size(stream.fileno()).columns:
            return columns
    return shutil.get_terminal_size().columns


def reading_text(done: int, total: int, unit: str, elapsed_s: float, before: int = 0, doing: str = "reading") -> str:
    """What the line says; `before` was done before the time that elapsed.

    >>> reading_text(3_000_000, 12_000_000, "rows", 2.0)
    'reading: 3.0 of 12.0 million rows, 1.5 million/s, 6 s left'
    """
    per_s = (done - before) / elapsed_s
    counts = f"{done / 1e6:.1f} of {total / 1e6:.1f} million {unit}"
    return f"{doing}: {counts}, {per_s / 1e6:.1f} million/s, {(total - done) / per_s:.0f} s left"


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
