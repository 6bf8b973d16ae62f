"""Real traces with one kernel made slower or faster, as a GPU would run them."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

_GPU_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_QUEUED_NS = 1_000  # work that began this soon after the work before it had been waiting for it
Row = tuple[int, int, int, int, str, int]  # start, end, correlation, rowid, table, name


def slowed(source: Path, target: Path, factor: float, chosen: Callable[[str, int], bool]) -> Path:
    """A copy of `source` in which the kernels that `chosen(name, index)` accepts take `factor` times as long.

    `index` counts the kernels of a name. What waited for a kernel moves with it: all that follows in the same launch
    (a CUDA graph), and work that was queued right behind; what the host launched late stays where it was unless it
    would overlap more than before. The traces have one stream.
    """
    shutil.copyfile(source, target)
    with sqlite3.connect(target) as db:
        names = dict(db.execute("SELECT id, value FROM StringIds"))
        rows = sorted(row for table in _GPU_TABLES for row in _rows(db, table))
        seen: dict[str, int] = {}
        before_end, end = rows[0][0], rows[0][0]
        last_correlation = -1
        for start, stop, correlation, rowid, table, code in rows:
            name = names.get(code, "")
            seen[name] = seen.get(name, -1) + 1
            length = round((stop - start) * factor) if chosen(name, seen[name]) else stop - start
            gap = start - before_end
            inside_graph = correlation == last_correlation
            behind = end + (gap if inside_graph else min(gap, _QUEUED_NS))
            moved = behind if inside_graph else max(start, behind)
            db.execute(f"UPDATE {table} SET start = ?, end = ? WHERE rowid = ?", (moved, moved + length, rowid))
            before_end, end = max(before_end, stop), max(end, moved + length)
            last_correlation = correlation
    return target


def _rows(db: sqlite3.Connection, table: str) -> list[Row]:
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
        return []
    name = "demangledName" if table.endswith("KERNEL") else "NULL"
    query = f"SELECT start, end, correlationId, rowid, '{table}', coalesce({name}, 0) FROM {table}"
    return [tuple(row) for row in db.execute(query)]
