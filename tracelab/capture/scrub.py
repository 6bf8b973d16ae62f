"""Makes a copy of an nsys export that is safe to share: only what is known to be harmless is copied.

The copy is built as a new database, so no freed page of the source can travel with it.
"""

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tracelab.capture import scrub_schema as schema
from tracelab.capture.redact import Redactor, Secrets, collect_secrets
from tracelab.capture.scrub_schema import Kept
from tracelab.errors import InputError

_NVTX_THREAD_NAME = 39
_REMOVED = "(removed)"


@dataclass(frozen=True)
class Scrubbed:
    """What was left out: names of tables and `TABLE.column`s."""

    tables: tuple[str, ...]
    columns: tuple[str, ...]


def scrub(source: Path, target: Path, *, slim: bool = False) -> Scrubbed:
    """Write a shareable copy of the nsys SQLite export `source` to `target`; `slim` leaves out what no analysis reads.

    Raises InputError if `source` is no such export, or if a value of its environment would still stand in the copy;
    then nothing is left at `target`.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".scrub-") as folder:
        made = Path(folder) / target.name
        with _settled(source, Path(folder)) as settled:
            try:
                scrubbed = _copy(settled, made, slim)
            except sqlite3.Error as error:
                raise InputError(f"{source} cannot be scrubbed: {error}") from error
        made.chmod(0o644)
        made.replace(target)
    return scrubbed


@contextlib.contextmanager
def _settled(source: Path, folder: Path) -> Iterator[Path]:
    """`source` itself, or with a pending write-ahead log a private copy: opening it in place would write beside it."""
    if not source.is_file():
        raise InputError(f"there is no file {source}")
    log = source.with_name(source.name + "-wal")
    if not log.is_file() or log.stat().st_size == 0:
        yield source
        return
    copy = folder / "settled"
    shutil.copyfile(source, copy)
    shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    yield copy


def _copy(source: Path, target: Path, slim: bool) -> Scrubbed:
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(target))}", uri=True)) as database:
        database.text_factory = lambda value: value.decode("utf-8", "replace")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("ATTACH ? AS src", (f"file:{quote(str(source.absolute()))}?mode=ro&immutable=1",))
        columns = _source_columns(database)
        secrets = collect_secrets(database, columns)
        _add_functions(database, Redactor(secrets))
        left_out = _copy_tables(database, columns, slim)
        _copy_strings(database, columns)
        database.commit()
        database.execute("DETACH src")
        database.execute("VACUUM")
        _verify(database, secrets)
    tables = tuple(sorted(set(columns) - _kept_tables(columns, slim) - {"StringIds"}))
    return Scrubbed(tables, tuple(left_out))


def _source_columns(database: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """The columns of each table of the source, by table."""
    names = [str(row[0]) for row in database.execute("SELECT name FROM src.sqlite_master WHERE type = 'table'")]
    columns = {
        name: tuple(str(row[0]) for row in database.execute("SELECT name FROM pragma_table_info(?, 'src')", (name,)))
        for name in names
    }
    if "StringIds" not in columns:
        raise InputError("the file to scrub is no nsys export: it has no table StringIds")
    return columns


def _add_functions(database: sqlite3.Connection, redactor: Redactor) -> None:
    database.create_function("clean_name", 1, redactor.name, deterministic=True)
    database.create_function("clean_overhead", 1, redactor.overhead, deterministic=True)
    database.create_function("keeps_setting", 2, lambda name, value: schema.keeps_setting(str(name), str(value)))
    database.create_function("keeps_property", 2, lambda name, value: schema.keeps_property(str(name), str(value)))
    database.create_function("keeps_diagnostic", 1, lambda text: schema.keeps_diagnostic(str(text)))


def _kept_tables(columns: dict[str, tuple[str, ...]], slim: bool) -> set[str]:
    known = set(schema.TABLES) - (schema.SLIM_WITHOUT_TABLES if slim else set())
    return {name for name in columns if name in known or (name.startswith("ENUM_") and not slim)}


def _copy_tables(database: sqlite3.Connection, columns: dict[str, tuple[str, ...]], slim: bool) -> list[str]:
    """Copy the known tables; returns the columns of theirs that were left out or blanked."""
    left_out: list[str] = []
    for table in sorted(_kept_tables(columns, slim)):
        kept = schema.TABLES.get(table, schema.ENUM)
        present = [column for column in columns[table] if not (slim and column in schema.SLIM_WITHOUT_COLUMNS)]
        chosen = [column for column in present if column in (*kept.numbers, *kept.texts, *kept.blanked)]
        left_out += [f"{table}.{column}" for column in columns[table] if column not in chosen or column in kept.blanked]
        if chosen:
            _copy_table(database, table, kept, chosen)
    return left_out


def _copy_table(database: sqlite3.Connection, table: str, kept: Kept, chosen: list[str]) -> None:
    types = ", ".join(f'"{column}" {_type(kept, column)}' for column in chosen)
    values = ", ".join(_expression(table, kept, column) for column in chosen)
    database.execute(f'CREATE TABLE main."{table}" ({types})')
    database.execute(f'INSERT INTO main."{table}" SELECT {values} FROM src."{table}"{_rows(table)} ORDER BY rowid')


def _rows(table: str) -> str:
    """The SQL that picks the rows the copy may hold of a table."""
    if "META_DATA" in table:
        return " WHERE keeps_setting(name, value)"
    if table == "TARGET_INFO_SYSTEM_ENV":
        # Judged as it would be copied: a version from which a secret was removed is none. As bytes, since the
        # environment beside it need not be valid text.
        return " WHERE keeps_property(clean_name(CAST(name AS BLOB)), clean_name(CAST(value AS BLOB)))"
    return ""


def _type(kept: Kept, column: str) -> str:
    if column not in kept.numbers:
        return "TEXT"
    return "REAL" if column in ("doubleValue", "floatValue") else "INTEGER"


def _expression(table: str, kept: Kept, column: str) -> str:
    """The SQL that yields what the copy may hold of one column."""
    if column in kept.blanked:
        return "''"
    if column in kept.texts:
        return _text_expression(table, column)
    number = f"CASE WHEN typeof(\"{column}\") IN ('integer', 'real') THEN \"{column}\" END"
    if table == "NVTX_EVENTS" and column == "textId":
        return f"CASE WHEN eventType IS NOT {_NVTX_THREAD_NAME} THEN {number} END"
    return number


def _text_expression(table: str, column: str) -> str:
    if table == "NVTX_EVENTS":
        return f"CASE WHEN eventType IS {_NVTX_THREAD_NAME} THEN '' ELSE clean_name(CAST(\"{column}\" AS BLOB)) END"
    if table == "DIAGNOSTIC_EVENT":
        return f'CASE WHEN keeps_diagnostic("{column}") THEN "{column}" ELSE \'{_REMOVED}\' END'
    return f'clean_name(CAST("{column}" AS BLOB))'


def _copy_strings(database: sqlite3.Connection, columns: dict[str, tuple[str, ...]]) -> None:
    """Copy the strings that a kept column of a kept row points to."""
    database.execute("CREATE TABLE main.StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT)")
    if not {"id", "value"} <= set(columns["StringIds"]):
        return
    ids = _string_columns(database, overhead=False)
    overheads = _string_columns(database, overhead=True)
    for chosen, function in ((ids, "clean_name"), (overheads, "clean_overhead")):
        if chosen:
            database.execute(
                f"INSERT OR IGNORE INTO main.StringIds SELECT id, {function}(CAST(value AS BLOB)) FROM src.StringIds "
                f"WHERE typeof(id) = 'integer' AND id IN ({' UNION '.join(chosen)})"
            )


def _string_columns(database: sqlite3.Connection, *, overhead: bool) -> list[str]:
    """One query a column of the copy that points into StringIds, overheads apart from names."""
    queries = []
    for table, kept in schema.TABLES.items():
        present = {str(row[0]) for row in database.execute("SELECT name FROM pragma_table_info(?, 'main')", (table,))}
        if (table == "PROFILER_OVERHEAD") == overhead:
            queries += [f'SELECT "{column}" FROM main."{table}"' for column in kept.strings if column in present]
    return queries


def _verify(database: sqlite3.Connection, secrets: Secrets) -> None:
    """Raise InputError if a value of the source's environment stands in the copy, other than as part of a name."""
    tables = [str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    everything = "\n".join(text for table in tables for text in _texts(database, table))
    settings = "\n".join(text for table in tables if "META_DATA" in table for text in _texts(database, table))
    found = {value for value in secrets.strong if value in everything} | {v for v in secrets.weak if v in settings}
    if found:
        values = f"{len(found)} value{'' if len(found) == 1 else 's'}"
        raise InputError(f"nothing was written: the copy would still hold {values} of the environment")


def _texts(database: sqlite3.Connection, table: str) -> Iterator[str]:
    # Into all other columns nothing but numbers was copied.
    columns = database.execute("SELECT name FROM pragma_table_info(?) WHERE type = 'TEXT'", (table,)).fetchall()
    for (column,) in columns:
        query = f'SELECT DISTINCT "{column}" FROM "{table}" WHERE typeof("{column}") IN (\'text\', \'blob\')'
        yield from (str(value) for (value,) in database.execute(query))
