"""Large traces made from a real one: its whole capture again and again, each time later and with ids of its own.

python tests/bench/enlarge.py SOURCE.sqlite TARGET.sqlite KERNELS
"""

import argparse
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_PAUSE_NS = 50_000  # between the end of one repetition and the start of the next
_TIMES = ("start", "end", "timestamp")
_IDS = ("correlationId", "gridId")  # counted up by the profiler, so every repetition has its own
_NOT_REPEATED = (
    "StringIds", "TARGET_", "META_", "ENUM_", "EXPORT_", "ANALYSIS_", "DIAGNOSTIC_", "PROCESSES", "ProcessStreams",
    "CUDA_GRAPH_",
)  # fmt: skip


def enlarge(source: Path, target: Path, kernels: int) -> int:
    """Write `target` with at least `kernels` kernels; returns how many it has."""
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(target)) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        own = int(db.execute(f"SELECT count(*) FROM {_KERNELS}").fetchone()[0])
        times = -(-kernels // own)
        tables = [str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        repeated = [name for name in tables if not name.startswith(_NOT_REPEATED)]
        step_ns, step_id = _extent(db, repeated)
        db.execute("CREATE TEMP TABLE repetition (i)")
        db.executemany("INSERT INTO repetition VALUES (?)", ((i,) for i in range(1, times)))
        for table in repeated:
            _repeat(db, table, step_ns, step_id)
        db.execute("UPDATE ANALYSIS_DETAILS SET duration = duration + ?", (times * step_ns,))
        db.commit()
    return own * times


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in db.execute(f'PRAGMA table_info("{table}")')]


def _extent(db: sqlite3.Connection, tables: list[str]) -> tuple[int, int]:
    """How much later the next repetition begins, and by how much its ids are larger."""
    first, last, largest = [], [], [0]
    for table in tables:
        columns = _columns(db, table)
        if {"start", "end"} <= set(columns):
            low, high = db.execute(f'SELECT min(start), max(max(start, coalesce("end", 0))) FROM "{table}"').fetchone()
            first += [low] if low is not None else []
            last += [high] if high is not None else []
        for column in (name for name in _IDS if name in columns):
            largest.append(db.execute(f'SELECT coalesce(max("{column}"), 0) FROM "{table}"').fetchone()[0])
    return max(last) - min(first) + _PAUSE_NS, max(largest) + 1


def _repeat(db: sqlite3.Connection, table: str, step_ns: int, step_id: int) -> None:
    columns = _columns(db, table)
    values = [
        f'"{name}" + i * {step_ns}' if name in _TIMES else f'"{name}" + i * {step_id}' if name in _IDS else f'"{name}"'
        for name in columns
    ]
    names = ", ".join(f'"{name}"' for name in columns)
    rows = f'(SELECT * FROM "{table}" ORDER BY rowid)'
    db.execute(f'INSERT INTO "{table}" ({names}) SELECT {", ".join(values)} FROM repetition, {rows} ORDER BY i')


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("kernels", type=int)
    options = parser.parse_args()
    print(f"{options.target}: {enlarge(options.source, options.target, options.kernels)} kernels")


if __name__ == "__main__":
    main()
