"""The scrubbed copy of a parquetdir or an arrowdir: new files from cleaned columns, without any metadata."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tracelab.capture import scrub_arrow as arrow
from tracelab.capture.redact import Redactor
from tracelab.capture.scrub_arrow import TableFile
from tracelab.capture.scrub_plan import (
    Only,
    Plan,
    Scrubbed,
    TableRows,
    make_plan,
    refuse_secrets,
    secret_pairs,
    summary,
)
from tracelab.capture.scrub_schema import KEPT_STRINGS, NVTX, NVTX_THREAD_NAME, STRINGS, TABLES, Kept
from tracelab.capture.scrub_secrets import find_secrets


def copy_folder(source: Path, target: Path, only: Only) -> Scrubbed:
    """Write the shareable copy of the parquetdir or arrowdir `source` to the new folder `target`.

    Raises InputError if `source` is damaged or no finished export, or if a secret would remain; OSError if `target`
    cannot be written.
    """
    files = arrow.table_files(source)
    plan = make_plan(source, {name: file.columns for name, file in files.items()}, only)
    redactor = Redactor(find_secrets(secret_pairs(lambda table, names: _texts(files.get(table), names))))
    target.mkdir()
    copy = _Copy(target, redactor, plan)
    rows = [copy.table(files[name]) for name in plan.tables]
    rows.append(copy.strings(files[STRINGS]))
    refuse_secrets(copy.secrets)
    missing = [table for table in rows if table.left_out]
    return summary(plan, redactor, list(_not_copied(source, files, plan)), missing, (_size(source), _size(target)))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _texts(file: TableFile | None, names: Sequence[str]) -> list[tuple[str | None, ...]]:
    """Rows of these columns of a table as text; none where it lacks the last one."""
    if file is None or names[-1] not in file.columns:
        return []
    rows: list[tuple[str | None, ...]] = []
    for batch in file.batches(names):
        missing: list[bytes | None] = [None] * batch.num_rows
        columns = [arrow.texts(batch.column(name)) if name in batch.schema.names else missing for name in names]
        rows += zip(*[[_decoded(value) for value in column] for column in columns], strict=True)
    return rows


def _not_copied(source: Path, files: dict[str, TableFile], plan: Plan) -> Iterable[TableRows]:
    copied = {*plan.tables, STRINGS}
    for name, file in files.items():
        if name not in copied:
            rows = file.rows()
            yield TableRows(name, rows, rows)
    tables = {file.path for file in files.values()}
    yield from (TableRows(path.name, None, None) for path in source.iterdir() if path not in tables)


class _Copy:
    """The copy in the making: which strings its tables use, and the secrets that were found in what was written."""

    def __init__(self, target: Path, redactor: Redactor, plan: Plan) -> None:
        self.secrets: set[str] = set()
        self._target, self._redactor, self._plan = target, redactor, plan
        self._used: dict[bool, set[int]] = {False: set(), True: set()}  # by: is the name of an overhead

    def table(self, file: TableFile) -> TableRows:
        """Copy one table; returns how many of its rows were left out."""
        kept, columns = TABLES[file.name], self._plan.tables[file.name]
        before = after = 0
        with arrow.writer(self._target / file.path.name, file.is_parquet) as write:
            for batch in file.batches(columns):
                arrays = self._pairs(batch, kept) if kept.pairs else self._columns(batch, file.name, kept)
                before, after = before + batch.num_rows, after + len(arrays[columns[0]])
                self._look_at(arrays, file.name, kept)
                write(arrays)
        return TableRows(file.name, before - after, before)

    def strings(self, file: TableFile) -> TableRows:
        """Copy the strings that a copied column points to; what is both a name and an overhead is a name."""
        before = after = 0
        with arrow.writer(self._target / file.path.name, file.is_parquet) as write:
            for batch in file.batches(KEPT_STRINGS.columns):
                arrays = self._strings(batch) if batch.num_columns == len(KEPT_STRINGS.columns) else {}
                before, after = before + batch.num_rows, after + len(arrays.get("id", ()))
                self._look_at(arrays, STRINGS, KEPT_STRINGS)
                write(arrays)
        return TableRows(STRINGS, before - after, before)

    def _strings(self, batch: Any) -> dict[str, Any]:
        ids = arrow.numbers(batch.column("id"))
        values, known = arrow.integers(ids)
        names, overheads = self._used[False], self._used[True]
        rows = np.flatnonzero(known & np.isin(values, list(names | overheads)))
        found = arrow.texts(batch.column("value").take(rows))
        functions = {True: self._redactor.name, False: self._redactor.overhead}
        cleaned = [functions[int(i) in names](text) for i, text in zip(values[rows], found, strict=True)]
        return {"id": ids.take(rows), "value": arrow.text_array(cleaned)}

    def _columns(self, batch: Any, table: str, kept: Kept) -> dict[str, Any]:
        unnamed = _thread_names(batch) if table == NVTX else None
        arrays = {}
        for name in batch.schema.names:
            hidden = unnamed if name in (*kept.texts, *kept.strings) else None
            if name in kept.blanked:
                arrays[name] = arrow.text_array([""] * batch.num_rows)
            elif name in kept.texts:
                texts = map(getattr(self._redactor, kept.says), arrow.texts(batch.column(name)))
                shown = np.ones(batch.num_rows, bool) if hidden is None else ~hidden
                arrays[name] = arrow.text_array([t if s else None for t, s in zip(texts, shown, strict=True)])
            else:
                arrays[name] = arrow.numbers(batch.column(name), hidden)
        return arrays

    def _pairs(self, batch: Any, kept: Kept) -> dict[str, Any]:
        names, values = (arrow.texts(batch.column(column)) for column in kept.texts)
        cleaned = [self._redactor.pair(kept.says, name, value) for name, value in zip(names, values, strict=True)]
        keys = [_decoded(name) for name, value in zip(names, cleaned, strict=True) if value is not None]
        rest = [value for value in cleaned if value is not None]
        return dict(zip(kept.texts, (arrow.text_array(keys), arrow.text_array(rest)), strict=True))

    def _look_at(self, arrays: dict[str, Any], table: str, kept: Kept) -> None:
        """Take note of the strings that are used, and of any secret that is about to be written."""
        for column in set(kept.texts).intersection(arrays):
            for text in set(arrays[column].to_pylist()) - {None}:
                self.secrets.update(self._redactor.secrets_in(kept.says, text))
        for column in set(kept.strings).intersection(arrays):
            ids, known = arrow.integers(arrays[column])
            self._used[table == "PROFILER_OVERHEAD"].update(np.unique(ids[known]).tolist())


def _thread_names(batch: Any) -> arrow.Mask:
    """Which NVTX rows name a thread; all of them where the kind of row is not told."""
    if "eventType" not in batch.schema.names:
        return np.ones(batch.num_rows, bool)
    kinds, known = arrow.integers(arrow.numbers(batch.column("eventType")))
    unnamed: arrow.Mask = known & (kinds == NVTX_THREAD_NAME)
    return unnamed


def _decoded(text: bytes | None) -> str | None:
    return None if text is None else text.decode("utf-8", "replace")
