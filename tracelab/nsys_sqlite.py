"""Loads an nsys SQLite export into the trace model."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracelab.capture.identity import file_identity
from tracelab.capture.settled import has_pending_log
from tracelab.errors import InputError
from tracelab.large_tables import LargeTables
from tracelab.nsys_load import load_nsys
from tracelab.sqlite_read import open_readonly
from tracelab.table_source import TableSource
from tracelab.trace import Trace


def load_nsys_sqlite(path: Path, shown_as: Path, *, stays: bool) -> Trace:
    """Load `path`, named `shown_as` on pages; `stays`: the file will still be there when an analyzer asks for more.

    Raises InputError for no nsys export, or one that was not finished.
    """
    before = file_identity(path)

    @contextmanager
    def again() -> Iterator[TableSource]:
        if file_identity(path) != before:
            raise InputError(f"{path}: changed while it was being analysed; run the command again.")
        with _opened(path) as source:
            yield source

    try:
        with _opened(path) as source:
            return load_nsys(source, shown_as, again if stays and not has_pending_log(path) else None)
    except InputError:
        if file_identity(path) != before:
            raise InputError(f"{shown_as}: changed while it was being read; run the command again.") from None
        raise


@contextmanager
def _opened(path: Path) -> Iterator[TableSource]:
    with open_readonly(path) as connection:
        source = LargeTables(connection)
        try:
            yield source
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path}: not a readable SQLite export ({error}); export the report again.") from error
        except UnicodeDecodeError as error:  # SQLite's own message repeats the bytes of a damaged name
            raise InputError(f"{path}: not a readable SQLite export; export the report again.") from error
        finally:
            source.give_up()
