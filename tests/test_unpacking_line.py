"""The line on a terminal while a trace is unpacked or exported, before there is anything to read."""

import io
import lzma
import os
import random
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from drawn_line import ERASE, Clock, Terminal, Told, drawn
from drawn_line import clock as clock
from fake_nsys import make_nsys
from packers import PACKERS
from tiny_programs import eager

from tracelab import unpack
from tracelab.__main__ import main
from tracelab.commands import reading_line as line_module
from tracelab.commands.reading_line import ReadingLine, reading_line
from tracelab.load import load_trace
from tracelab.reading import watched

PIECE = 1 << 16
UNPACKING = ("bytes", "unpacking")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRACELAB_NSYS", raising=False)
    return tmp_path / "cache"


# The line


def test_what_the_line_says(clock: Clock) -> None:
    """12 of 30 million in 1.5 s are 8 million/s: 18 million more take 2.25 s."""
    told = (0.0, 0, 30_000_000, *UNPACKING), (1.5, 12_000_000, 30_000_000, *UNPACKING)
    assert drawn(clock, *told) == ["unpacking: 12.0 of 30.0 million bytes, 8.0 million/s, 2 s left"]


def test_the_reading_has_a_rate_of_its_own(clock: Clock) -> None:
    """Also where more rows are read at the first look than there were bytes: then 2 million a second, 8 million left.

    It is drawn a quarter of a second after it began: the line is there already, and says what is over.
    """
    told = (0.0, 0, 3_000_000, *UNPACKING), (2.0, 3_000_000, 3_000_000, *UNPACKING)
    reading = (1.0, 4_000_000, 12_500_000), (0.2, 4_400_000, 12_500_000), (0.05, 4_500_000, 12_500_000)
    assert drawn(clock, *told, *reading) == [
        "unpacking: 3.0 of 3.0 million bytes, 1.5 million/s, 0 s left",
        "reading: 4.5 of 12.5 million rows, 2.0 million/s, 4 s left",
    ]


def test_a_short_unpacking_shows_nothing_and_the_reading_waits_a_second_too(clock: Clock) -> None:
    told = (0.0, 0, 3_000_000, *UNPACKING), (0.9, 3_000_000, 3_000_000, *UNPACKING)
    reading = (0.0, 0, 4_000_000), (0.9, 900_000, 4_000_000), (0.1, 1_000_000, 4_000_000)
    assert drawn(clock, *told, *reading) == ["reading: 1.0 of 4.0 million rows, 1.0 million/s, 3 s left"]


def test_what_nobody_knows_the_length_of_is_said_at_once(clock: Clock) -> None:
    told = (0.0, 0, 0, "bytes", "exporting with nsys"), (9.0, 0, 8_000_000), (0.25, 1_000_000, 8_000_000)
    assert drawn(clock, *told) == [
        "exporting with nsys",
        "reading: 1.0 of 8.0 million rows, 4.0 million/s, 2 s left",  # 1.75 s
    ]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (80, "unpacking: 12.0 of 30.0 million bytes, 8.0 million/s, 2 s left"),
        (40, "unpacking: 12.0 of 30.0 million bytes, "),  # 39 characters: in the last column the cursor may wrap
        (12, "unpacking: "),
    ],
)
def test_the_line_fits_its_terminal(clock: Clock, columns: int, expected: str) -> None:
    """That of stderr, by its real width: here stdout is none."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    with os.fdopen(slave, "w") as stream, os.fdopen(master, "rb", buffering=0) as screen:
        line = ReadingLine(stream)
        line(0, 30_000_000, *UNPACKING)
        clock.now_s += 1.5
        line(12_000_000, 30_000_000, *UNPACKING)
        assert screen.read(1000).decode() == ERASE + expected


# What is told


@pytest.mark.parametrize("how", PACKERS)
def test_unpacking_tells_the_packed_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Two million bytes that pack evenly to half: after every piece as much of the packed ones as of the plain ones."""
    monkeypatch.setattr(unpack, "_COPY_BYTES", PIECE)
    plain = random.Random(1).randbytes(32 * PIECE).translate(bytes(range(16)) * 16)
    path = tmp_path / "packed"
    path.write_bytes(PACKERS[how](plain))
    size, told = path.stat().st_size, list[Told]()
    assert size < len(plain) * 0.7
    kind = unpack.compression(path.read_bytes())
    assert kind is not None
    with watched(lambda *one: told.append(one)), unpack.unpacked(path, kind) as unpacked:
        assert unpacked.read_bytes() == plain
    assert {one[1:] for one in told} == {(size, *UNPACKING)}
    assert [told[0][0], told[-1][0]] == [0, size]
    ahead = [done / size - piece / 32 for piece, (done, *_) in enumerate(told)]
    assert len(told) == 33 and all(-0.05 < share < 0.2 for share in ahead), ahead  # what is read ahead is a buffer


def test_looking_at_the_beginning_tells_nothing(tmp_path: Path) -> None:
    path, told = tmp_path / "packed", list[Told]()
    path.write_bytes(lzma.compress(b"x" * 1000))
    with watched(lambda *one: told.append(one)):
        assert unpack.unpacked_head(path, "xz", 10) == b"x" * 10
    assert told == []


# The commands


def packed(folder: Path, pack: Callable[[bytes], bytes]) -> Path:
    path = folder / "packed"
    path.write_bytes(pack(eager().save(folder / "t.sqlite").read_bytes()))
    return path


def shown(
    monkeypatch: pytest.MonkeyPatch, *words: object, stderr: type[io.StringIO] = Terminal
) -> tuple[object, list[str]]:
    """The exit code, and what is drawn on stderr one after the other where two seconds pass at every look."""
    stream = stderr()
    monkeypatch.setattr(line_module, "time", SimpleNamespace(monotonic=iter(range(0, 10**6, 2)).__next__))
    monkeypatch.setattr(unpack, "_COPY_BYTES", 10_000)
    argv = ["tracelab", *map(str, words)]
    with patch.object(sys, "argv", argv), patch.object(sys, "stderr", stream), pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0, stream.getvalue().split(ERASE)


@pytest.mark.parametrize("how", PACKERS)
def test_the_report_of_a_packed_trace_shows_and_erases_it(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = packed(tmp_path, PACKERS[how])
    code, (before, *lines, last) = shown(monkeypatch, "report", path, "-o", tmp_path / "page")
    assert (code, before, last) == (0, "", "")
    assert len(lines) > 2 and lines.pop() == "analysing 0.0 million rows of GPU work"
    assert all(line.startswith("unpacking: 0.0 of 0.0 million bytes, 0.0 million/s, ") for line in lines)
    assert lines[-1].endswith(", 0 s left")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("how", PACKERS)
def test_of_a_damaged_one_the_sentence_stands_alone(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Cut in the middle of what cannot be packed."""
    path = packed(tmp_path, lambda data: PACKERS[how](data + random.Random(1).randbytes(10**6))[: 5 * 10**5])
    code, (before, *lines, last) = shown(monkeypatch, "report", path)
    assert (code, before) == (1, "")
    assert len(lines) > 2 and all(line.startswith("unpacking: ") for line in lines)
    assert last.startswith(f"tracelab: {path}: damaged ") and last.count("\n") == 1
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("how", PACKERS)
def test_nothing_is_shown_where_stderr_is_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    words = "report", packed(tmp_path, PACKERS[how]), "-o", tmp_path / "page"
    assert shown(monkeypatch, *words, stderr=io.StringIO) == (0, [""])


@pytest.mark.parametrize("how", PACKERS)
def test_an_interrupt_leaves_neither_line_nor_file(
    tmp_path: Path, cache: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    terminal, beats = Terminal(), iter((0.0, 0.0, 2.0))  # the line is made, unpacking begins, a piece is there

    def beat() -> float:
        for beat_s in beats:
            return beat_s
        assert list(cache.glob("unpacked-*/trace"))
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "monotonic", beat)
    monkeypatch.setattr(unpack, "_COPY_BYTES", 10_000)
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(KeyboardInterrupt), reading_line():
        load_trace(packed(tmp_path, PACKERS[how]))
    assert terminal.getvalue().startswith(f"{ERASE}unpacking: ") and terminal.getvalue().endswith(f" s left{ERASE}")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("command", ["report", "scrub"])
def test_an_export_says_so_and_one_that_is_kept_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report of a run")
    nsys = make_nsys(tmp_path / "n", export=eager().save(tmp_path / "t.sqlite"))
    first, second = (
        shown(monkeypatch, command, report, "--nsys", nsys, "-o", tmp_path / name) for name in ("one", "two")
    )
    assert first[0] == second[0] == 0
    assert first[1][:2] == ["", "exporting with nsys"] and first[1][-1] == ""
    assert second[1] == [""]
