"""How long tracelab takes on large traces, against a plain read of the same columns with Python's sqlite3, in one run.

    python tests/bench/bench.py [--kernels 1000000] [--repeat 3] [--keep FOLDER]

The traces are made from bundled recordings by `enlarge.py`. Every command runs in a process of its own; time is the
best of the repetitions, memory the largest resident set that the kernel reports of the process.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from enlarge import enlarge

ROOT = Path(__file__).parents[2]
EAGER = ROOT / "sample_traces" / "llama8b_eager_b1_h200.sqlite"
_PLAIN = """
import sqlite3, sys
from tracelab.nsys_tables import KERNEL, NVTX, RUNTIME
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro&immutable=1", uri=True)
for spec in (KERNEL, RUNTIME, NVTX):
    there = {row[1] for row in db.execute(f"PRAGMA table_info({spec.name})")}
    names = ", ".join(f'"{name}"' for name in (*spec.ints, *spec.texts) if name in there)
    rows = db.execute(f"SELECT {names} FROM {spec.name}").fetchall()
"""


@dataclass(frozen=True)
class Run:
    """One case: wall time in s, and the largest resident set in MB."""

    seconds: float
    peak_mb: float


def measured(command: list[str], repeat: int) -> Run:
    """The best time and the largest memory of `repeat` runs. Raises RuntimeError if the command fails."""
    runs = [_once(command) for _ in range(repeat)]
    return Run(min(run.seconds for run in runs), max(run.peak_mb for run in runs))


def _once(command: list[str]) -> Run:
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 3):  # 3: a diff found a regression, which is an answer
        raise RuntimeError(f"{' '.join(command)} ended with {code}")
    return Run(seconds, used.ru_maxrss / 1000)


def cases(big: Path, other: Path) -> dict[str, list[str]]:
    """What is measured, by name."""
    tracelab = [sys.executable, "-m", "tracelab"]
    return {
        "plain sqlite3 read": [sys.executable, "-c", _PLAIN, str(big)],
        "report": [*tracelab, "report", str(big)],
        "gaps alone": [*tracelab, "gaps", str(big)],
        "diff of two": [*tracelab, "diff", str(big), str(other)],
        "report of a recording": [*tracelab, "report", str(EAGER)],
        "--help": [*tracelab, "--help"],
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="where the traces are kept, else in a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        big, other = folder / "big.sqlite", folder / "other.sqlite"
        for path, kernels in ((big, options.kernels), (other, options.kernels + 5_000)):
            if not path.exists():
                enlarge(EAGER, path, kernels)
        print(f"{options.kernels} kernels, {os.cpu_count()} cores, best of {options.repeat}")
        print(f"{'case':24}{'s':>8}{'× plain':>9}{'peak MB':>9}")
        plain = 0.0
        for name, command in cases(big, other).items():
            run = measured(command, options.repeat)
            plain = plain or run.seconds
            print(f"{name:24}{run.seconds:8.2f}{run.seconds / plain:9.2f}{run.peak_mb:9.0f}", flush=True)


if __name__ == "__main__":
    main()
