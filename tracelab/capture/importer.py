"""QdstrmImporter, the program that turns what nsys collects (.qdstrm) into a report (.nsys-rep)."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tracelab.errors import CaptureUnavailableError, TracelabError

_LDD_TIMEOUT_S = 30.0
# Seen when the events of several threads were flushed out of order; a second import often succeeds.
_WORTH_A_RETRY = ("Wrong event order", "Importation failed")
_DEBIAN_PACKAGES = {
    "libdw.so.1": "libdw1",
    "libelf.so.1": "libelf1",
    "libssh.so.4": "libssh-4",
    "libssh.so": "libssh-4",
}


@dataclass(frozen=True)
class Importer:
    """The importer of one nsys. `path` is None when none was shipped; `found_by_nsys` when nsys looks where it lies."""

    path: Path | None
    found_by_nsys: bool
    missing: str | None


def find_importer(nsys: Path) -> Importer | None:
    """The importer that belongs to `nsys`; None where the layout is unknown, as for a wrapper script."""
    real = (
        nsys.resolve().parent.parent
    )  # nsys looks beside its real location only, not beside the links that lead there
    for pattern in ("host-linux-*/QdstrmImporter", "linux-desktop-*/QdstrmImporter"):
        for root in (real, *_link_roots(nsys)):
            for path in sorted(root.glob(pattern)):
                found_by_nsys = root == real and pattern.startswith("host-linux-")
                return Importer(path, found_by_nsys, missing=_missing_libraries(path))
    if not nsys.resolve().parent.name.startswith("target-linux-"):
        return None
    return Importer(None, found_by_nsys=False, missing="its importer (QdstrmImporter) is not installed beside it")


def import_by_hand(importer: Importer, stream: Path, report: Path) -> str:
    """Turn `stream` into `report`; returns what the importer printed.

    Raises TracelabError when it fails twice, CaptureUnavailableError when there is no importer to run.
    """
    if importer.path is None or importer.missing is not None:
        raise CaptureUnavailableError(f"{stream.name} cannot be made into a report: {importer.missing}")
    text = _run_importer(importer.path, stream, report)
    if not report.is_file() and any(phrase in text for phrase in _WORTH_A_RETRY):
        text += _run_importer(importer.path, stream, report)
    if not report.is_file():
        raise TracelabError(
            f"nsys collected {stream} but its importer failed: {_last_line(text)}; the .qdstrm is kept and can be "
            "imported with another nsys (`QdstrmImporter -i`)"
        )
    return text


def _link_roots(nsys: Path) -> Iterator[Path]:
    """The installation folders that `nsys` may belong to: one for each link on the way to the real file."""
    path = nsys.absolute()
    for _ in range(10):  # a bound, for links that lead in a circle
        yield path.parent.parent
        if not path.is_symlink():
            break
        path = Path(os.path.normpath(path.parent / path.readlink()))


def _missing_libraries(importer: Path) -> str | None:
    done = _run(["ldd", importer], _with_libraries(importer), _LDD_TIMEOUT_S)
    lines = (line for line in done.splitlines() if "=> not found" in line)
    names = sorted({line.split("=>")[0].strip() for line in lines})
    if not names:
        return None
    packages = sorted({_DEBIAN_PACKAGES[name] for name in names if name in _DEBIAN_PACKAGES})
    hint = f" (Debian, Ubuntu: apt install {' '.join(packages)})" if packages else ""
    return f"its importer {importer} needs {', '.join(names)}{hint}"


def _run_importer(importer: Path, stream: Path, report: Path) -> str:
    return _run([importer, "-i", stream, "-o", report], _with_libraries(importer), None)


def _with_libraries(importer: Path) -> dict[str, str]:
    # Inside Nsight Compute the importer carries no path to the libraries beside it.
    paths = [str(importer.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(path for path in paths if path)}


def _run(command: list[str | Path], environment: dict[str, str], timeout_s: float | None) -> str:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]} could not be run: {error}"
    return done.stdout + done.stderr


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
