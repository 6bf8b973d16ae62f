"""What is measured of tracelab, and the bars of the issue «A million kernels in two seconds, ten million in twenty»."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from measure import AS_MODULE, BY_SQLITE3, ROOT, Run, best, measured, own_env, tracelab
from traces import EAGER, Traces

PLAIN, REPORT, DIFF, KINETO = "plain sqlite3 read", "report, first time", "diff of two", "report of Kineto JSON"
_PLAIN_READ = ROOT / "tests" / "bench" / "plain.py"


@dataclass(frozen=True)
class Bar:
    """At most `most` times the case `of` (None: seconds), and at most `peak_mb` MB of memory."""

    most: float
    of: str | None = None
    peak_mb: float = float("inf")

    def holds(self, run: Run, runs: Mapping[str, Run]) -> bool:
        """Whether `run` is within the bar, as precisely as it is printed."""
        return round(self._found(run, runs), 2) <= self.most and run.peak_mb <= self.peak_mb

    def text(self, run: Run, runs: Mapping[str, Run]) -> str:
        """What was found beside what is allowed."""
        what = f"× {self.of}" if self.of else "s"
        memory = f" and {self.peak_mb:.0f} MB" if self.peak_mb < float("inf") else ""
        return f"{self._found(run, runs):.2f} {what}, at most {self.most}{memory}"

    def _found(self, run: Run, runs: Mapping[str, Run]) -> float:
        return run.seconds / (runs[self.of].seconds if self.of else 1.0)


@dataclass(frozen=True)
class Case:
    """A command of tracelab, with an empty cache or (`again`) with one that holds its report.

    `once`: not repeated; `by_sqlite3`: that module reads every table.
    """

    name: str
    arguments: tuple[str | Path, ...]
    bar: Bar | None = None
    again: bool = False
    once: bool = False
    by_sqlite3: bool = False


def cases(traces: Traces) -> list[Case]:
    """All cases but the plain read, in the order of the issue."""
    ten = (
        []
        if traces.ten is None
        else [Case("report of ten times", ("report", traces.ten), Bar(11, REPORT, 6000), once=True)]
    )
    return [
        Case(REPORT, ("report", traces.big), Bar(0.6, PLAIN, 700)),
        Case("report, again", ("report", traces.big), Bar(0.25, PLAIN), again=True),
        Case("the same, by sqlite3", ("report", traces.big), by_sqlite3=True),
        Case("gaps alone", ("gaps", traces.big), Bar(1, REPORT)),
        Case("kernels alone", ("kernels", traces.big), Bar(1, REPORT)),
        Case(DIFF, ("diff", traces.big, traces.other), Bar(2.2, REPORT, 1200)),
        *ten,
        Case("report of nested ranges", ("report", traces.nested), Bar(1.5, REPORT)),
        Case("the same, names numbered", ("report", traces.numbered)),
        Case(KINETO, ("report", traces.kineto)),
        Case("report of parquetdir", ("report", traces.parquetdir), Bar(0.6, REPORT)),
        Case("report of a recording", ("report", EAGER), Bar(0.8)),
        Case("--help", ("--help",), Bar(0.3)),
    ]


def measure(traces: Traces, repeat: int) -> dict[str, Run]:
    """The best of `repeat` rounds of every case; in rounds, so that a slow minute of the machine meets all of them."""
    found: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as filled:
        tracelab(("report", traces.big), Path(filled))
        for number in range(repeat):
            for name, run in _round(traces, Path(filled), first=number == 0):
                found.setdefault(name, []).append(run)
                print(f"\rround {number + 1} of {repeat}: {name:30}", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    return {name: best(runs) for name, runs in found.items()}


def _round(traces: Traces, filled: Path, *, first: bool) -> Iterator[tuple[str, Run]]:
    yield PLAIN, measured([sys.executable, _PLAIN_READ, traces.big], own_env())
    for case in cases(traces):
        if first or not case.once:
            program = BY_SQLITE3 if case.by_sqlite3 else AS_MODULE
            yield case.name, tracelab(case.arguments, filled if case.again else None, program)
