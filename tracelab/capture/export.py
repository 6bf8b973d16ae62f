"""Turns a report of nsys into SQLite, with the errors that nsys itself hides visible."""

import hashlib
import subprocess
import tempfile
from pathlib import Path

from tracelab.capture.cache import cache_folder
from tracelab.capture.importer import find_importer, import_by_hand
from tracelab.capture.nsys import Nsys, find_nsys
from tracelab.errors import CaptureUnavailableError, InputError, TracelabError
from tracelab.reading import tell

_STREAM_SUFFIX = ".qdstrm"  # what nsys collected, before its importer made a report of it
REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
EXPORTABLE_SUFFIXES = (*REPORT_SUFFIXES, _STREAM_SUFFIX)
_HEAD_BYTES = 1 << 20  # together with size and time this tells any two reports apart, without reading gigabytes
# How nsys says that a newer one wrote the report (the first two seen in 2022.4.2).
_TOO_NEW = ("Version not supported", "ProtobufParseException", "newer version", "Unsupported version")


def export_report(report: Path, explicit_nsys: str | None = None) -> Path:
    """The SQLite export of a user's `.nsys-rep`, `.qdrep` or `.qdstrm`, made with the found nsys and kept in the cache.

    Nothing is written beside the report. Raises InputError, in one sentence, if there is no file, no nsys, or only one
    that is older than the report's writer.
    """
    if not report.is_file():
        raise InputError(f"there is no report at {report}")
    target = cache_folder() / f"{_key(report)}.sqlite"
    if target.is_file():
        return target
    try:
        nsys = find_nsys(explicit_nsys)
    except CaptureUnavailableError as error:
        raise InputError(
            f"{report.name} can only be read by nsys itself, and {error}; or export it where nsys is: "
            f"nsys export -t sqlite {report.name}"
        ) from error
    return _export_to_cache(nsys, report, target)


def export_sqlite(nsys: Nsys, report: Path, target: Path) -> Path:
    """Export `report` to `target` with `nsys`. Raises InputError with the reason that nsys gives."""
    command: list[str | Path] = [nsys.path, "export", "-t", "sqlite", "-f", "true", "-o", target, report]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise InputError(f"nsys at {nsys.path} could not be run to export {report}: {error.strerror}") from error
    if done.returncode == 0 and target.is_file():
        return target
    target.unlink(missing_ok=True)  # a failed export leaves a valid but incomplete database
    raise InputError(_failure(nsys, report, done.stdout + done.stderr))


def _export_to_cache(nsys: Nsys, report: Path, target: Path) -> Path:
    tell(0, 0, "bytes", "exporting with nsys")  # how much there is in a report, only nsys knows
    # A name of its own and one rename: two tracelabs may export the same report at once.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="export-") as folder:
        if report.name.endswith(_STREAM_SUFFIX):
            report = _imported(nsys, report, Path(folder))
        made = export_sqlite(nsys, report, Path(folder) / target.name)
        made.chmod(0o600)  # it holds environment and arguments of the profiled program
        made.replace(target)
    return target


def _imported(nsys: Nsys, stream: Path, folder: Path) -> Path:
    """The report that the importer of `nsys` makes of a stream, in `folder`; raises InputError with its reason."""
    importer = find_importer(nsys.path)
    if importer is None:
        raise InputError(
            f"{stream.name} needs the QdstrmImporter of an nsys, and the one at {nsys.path} has none to find"
        )
    report = folder / f"{stream.stem}.nsys-rep"
    try:
        import_by_hand(importer, stream, report)
    except TracelabError as error:
        raise InputError(str(error)) from error
    return report


def _key(report: Path) -> str:
    facts = report.stat()
    digest = hashlib.sha256(f"{report.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
    with report.open("rb") as file:
        digest.update(file.read(_HEAD_BYTES))
    return digest.hexdigest()[:32]


def _failure(nsys: Nsys, report: Path, text: str) -> str:
    if any(phrase in text for phrase in _TOO_NEW):
        return (
            f"{report.name} was written by a newer nsys than the one found here ({nsys.version} at {nsys.path}); "
            "a newer one is needed: give it with --nsys PATH or $TRACELAB_NSYS"
        )
    if "No space left on device" in text:
        return f"{report.name} could not be exported: the disk is full"
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines()]
    reasons = [line for line in lines if line and not line.startswith(("Exporting ", "Processing "))]
    return f"nsys {nsys.version} could not export {report.name}: {reasons[-1] if reasons else 'it gave no reason'}"
