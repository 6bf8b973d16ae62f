"""A trace of nested NVTX ranges on several threads of one process, made from a bundled recording.

python tests/bench/nested.py SOURCE.sqlite TARGET.sqlite --ranges 1000000 --kernels 200000 --threads 5

Every thread runs the recording's decode steps, over and over, on a stream of its own, all threads at the same time: in
each, as recorded, ranges of the step, its layers and their modules, and inside those, around every launch, a chain of
further ranges. Five steps are open at any time, so that neither steps nor launches can be told apart by time alone, and
no thread's ranges are few. (Four helpers without steps of their own would make the layer the step: no trace to report.)

With --numbered no two ranges of a chain have the same name, as in PyTorch's `emit_nvtx`, which numbers every operator.
"""

import argparse
import itertools
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_STEP = "decode_step %"
_PAUSE_NS = 50_000  # between the last recorded step and the first one again
_MARGIN_NS = 200  # by which a range of the chain is wider than the next inner one; around a launch 3.5 µs are free
_CHAIN = ("dispatch", "plan", "enqueue", "call")  # inside the range named by the kernel
_LAUNCHES_MOST = 1_000  # ids kept for the launches of one step; the recording has 293
_PUSH_POP = 59

_RUNTIME, _KERNEL, _NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"
# What one step of the recording holds, by the step's number j: calls that launched, with n counting them, and ranges.
# The profiler's own counts of the events it collected are those of the recording, so they go.
_TAKE = f"""
CREATE TEMP TABLE launch AS SELECT c.*, j, row_number() OVER (PARTITION BY j ORDER BY c.start) - 1 AS n
    FROM {_RUNTIME} c JOIN step s ON c.start BETWEEN s.start AND s."end"
    WHERE correlationId IN (SELECT correlationId FROM {_KERNEL});
CREATE TEMP TABLE work AS SELECT k.*, j, n FROM {_KERNEL} k JOIN launch USING (correlationId);
CREATE TEMP TABLE scope AS SELECT e.*, j FROM {_NVTX} e JOIN step s ON e.start BETWEEN s.start AND s."end"
    WHERE eventType = {_PUSH_POP};
DELETE FROM {_RUNTIME};
DELETE FROM {_KERNEL};
DELETE FROM {_NVTX} WHERE eventType = {_PUSH_POP};
DELETE FROM DIAGNOSTIC_EVENT WHERE text LIKE '% events collected%';
"""
_WRAP = """
INSERT INTO scope (start, "end", eventType, globalTid, textId, domainId, j)
    SELECT launch.start - :margin, launch."end" + :margin, :kind, globalTid, coalesce(:name, shortName), 0, j
    FROM launch JOIN work USING (j, n)
    WHERE (n + 1) * :inner / :launches - n * :inner / :launches > :depth
"""
# The text as torch.autograd.profiler.emit_nvtx writes it; nsys keeps it with the range, not among the strings.
_NUMBER = f"""
UPDATE {_NVTX} SET text = 'aten::mm, seq = ' || rowid || ', op_id = ' || (7 * rowid), textId = NULL
    WHERE textId IS NOT NULL AND eventType = {_PUSH_POP}
"""


@dataclass(frozen=True)
class Size:
    """What was asked for, and after writing what there is."""

    ranges: int
    kernels: int
    threads: int


def nest(source: Path, target: Path, wanted: Size, *, numbered: bool = False) -> Size:
    """Write `target` with at least the ranges and kernels of `wanted`; returns what it has."""
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(target)) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        _steps(db)
        db.executescript(_TAKE)
        turns = _wrap(db, wanted)
        last_ns = _turns(db, turns, wanted.threads)
        _write(db, _RUNTIME, "launch")
        _write(db, _KERNEL, "work")
        _write(db, _NVTX, "scope")
        if numbered:
            db.execute(_NUMBER)
        db.execute("UPDATE ANALYSIS_DETAILS SET duration = max(duration, ?)", (last_ns,))
        db.commit()
        ranges = db.execute(f"SELECT count(*) FROM {_NVTX} WHERE eventType = {_PUSH_POP}").fetchone()[0]
        return Size(ranges, db.execute(f"SELECT count(*) FROM {_KERNEL}").fetchone()[0], wanted.threads)


def _steps(db: sqlite3.Connection) -> None:
    """The recorded steps but for the first, which is a warm-up, with the time from each to the next, in ns."""
    found = db.execute(f'SELECT start, "end" FROM {_NVTX} WHERE text LIKE ? ORDER BY start', (_STEP,)).fetchall()[1:]
    last = db.execute(f'SELECT max("end") + {_PAUSE_NS} FROM {_KERNEL}').fetchone()[0]
    later = [start for start, _ in found[1:]] + [max(last, found[-1][1] + _PAUSE_NS)]
    db.execute('CREATE TEMP TABLE step (j, start, "end", period)')
    rows = ((j, start, end, then - start) for j, ((start, end), then) in enumerate(zip(found, later, strict=True)))
    db.executemany("INSERT INTO step VALUES (?, ?, ?, ?)", rows)


def _wrap(db: sqlite3.Connection, wanted: Size) -> int:
    """Put a chain of ranges around every launch; returns how many steps each thread runs."""
    steps, launches, ranges = (
        int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in ("step", "launch", "scope")
    )
    launches, ranges = launches // steps, ranges // steps  # every recorded step has as many
    turns = -(-wanted.kernels // (launches * wanted.threads))
    inner = max(0, -(-wanted.ranges // (turns * wanted.threads)) - ranges)
    deepest = -(-inner // launches)
    names = _name_ids(db, deepest)
    for depth in range(deepest):
        margin = (deepest - depth) * _MARGIN_NS
        given = {"margin": margin, "kind": _PUSH_POP, "name": names[depth], "depth": depth}
        db.execute(_WRAP, given | {"inner": inner, "launches": launches})
    return turns


def _name_ids(db: sqlite3.Connection, deepest: int) -> list[int | None]:
    """String ids of the ranges of a chain, from the outside; None: the kernel's own name."""
    first = int(db.execute("SELECT max(id) FROM StringIds").fetchone()[0]) + 1
    db.executemany("INSERT INTO StringIds (id, value) VALUES (?, ?)", enumerate(_CHAIN, first))
    return [None, *itertools.islice(itertools.cycle(range(first, first + len(_CHAIN))), max(deepest - 1, 0))]


def _turns(db: sqlite3.Connection, turns: int, threads: int) -> int:
    """Every step that is to be written: its thread, number, ids and by how many ns it is later; returns the end."""
    steps: list[tuple[int, int]] = db.execute("SELECT start, period FROM step ORDER BY j").fetchall()
    stream = int(db.execute("SELECT min(streamId) FROM work").fetchone()[0])
    rows = [
        (j, thread, stream + thread, number, (number * threads + thread) * _LAUNCHES_MOST + 1, later)
        for thread in range(threads)
        for number, j, later in _laps(steps, turns, thread * steps[0][1] // threads)
    ]
    db.execute("CREATE TEMP TABLE turn (j, thread, stream, number, id, later)")
    db.executemany("INSERT INTO turn VALUES (?, ?, ?, ?, ?, ?)", rows)
    return max(later + sum(steps[j]) for j, *_, later in rows)


def _laps(steps: list[tuple[int, int]], turns: int, begin_ns: int) -> Iterator[tuple[int, int, int]]:
    """Number, recorded step and shift in ns of one thread's steps, the first of which is `begin_ns` late."""
    at = steps[0][0] + begin_ns
    for number in range(turns):
        j = number % len(steps)
        yield number, j, at - steps[j][0]
        at += steps[j][1]


def _write(db: sqlite3.Connection, table: str, taken: str) -> None:
    """Fill `table` with what one step holds of it, for every turn, by start."""
    replaced = {
        "start": "start + later",
        "end": '"end" + later',
        "globalTid": "globalTid + thread",
        "streamId": "stream",
        "correlationId": "id + n",
        "gridId": "id + n",
        "text": f"CASE WHEN text LIKE '{_STEP}' THEN 'decode_step ' || number ELSE text END",
    }
    names = [str(row[1]) for row in db.execute(f'PRAGMA table_info("{table}")')]
    values = ", ".join(replaced.get(name, f'"{name}"') for name in names)
    columns = ", ".join(f'"{name}"' for name in names)
    db.execute(
        f'INSERT INTO "{table}" ({columns}) SELECT {values} FROM turn JOIN {taken} USING (j) ORDER BY start + later'
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--ranges", type=int, default=1_000_000)
    parser.add_argument("--kernels", type=int, default=200_000)
    parser.add_argument("--threads", type=int, default=5)
    parser.add_argument("--numbered", action="store_true", help="no two ranges of a chain with the same name")
    options = parser.parse_args()
    wanted = Size(options.ranges, options.kernels, options.threads)
    made = nest(options.source, options.target, wanted, numbered=options.numbered)
    print(f"{options.target}: {made.ranges} ranges on {made.threads} threads, {made.kernels} kernels")


if __name__ == "__main__":
    main()
