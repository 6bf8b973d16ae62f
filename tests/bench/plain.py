"""The plain read that every ratio is of: the columns tracelab reads of the three large tables, with Python's sqlite3.

python tests/bench/plain.py FILE.sqlite
"""

import sqlite3
import sys

from tracelab.nsys_tables import KERNEL, NVTX, RUNTIME, TableSpec


def present(db: sqlite3.Connection, spec: TableSpec) -> list[str]:
    """Those columns of `spec` that the file has."""
    there = {row[1] for row in db.execute(f"PRAGMA table_info({spec.name})")}
    return [name for name in (*spec.ints, *spec.texts) if name in there]


def main() -> None:
    """Command line."""
    db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro&immutable=1", uri=True)
    for spec in (KERNEL, RUNTIME, NVTX):
        names = ", ".join(f'"{name}"' for name in present(db, spec))
        db.execute(f"SELECT {names} FROM {spec.name}").fetchall()


if __name__ == "__main__":
    main()
