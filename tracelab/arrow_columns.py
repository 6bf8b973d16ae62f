"""Columns of Arrow tables as SQLite would give them: integers and texts, whatever types they have in the file."""

import re
from typing import Any

import numpy as np
import pyarrow as pa

from tracelab.arrow_values import mark_missing, values
from tracelab.coded_texts import WORD, code_texts, joined
from tracelab.sqlite_pages import Texts
from tracelab.table_source import NULL, Coded, coded, missing
from tracelab.trace import I64

_INTEGER = re.compile(r"\s*([+-]?)0*([0-9]{0,20})")  # 20 digits are more than an integer has


def column_of(table: Any, name: str) -> I64:
    """A column as integers, all missing where the table lacks it."""
    if name not in table.column_names:
        return missing(int(table.num_rows))
    return _integers(table.column(name))


def _integers(column: Any) -> I64:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(column), NULL, np.int64)
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.uint8()), pa.uint8()
    if pa.types.is_integer(kind):
        return _from_integers(column, np.dtype(str(kind)))
    if pa.types.is_floating(kind):
        return _from_floats(np.asarray(column.cast(pa.float64()).fill_null(np.nan)))
    return _from_texts(_texts(column))


def _from_integers(column: Any, kind: np.dtype[Any]) -> I64:
    """Straight from Arrow's memory: pyarrow's own way to numpy imports pandas, which takes longer than all the rest."""
    found, at = np.empty(len(column), np.int64), 0
    for chunk in column.chunks:
        stop = at + len(chunk)
        values(chunk, kind, found[at:stop], NULL)
        at = stop
    return found


def _from_floats(values: np.ndarray[Any, np.dtype[np.float64]]) -> I64:
    inside = np.abs(values) < 2.0**63  # neither NaN nor beyond an integer
    return np.where(inside, np.where(inside, values, 0.0).astype(np.int64), NULL)


def _from_texts(values: list[str | None]) -> I64:
    """The leading integer of each text, 0 where there is none: what a CAST of SQLite gives."""
    limits = np.iinfo(np.int64)
    found = np.full(len(values), NULL, np.int64)
    for i, value in enumerate(values):
        if value is not None:
            sign, digits = _INTEGER.match(value).groups()  # type: ignore[union-attr]  # it matches every text
            found[i] = min(max(int(f"{sign}{digits or 0}"), limits.min), limits.max)
    return found


def coded_texts_of(table: Any, name: str) -> Coded:
    """Texts by their distinct values, all missing where the table lacks them; bytes that are no UTF-8 are replaced."""
    if name not in table.column_names:
        return Coded(np.zeros(table.num_rows, np.int32), [None])
    column = table.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return joined([code_texts(_in_memory(chunk)) for chunk in column.chunks if len(chunk)])
    texts = _texts(column)
    return coded(texts, np.arange(len(texts)))


def _in_memory(chunk: Any) -> Texts:
    """Where the texts of an array lie, in a copy that has a few bytes more behind the last one."""
    _, offsets, data = chunk.buffers()
    kind = np.dtype(np.int64 if pa.types.is_large_string(chunk.type) else np.int32)
    edges = np.frombuffer(offsets, kind)[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
    there = np.ones(len(chunk), np.bool_)
    mark_missing(chunk, there, False)
    inside = np.frombuffer(data or b"", np.uint8)[edges[0] : edges[-1]]
    padded = np.append(inside, np.zeros(WORD, np.uint8))
    return Texts(padded, edges[:-1] - edges[0], np.where(there, np.diff(edges), -1))


def texts_of(table: Any, name: str) -> list[str | None]:
    """A column as texts, all missing where the table lacks it; bytes that are no UTF-8 are replaced, as everywhere."""
    return _texts(table.column(name)) if name in table.column_names else [None] * table.num_rows


def _texts(column: Any) -> list[str | None]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        return [None] * len(column)
    return [_text(value) for chunk in column.chunks for value in _as_bytes(chunk).to_pylist()]


def _as_bytes(chunk: Any) -> Any:
    """Texts as the bytes that they are in memory; of any other type the array itself."""
    if pa.types.is_string(chunk.type):
        return chunk.view(pa.binary())
    return chunk.view(pa.large_binary()) if pa.types.is_large_string(chunk.type) else chunk


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
