"""Changes to the tables of a SQLite export: each takes an open copy, changes something and says what."""

import random
import sqlite3
from collections.abc import Callable

from fuzz_values import IDENTIFIERS, LONG, facts_json, integer, raw, scalar, text, workload_record

from tracelab import nsys_gpus, nsys_tables
from tracelab.nsys_tables import TableSpec

Mutation = Callable[[sqlite3.Connection, random.Random], str]

_SPECS = {
    spec.name: spec
    for module in (nsys_tables, nsys_gpus)
    for spec in vars(module).values()
    if isinstance(spec, TableSpec)
}
_TIMES = ("start", "end")
_IDS = ("globalPid", "globalTid", "deviceId", "streamId", "contextId", "correlationId", "graphNodeId", "id", "nameId",
        "demangledName", "shortName", "textId", "domainId", "cuDevice", "gpuId", "cudaId", "pid")  # fmt: skip
_ENUMS = ("eventType", "eventClass", "copyKind", "severity", "returnValue", "graphExecId", "smCount")


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def tables_of(db: sqlite3.Connection) -> list[str]:
    """The tables with rows or without, by name."""
    names = [str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    return [name for name in names if not name.startswith("sqlite_")]


def columns_of(db: sqlite3.Connection, table: str) -> list[str]:
    """The columns of one table."""
    return [str(row[1]) for row in db.execute(f"PRAGMA table_info({quoted(table)})")]


def a_table(db: sqlite3.Connection, rng: random.Random) -> str:
    """A table, mostly one that tracelab reads and that has rows."""
    tables = tables_of(db) or ["none"]
    read = [
        name for name in tables if name in _SPECS and db.execute(f"SELECT 1 FROM {quoted(name)} LIMIT 1").fetchone()
    ]
    return rng.choice(read) if read and rng.random() < 0.9 else rng.choice(tables)


def a_column(db: sqlite3.Connection, rng: random.Random, wanted: tuple[str, ...] = ()) -> tuple[str, str]:
    """A table and its column, quoted, mostly one that tracelab reads; of `wanted` where the table has any."""
    for _ in range(9):
        table = a_table(db, rng)
        present = columns_of(db, table)
        spec = _SPECS.get(table)
        read = [name for name in present if spec and name in spec.ints + spec.texts]
        chosen = [name for name in present if name in wanted] if wanted else (read or present)
        if chosen:
            return quoted(table), quoted(rng.choice(chosen))
    return '"none"', '"none"'


def some_rows(rng: random.Random) -> str:
    """A condition for all rows, many, few or one."""
    return rng.choice(
        ("1", "1", f"rowid % {rng.randint(2, 5)} = 0", f"rowid > {rng.randint(1, 60)}", f"rowid = {rng.randint(1, 40)}")
    )


def drop_table(db: sqlite3.Connection, rng: random.Random) -> str:
    table = a_table(db, rng)
    db.execute(f"DROP TABLE {quoted(table)}")
    return f"drop {table}"


def drop_column(db: sqlite3.Connection, rng: random.Random) -> str:
    table, column = a_column(db, rng)
    db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    return f"drop {table}.{column}"


def retype_column(db: sqlite3.Connection, rng: random.Random) -> str:
    """NULL, text, bytes, fractions or extreme integers in a column, one value for all rows or one for each."""
    table, column = a_column(db, rng)
    if rng.random() < 0.6:
        value, where = scalar(rng), some_rows(rng)
        if rng.random() < 0.02:
            value, where = LONG, f"rowid = {rng.randint(1, 9)}"
        db.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {where}", (value,))
        return f"{table}.{column} = {str(value)[:40]!r} where {where}"
    kind = rng.choice((integer, scalar))
    db.create_function("hostile", 0, lambda: kind(rng))
    db.execute(f"UPDATE OR IGNORE {table} SET {column} = hostile()")
    return f"{table}.{column} = any {kind.__name__}"


def hostile_names(db: sqlite3.Connection, rng: random.Random) -> str:
    table, column = rng.choice((
        ("StringIds", "value"), ("StringIds", "value"), ("NVTX_EVENTS", "text"), ("TARGET_INFO_GPU", "name"),
        ("DIAGNOSTIC_EVENT", "text"), ("META_DATA_EXPORT", "value"), ("META_DATA_CAPTURE", "value"),
        ("TARGET_INFO_SYSTEM_ENV", "value"),
    ))  # fmt: skip
    where = some_rows(rng)
    if rng.random() < 0.3:
        value = raw(rng)
        db.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {where}", (value,))
        return f"{table}.{column} = {value[:40]!r} where {where}"
    words = text(rng)
    if rng.random() < 0.06:
        words, where = LONG, f"rowid = {rng.randint(1, 9)}"
    change = rng.choice(("?", "?", f"{column} || ?", f"? || {column}"))
    db.execute(f"UPDATE {table} SET {column} = {change} WHERE {where}", (words,))
    return f"{table}.{column} = {change} with {words[:40]!r} where {where}"


def permute(db: sqlite3.Connection, rng: random.Random) -> str:
    """The values of one column, or of all, in another order."""
    table, column = a_column(db, rng)
    if rng.random() < 0.5:
        rows = [row[0] for row in db.execute(f"SELECT {column} FROM {table} ORDER BY rowid")]
        rng.shuffle(rows)
        places = [row[0] for row in db.execute(f"SELECT rowid FROM {table} ORDER BY rowid")]
        db.executemany(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", zip(rows, places, strict=True))
        return f"{table}.{column} permuted"
    _rebuilt(db, table, f"SELECT * FROM {table} ORDER BY (rowid * {rng.randrange(1, 10**6)}) % 10007")
    return f"{table} permuted"


def duplicate_rows(db: sqlite3.Connection, rng: random.Random) -> str:
    """Rows twice, keys included: the copy of the table has no constraint."""
    table, where = quoted(a_table(db, rng)), some_rows(rng)
    _rebuilt(db, table, f"SELECT * FROM {table} UNION ALL SELECT * FROM {table} WHERE {where}")
    return f"{table} twice where {where}"


def same_ids(db: sqlite3.Connection, rng: random.Random) -> str:
    table, column = a_column(db, rng, _IDS)
    where, value = some_rows(rng), rng.choice((integer(rng), f"(SELECT {column} FROM {table} LIMIT 1)"))
    _rebuilt(db, table, f"SELECT * FROM {table}")
    db.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}")
    return f"{table}.{column} = {value} where {where}"


def odd_enums(db: sqlite3.Connection, rng: random.Random) -> str:
    table, column = a_column(db, rng, _ENUMS)
    value, where = rng.choice((integer(rng), rng.randint(0, 100))), some_rows(rng)
    db.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}")
    return f"{table}.{column} = {value} where {where}"


def change_times(db: sqlite3.Connection, rng: random.Random) -> str:
    """Times of one table, or of all, scaled, moved, inverted, zero, equal or extreme."""
    one = a_column(db, rng, _TIMES)[0][1:-1]
    scope = [name for name in tables_of(db) if {*_TIMES} <= {*columns_of(db, name)}] if rng.random() < 0.3 else [one]
    by, where = integer(rng), some_rows(rng)
    change = rng.choice((
        f"start = start + ({by}), end = end + ({by})", f"start = start * {rng.randint(-3, 10**6)}, end = end * 1000",
        "start = end, end = start", "start = 0, end = 0", "end = start", f"end = {by}", f"start = {by}",
        "start = -start, end = -end", f"start = {-(2**60)}, end = {2**60}", "end = start + 1", "start = 5, end = 9",
        f"end = start + {2**rng.randint(30, 60)}", f"end = start - {rng.randint(1, 10**9)}", "start = NULL",
        "end = NULL", "start = start / 1000000, end = end / 1000000",
        f"start = start + rowid * {rng.randint(-10**6, 10**6)}",
    ))  # fmt: skip
    for table in scope:
        db.execute(f"UPDATE {quoted(table)} SET {change} WHERE {where}")
    return f"{len(scope)} tables, first {scope[0] if scope else 'none'}: {change} where {where}"


def delete_rows(db: sqlite3.Connection, rng: random.Random) -> str:
    table = a_table(db, rng)
    where = rng.choice(("1", f"rowid % {rng.randint(2, 9)} != 0", f"rowid > {rng.randint(1, 30)}", "rowid != 1"))
    db.execute(f"DELETE FROM {quoted(table)} WHERE {where}")
    return f"delete from {table} where {where}"


def odd_row(db: sqlite3.Connection, rng: random.Random) -> str:
    """One more row, a copy of another with hostile values in some columns; or nothing but NULLs."""
    table = quoted(a_table(db, rng))
    columns = columns_of(db, table[1:-1])
    rows = db.execute(f"SELECT * FROM {table} LIMIT 50").fetchall()
    row = list(rng.choice(rows)) if rows and rng.random() < 0.9 else [None] * len(columns)
    for at in rng.sample(range(len(row)), min(len(row), rng.randint(1, 4))):
        row[at] = scalar(rng)
    _rebuilt(db, table, f"SELECT * FROM {table}")
    db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    return f"{table}: one more row {str(row)[:160]}"


def rename(db: sqlite3.Connection, rng: random.Random) -> str:
    """A table or a column under another name: hostile, in other case, or that of another one."""
    table, column = a_column(db, rng)
    if rng.random() < 0.5:
        new = rng.choice((rng.choice(IDENTIFIERS), table[1:-1] + "_", rng.choice([*_SPECS])))
        db.execute(f"ALTER TABLE {table} RENAME TO {quoted(new)}")
        return f"{table} is now {new[:60]!r}"
    new = rng.choice((*IDENTIFIERS, "rowid", "start", "end", "id"))
    db.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO {quoted(new)}")
    return f"{table}.{column} is now {new[:60]!r}"


def foreign(db: sqlite3.Connection, rng: random.Random) -> str:
    """A table, view, trigger or index that no exporter writes; a view may never end."""
    name, table = quoted(rng.choice(IDENTIFIERS)), quoted(a_table(db, rng))
    absent = quoted(rng.choice(sorted({*_SPECS, "CUPTI_ACTIVITY_KIND_CUDA_EVENT"} - {*tables_of(db)}) or ["x"]))
    endless = "WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c) SELECT id, id AS value FROM c"
    first = quoted((columns_of(db, table[1:-1]) or ["a"])[0])
    statement = rng.choice((
        f"CREATE TABLE {name} (a, b)", f"CREATE TABLE {absent} (a, b)", f"CREATE TABLE {name} AS SELECT * FROM {table}",
        f"CREATE VIEW {name} AS SELECT * FROM {table}", f"CREATE VIEW {absent} AS SELECT * FROM {table}",
        f"CREATE VIEW {absent} AS {endless}", f"CREATE VIEW {name} AS {endless}",
        f"CREATE VIEW {name} AS SELECT * FROM nowhere",
        f"CREATE TRIGGER {name} AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
        f"CREATE INDEX {name} ON {table} ({first})", f"CREATE TABLE {absent} (a PRIMARY KEY, b) WITHOUT ROWID",
        f"CREATE TABLE {absent} (id, start, value GENERATED ALWAYS AS (zeroblob(id)))",
    ))  # fmt: skip
    db.execute(statement)
    return statement[:160]


def as_view(db: sqlite3.Connection, rng: random.Random) -> str:
    """A table of the export becomes a view of another table."""
    table = quoted(a_table(db, rng))
    db.execute(f"ALTER TABLE {table} RENAME TO hidden_rows")
    db.execute(f"CREATE VIEW {table} AS SELECT {rng.choice(('*', 'rowid AS rowid, *', '1 AS a'))} FROM hidden_rows")
    return f"{table} is a view"


def damage_schema(db: sqlite3.Connection, rng: random.Random) -> str:
    """The list of tables itself says what is not so."""
    change = rng.choice((
        "rootpage = 2", f"rootpage = {rng.randint(0, 60)}", "rootpage = 999999999", "sql = NULL",
        "sql = 'CREATE TABLE'",
        "type = 'view'", "type = x'00ff'", "tbl_name = 'x'", "name = CAST(x'80ff' AS TEXT)", "name = 5", "name = NULL",
        "sql = replace(sql, 'INTEGER', char(27) || '[31m')",
        "sql = 'CREATE TABLE ' || name || '(a)'", "sql = replace(sql, '(', '(rowid,')",
    ))  # fmt: skip
    table = a_table(db, rng)
    db.execute("PRAGMA writable_schema = ON")
    db.execute(f"UPDATE sqlite_master SET {change} WHERE name = ?", (table,))
    return f"schema of {table}: {change}"


def hostile_json(db: sqlite3.Connection, rng: random.Random) -> str:
    """A workload record or the GPU's facts, with values of other types."""
    if rng.random() < 0.7:
        record = workload_record(rng)
        db.execute("INSERT INTO NVTX_EVENTS (start, eventType, text) VALUES (1, 34, ?)", (record,))
        return f"workload record {record[:160]}"
    facts = facts_json(rng)
    db.execute("DROP TABLE IF EXISTS TARGET_INFO_GPU")
    db.execute("CREATE TABLE IF NOT EXISTS TARGET_INFO_SYSTEM_ENV (name, value)")
    db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV (name, value) VALUES ('GpuInfo', ?)", (facts,))
    return f"GpuInfo {facts[:160]}"


def _rebuilt(db: sqlite3.Connection, table: str, query: str) -> None:
    db.execute(f"CREATE TABLE rebuilt_rows AS {query}")
    db.execute(f"DROP TABLE {table}")
    db.execute(f"ALTER TABLE rebuilt_rows RENAME TO {table}")


MUTATIONS: tuple[Mutation, ...] = (
    drop_table, drop_column, retype_column, retype_column, retype_column, hostile_names, hostile_names, permute,
    duplicate_rows, same_ids, same_ids, odd_enums, change_times, change_times, change_times, delete_rows, odd_row,
    odd_row, rename, foreign, as_view, damage_schema, hostile_json,
)  # fmt: skip
