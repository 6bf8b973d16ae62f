"""Runs a program under nsys and brings home what was captured, however the program ends."""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tracelab.capture import processes
from tracelab.capture.chatter import Chatter
from tracelab.capture.command import CaptureOptions, profile_command, profile_environment
from tracelab.capture.export import export_sqlite
from tracelab.capture.nsys import Nsys
from tracelab.capture.outcome import LOG, Outcome, obtain_report
from tracelab.capture.processes import Tree
from tracelab.capture.progress import Progress
from tracelab.errors import UsageError

# nsys flushes and writes its stream within seconds after --duration; later it is waiting for the program to end.
_STREAM_ALLOWANCE_S = 20.0
# With the report made, nsys ends at once or never: long enough to see which, since its code then means something else.
_AFTER_REPORT_S = 1.0
# Making a report takes about a second per ten MB; two minutes cover captures far longer than nsys supports.
_REPORT_LIMIT_S = 120.0
_NSYS_END_S = 5.0


@dataclass(frozen=True)
class Capture:
    """A finished capture. `wall_s` is the time from start to end of the program, in seconds."""

    report: Path
    sqlite: Path
    program_exit_code: int
    nsys: Path
    nsys_version: str
    command_line: tuple[str, ...]
    wall_s: float
    interrupted: bool
    notes: tuple[str, ...]


def capture(nsys: Nsys, command: Sequence[str], options: CaptureOptions, folder: Path, progress: Progress) -> Capture:
    """Run `command` under `nsys`, with report, SQLite export and log in `folder`.

    Raises UsageError if the program does not exist, NothingCapturedError with the reason if there is no report, and
    InputError if the report cannot be exported.
    """
    require_program(command)
    arguments = profile_command(nsys, command, options, folder / "trace")
    progress.stage("capturing")
    with (folder / LOG).open("wb") as log, _Interrupts() as interrupts:
        run = _Run(nsys, arguments, options, Chatter(log.write, progress.show), progress, interrupts)
        outcome = run.collect()
    progress.stage("making the report")
    report = obtain_report(nsys, folder, outcome)
    progress.stage("exporting")
    sqlite = export_sqlite(nsys, report, folder / "export.sqlite")
    progress.done()
    return Capture(
        report=report,
        sqlite=sqlite,
        program_exit_code=outcome.program_exit_code,
        nsys=nsys.path,
        nsys_version=nsys.version,
        command_line=tuple(arguments),
        wall_s=outcome.wall_s,
        interrupted=outcome.interrupted,
        notes=outcome.notes,
    )


def require_program(command: Sequence[str]) -> None:
    """Raise UsageError if the program to run does not exist."""
    if not command:
        raise UsageError("no program to profile: give a workload, or a command after `--`")
    if shutil.which(command[0]) is None:
        raise UsageError(f"the program to profile was not found: {command[0]}")


class _Interrupts:
    """Counts Ctrl-C (and SIGTERM, SIGHUP) while a capture runs, so that it can end in order instead of at once."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "_Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned a moment ago

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


class _Run:
    """One run of nsys: keeps its output flowing, and ends program and nsys when they do not end by themselves."""

    def __init__(
        self,
        nsys: Nsys,
        arguments: list[str],
        options: CaptureOptions,
        chatter: Chatter,
        progress: Progress,
        interrupts: _Interrupts,
    ) -> None:
        self._options, self._chatter, self._progress, self._interrupts = options, chatter, progress, interrupts
        token = uuid.uuid4().hex
        self._started_s = time.monotonic()
        environment = {**os.environ, **profile_environment(options), processes.MARKER: token}
        # A session of its own: Ctrl-C reaches tracelab alone, which then ends program and nsys in the right order.
        self._process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        self._tree = Tree(self._process.pid, token, nsys.path.resolve().parent)
        self._told_s: float | None = None
        self._generated_s: float | None = None
        self._seen: tuple[int, ...] = ()

    def collect(self) -> Outcome:
        """Wait for the end, or bring it about; returns what is known then."""
        with self._output():
            while self._process.poll() is None and not self._must_end():
                self._pump(0.1)
            if self._options.duration_s is not None or self._interrupts.count:
                program_exit_code, notes = self._end()
            else:
                program_exit_code, notes = _exit_code(self._process.wait()), ()
            self._drain()
        return Outcome(
            program_exit_code=program_exit_code,
            interrupted=self._interrupts.count > 0,
            wall_s=time.monotonic() - self._started_s,
            options=self._options,
            produced=tuple(self._chatter.produced),
            streams=tuple(self._chatter.streams),
            refused_option=self._chatter.refused_option,
            nsys_text=self._chatter.text,
            notes=notes,
        )

    def _must_end(self) -> bool:
        """True once nsys has had its time to make the report and the program must be ended by tracelab."""
        now_s = time.monotonic()
        self._pass_on_interrupt(now_s)
        if self._told_s is None and self._options.duration_s is None:
            return False
        if self._chatter.generated:
            self._generated_s = self._generated_s or now_s
            return now_s > self._generated_s + _AFTER_REPORT_S
        limit_s = self._stream_limit_s() + (_REPORT_LIMIT_S if self._chatter.streams else 0.0)
        return self._interrupts.count > 1 or now_s > limit_s

    def _pass_on_interrupt(self, now_s: float) -> None:
        if self._interrupts.count and self._told_s is None:
            self._told_s, self._seen = now_s, self._tree.program()
            processes.send([self._process.pid], signal.SIGINT)  # nsys passes it on to the program and makes the report

    def _stream_limit_s(self) -> float:
        """The time by which nsys has begun its report, if it does not wait for the program to end first."""
        if self._told_s is not None:
            return self._told_s + processes.GRACE_S[signal.SIGINT]
        return (
            self._started_s + (self._options.delay_s or 0.0) + (self._options.duration_s or 0.0) + _STREAM_ALLOWANCE_S
        )

    def _end(self) -> tuple[int, tuple[str, ...]]:
        """End program, nsys and its helpers; returns the program's exit code and a note on how it ended."""
        if self._told_s is not None:
            processes.until_gone(self._tree.program, processes.GRACE_S[signal.SIGTERM], self._pump)
        running = self._tree.program()
        outlived_nsys = self._process.poll() is not None and bool(running)
        if self._interrupts.count > 1:
            processes.send(running, signal.SIGKILL)
        last = processes.end_program(self._tree, self._pump)
        nsys_code = self._end_nsys()
        self._end_helpers()
        stopped = ("stopped from outside; what was captured until then is kept",) if self._interrupts.count else ()
        notes = (*stopped, *(() if last is None else (f"tracelab ended the program with {signal.Signals(last).name}",)))
        code = nsys_code if last is None or not outlived_nsys else 128 + last
        left = _left_status(running or self._seen)
        return code if left is None else left, notes

    def _end_nsys(self) -> int:
        limit_s = _REPORT_LIMIT_S if self._interrupts.count < 2 else _NSYS_END_S
        processes.until_gone(self._nsys_running, limit_s, self._pump)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
                processes.until_gone(self._nsys_running, _NSYS_END_S, self._pump)
        return _exit_code(self._process.wait())

    def _nsys_running(self) -> tuple[int, ...]:
        return () if self._process.poll() is not None else (self._process.pid,)

    def _end_helpers(self) -> None:
        processes.until_gone(self._tree.helpers, _NSYS_END_S, self._pump)
        for number in (signal.SIGTERM, signal.SIGKILL):
            processes.send(self._tree.helpers(), number)
            processes.until_gone(self._tree.helpers, _NSYS_END_S, self._pump)

    @contextmanager
    def _output(self) -> Iterator[None]:
        assert self._process.stdout is not None
        with self._process.stdout:
            os.set_blocking(self._process.stdout.fileno(), False)
            yield

    def _pump(self, limit_s: float) -> bool:
        """Pass on what was printed, waiting for it at most `limit_s`; False if there was nothing."""
        assert self._process.stdout is not None
        self._progress.tick()
        pipe = self._process.stdout.fileno()
        if not select.select([pipe], [], [], limit_s)[0]:
            self._chatter.flush()
            return False
        data = os.read(pipe, 65536)
        self._chatter.feed(data)
        if not data:
            time.sleep(limit_s)  # at its end a pipe is always readable; without a pause this would spin
        return bool(data)

    def _drain(self) -> None:
        while self._pump(0.05):
            pass
        self._chatter.flush()


def _exit_code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


def _left_status(pids: Sequence[int]) -> int | None:
    """The exit code of a program that outlived nsys: nsys's launcher leaves it in a file (seen in 2022.4.2)."""
    for pid in pids:
        path = Path(tempfile.gettempdir()) / f"nsys_termination_status_{pid}"
        try:
            kind, code = path.read_text().split()[:2]
            path.unlink()
            return int(code) if kind == "0" else 128 + int(code)
        except (OSError, ValueError):
            continue
    return None
