"""The line on a terminal that says how far a reading is, drawn by a clock that tests turn."""

import io
from typing import Any

import pytest

from tracelab.commands import reading_line
from tracelab.commands.reading_line import ReadingLine

ERASE = "\r\x1b[2K"
Told = tuple[int, int, str, str]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that stands until a test turns it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    turned = Clock()
    monkeypatch.setattr(reading_line, "time", turned)
    return turned


def drawn(clock: Clock, *told: tuple[Any, ...]) -> list[str]:
    """What is drawn when, so many seconds after the one before, so much of so much is read, or what else is told."""
    stream = Terminal()
    line = ReadingLine(stream)
    for after_s, done, total, *what in told:
        clock.now_s += after_s
        line(done, total, *(what or ["rows"]))
    return stream.getvalue().split(ERASE)[1:]
