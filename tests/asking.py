"""Short ways to ask tracelab about a file, through the same calls as the command line."""

import json
import random
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tracelab.analysis import Analysis, attribute, report, view_of
from tracelab.load import load_trace
from tracelab.options import Facts, Selection
from tracelab.registry import leaves, load
from tracelab.result import Result, Row
from tracelab.view import View

NO_FACTS = Facts()
_TIMES = ("start", "end", "timestamp", "duration")
_NO_EVENTS = ("StringIds", "META_", "EXPORT_", "TARGET_", "ENUM_", "PROCESSES", "ThreadNames")


def ask(path: Path, facts: Facts = NO_FACTS, **selection: Any) -> Analysis:
    """The attributed trace; all steps are used unless `skip_steps` says otherwise."""
    return attribute(load_trace(path), facts, Selection(**{"skip_steps": 0, **selection}))


def view(path: Path, facts: Facts = NO_FACTS, *, device: int = 0, **selection: Any) -> View:
    return view_of(ask(path, facts, **selection), device)


def result(analyzer: str, seen: View, **parameters: Any) -> Result:
    found: Result = load(leaves("analyzers")[analyzer]).analyze(seen, **parameters)
    return found


def metric(answer: Result, name: str) -> Any:
    return answer.metrics[name].value


def row(answer: Result, table: str, **wanted: Any) -> Row:
    """The only row of a table with these values."""
    found = [r for r in answer.tables[table] if all(r[k] == v for k, v in wanted.items())]
    assert len(found) == 1, (wanted, answer.tables[table])
    return found[0]


def column(answer: Result, table: str, key: str, value: str) -> dict[Any, Any]:
    """One column of a table as {key: value}."""
    return {r[key]: r[value] for r in answer.tables[table]}


def document(path: Path, facts: Facts = NO_FACTS, **selection: Any) -> dict[str, Any]:
    """The whole report as JSON without the trace's path."""
    text = load(leaves("reports")["json"]).render(
        report(ask(path, facts, **selection)), full_names=True, width=None, color=False
    )
    found: dict[str, Any] = json.loads(text)
    found["trace"].pop("path")
    return found


def numbers(value: Any, where: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON document with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from numbers(item, f"{where}/{key}")
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield where, float(value)


def assert_sound(seen: View, said: Mapping[str, Any]) -> None:
    """What holds on every trace: exact sums, nothing negative, no share above 1."""
    spans = seen.busy_ns + seen.other_ns + seen.idle_by_class.sum(axis=0)
    np.testing.assert_array_equal(spans, seen.span_ns)
    waterfall = said["results"]["waterfall"]
    if waterfall["skipped"] is None:
        total = sum(r["ns"] for r in waterfall["tables"]["waterfall"])
        assert total == waterfall["checks"][0]["limit"]
        assert waterfall["checks"][0]["ok"]
    assert_plausible(said)
    if seen.steps_used == 0:
        assert all(r["skipped"] for name, r in said["results"].items() if name != "launches")
        return
    phases = said["results"]["phases"]["tables"]["phases"]
    assert seen.busy_ns.sum() == 0 or abs(sum(r["share"] for r in phases) - 1) <= 1e-9
    assert sum(r["busy_ns"] for r in phases) == round(float(seen.busy_ns.mean()))


def assert_plausible(said: Mapping[str, Any]) -> None:
    for where, value in numbers(said):
        if "workload" in where or "/code" in where:
            continue
        assert value >= 0, where
        if where.removesuffix("/value").endswith(("share", "sm_fill", "tail_efficiency", "occupancy")):
            assert value <= 1 + 1e-12, where


def shuffled(source: Path, target: Path, seed: int) -> Path:
    """A copy with the rows of every table in random order."""
    mixed = random.Random(seed)
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(target)) as connection, connection:
        connection.text_factory = bytes
        for table in _tables(connection):
            rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
            if not rows:
                continue
            mixed.shuffle(rows)
            connection.execute(f'DELETE FROM "{table}"')
            marks = ", ".join("?" * len(rows[0]))
            decoded = [[v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in r] for r in rows]
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', decoded)
    return target


def shifted(source: Path, target: Path, by_ns: int) -> Path:
    """A copy with every time of every event moved by `by_ns`."""
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(target)) as connection, connection:
        for table in _tables(connection):
            if table.startswith(_NO_EVENTS):
                continue
            present = [str(r[1]) for r in connection.execute(f'PRAGMA table_info("{table}")')]
            moved = [f'"{name}" = "{name}" + ({by_ns})' for name in _TIMES if name in present]
            if moved:
                connection.execute(f'UPDATE "{table}" SET {", ".join(moved)}')
    return target


def _tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [name.decode() if isinstance(name, bytes) else str(name) for (name,) in rows]
