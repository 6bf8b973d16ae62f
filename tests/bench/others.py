"""What users would run instead of tracelab, on the same files, each in an environment of its own.

python tests/bench/others.py BIG.sqlite OTHER.sqlite KINETO.json [--folder FOLDER]

NVIDIA's scripts come with an nsys, where one is found; nsys-ai and HTA (HolisticTraceAnalysis) from PyPI. TraceLens is
AMD's, which PyPI does not have: it is run where its command is found.
What nsys-ai keeps beside the files goes before a first time, and at the end.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cases import DIFF, KINETO, REPORT
from environments import environment, installed
from measure import NoResultError, Run, measured, own_env, tracelab

# duckdb of the version whose SQLite extension is on PyPI: nsys-ai would else download one, or do without and be slower.
_NSYS_AI = ("nsys-ai", "duckdb==1.5.5", "duckdb-extensions==1.5.5", "duckdb-extension-sqlite-scanner==1.5.5")
_EXTENSION = "from duckdb_extensions import import_extension; import_extension('sqlite_scanner')"
_HTA = ("HolisticTraceAnalysis",)
_HTA_REPORT = """
import sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
found.get_temporal_breakdown(visualize=False)
found.get_idle_time_breakdown(visualize=False)
found.get_gpu_kernel_breakdown(visualize=False)
found.get_cuda_kernel_launch_stats(visualize=False)
"""
_TRACELENS = "TraceLens_generate_perf_report_pytorch"
_FIND_NSYS = "from tracelab.capture.nsys import find_nsys; print(find_nsys(None).path)"
_NSYS_REPORTS = ("cuda_gpu_kern_sum", "nvtx_gpu_proj_sum", "nvtx_kern_sum")
_WHOLE_S = ("0", "1000000")  # nsys-ai wants a window


@dataclass(frozen=True)
class Files:
    """What the tools are run on: two large SQLite exports and a trace of the PyTorch profiler."""

    big: Path
    other: Path
    kineto: Path


@dataclass(frozen=True)
class Tool:
    """A command, and the case of tracelab that answers as much; `caches` are what it keeps for the next run."""

    name: str
    against: str
    command: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    caches: tuple[Path, ...] = ()


def compare(folder: Path, files: Files, ours: Mapping[str, Run]) -> dict[str, float]:
    """Print one line for every tool; returns how many times the time of tracelab each took, where it gave an answer."""
    print(f"\n{'instead of tracelab':28}{'s':>8}{'× ours':>9}{'peak MB':>9}")
    found: dict[str, float] = {}
    for name, tools in _TOOLS.items():
        try:
            for tool in tools(folder, files):
                found[tool.name] = _print_run(tool, ours[tool.against])
        except NoResultError as error:
            print(f"{name:28}  {error}", flush=True)
    print(", ".join(filter(None, (installed(folder / name) for name in (_NSYS_AI[0], _HTA[0])))))
    return found


def _print_run(tool: Tool, ours: Run) -> float:
    _forget(tool.caches)
    run = measured(tool.command, tool.env)
    ratio = run.seconds / ours.seconds
    print(f"{tool.name:28}{run.seconds:8.2f}{ratio:9.1f}{run.peak_mb:9.0f}  {tool.against}", flush=True)
    return ratio


def _forget(caches: tuple[Path, ...]) -> None:
    for cache in caches:
        shutil.rmtree(cache, ignore_errors=True)
        cache.with_name(f"{cache.name}.build.lock").unlink(missing_ok=True)


def _nsys(_folder: Path, files: Files) -> Iterator[Tool]:
    try:
        nsys = measured([sys.executable, "-c", _FIND_NSYS], own_env()).last_line
    except NoResultError as error:
        raise NoResultError("none was found on this machine") from error
    for report in _NSYS_REPORTS:
        yield Tool(f"nsys {report}", REPORT, (nsys, "stats", "--report", report, files.big))


def _nsys_ai(folder: Path, files: Files) -> Iterator[Tool]:
    home = folder / _NSYS_AI[0]
    python = environment(home, _NSYS_AI)
    env = {**os.environ, "HOME": str(home)}  # where DuckDB keeps its extensions
    measured([python, "-c", _EXTENSION], env)
    program = python.with_name("nsys-ai")
    caches = tuple(path.with_suffix(".nsys-cache") for path in (files.big, files.other))
    report = (program, "report", "--gpu", "0", "--trim", *_WHOLE_S, files.big)
    diff = (program, "diff", "--no-ai", files.big, files.other)
    yield Tool("nsys-ai report, first time", REPORT, report, env, caches)
    yield Tool("nsys-ai report, again", REPORT, report, env)
    yield Tool("nsys-ai diff, first time", DIFF, diff, env, caches)
    _forget(caches)


def _hta(folder: Path, files: Files) -> Iterator[Tool]:
    python = environment(folder / _HTA[0], _HTA)
    yield Tool("HTA", KINETO, (python, "-c", _HTA_REPORT, files.kineto))


def _tracelens(folder: Path, files: Files) -> Iterator[Tool]:
    program = shutil.which(_TRACELENS)
    if program is None:
        raise NoResultError("not on PyPI (`tracelens` there is another program); its command was not found")
    tables = folder / "tracelens"
    tables.mkdir(parents=True, exist_ok=True)
    yield Tool("TraceLens", KINETO, (program, "--profile_json_path", files.kineto, "--output_csvs_dir", tables))


_TOOLS: dict[str, Callable[[Path, Files], Iterator[Tool]]] = {
    "nsys": _nsys,
    "nsys-ai": _nsys_ai,
    "HTA": _hta,
    "TraceLens": _tracelens,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs=3, metavar="FILE")
    parser.add_argument("--folder", type=Path, help="where the environments are made and kept, else a temporary folder")
    options = parser.parse_args()
    files = Files(*(path.absolute() for path in options.files))
    with tempfile.TemporaryDirectory() as temporary:
        ours = {
            REPORT: tracelab(("report", files.big)),
            DIFF: tracelab(("diff", files.big, files.other)),
            KINETO: tracelab(("report", files.kineto)),
        }
        for name, run in ours.items():
            print(f"tracelab {name:24}{run.seconds:8.2f} s {run.peak_mb:9.0f} MB")
        compare((options.folder or Path(temporary)).absolute(), files, ours)


if __name__ == "__main__":
    main()
