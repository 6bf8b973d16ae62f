"""Finds every nsys on this machine, with its version and what it lacks to make a report."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tracelab.capture.importer import Importer, find_importer
from tracelab.errors import CaptureUnavailableError

ROOT = Path("/")
_VERSION_TIMEOUT_S = 30.0
_VERSION = re.compile(r"version\s+(\d+(?:\.\d+)+)")
# Where installers put it when they do not put it on PATH (reference: nsys on machines, section 14).
_FOLDERS: tuple[tuple[str, str], ...] = (
    ("CUDA folder", "usr/local/cuda*/bin/nsys"),
    ("CUDA folder", "usr/local/cuda*/nsight-systems*/target-linux-*/nsys"),
    ("Nsight Systems folder", "opt/nvidia/nsight-systems*/target-linux-*/nsys"),
    ("Nsight Systems folder", "opt/nvidia/nsight-systems*/*/target-linux-*/nsys"),
    ("Nsight Systems folder", "opt/nvidia/nsight-systems*/*/bin/nsys"),
)
_INSIDE_COMPUTE: tuple[tuple[str, str], ...] = (
    ("inside Nsight Compute", "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys"),
    ("inside Nsight Compute", "usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys"),
)


@dataclass(frozen=True)
class Nsys:
    """One nsys. `source` says how it was found; `missing` what it lacks to make a report."""

    path: Path
    version: str
    source: str
    importer: Importer | None

    @property
    def version_tuple(self) -> tuple[int, ...]:
        """The version as numbers, to compare."""
        return tuple(int(part) for part in self.version.split("."))

    @property
    def missing(self) -> str | None:
        """What its importer lacks, in words; None when reports can be made, by nsys itself or by hand."""
        return self.importer.missing if self.importer else None

    @property
    def imports_itself(self) -> bool:
        """True if nsys finds its own importer; otherwise tracelab runs the importer by hand."""
        return self.importer is None or (self.importer.found_by_nsys and self.importer.missing is None)


def find_nsys(explicit: str | None) -> Nsys:
    """The nsys to use: the given one, else `$TRACELAB_NSYS`, else the best: complete before incomplete, then newest.

    Raises CaptureUnavailableError when the named one cannot be run or none is found.
    """
    chosen = _named(explicit)
    if chosen is not None:
        return _required(*chosen)
    found = all_nsys()
    if not found:
        raise CaptureUnavailableError(
            "no nsys was found: not in $TRACELAB_NSYS, on PATH, in the CUDA and Nsight Systems folders, in "
            "$CONDA_PREFIX, nor inside Nsight Compute; install NVIDIA Nsight Systems or give its path with --nsys"
        )
    return max(found, key=_preference)


def all_nsys() -> list[Nsys]:
    """Every nsys found on this machine that can say its version, each once, best first."""
    by_file: dict[Path, Nsys] = {}
    for source, path in _candidates():
        if path.resolve() not in by_file and (nsys := _probe(source, path)) is not None:
            by_file[path.resolve()] = nsys
    return sorted(by_file.values(), key=_preference, reverse=True)


def require_importer(nsys: Nsys) -> None:
    """Raise CaptureUnavailableError, saying what is missing, when `nsys` could collect but never make a report."""
    if nsys.missing is not None:
        raise CaptureUnavailableError(
            f"nsys {nsys.version} at {nsys.path} can collect but not make a report: {nsys.missing}"
        )


def supports(nsys: Nsys, flag: str) -> bool:
    """True if `nsys profile --help` lists `--flag`; without any help text nothing is known to be missing."""
    text = _profile_help(nsys.path)
    return not text or re.search(rf"--{re.escape(flag)}(?![\w-])", text) is not None


def _named(explicit: str | None) -> tuple[str, str] | None:
    if explicit:
        return "--nsys", explicit
    environment = os.environ.get("TRACELAB_NSYS")
    return ("$TRACELAB_NSYS", environment) if environment else None


def _required(source: str, name: str) -> Nsys:
    path = Path(name).expanduser()
    if not path.exists():
        raise CaptureUnavailableError(f"there is no nsys at {name} (given by {source})")
    nsys = _probe(source, path / "nsys" if path.is_dir() else path)
    if nsys is None:
        raise CaptureUnavailableError(f"{name} (given by {source}) is no nsys: `--version` gives no version")
    return nsys


def _candidates() -> Iterator[tuple[str, Path]]:
    if environment := os.environ.get("TRACELAB_NSYS"):
        yield "$TRACELAB_NSYS", Path(environment)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and (path := shutil.which("nsys", path=folder)):
            yield "PATH", Path(path)
    yield from _installed(_FOLDERS)
    if prefix := os.environ.get("CONDA_PREFIX"):
        yield "$CONDA_PREFIX", Path(prefix) / "bin" / "nsys"
    yield from _installed(_INSIDE_COMPUTE)


def _installed(patterns: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, Path]]:
    for source, pattern in patterns:
        for path in sorted(ROOT.glob(pattern), reverse=True):
            yield source, path


def _probe(source: str, path: Path) -> Nsys | None:
    if not os.access(path, os.X_OK) or path.is_dir():
        return None
    match = _VERSION.search(_output(path, "--version"))
    if match is None:
        return None
    return Nsys(path=path.absolute(), version=match[1], source=source, importer=find_importer(path.absolute()))


def _preference(nsys: Nsys) -> tuple[bool, bool, tuple[int, ...]]:
    return nsys.missing is None, nsys.imports_itself, nsys.version_tuple


@cache
def _profile_help(path: Path) -> str:
    return _output(path, "profile", "--help")


def _output(path: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [path, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
