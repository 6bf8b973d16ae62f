"""Shows the stage and its elapsed time on stderr, only where stderr is a terminal."""

import sys
import time
from typing import TextIO

_ERASE_LINE = "\r\x1b[2K"


class Progress:
    """One line that is redrawn every second. The program's output passes through it, so that they do not mix."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._stage: str | None = None
        self._started_s = 0.0
        self._shown_s = -1
        self._in_line = False

    def stage(self, name: str) -> None:
        """Begin a stage, for example `capturing`."""
        self.done()
        self._stage, self._started_s, self._shown_s = name, time.monotonic(), -1
        self.tick()

    def tick(self) -> None:
        """Redraw if another second has passed and the program is not in the middle of a line."""
        elapsed_s = int(time.monotonic() - self._started_s)
        if not self._terminal or self._stage is None or self._in_line or elapsed_s == self._shown_s:
            return
        self._shown_s = elapsed_s
        self._stream.write(f"{_ERASE_LINE}{self._stage}… {elapsed_s} s")
        self._stream.flush()

    def show(self, data: bytes) -> None:
        """Pass on output of the profiled program."""
        self._erase()
        buffer = getattr(self._stream, "buffer", None)
        if buffer is None:
            self._stream.write(data.decode("utf-8", "replace"))
        else:
            buffer.write(data)
        self._stream.flush()
        self._in_line = not data.endswith((b"\n", b"\r"))

    def done(self) -> None:
        """Remove the line."""
        self._erase()
        self._stage = None

    def _erase(self) -> None:
        if self._terminal and self._shown_s >= 0 and not self._in_line:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()
        self._shown_s = -1
