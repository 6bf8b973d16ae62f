"""Opens whatever the user names: recognised by content, never by its name alone."""

from pathlib import Path

from tracelab.capture.export import REPORT_SUFFIXES, export_report
from tracelab.errors import InputError
from tracelab.nsys_load import load_nsys_sqlite
from tracelab.trace import Trace

_SQLITE_MAGIC = b"SQLite format 3\0"
_DIRECTORY_MARKS = ("StringIds.parquet", "StringIds.arrow")


def load_trace(path: Path, nsys: str | None = None) -> Trace:
    """Load a SQLite export, or a report that `nsys` (None: the one found) exports to the cache folder first."""
    kind = _recognise(path)
    if kind == "report":
        return load_nsys_sqlite(export_report(path, nsys), shown_as=path)
    return load_nsys_sqlite(path)


def _recognise(path: Path) -> str:
    if path.is_dir():
        raise InputError(_directory(path))
    try:
        with path.open("rb") as file:
            head = file.read(len(_SQLITE_MAGIC))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if head == _SQLITE_MAGIC:
        return "sqlite"
    if path.name.endswith(REPORT_SUFFIXES) and head:
        return "report"
    what = "an empty file" if not head else "not a SQLite export"
    raise InputError(
        f"{path}: {what}; give the .nsys-rep of nsys, or its export made with: nsys export -t sqlite REPORT.nsys-rep"
    )


def _directory(path: Path) -> str:
    if any((path / mark).exists() for mark in _DIRECTORY_MARKS):
        return f"{path}: a directory export (parquetdir or arrowdir) is not read yet; export with -t sqlite."
    return f"{path}: a folder, not a trace; give a SQLite export or a .nsys-rep file."
