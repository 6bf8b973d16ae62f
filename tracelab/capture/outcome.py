"""What one run of nsys left behind: the report, or the one reason why there is none."""

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from tracelab.capture.command import CaptureOptions
from tracelab.capture.export import REPORT_SUFFIXES
from tracelab.capture.importer import import_by_hand
from tracelab.capture.nsys import Nsys, require_importer
from tracelab.errors import TracelabError, UsageError

LOG = "nsys.log"  # what nsys itself prints, in the folder of its report


@dataclass(frozen=True)
class Outcome:
    """How a run of nsys ended. `produced` and `streams` are the paths that nsys named in its output."""

    program_exit_code: int
    interrupted: bool
    wall_s: float
    options: CaptureOptions
    produced: tuple[Path, ...]
    streams: tuple[Path, ...]
    refused_option: str | None
    nsys_text: str
    notes: tuple[str, ...]


class NothingCapturedError(TracelabError):
    """The program ran, or failed to, and no report came of it."""

    def __init__(self, sentence: str, program_exit_code: int) -> None:
        super().__init__(sentence)
        self.program_exit_code = program_exit_code


def obtain_report(nsys: Nsys, folder: Path, outcome: Outcome) -> Path:
    """The report in `folder`, fetched from where nsys silently put it and imported by hand if need be.

    Raises NothingCapturedError, UsageError (nsys refused an option) or CaptureUnavailableError (no importer).
    """
    # nsys writes to $TMPDIR without an error where it cannot write to the folder, so its own lines are searched too.
    for path in (*(folder / f"trace{suffix}" for suffix in REPORT_SUFFIXES), *reversed(outcome.produced)):
        if path.suffix in REPORT_SUFFIXES and path.is_file():
            return _fetch(path, folder / f"trace{path.suffix}")
    for path in (folder / "trace.qdstrm", *reversed(outcome.produced), *reversed(outcome.streams)):
        if path.suffix == ".qdstrm" and path.is_file():
            return _import(nsys, _fetch(path, folder / "trace.qdstrm"))
    raise _nothing(nsys, outcome, folder)


def describe_exit(code: int) -> str:
    """An exit code in words, with the signal's name where it stands for one."""
    if code > 128:
        try:
            return f"{signal.Signals(code - 128).name} (exit code {code})"
        except ValueError:
            pass
    return f"exit code {code}"


def _fetch(path: Path, target: Path) -> Path:
    if path != target:
        shutil.move(path, target)
    return target


def _import(nsys: Nsys, stream: Path) -> Path:
    require_importer(nsys)
    if nsys.importer is None:
        raise TracelabError(
            f"nsys {nsys.version} at {nsys.path} collected {stream} but made no report of it; give a complete nsys "
            "with --nsys, or import the file with its QdstrmImporter"
        )
    report = stream.with_suffix(".nsys-rep")
    import_by_hand(nsys.importer, stream, report)
    stream.unlink()  # the report holds all of it
    return report


def _nothing(nsys: Nsys, outcome: Outcome, folder: Path) -> TracelabError:
    if outcome.refused_option is not None:
        return UsageError(f"nsys {nsys.version} did not run the program: {outcome.refused_option}")
    return NothingCapturedError(_reason(nsys, outcome, folder), outcome.program_exit_code)


def _reason(nsys: Nsys, outcome: Outcome, folder: Path) -> str:
    options, code = outcome.options, outcome.program_exit_code
    if "No space left on device" in outcome.nsys_text:
        return "nothing was captured: the disk is full; make room, or point TMPDIR and -o elsewhere"
    if outcome.interrupted:
        return "stopped before anything was captured"
    if code != 0:
        before = "it called cudaProfilerStart" if options.waits_for_range else "nsys could collect anything"
        log = f"; what nsys said is in {folder / LOG}" if outcome.nsys_text.strip() else ""
        return f"nothing was captured: the program ended with {describe_exit(code)} before {before}{log}"
    if options.waits_for_range:
        return (
            "nothing was captured: the program ended without opening the capture range; it must call cudaProfilerStart "
            "(torch.cuda.profiler.start()), else leave out --capture-range"
        )
    if options.delay_s is not None and outcome.wall_s < options.delay_s:
        return f"nothing was captured: the program ended before the delay of {options.delay_s:g} s was over"
    return f"nothing was captured: nsys {nsys.version} made no report and named no reason; its log is {folder / LOG}"
