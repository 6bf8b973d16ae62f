"""`tracelab profile` from the command line to a trace on disk: capture, or on a machine without GPU a recording."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tracelab.capture import gpu
from tracelab.capture.command import CaptureOptions
from tracelab.capture.folder import RunFolder, make_own_folder, make_run_folder, remove_if_empty, write_command
from tracelab.capture.nsys import Nsys, find_nsys, require_importer
from tracelab.capture.outcome import LOG, NothingCapturedError, describe_exit
from tracelab.capture.progress import Progress
from tracelab.capture.recordings import Recording, find_recording, recordings, resolve, workload_defaults
from tracelab.capture.run import Capture, capture, require_program
from tracelab.capture.scrub import scrub
from tracelab.errors import CaptureUnavailableError, InputError, TracelabError, UsageError


@dataclass(frozen=True)
class Workload:
    """A bundled workload: its name, the module that runs it, and that module's source file."""

    name: str
    module: str
    source: Path


@dataclass(frozen=True)
class Request:
    """What the user asked for: either a workload with its arguments, or a command."""

    workload: Workload | None = None
    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    options: CaptureOptions = field(default_factory=CaptureOptions)
    nsys: str | None = None
    output: Path | None = None
    keep_environment: bool = False
    replay: bool = True
    repeat: int = 1

    @property
    def name(self) -> str:
        """What the run folder is named after."""
        return self.workload.name if self.workload else self.command[0]


@dataclass(frozen=True)
class Session:
    """A trace to analyse. `capture` is None and `recording` is its title when a recording stands in for a capture."""

    trace: Path
    folder: RunFolder | None
    capture: Capture | None
    recording: str | None

    @property
    def program_exit_code(self) -> int:
        """The program's own exit code, 0 where a recording stands in for it."""
        return 0 if self.capture is None else self.capture.program_exit_code

    @property
    def ending(self) -> str:
        """How the program ended, in words; empty where it ended with 0 and by itself."""
        notes = () if self.capture is None else self.capture.notes
        if self.program_exit_code == 0 and not notes:
            return ""
        return "; ".join((f"the program ended with {describe_exit(self.program_exit_code)}", *notes))


def profile_session(request: Request, samples: Path, progress: Progress) -> Session:
    """Capture what `request` asks for; on a machine without any GPU take the matching recording of `samples`.

    Raises CaptureUnavailableError where nothing can be captured and no recording answers, UsageError for a program or
    option that does not exist, and the reasons of `capture` when nothing was captured.
    """
    nsys = _ready_nsys(request)
    return _replay(request, samples) if nsys is None else _capture(request, nsys, progress)


def profile_sessions(request: Request, samples: Path, progress: Progress) -> Iterator[Session]:
    """Capture `request.repeat` times, each in its own process and in its own numbered folder of one run folder.

    Each capture runs when the caller takes it, so that it can be analysed before the next one costs time. What can be
    told before any of them is raised at once; both raise what `profile_session` does.
    """
    nsys = _ready_nsys(request)
    if nsys is None:
        return iter((_replay(request, samples),))
    return _captures(request, nsys, make_own_folder(request.name, request.output), progress)


def _captures(request: Request, nsys: Nsys, folder: Path, progress: Progress) -> Iterator[Session]:
    try:
        for number in range(1, request.repeat + 1):
            yield _capture(replace(request, output=folder / str(number)), nsys, progress)
    finally:
        remove_if_empty(RunFolder(folder))


def _ready_nsys(request: Request) -> Nsys | None:
    """The nsys to capture with, once what was asked for is known to exist; None on a machine without any GPU."""
    if request.workload is not None:
        resolve(request.arguments, workload_defaults(request.workload.source), request.workload.name)
    else:
        require_program(request.command)
    if not gpu.has_gpu():
        return None
    nsys = find_nsys(request.nsys)
    require_importer(nsys)
    return nsys


def _capture(request: Request, nsys: Nsys, progress: Progress) -> Session:
    folder = make_run_folder(request.name, request.output, keep_environment=request.keep_environment)
    try:
        done = _captured(request, folder, capture(nsys, _command(request), _options(request), folder.private, progress))
    except TracelabError as error:
        raise _accounted(_of_workload(request, error), folder) from error
    except KeyboardInterrupt as error:
        raise TracelabError(f"stopped by Ctrl-C; what was captured is kept in {folder.private}") from error
    except OSError as error:
        raise TracelabError(f"the run folder {folder.path} cannot be written: {error.strerror or error}") from error
    finally:
        progress.done()
        remove_if_empty(folder)
    return done


def _captured(request: Request, folder: RunFolder, done: Capture) -> Session:
    write_command(folder, done.command_line)
    for path in folder.private.iterdir():
        path.chmod(0o600)
    if request.keep_environment:
        shutil.copyfile(done.sqlite, folder.trace)
    else:
        _scrub(done.sqlite, folder)
    return Session(trace=folder.trace, folder=folder, capture=done, recording=None)


def _scrub(export: Path, folder: RunFolder) -> None:
    try:
        scrub(export, folder.trace)
    except InputError as error:
        raise InputError(f"{error}; the capture is kept in {folder.private}, not to be shared as it is") from error


def _command(request: Request) -> tuple[str, ...]:
    if request.workload is None:
        return request.command
    return (sys.executable, "-m", request.workload.module, *request.arguments)


def _options(request: Request) -> CaptureOptions:
    if request.workload is None:
        return request.options
    return replace(request.options, capture_range=True)  # bundled workloads call cudaProfilerStart and Stop


def _accounted(error: TracelabError, folder: RunFolder) -> TracelabError:
    """The error, naming what the run left behind; nsys's log alone is removed where the error does not name it."""
    left = list(folder.private.iterdir())
    if [path.name for path in left] == [LOG]:
        if str(left[0]) not in str(error):
            left[0].unlink()
    elif isinstance(error, InputError) and str(folder.private) not in str(error):
        return InputError(f"{error}; what was captured is kept in {folder.private}")
    return error


def _of_workload(request: Request, error: TracelabError) -> TracelabError:
    """A workload says itself, on stderr, why it cannot run; its exit codes mean the same as tracelab's."""
    if request.workload is None or not isinstance(error, NothingCapturedError):
        return error
    if error.program_exit_code not in (2, 5):
        return error
    kind = UsageError if error.program_exit_code == 2 else CaptureUnavailableError
    return kind(f"{request.workload.name} did not run; its own message stands above")


def _recording_of(request: Request, workload: Workload, samples: Path) -> Recording:
    """The bundled recording that answers the request; raises CaptureUnavailableError, naming those there are."""
    if request.options != CaptureOptions() or request.keep_environment or request.repeat > 1:
        raise CaptureUnavailableError(
            "this machine has no NVIDIA GPU, and a recording cannot answer for options of the capture; give those of "
            f"{workload.name} alone"
        )
    defaults = workload_defaults(workload.source)
    asked = resolve(request.arguments, defaults, workload.name)
    recording = find_recording(samples, workload.name, asked)
    if recording is not None:
        return recording
    known = [entry.command(defaults) for entry in recordings(samples) if entry.workload == workload.name]
    there = "; there are recordings of: " + ", ".join(known) if known else ""
    raise CaptureUnavailableError(
        f"this machine has no NVIDIA GPU, and {workload.name} with these options was not recorded{there}"
    )


def _replay(request: Request, samples: Path) -> Session:
    workload = request.workload
    if workload is None or not request.replay:
        raise CaptureUnavailableError(
            "this machine has no NVIDIA GPU, so nothing can be captured here; `tracelab report TRACE` reads a trace "
            "that was captured elsewhere"
        )
    recording = _recording_of(request, workload, samples)
    folder = None
    if request.output is not None:
        folder = make_run_folder(workload.name, request.output)
        shutil.copyfile(recording.file, folder.trace)
        folder.private.rmdir()
    return Session(trace=recording.file, folder=folder, capture=None, recording=recording.title)
