"""Which tables and columns of an export a copy holds, whatever kind of file keeps them, and what is left out."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracelab.capture.redact import Redactor
from tracelab.capture.scrub_schema import FINISHED, STRINGS, TABLES, Kept
from tracelab.errors import InputError

# By table, the columns to keep of those that may be kept; None keeps them all.
Only = Mapping[str, Collection[str]] | None
# Where the secrets of an export stand: each table, the column that names a value (or what to call it), its column.
_SECRETS = (
    ("META_DATA_CAPTURE", "name", "value"),
    ("META_DATA_EXPORT", "name", "value"),
    ("EXPORT_META_DATA", "name", "value"),
    ("TARGET_INFO_SYSTEM_ENV", "name", "value"),
    ("PROCESSES", "", "name"),
    ("TARGET_INFO_GPU", "", "uuid"),
    ("TARGET_INFO_CUDA_GPU", "", "uuid"),
)
_CALLED = {"name": "COMMAND", "uuid": "UUID"}


@dataclass(frozen=True)
class TableRows:
    """Rows of a table that were left out, of all that it had; None where they were not counted."""

    name: str
    left_out: int | None
    rows: int | None


@dataclass(frozen=True)
class Scrubbed:
    """What a copy holds less than its source, and the size of both in bytes.

    `tables` are those left out whole, the largest first; `rows` those of which some rows were; `columns` are
    `TABLE.column`s left out or blanked; `redacted_texts` counts different texts that stayed with something taken out.
    """

    tables: tuple[TableRows, ...]
    rows: tuple[TableRows, ...]
    columns: tuple[str, ...]
    redacted_texts: int
    source_bytes: int
    copy_bytes: int


@dataclass(frozen=True)
class Plan:
    """The columns of each table to copy, in the source's order, and `TABLE.column`s to leave out or blank."""

    tables: Mapping[str, tuple[str, ...]]
    left_out: tuple[str, ...]

    def string_columns(self, *, overheads: bool) -> Iterator[tuple[str, str]]:
        """Table and column of each copied column that points to names of StringIds, or to names of overheads."""
        for table, columns in self.tables.items():
            kept = TABLES[table]
            if (kept.says == "overhead") == overheads:
                yield from ((table, column) for column in kept.strings if column in columns)


def make_plan(source: Path, present: Mapping[str, Sequence[str]], only: Only) -> Plan:
    """What to copy of an export with the columns `present`, by table.

    Raises InputError where they are no export's, or one's that was not finished.
    """
    if STRINGS not in present:
        raise InputError(f"{source} is no nsys export: it has no table {STRINGS}")
    if FINISHED.isdisjoint(present):
        raise InputError(
            f"{source} is an incomplete export: its exporter stopped before it wrote any event table; export the "
            "report again with an nsys at least as new as the one that recorded it"
        )
    tables: dict[str, tuple[str, ...]] = {}
    left_out: list[str] = []
    for table in sorted(TABLES.keys() & present.keys()):
        columns = _chosen(table, present[table], only)
        if columns:
            tables[table] = columns
            left_out += [f"{table}.{c}" for c in present[table] if c not in columns or c in TABLES[table].blanked]
    left_out += [f"{STRINGS}.{column}" for column in present[STRINGS] if column not in ("id", "value")]
    return Plan(tables, tuple(left_out))


def secret_pairs(texts: Callable[[str, Sequence[str]], Sequence[Sequence[str | None]]]) -> Iterator[tuple[str, str]]:
    """Name and value of all that an export knows of its user; `texts` gives the rows of these columns of a table."""
    for table, naming, column in _SECRETS:
        for row in texts(table, (naming, column) if naming else (column,)):
            if row[-1] is not None:
                yield (row[0] or "") if naming else _CALLED[column], row[-1]


def refuse_secrets(found: Collection[str]) -> None:
    """The last guard, whatever the cleaning did: raises InputError if a secret was found in the copy."""
    if found:
        values = f"{len(found)} value{'' if len(found) == 1 else 's'}"
        raise InputError(f"nothing was written: the copy would still hold {values} of the environment")


def summary(
    plan: Plan, redactor: Redactor, tables: Sequence[TableRows], rows: Sequence[TableRows], sizes: tuple[int, int]
) -> Scrubbed:
    """What was left out, the most rows first; the names of unknown tables and columns may hold secrets themselves."""
    changed = redactor.changed
    shown = [TableRows(_shown(redactor, table.name), table.left_out, table.rows) for table in tables]
    columns = tuple(_shown(redactor, column) for column in plan.left_out)
    return Scrubbed(_ranked(shown), _ranked(rows), columns, changed, *sizes)


def _shown(redactor: Redactor, name: str) -> str:
    return redactor.name(name.encode("utf-8", "replace")) or ""


def _ranked(tables: Sequence[TableRows]) -> tuple[TableRows, ...]:
    """Those that were not counted come last."""
    return tuple(sorted(tables, key=lambda t: (t.left_out is None, -(t.left_out or 0), t.name)))


def _chosen(table: str, present: Sequence[str], only: Only) -> tuple[str, ...]:
    kept: Kept = TABLES[table]
    columns = tuple(c for c in present if c in kept.columns and (only is None or c in only.get(table, ())))
    return columns if not kept.pairs or set(kept.texts) <= set(columns) else ()
