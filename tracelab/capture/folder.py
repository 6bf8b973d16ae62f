"""The run folder: what may be shared at its top, what holds environment and arguments in `private/`."""

import contextlib
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracelab.errors import TracelabError, UsageError

RUNS = "tracelab-runs"
TRACE = "trace.sqlite"
# An nsys capture of a few seconds takes 1 to 50 MB as report and up to ten times that as SQLite, twice in one folder.
MIN_FREE_BYTES = 200_000_000


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run. `shared_environment` says that the trace was left as it is, by the user's wish."""

    path: Path
    shared_environment: bool = False

    @property
    def private(self) -> Path:
        """Report, full export, log and command line: they hold environment and arguments."""
        return self.path / "private"

    @property
    def page(self) -> Path:
        """The page as text."""
        return self.path / "page.txt"

    @property
    def analysis(self) -> Path:
        """The analysis as JSON."""
        return self.path / "analysis.json"

    @property
    def trace(self) -> Path:
        """The SQLite export that was analysed."""
        return self.path / TRACE

    @property
    def note(self) -> str:
        """One line for the terminal: where everything is and what may be shared."""
        return f"Kept in {self.path}: {self.contents}"

    @property
    def contents(self) -> str:
        """What may be shared, without the folder's own path, for the page that is kept in it."""
        if self.shared_environment:
            return "trace.sqlite and private/ hold environment and arguments; do not share them."
        return (
            "page.txt, analysis.json and trace.sqlite may be shared; "
            "private/ holds the report and the command line, with environment and arguments."
        )


def make_run_folder(name: str, given: Path | None, *, keep_environment: bool = False) -> RunFolder:
    """Make `given`, or `tracelab-runs/NAME-TIME`, with mode 0700, and see that there is room in it.

    Raises UsageError if `given` is a file or a folder with something in it, TracelabError if it cannot be written or
    the disk is full.
    """
    path = make_own_folder(name, given)
    folder = RunFolder(path, shared_environment=keep_environment)
    with _written(path):
        folder.private.mkdir(mode=0o700)
        free_bytes = shutil.disk_usage(path).free
    if free_bytes < MIN_FREE_BYTES:
        remove_if_empty(folder)
        raise TracelabError(
            f"the disk of {path} is full: {free_bytes / 1e6:.0f} MB free, a capture needs "
            f"{MIN_FREE_BYTES / 1e6:.0f} MB; name a folder on another disk with -o"
        )
    return folder


def make_own_folder(name: str, given: Path | None) -> Path:
    """Make `given`, or `tracelab-runs/NAME-TIME`, with mode 0700; raises as `make_run_folder` does."""
    path = given if given is not None else _fresh(name)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists already; name a new or empty folder with -o")
    with _written(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    return path


def traces_of(path: Path) -> list[Path]:
    """The traces that a user names with one path: of a run folder its trace, of a folder of repeated captures all of
    theirs in numeric order. Any other path is itself, so that loading it says what is wrong with it."""
    try:
        if (path / TRACE).is_file():
            return [path / TRACE]
        return [folder / TRACE for folder in _numbered(path) if (folder / TRACE).is_file()] or [path]
    except OSError:  # no folder, or none that may be read
        return [path]


def write_command(folder: RunFolder, command_line: Sequence[str]) -> None:
    """Keep the exact command line, to be run again."""
    target = folder.private / "command.txt"
    target.touch(mode=0o600)
    target.write_text(shlex.join(command_line) + "\n", encoding="utf-8")


def remove_if_empty(folder: RunFolder) -> None:
    """Remove a run folder into which nothing was written, so that a failed run leaves nothing behind."""
    for path in (folder.private, folder.path):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TracelabError(
            f"the run folder {path} cannot be written: {error.strerror}; name another with -o"
        ) from error


def _numbered(path: Path) -> list[Path]:
    """What is named by a number in a folder, in the order of the numbers."""
    found = [entry for entry in path.iterdir() if re.fullmatch(r"[0-9]+", entry.name)]
    return sorted(found, key=lambda entry: int(entry.name))


def _fresh(name: str) -> Path:
    safe = re.sub(r"[^\w.-]+", "-", Path(name).name).strip("-.") or "run"
    stem = f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (Path(RUNS) / (stem if i == 1 else f"{stem}-{i}") for i in range(1, 1000))
    return next(path for path in candidates if not path.exists())
