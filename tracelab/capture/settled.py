"""A SQLite file as it stands, its pending write-ahead log included, with nothing written beside it."""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tracelab.capture.cache import cache_folder


@contextlib.contextmanager
def settled(path: Path) -> Iterator[Path]:
    """`path` itself, or with a pending log a private copy in the cache folder: opening it in place would write there.

    Raises sqlite3.Error or UnicodeDecodeError for a damaged log; the latter as SQLite's message repeats a damaged name.
    """
    path = path.resolve()
    log = _log_of(path)
    if not has_pending_log(path):
        yield path
        return
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        copy = Path(folder) / "settled.sqlite"
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
        with contextlib.closing(sqlite3.connect(copy)) as merging:
            merging.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            merging.execute("PRAGMA journal_mode=DELETE")
        yield copy


def has_pending_log(path: Path) -> bool:
    """Whether a write-ahead log lies beside the file, with writes that the file lacks."""
    log = _log_of(path)
    return log.is_file() and log.stat().st_size > 0


def _log_of(path: Path) -> Path:
    path = path.resolve()  # the log lies beside the file itself, not beside a link to it
    return path.with_name(path.name + "-wal")
