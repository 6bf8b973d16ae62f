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


def tracelab(arguments: Sequence[str | Path], cache: Path | None = None) -> Run:
    """One run of this checkout's tracelab with the cache folder `cache`; None: an empty one, as the first time."""
    command = [sys.executable, "-m", "tracelab", *arguments]
    with tempfile.TemporaryDirectory() as empty:
        try:
            return measured(command, own_env() | {"TRACELAB_CACHE": str(cache or empty)})
        except NoResultError as error:
            return Run(float("inf"), float("inf"), str(error))


def own_env() -> dict[str, str]:
    """The environment of a Python that imports this checkout's tracelab, compiled as it is where it is installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def measured(command: Sequence[str | Path], env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S) -> Run:
    """One run of `command`. Raises NoResultError if it fails, cannot be started or takes longer than `limit_s`."""
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
