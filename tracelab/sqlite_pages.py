"""Rows of a SQLite table decoded from its pages, a whole batch of pages at once.

Source: the SQLite database file format (sqlite.org/fileformat2.html), sections 1.3 (header), 1.6 (b-tree pages) and 2.1
(records). Only what exporters write is decoded: tables with row ids that count up by one, UTF-8, records that lie
wholly on their page and hold every column, integers where integers are asked for. Everything is checked on the way, the
length of each record included; whatever is not so raises UnusualError, and SQLite itself must read it.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.table_source import NULL, missing
from tracelab.trace import I64, U8, Bool

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_UTF8 = 1
_LEAF, _INTERIOR = 13, 5  # page types of tables with row ids
_LEAF_HEADER, _INTERIOR_HEADER = 8, 12  # bytes before a page's cell pointers
_MOST_LEVELS = 20  # SQLite's own limit for the depth of a b-tree
_VARINT_BYTES = 8  # longer ones are of numbers from 2^56 on
_ONE_BYTE = 128  # varints below it have one byte
_MIN_LEFT_BYTES = 35  # a record longer than the usable page less this may overflow to other pages
_PADDING = 256  # zeros behind the last page, so that looking at the 8 bytes of a short value stays inside
_FLOAT, _ZERO, _ONE, _RESERVED = 7, 8, 9, 10  # serial types; 0 is NULL, 1 to 6 integers, from 12 on blobs and texts
_FIRST_TEXT = 13

# By serial type below 128: bytes of the value, and how far its first 8 bytes are shifted to leave the integer.
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((t - 12) // 2 for t in range(12, _ONE_BYTE))], np.uint8)
_SHIFTS = np.array([63, 56, 48, 40, 32, 16, 0, *[63] * (_ONE_BYTE - 7)], np.uint8)


_kept = threading.local()  # the buffer of each thread: fresh memory costs more than reading into it


class UnusualError(Exception):
    """Something that is not decoded here."""


@dataclass(frozen=True)
class Leaves:
    """The leaf pages of a table in order, and the largest row id that may stand on each."""

    numbers: I64
    last_row: I64


@dataclass(frozen=True)
class Texts:
    """A text column of a batch: `start` and `size` (bytes) of each text in `data`; size −1 where it is missing."""

    data: U8
    start: I64
    size: I64


@dataclass(frozen=True)
class PagedFile:
    """An open SQLite file; the last bytes of each page may be reserved for others."""

    descriptor: int
    page_bytes: int
    usable_bytes: int
    pages: int

    def read(self, numbers: I64) -> U8:
        """The pages of these numbers (from 1), one behind the other, and some zeros; until this thread reads more."""
        size = self.page_bytes
        if len(numbers) and (int(numbers.min()) < 1 or int(numbers.max()) > self.pages):
            raise UnusualError("a page lies outside the file")
        data = _buffer(len(numbers) * size + _PADDING)
        data[len(numbers) * size :] = 0
        runs = np.flatnonzero(np.diff(numbers, prepend=-1) != 1)  # pages that follow each other are read at once
        for first, stop in zip(runs.tolist(), [*runs[1:].tolist(), len(numbers)], strict=True):
            place = data[first * size : stop * size].data
            if os.preadv(self.descriptor, [place], (int(numbers[first]) - 1) * size) != len(place):
                raise UnusualError("the file ends inside a page")
        return data


@contextmanager
def open_paged(path: Path, inode: tuple[int, int]) -> Iterator[PagedFile]:
    """Open the SQLite file with this device and inode.

    Raises UnusualError where another has its name now, and for texts that are no UTF-8; OSError.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        seen = os.fstat(descriptor)
        if (seen.st_dev, seen.st_ino) != inode:
            raise UnusualError("another file has its name now")
        head = os.pread(descriptor, _HEADER_BYTES, 0)
        if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
            raise UnusualError("no SQLite file")
        size = int.from_bytes(head[16:18], "big")
        size = 1 << 16 if size == 1 else size
        if int.from_bytes(head[56:60], "big") != _UTF8 or size < 512 or size & (size - 1):
            raise UnusualError("another encoding or page size")
        yield PagedFile(descriptor, size, size - head[20], seen.st_size // size)
    finally:
        os.close(descriptor)


def leaves(file: PagedFile, root: int, last_row: int) -> Leaves:
    """The leaf pages below the page `root`; no row id of the table is above `last_row`."""
    numbers, bound = np.array([root], np.int64), np.array([last_row], np.int64)
    for _ in range(_MOST_LEVELS):
        if len(np.unique(numbers)) < len(numbers):
            raise UnusualError("a page stands twice in the table")
        if file.read(numbers[:1])[0] == _LEAF:  # so must be the others, which are looked at when they are decoded
            return Leaves(numbers, bound)
        data = file.read(numbers)
        if not (data[np.arange(len(numbers)) * file.page_bytes] == _INTERIOR).all():
            raise UnusualError("no table with row ids, or an unbalanced one")
        numbers, bound = _children(file, data, bound)
    raise UnusualError("a table that is too deep")


def _children(file: PagedFile, data: U8, bound: I64) -> tuple[I64, I64]:
    """The pages below interior pages, and the largest row id of each; `bound` are those of the pages themselves."""
    page, cell = _cells(file, data, len(bound), _INTERIOR_HEADER)
    key, _ = _varint(data, cell + 4)
    last = np.searchsorted(page, np.arange(len(bound)), side="right")  # behind the cells of each page
    right = _big_endian(data, np.arange(len(bound)) * file.page_bytes + 8, 4)
    return np.insert(_big_endian(data, cell, 4), last, right), np.insert(key, last, bound)


def _cells(file: PagedFile, data: U8, pages: int, header: int) -> tuple[I64, I64]:
    """Of every cell of these pages: which page it is on, and where it begins in `data`."""
    base = np.arange(pages) * file.page_bytes
    counts = _big_endian(data, base + 3, 2)
    if (header + 2 * counts > file.usable_bytes).any():
        raise UnusualError("more cells than fit a page")
    page = np.repeat(np.arange(pages), counts)
    number = np.arange(len(page)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = _big_endian(data, base[page] + header + 2 * number, 2)
    if ((at < header + 2 * counts[page]) | (at >= file.usable_bytes)).any():
        raise UnusualError("a cell outside its page")
    return page, base[page] + at


class Batch:
    """The rows on some leaf pages, asked for column by column from the first to the last."""

    def __init__(self, file: PagedFile, numbers: I64, first_row: int) -> None:
        """Read and find the rows, which must count up from `first_row`."""
        self._data = data = file.read(numbers)
        if not (data[np.arange(len(numbers)) * file.page_bytes] == _LEAF).all():
            raise UnusualError("not a leaf")
        page, cell = _cells(file, data, len(numbers), _LEAF_HEADER)
        payload, at = _varint(data, cell)
        row, start = _varint(data, at)
        if not (row == np.arange(first_row, first_row + len(row))).all():
            raise UnusualError("row ids with holes")
        self._end = start + payload
        header = data[start].astype(np.int64)
        fits = (payload <= file.usable_bytes - _MIN_LEFT_BYTES) & (header < _ONE_BYTE) & (header <= payload)
        if not (fits & (self._end <= page * file.page_bytes + file.usable_bytes)).all():
            raise UnusualError("a record that lies on several pages")
        self._type_at, self._types_end = start + 1, start + header
        self._value_at = start + header
        self._types = iter(self._short_types(header))

    def __len__(self) -> int:
        return len(self._end)

    def _short_types(self, header: I64) -> U8:
        """The serial types by column, where all records have as many and each takes one byte; else none."""
        width = int(header[0]) - 1 if len(header) else 0
        if width < 1 or not (header == width + 1).all():
            return np.zeros((0, 0), np.uint8)
        types = np.lib.stride_tricks.sliding_window_view(self._data, width)[self._type_at]
        if int(types.max()) >= _ONE_BYTE:
            return np.zeros((0, 0), np.uint8)
        self._type_at = self._types_end
        return np.ascontiguousarray(types.T)

    def skip(self) -> None:
        """Pass over the next column."""
        self._pass(self._next_types())

    def integers(self) -> I64:
        """The next column, NULL where it is missing. Raises UnusualError if one of its values is no integer."""
        kind, at = self._next_types(), self._value_at
        low, high = (int(kind.min()), int(kind.max())) if len(kind) else (0, 0)
        if high >= _RESERVED or (low <= _FLOAT <= high and (kind == _FLOAT).any()):
            raise UnusualError("a value that is no integer")
        self._pass(kind)
        if low == high and low in (0, _ZERO, _ONE):
            return missing(len(kind)) if low == 0 else np.broadcast_to(np.int64(low - _ZERO), len(kind))
        values = eight_bytes(self._data, at).byteswap(inplace=True)
        if low == high:
            return values >> int(_SHIFTS[low])
        values = values >> _SHIFTS.take(kind).astype(np.int64)
        values[kind == 0] = NULL
        values[kind == _ZERO] = 0
        values[kind == _ONE] = 1
        return values

    def texts(self) -> Texts:
        """The next column. Raises UnusualError if one of its values is no text."""
        kind, at = self._next_types(), self._value_at
        absent = kind == 0
        if not (absent | ((kind >= _FIRST_TEXT) & (kind & 1 == 1))).all():
            raise UnusualError("a value that is no text")
        size = _size(kind).astype(np.int64)
        self._value_at = at + size
        return Texts(self._data, at, np.where(absent, -1, size))

    def done(self) -> None:
        """To be called after the last column: were these all, and all of each record?"""
        none_left = next(self._types, None) is None and (self._type_at == self._types_end).all()
        if not (none_left and (self._value_at == self._end).all()):
            raise UnusualError("records of another number of columns, or damaged ones")

    def _pass(self, kind: NDArray[np.integer[Any]]) -> None:
        """Go on to the next value."""
        alike = len(kind) > 0 and bool((kind == kind[0]).all())
        self._value_at = self._value_at + (int(_size(kind[:1])[0]) if alike else _size(kind))

    def _next_types(self) -> NDArray[np.integer[Any]]:
        known: U8 | None = next(self._types, None)
        if known is not None:
            return known
        kind: NDArray[np.integer[Any]] = self._data[self._type_at]
        self._type_at = self._type_at + 1
        if len(kind) and int(kind.max()) >= _ONE_BYTE:
            long = np.flatnonzero(kind >= _ONE_BYTE)
            second = self._data[self._type_at[long]].astype(np.int64)
            if (second >= _ONE_BYTE).any():
                raise UnusualError("a text that fills more than a page")
            kind = kind.astype(np.int64)
            kind[long] = (kind[long] & 127) << 7 | second
            self._type_at[long] += 1
        return kind


def eight_bytes(data: U8, at: I64) -> I64:
    """The 8 bytes at each place, whether aligned or not, as a little-endian number."""
    anywhere: I64 = np.ndarray((len(data) - 7,), "<i8", buffer=data, strides=(1,))
    return anywhere[at]


def _buffer(size: int) -> U8:
    """Memory of this thread, for the next pages in place of the last."""
    kept: U8 | None = getattr(_kept, "buffer", None)
    if kept is None or len(kept) < size:
        _kept.buffer = kept = np.empty(size, np.uint8)
    return kept[:size]


def _size(kind: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Bytes of values of these serial types."""
    if kind.dtype == np.uint8:
        return _SIZES.take(kind)
    wide: I64 = np.where(kind < _ONE_BYTE, _SIZES.take(kind, mode="clip"), (kind - 12) >> 1)
    return wide


def _big_endian(data: U8, at: I64, size: int) -> I64:
    found = data[at].astype(np.int64)
    for i in range(1, size):
        found = found << 8 | data[at + i]
    return found


def _varint(data: U8, at: I64) -> tuple[I64, I64]:
    """The variable-length integer at each place, and the place behind it."""
    value = data[at].astype(np.int64)
    at = at + 1
    more: Bool = value >= _ONE_BYTE
    value &= 127
    for _ in range(_VARINT_BYTES - 1):
        if not more.any():
            return value, at
        byte = data[at]
        value = np.where(more, value << 7 | (byte & 127), value)
        at = at + more
        more = more & (byte >= _ONE_BYTE)
    raise UnusualError("a number of more than 8 bytes")


def rows_of(leaf: Leaves, first_row: int, batch_rows: int) -> list[tuple[I64, int, int]]:
    """The leaves in batches of about `batch_rows`: page numbers, and the row ids [first, stop) that should be there."""
    below = leaf.last_row - first_row + 1
    wanted = np.arange(batch_rows, int(below[-1]), batch_rows)
    edges = np.unique(np.concatenate(([0], np.searchsorted(below, wanted) + 1, [len(below)])))
    starts = np.concatenate(([0], below))[edges] + first_row
    return [
        (leaf.numbers[a:b], int(start), int(stop))
        for a, b, start, stop in zip(edges[:-1], edges[1:], starts[:-1], starts[1:], strict=True)
    ]
