"""Real traces changed at random: cases are made from (seed, index), run in processes of their own, and reported.

    python tests/fuzzing.py SEED INDEX [--keep FOLDER]

makes and asks one case again. Tests call `run_cases`. `fuzz_tables`, `fuzz_files` and `fuzz_values` hold the changes,
`fuzz_checks` what must hold.
"""

import argparse
import faulthandler
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fuzz_files
from fuzz_checks import Question, problems, same_packages
from fuzz_tables import MUTATIONS

from tracelab.samples import FOLDER

LIMIT_S = 60.0  # of one case, the slowest of which takes 9 s; what takes longer is taken for an endless loop
_ADDRESS_SPACE = 8 << 30  # an allocation beyond it fails with an error, rather than the machine
_SLOW_BYTES = 300_000  # larger files are chosen less often, in proportion
_KINDS = {"tables": 66, "bytes": 9, "folder": 10, "packed": 4, "nothing": 3, "kineto": 8}


@dataclass(frozen=True)
class Case:
    """One changed file, the export it was made from, and what was changed."""

    path: Path
    original: Path
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """A case for which something did not hold."""

    seed: int
    index: int
    changes: Sequence[str]
    found: Sequence[str]

    def __str__(self) -> str:
        corpus = os.environ.get("TRACELAB_CORPUS")
        again = f"{f'TRACELAB_CORPUS={corpus} ' if corpus else ''}python tests/fuzzing.py {self.seed} {self.index}"
        return "\n".join([f"case {self.index}: {'; '.join(self.changes)}", *self.found, f"again: {again}"])


def bases() -> list[Path]:
    """The recordings that are changed: the bundled ones, and the corpus where it is."""
    corpus = os.environ.get("TRACELAB_CORPUS")
    return [
        path for folder in (FOLDER, *([Path(corpus)] if corpus else [])) for path in sorted(folder.glob("*.sqlite"))
    ]


def make_case(seed: int, index: int, folder: Path) -> Case:
    """Case `index` of `seed`, made in the empty `folder`."""
    rng, found = random.Random(f"{seed}:{index}"), bases()
    original = rng.choices(found, [min(1.0, _SLOW_BYTES / path.stat().st_size) ** 2 for path in found])[0]
    (kind,) = rng.choices([*_KINDS], [*_KINDS.values()])
    path, changes = folder / "trace.sqlite", [f"{original.stem}, {kind}"]
    if kind == "folder":
        return Case(path, original, (*changes, fuzz_files.folder(original, path, rng)))
    if kind == "nothing":
        return Case(path, original, (*changes, fuzz_files.from_nothing(path, rng)))
    if kind == "kineto":
        path = folder / "trace.json"
        return Case(path, original, (*changes, fuzz_files.kineto(path, rng)))
    shutil.copyfile(original, path)
    if kind == "tables":
        changes += change_tables(path, rng)
    if kind == "bytes" or rng.random() < 0.1:
        changes += [fuzz_files.change_bytes(path, rng) for _ in range(rng.randint(1, 2))]
    if kind == "packed":
        path, said = fuzz_files.packed(path, rng)
        changes.append(said)
    if rng.random() < 0.15:
        path, said = fuzz_files.change_place(path, rng)
        changes.append(said)
    return Case(path, original, tuple(changes))


def change_tables(path: Path, rng: random.Random) -> Iterator[str]:
    """One to four changes to the tables; one that SQLite refuses is left out, and said."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.text_factory = bytes
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "legacy_alter_table = ON"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("BEGIN")
        db.text_factory = lambda value: value.decode("utf-8", "replace")
        for _ in range(rng.choice((1, 1, 2, 3, 4))):
            change = rng.choice(MUTATIONS)
            try:
                yield change(db, rng)
            except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
                yield f"{change.__name__}: refused ({str(error)[:60]})"
        with suppress(sqlite3.Error, UnicodeDecodeError):  # what cannot be written any more
            db.execute("COMMIT")


def run_case(seed: int, index: int, folder: Path) -> tuple[Case, list[str]]:
    """Make one case below `folder` and ask everything about it."""
    place, scratch = folder / "case", folder / "scratch"
    place.mkdir()
    scratch.mkdir()
    case = make_case(seed, index, place)
    return case, problems(Question(case.path, case.original, scratch), random.Random(f"{seed}:{index}:questions"))


def run_many(seed: int, indices: Sequence[int], limit_s: float = LIMIT_S) -> None:
    """Run cases in this process; a line of JSON before each, another for what did not hold."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    warnings.simplefilter("error", RuntimeWarning)  # numpy's, of numbers that overflow; users would see it on stderr
    for index in indices:
        print(json.dumps({"index": index}), flush=True)
        faulthandler.dump_traceback_later(limit_s, exit=True)
        with TemporaryDirectory() as folder:
            case, found = run_case(seed, index, Path(folder))
        faulthandler.cancel_dump_traceback_later()
        if found:
            print(json.dumps({"index": index, "changes": case.changes, "found": found}), flush=True)


def run_cases(seed: int, count: int, workers: int, script: Path = Path(__file__)) -> list[Failure]:
    """Cases 0 … `count` - 1 of a seed, in `workers` processes; a process that ends early is a failure of its case.

    `script` is what the processes run: this file.
    """
    with ThreadPoolExecutor(workers) as pool:
        parts = [range(start, count, workers) for start in range(workers)]
        return [
            failure
            for found in pool.map(lambda part: list(_in_processes(script, seed, part)), parts)
            for failure in found
        ]


def _in_processes(script: Path, seed: int, indices: range) -> Iterator[Failure]:
    while indices:
        words = [str(script), "--many", str(seed), str(indices.start), str(indices.stop), str(indices.step)]
        lines, ended = _in_process(words)
        yield from (Failure(seed, line["index"], line["changes"], line["found"]) for line in lines if "found" in line)
        if ended is None:
            return
        last = lines[-1]["index"] if lines else indices.start
        yield Failure(seed, last, ("see again",), (ended,))
        indices = range(last + indices.step, indices.stop, indices.step)


def _in_process(words: Sequence[str]) -> tuple[list[dict[str, Any]], str | None]:
    with TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, *words],
            capture_output=True, text=True, errors="replace", check=False,
            env={**os.environ, "TRACELAB_CACHE": cache, "PYTHONPATH": same_packages()},
        )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines, None if done.returncode == 0 else f"ended with code {done.returncode}: {done.stderr[-4000:]}"


def main() -> None:
    """One case again, or the part of a run that one process does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("index", type=int, nargs="+")
    parser.add_argument("--keep", type=Path, help="make the file in this folder, and ask nothing")
    parser.add_argument("--many", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.many:
        run_many(given.seed, range(*given.index))
    elif given.keep:
        given.keep.mkdir(parents=True)
        print("\n".join(make_case(given.seed, given.index[0], given.keep).changes))
    else:
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        with TemporaryDirectory() as folder:
            case, found = run_case(given.seed, given.index[0], Path(folder))
        print("\n".join([*case.changes, *(found or ["all holds"])]))


if __name__ == "__main__":
    main()
