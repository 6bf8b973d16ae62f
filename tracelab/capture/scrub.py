"""Makes a copy of an nsys export that is safe to share: only what is known to be harmless is copied.

What may be copied: scrub_schema.py and scrub_values.py. What is taken out of names: scrub_secrets.py and redact.py.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from tracelab.capture.scrub_plan import Only, Scrubbed
from tracelab.capture.scrub_sqlite import copy_sqlite
from tracelab.errors import InputError

_SQLITE_MAGIC = b"SQLite format 3\0"
_FOLDER_MARKS = ("StringIds.parquet", "StringIds.arrow")


def scrub(source: Path, target: Path, only: Only = None) -> Scrubbed:
    """Write a shareable copy of the export `source`, a SQLite file, a parquetdir or an arrowdir, to `target`.

    `only` names, by table, the columns to keep of those that may be shared (None: all of them). The copy is private
    until it is complete and then replaces `target`. Raises InputError if `source` is no such export, damaged or
    half-written, if `target` cannot be written, or if a secret would still stand in the copy; then nothing is left.
    """
    copy = _copier(source)
    try:
        with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".scrub-") as folder:
            made = Path(folder) / "copy"
            scrubbed = copy(source, made, only)
            _publish(made, target)
    except OSError as error:
        raise InputError(f"{target} cannot be written ({error.strerror or error})") from error
    return scrubbed


def _copier(source: Path) -> Callable[[Path, Path, Only], Scrubbed]:
    if source.is_dir():
        if not any((source / mark).is_file() for mark in _FOLDER_MARKS):
            raise InputError(f"{source} is a folder without an export; give a SQLite export, a parquetdir or arrowdir")
        from tracelab.capture.scrub_folder import copy_folder  # brings pyarrow, which a SQLite export does not need

        return copy_folder
    try:
        with source.open("rb") as file:
            head = file.read(len(_SQLITE_MAGIC))
    except FileNotFoundError:
        raise InputError(f"there is no file {source}") from None
    except OSError as error:
        raise InputError(f"{source} cannot be read ({error.strerror or error})") from error
    if head != _SQLITE_MAGIC:
        what = "it is empty" if not head else "of another kind"
        raise InputError(
            f"{source} is no nsys export that can be scrubbed: {what}; make one with: nsys export -t sqlite "
            "REPORT.nsys-rep"
        )
    return copy_sqlite


def _publish(made: Path, target: Path) -> None:
    """Make the complete copy readable and give it its name, in one step."""
    if made.is_dir():
        for file in made.iterdir():
            file.chmod(0o644)
    made.chmod(0o755 if made.is_dir() else 0o644)
    made.replace(target)
