"""How long tracelab takes on large traces, as ratios, against the bars that it is held to: everything in one run.

    python tests/bench/bench.py [--kernels 1000000] [--repeat 3] [--keep FOLDER] [--ten-million]
                                [--others FOLDER] [--readers FOLDER]

The traces are made from bundled recordings by the programs beside this one. Every command runs in a process of its own;
time is the best of the repetitions, memory the largest resident set that the kernel reports of the process. Files come
from the page cache, and other memory was in use shortly before; the cache of tracelab is empty but where the case says
`again`. The bars are for a million kernels.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import others
import readers
from cases import KINETO, PLAIN, cases, measure
from measure import Run
from traces import Traces, make

_FASTER_THAN = ("HTA", "TraceLens")  # on the trace of the PyTorch profiler


def _print_cases(traces: Traces, runs: Mapping[str, Run]) -> list[bool]:
    """One line for every case; returns which bars hold."""
    print(f"{'case':28}{'s':>8}{'× plain':>9}{'peak MB':>9}  bar")
    held = []
    for name, bar in [(PLAIN, None), *((case.name, case.bar) for case in cases(traces))]:
        run = runs[name]
        said = run.last_line if run.failed else ""
        if bar:
            held.append(bar.holds(run, runs))
            said = f"{'ok  ' if held[-1] else 'over'}  {bar.text(run, runs)}  {said}"
        ratio = run.seconds / runs[PLAIN].seconds
        print(f"{name:28}{run.seconds:8.2f}{ratio:9.2f}{run.peak_mb:9.0f}  {said}".rstrip())
    return held


def _print_others(folder: Path, traces: Traces, runs: Mapping[str, Run]) -> list[bool]:
    """One line for every other tool; returns which of those for the trace of PyTorch are slower than tracelab."""
    ratios = others.compare(folder, others.Files(traces.big, traces.other, traces.kineto), runs)
    judged = {name: ratios[name] > 1 for name in _FASTER_THAN if name in ratios}
    for name, slower in judged.items():
        print(f"{KINETO}: {'ok  ' if slower else 'over'}  {ratios[name]:.1f} times as fast as {name}")
    return list(judged.values())


def _run(options: argparse.Namespace, folder: Path) -> None:
    traces = make(folder, options.kernels, ten=options.ten_million)
    runs = measure(traces, options.repeat)
    print(f"{options.kernels} kernels, {os.cpu_count()} cores, best of {options.repeat}")
    held = _print_cases(traces, runs)
    if options.others:
        held += _print_others(options.others.absolute(), traces, runs)
    if options.readers:
        print()
        readers.compare(traces.big, options.readers.absolute(), options.repeat)
    print(f"\n{sum(held)} of {len(held)} bars hold")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="where the traces are kept, else in a temporary folder")
    parser.add_argument("--ten-million", action="store_true", help="also a trace of ten times the kernels, once")
    parser.add_argument("--others", type=Path, help="compare with other tools, installed into and kept in this folder")
    parser.add_argument(
        "--readers", type=Path, help="compare readers of SQLite, installed into and kept in this folder"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        _run(options, (options.keep or Path(temporary)).absolute())


if __name__ == "__main__":
    main()
