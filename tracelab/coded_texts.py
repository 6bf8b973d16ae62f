"""Texts of a batch by their distinct values, found by comparing eight bytes of every text at a time."""

from collections.abc import Sequence

import numpy as np

from tracelab.arrays import mix_hash
from tracelab.sqlite_pages import Texts, eight_bytes
from tracelab.table_source import Coded
from tracelab.trace import I64, Bool

WORD = 8


def code_texts(column: Texts) -> Coded:
    """Each distinct text once. Bytes that are no UTF-8 are replaced, as everywhere."""
    size = column.size
    digest = size.astype(np.uint64)
    for at in range(0, int(size.max(initial=0)), WORD):
        rows, word = _words(column, np.flatnonzero(size > at), at)
        digest[rows] = mix_hash(word, digest[rows].view(np.int64))
    _, first, codes = np.unique(digest, return_index=True, return_inverse=True)
    if not _alike(column, first[codes]):  # two texts with one digest: told apart the slow way
        first, codes = _one_by_one(column)
    texts = [_text(column, int(row)) for row in first]
    return Coded(codes.astype(np.int32), texts)


def joined(parts: Sequence[Coded]) -> Coded:
    """One column of several, each distinct text once."""
    parts = parts or [Coded(np.zeros(0, np.int32), [None])]
    at: dict[str | None, int] = {}
    codes = [np.array([at.setdefault(text, len(at)) for text in part.texts], np.int32)[part.codes] for part in parts]
    return Coded(np.concatenate(codes), list(at))


def _words(column: Texts, rows: I64, at: int) -> tuple[I64, I64]:
    """The eight bytes from `at` on of each text of `rows`, with zeros behind its end."""
    left = np.minimum(column.size[rows] - at, WORD)
    unused = (WORD - left) * 8
    word = eight_bytes(column.data, column.start[rows] + at).view(np.uint64) << unused.astype(np.uint64)
    return rows, word.view(np.int64)


def _alike(column: Texts, other: I64) -> bool:
    """Whether every text is equal to the one of the row `other`."""
    if not (column.size == column.size[other]).all():
        return False
    for at in range(0, int(column.size.max(initial=0)), WORD):
        rows = np.flatnonzero(column.size > at)
        same: Bool = _words(column, rows, at)[1] == _words(column, other[rows], at)[1]
        if not same.all():
            return False
    return True


def _one_by_one(column: Texts) -> tuple[I64, I64]:
    at: dict[bytes | None, int] = {}
    codes = np.array([at.setdefault(_bytes(column, row), len(at)) for row in range(len(column.size))], np.int64)
    return np.unique(codes, return_index=True)[1], codes


def _bytes(column: Texts, row: int) -> bytes | None:
    start, size = int(column.start[row]), int(column.size[row])
    return None if size < 0 else column.data[start : start + size].tobytes()


def _text(column: Texts, row: int) -> str | None:
    found = _bytes(column, row)
    return None if found is None else found.decode("utf-8", "replace")
