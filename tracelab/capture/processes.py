"""The processes under one nsys, and how they are ended.

nsys starts the program through a launcher that leaves nsys's process tree, in a session of its own, and may end before
it (seen in 2022.4.2 with --duration). So the program is found by an environment variable that every descendant
inherits, by nsys's session, and by parents; the helpers of nsys are told apart by where their executable lies.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

MARKER = "TRACELAB_CAPTURE"
# A server needs some seconds to answer its last requests; one that ignores SIGTERM for 5 s will go on ignoring it.
GRACE_S: dict[int, float] = {signal.SIGINT: 10.0, signal.SIGTERM: 5.0, signal.SIGKILL: 2.0}


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    session: int


@dataclass(frozen=True)
class Tree:
    """What runs under the nsys with process id `nsys`, whose environment carries MARKER=`token`."""

    nsys: int
    token: str
    nsys_folder: Path

    def program(self) -> tuple[int, ...]:
        """Process ids of the program and its children that still run."""
        return tuple(pid for pid in self._members() if not self._is_helper(pid))

    def helpers(self) -> tuple[int, ...]:
        """Process ids of nsys's own background processes that still run."""
        return tuple(pid for pid in self._members() if self._is_helper(pid))

    def _members(self) -> list[int]:
        processes = [process for process in _running() if process.pid not in (self.nsys, os.getpid())]
        known = {p.pid for p in processes if p.session == self.nsys or _carries(p.pid, self.token)} | {self.nsys}
        grown = True
        while grown:
            children = {p.pid for p in processes if p.parent in known and p.pid not in known}
            known |= children
            grown = bool(children)
        return sorted(known - {self.nsys})

    def _is_helper(self, pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/exe").readlink().parent == self.nsys_folder
        except OSError:
            return False


def end_program(tree: Tree, wait: Callable[[float], object]) -> int | None:
    """End the program with SIGINT, after a grace time SIGTERM, at last SIGKILL; returns the last signal sent.

    None if nothing ran any more. `wait` is called with a time in seconds and keeps the output flowing meanwhile.
    """
    sent: int | None = None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        running = tree.program()
        if not running:
            break
        send(running, number)
        sent = number
        until_gone(tree.program, GRACE_S[number], wait)
    return sent


def until_gone(running: Callable[[], tuple[int, ...]], limit_s: float, wait: Callable[[float], object]) -> None:
    """Wait until nothing runs any more, at most `limit_s`."""
    end = time.monotonic() + limit_s
    while running() and time.monotonic() < end:
        wait(0.1)


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _running() -> list[_Process]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := _read(entry)) is not None:
            found.append(process)
    return found


def _read(entry: Path) -> _Process | None:
    try:
        # The name stands in brackets and may hold spaces and brackets itself.
        state, parent, _group, session = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else _Process(int(entry.name), int(parent), int(session))


def _carries(pid: int, token: str) -> bool:
    try:
        return f"{MARKER}={token}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
