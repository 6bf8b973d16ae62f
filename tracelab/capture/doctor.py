"""Can this machine capture? A few lines, the verdict last."""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tracelab.capture import gpu
from tracelab.capture.folder import MIN_FREE_BYTES
from tracelab.capture.nsys import Nsys, all_nsys, find_nsys, supports
from tracelab.errors import CaptureUnavailableError


@dataclass(frozen=True)
class Diagnosis:
    """The lines to print, and whether a capture can work here."""

    lines: tuple[str, ...]
    can_capture: bool


def diagnose(explicit_nsys: str | None = None) -> Diagnosis:
    """Look at GPU, driver, every nsys, permissions and disk of this machine."""
    lines: list[str] = []
    problems = [problem for check in (_gpu, _nsys(explicit_nsys), _folders) if (problem := check(lines)) is not None]
    lines.append(f"cannot capture: {'; '.join(problems)}" if problems else "this machine can capture")
    return Diagnosis(tuple(lines), can_capture=not problems)


def _gpu(lines: list[str]) -> str | None:
    listed = gpu.list_gpus()
    lines += [f"GPU     {entry.name}, driver {entry.driver}" for entry in listed]
    if listed:
        return None
    if gpu.has_gpu():
        lines.append(f"GPU     present; {gpu.kernel_driver() or 'driver version unknown (no nvidia-smi)'}")
        return None
    lines.append("GPU     none found")
    return "no NVIDIA GPU"


def _nsys(explicit: str | None) -> Callable[[list[str]], str | None]:
    def check(lines: list[str]) -> str | None:
        try:
            chosen = find_nsys(explicit)
        except CaptureUnavailableError as error:
            lines.append(f"nsys    {error}")
            return "no nsys"
        others = [found for found in all_nsys() if found.path.resolve() != chosen.path.resolve()]
        lines += [_nsys_line(found, chosen) for found in (chosen, *others)]
        return None if chosen.missing is None else "nsys cannot make reports"

    return check


def _nsys_line(nsys: Nsys, chosen: Nsys) -> str:
    return f"nsys    {nsys.version} {nsys.path} ({nsys.source}{', used' if nsys is chosen else ''}): {_state(nsys)}"


def _state(nsys: Nsys) -> str:
    if nsys.missing is not None:
        return nsys.missing
    if not supports(nsys, "cuda-graph-trace"):
        return "complete, but cannot trace CUDA graphs by node"
    return "complete" if nsys.imports_itself else "complete; tracelab runs its importer by hand"


def _folders(lines: list[str]) -> str | None:
    # nsys writes its stream to TMPDIR first. Tracing CUDA and NVTX needs no privilege beyond these two folders.
    problems = []
    for folder in dict.fromkeys((Path.cwd(), Path(tempfile.gettempdir()))):
        free_bytes = shutil.disk_usage(folder).free
        writable = os.access(folder, os.W_OK)
        lines.append(f"disk    {free_bytes / 1e9:.1f} GB free in {folder}{'' if writable else ', not writable'}")
        if not writable:
            problems.append(f"{folder} is not writable")
        elif free_bytes < MIN_FREE_BYTES:
            problems.append(f"{folder} has less than {MIN_FREE_BYTES / 1e6:.0f} MB free")
    return "; ".join(problems) if problems else None
