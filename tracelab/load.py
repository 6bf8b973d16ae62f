"""Opens whatever the user names: recognised by content, never by its name alone."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from tracelab.capture.export import EXPORTABLE_SUFFIXES, export_report
from tracelab.capture.folder import TRACE
from tracelab.capture.identity import Identity, file_identity
from tracelab.errors import InputError
from tracelab.kineto_load import load_kineto
from tracelab.kineto_read import is_kineto
from tracelab.nsys_load import load_nsys
from tracelab.nsys_sqlite import load_nsys_sqlite
from tracelab.trace import Trace
from tracelab.unpack import compression, unpacked, unpacked_head

if TYPE_CHECKING:
    from tracelab.arrow_read import ArrowTables

_SQLITE_MAGIC = b"SQLite format 3\0"
_STREAM_MARK = b"\xff\xff\xff\xff"  # how a message of an Arrow stream begins (Arrow columnar format, IPC)
_HEAD_BYTES = 1 << 16  # enough of a PyTorch trace to know it by: its facts about the GPU come first


def load_trace(path: Path, nsys: str | None = None) -> Trace:
    """Load any export, compressed or not, or a report that `nsys` (None: the one found) exports to the cache folder.

    Raises InputError, in one sentence, for anything else.
    """
    if path.is_dir():
        if (path / TRACE).is_file():
            return load_trace(path / TRACE, nsys)
        from tracelab.arrow_read import open_folder  # brings pyarrow, which a SQLite export does not need

        return _load_arrow(open_folder, path, path, stays=True)
    head = _head(path)
    packed = compression(head)
    if packed is None or (packed == "gzip" and is_kineto(head)):  # the reader of PyTorch traces unpacks as it goes
        return _load_file(path, head, path, nsys)
    inside = unpacked_head(path, packed, _HEAD_BYTES)
    with unpacked(path, packed) as file:
        return _load_file(file, inside, path, nsys)


def read_shapes_ahead(trace: Trace) -> None:
    """Begin to read the launch shapes on another thread, for somebody who will want them."""

    def read() -> None:
        with suppress(Exception):  # who wants them will meet the same error
            trace.ops.read_shapes()

    Thread(target=read).start()


def _load_file(file: Path, head: bytes, shown_as: Path, nsys: str | None) -> Trace:
    if head.startswith(_SQLITE_MAGIC):
        return load_nsys_sqlite(file, shown_as, stays=file == shown_as)
    if is_kineto(head):
        return dataclasses.replace(load_kineto(file), path=str(shown_as))
    if head.startswith(_STREAM_MARK):
        from tracelab.arrow_read import open_streams

        return _load_arrow(open_streams, file, shown_as, stays=False)
    if shown_as.name.endswith(EXPORTABLE_SUFFIXES) and head:
        return load_nsys_sqlite(export_report(file, nsys), shown_as, stays=False)
    what = "an empty file" if not head else "no export of a kind that is known"
    raise InputError(
        f"{shown_as}: {what}; give the .nsys-rep of nsys, or its export made with: nsys export -t sqlite "
        "REPORT.nsys-rep"
    )


def _load_arrow(opened: "Callable[[Path], ArrowTables]", path: Path, shown_as: Path, *, stays: bool) -> Trace:
    """The trace in a folder or file of Arrow tables; `stays`: it will be there when an analyzer asks for more."""
    before = file_identity(path)
    with _unchanged(path, shown_as, before):
        tables = opened(path)

        @contextmanager
        def again() -> "Iterator[ArrowTables]":
            with _unchanged(path, shown_as, before):
                yield tables

        try:
            return load_nsys(tables, shown_as, again if stays else None)
        finally:
            tables.give_up()


@contextmanager
def _unchanged(path: Path, shown_as: Path, before: Identity | None) -> Iterator[None]:
    """Raises InputError where what `path` names is not what it was before when everything inside is done."""
    changed = InputError(f"{shown_as}: changed while it was being read; run the command again.")
    try:
        yield
    except Exception:  # whatever came of it
        if file_identity(path) != before:
            raise changed from None
        raise
    if file_identity(path) != before:
        raise changed


def _head(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # a pipe can be read only once, and opening one may wait for ever
            raise InputError(f"{path}: no regular file; save it to one first.")
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
