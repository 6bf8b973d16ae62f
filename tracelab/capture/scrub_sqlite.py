"""The scrubbed copy of a SQLite export, built as a new database: no freed page of the source can travel with it."""

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from tracelab.capture.redact import Redactor
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
from tracelab.capture.settled import settled
from tracelab.errors import InputError

_TEXT_KINDS = ("name", "overhead", "fact", "diagnostic")


def copy_sqlite(source: Path, target: Path, only: Only) -> Scrubbed:
    """Write the shareable copy of the SQLite export `source` to the new file `target`.

    Raises InputError if `source` is damaged or no finished export, if the disk is full, or if a secret would remain.
    """
    try:
        with settled(source) as file:
            return _copy(source, file, target, only)
    except (sqlite3.Error, UnicodeError) as error:  # SQLite quotes a damaged definition in its error
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise InputError(f"{source} was not copied: the disk is full") from error
        # Only the code: SQLite's own sentence may quote what stands in the file.
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        raise InputError(f"{source} cannot be scrubbed: damaged ({name}); export the report again") from error


def _copy(source: Path, file: Path, target: Path, only: Only) -> Scrubbed:
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with contextlib.closing(sqlite3.connect(f"file:{quote(os.fsencode(target))}", uri=True)) as database:
        database.text_factory = lambda value: value.decode("utf-8", "replace")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA trusted_schema = OFF")  # the source's definitions may name functions
        database.execute("ATTACH ? AS src", (f"file:{quote(os.fsencode(file))}?mode=ro&immutable=1",))
        plan = make_plan(source, _columns(database, "src"), only)
        redactor = Redactor(find_secrets(secret_pairs(lambda table, names: _texts(database, table, names))))
        _add_functions(database, redactor)
        for table, columns in plan.tables.items():
            _copy_table(database, table, columns)
        _copy_strings(database, plan)
        database.commit()
        tables, rows = _left_out(database, plan)
        database.execute("DETACH src")
        database.execute("VACUUM")
        _verify(database, redactor)
    return summary(plan, redactor, tables, rows, (source.stat().st_size, target.stat().st_size))


def _columns(database: sqlite3.Connection, schema: str) -> dict[str, tuple[str, ...]]:
    """The columns of each real table, by table."""
    tables = database.execute(f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' AND rootpage > 0")
    return {
        name: tuple(str(row[0]) for row in database.execute("SELECT name FROM pragma_table_info(?, ?)", (name, schema)))
        for (name,) in tables.fetchall()
    }


def _texts(database: sqlite3.Connection, table: str, names: Sequence[str]) -> list[tuple[str | None, ...]]:
    """Rows of these columns of a table of the source as text; none where it lacks the last one."""
    present = _columns(database, "src").get(table, ())
    if names[-1] not in present:
        return []
    chosen = ", ".join(f'CAST("{name}" AS TEXT)' if name in present else "NULL" for name in names)
    return database.execute(f'SELECT {chosen} FROM src."{table}" ORDER BY rowid').fetchall()


def _add_functions(database: sqlite3.Connection, redactor: Redactor) -> None:
    for says in _TEXT_KINDS:
        database.create_function(f"clean_{says}", 1, getattr(redactor, says), deterministic=True)
    database.create_function("clean_pair", 3, redactor.pair, deterministic=True)


def _copy_table(database: sqlite3.Connection, table: str, columns: Sequence[str]) -> None:
    kept = TABLES[table]
    types = ", ".join(f'"{column}" {_type(kept, column)}' for column in columns)
    database.execute(f'CREATE TABLE main."{table}" ({types})')
    if kept.pairs:
        cleaned = f"clean_pair('{kept.says}', CAST(name AS BLOB), CAST(value AS BLOB))"
        chosen = ", ".join({"name": "name", "value": cleaned}[column] for column in columns)
        query = f'SELECT {chosen} FROM src."{table}" WHERE {cleaned} IS NOT NULL ORDER BY rowid'
    else:
        chosen = ", ".join(_expression(table, kept, column, "eventType" in columns) for column in columns)
        query = f'SELECT {chosen} FROM src."{table}" ORDER BY rowid'
    database.execute(f'INSERT INTO main."{table}" {query}')


def _type(kept: Kept, column: str) -> str:
    if column not in kept.numbers:
        return "TEXT"
    return "REAL" if column in ("doubleValue", "floatValue") else "INTEGER"


def _expression(table: str, kept: Kept, column: str, has_event_type: bool) -> str:
    """The SQL that yields what the copy may hold of one column."""
    if column in kept.blanked:
        return "''"
    value = f'clean_{kept.says}(CAST("{column}" AS BLOB))' if column in kept.texts else _number(f'"{column}"')
    if table == NVTX and column in (*kept.texts, *kept.strings):
        named = f"CAST(eventType AS INTEGER) IS NOT {NVTX_THREAD_NAME}" if has_event_type else "0"
        return f"CASE WHEN {named} THEN {value} END"
    return value


def _number(column: str) -> str:
    """The SQL that yields a number, also where it is kept as text: SQLite enforces no types. Other texts are NULL."""
    digits = f"CAST({column} AS INTEGER)"
    return (
        f"CASE WHEN typeof({column}) IN ('integer', 'real') THEN {column} "
        f"WHEN CAST({digits} AS TEXT) = {column} THEN {digits} END"
    )


def _copy_strings(database: sqlite3.Connection, plan: Plan) -> None:
    """Copy the strings that a kept column of a kept row points to; what is both a name and an overhead is a name."""
    database.execute(f"CREATE TABLE main.{STRINGS} (id INTEGER NOT NULL PRIMARY KEY, value TEXT)")
    if not {"id", "value"} <= set(_columns(database, "src")[STRINGS]):
        return
    for says in ("overhead", "name"):
        found = plan.string_columns(overheads=says == "overhead")
        queries = [f'SELECT "{column}" FROM main."{table}"' for table, column in found]
        if queries:
            database.execute(
                f"INSERT OR REPLACE INTO main.{STRINGS} SELECT id, clean_{says}(CAST(value AS BLOB)) "
                f"FROM src.{STRINGS} WHERE typeof(id) = 'integer' AND id IN ({' UNION '.join(queries)}) ORDER BY rowid"
            )


def _left_out(database: sqlite3.Connection, plan: Plan) -> tuple[list[TableRows], list[TableRows]]:
    """Tables and views left out whole, and tables of which rows were."""
    tables: list[TableRows] = []
    rows: list[TableRows] = []
    copied = {*plan.tables, STRINGS}
    query = "SELECT name, type = 'table' AND rootpage > 0 FROM src.sqlite_master WHERE type IN ('table', 'view')"
    for name, counted in database.execute(query).fetchall():
        before = _count(database, "src", name) if counted else None
        if name not in copied:
            if not name.startswith("sqlite_"):  # what SQLite keeps for itself
                tables.append(TableRows(name, before, before))
        elif before is not None and (missing := before - _count(database, "main", name)):
            rows.append(TableRows(name, missing, before))
    return tables, rows


def _count(database: sqlite3.Connection, schema: str, table: str) -> int:
    quoted = table.replace('"', '""')
    return int(database.execute(f'SELECT count(*) FROM {schema}."{quoted}"').fetchone()[0])


def _verify(database: sqlite3.Connection, redactor: Redactor) -> None:
    """Raise InputError if a secret stands in the copy: the last guard, whatever the cleaning did."""
    found: set[str] = set()
    for table, columns in _columns(database, "main").items():
        kept = KEPT_STRINGS if table == STRINGS else TABLES[table]
        for column in set(kept.texts).intersection(columns):  # into all others nothing but numbers was copied
            for (text,) in database.execute(f'SELECT DISTINCT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'):
                found.update(redactor.secrets_in(kept.says, str(text)))
    refuse_secrets(found)
