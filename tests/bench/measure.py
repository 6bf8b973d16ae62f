"""Runs a command in a process of its own and tells its time and its memory as seen from outside.

Linux counts the memory of the process that starts another one as the other's, until that one's own program begins. So
whatever measures here stays small: traces are made in processes of their own, and nothing large is imported.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
LIMIT_S = 600.0  # no answer for so long is the answer
# What a command takes need not be what another one has just touched, so that is three times as much and more.
_TOUCHED_BYTES, _TOUCHED_PER_BYTE = 2_000_000_000, 6
# In large pages, as numpy asks for them: of small ones none that was given back comes again as a large one.
_TOUCH = """
import mmap, sys
size = int(sys.argv[1])
memory = mmap.mmap(-1, size)
memory.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, size, mmap.PAGESIZE):
    memory[at] = 1
"""
_KIB = 1024  # Linux gives ru_maxrss in KiB (getrusage(2))
_TAIL_BYTES = 10_000
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception): ")
_FINDING = 3  # how `tracelab diff` ends that found a regression, which is an answer


class NoResultError(Exception):
    """A command that failed or did not end; the message says why, in one line."""


@dataclass(frozen=True)
class Run:
    """Wall time in s, the largest resident set in MB (10**6 bytes), and the last line that was printed.

    Of a run without a result both numbers are infinite, and the line says why.
    """

    seconds: float
    peak_mb: float
    last_line: str = ""

    @property
    def failed(self) -> bool:
        return self.seconds == float("inf")


def best(runs: Sequence[Run]) -> Run:
    """The shortest time, with what was printed then, and the largest memory of `runs`."""
    fastest = min(runs, key=lambda run: run.seconds)
    return Run(fastest.seconds, max(run.peak_mb for run in runs), fastest.last_line)


AS_MODULE = ("-m", "tracelab")
# Every table is read by Python's sqlite3, none decoded from its pages.
BY_SQLITE3 = ("-c", "from tracelab import __main__, large_tables as t; t._LARGE_ROWS = 1 << 62; __main__.main()")


def tracelab(arguments: Sequence[str | Path], cache: Path | None = None, program: Sequence[str] = AS_MODULE) -> Run:
    """One run of this checkout's tracelab with the cache folder `cache`; None: an empty one, as the first time."""
    command = [sys.executable, *program, *arguments]
    with tempfile.TemporaryDirectory() as empty:
        try:
            return measured(command, own_env() | {"TRACELAB_CACHE": str(cache or empty)})
        except NoResultError as error:
            return Run(float("inf"), float("inf"), str(error))


def own_env() -> dict[str, str]:
    """The environment of a Python that imports this checkout's tracelab, compiled as it is where it is installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def _touch_memory(command: Sequence[str | Path]) -> None:
    """Let another process fill memory, and end. A virtual machine gives back what nobody used for some seconds, and
    takes it again page by page: 2 ms for each MB, seen on two of them. That is no part of what is measured."""
    files = sum(word.stat().st_size for word in command if isinstance(word, Path) and word.is_file())
    spare = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
    size = min(spare, _TOUCHED_BYTES + _TOUCHED_PER_BYTE * files)
    subprocess.run([sys.executable, "-c", _TOUCH, str(size)], check=True)


def measured(command: Sequence[str | Path], env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S) -> Run:
    """One run of `command`. Raises NoResultError if it fails, cannot be started or takes longer than `limit_s`."""
    _touch_memory(command)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        try:
            process = subprocess.Popen(command, stdout=output, stderr=errors, env=env)
        except OSError as error:
            raise NoResultError(f"{command[0]} cannot be started ({error.strerror})") from error
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, _FINDING):
            late = seconds >= limit_s
            why = f"no answer in {limit_s:.0f} s" if late else f"ended with {process.returncode}: {_error(errors)}"
            raise NoResultError(why)
        return Run(seconds, used.ru_maxrss * _KIB / 1e6, _lines(output)[-1])


def _error(file: IO[bytes]) -> str:
    """The line that names an exception of Python, or else the last one."""
    lines = _lines(file)
    return next((line for line in reversed(lines) if _EXCEPTION.match(line)), lines[-1])


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
    return file.read().decode("utf-8", "replace").strip().splitlines() or [""]
