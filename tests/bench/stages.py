"""Where the time of one report goes, stage by stage and analyzer by analyzer.

python tests/bench/stages.py FILE.sqlite

In one process, after everything is imported; the stages one after the other, and each analyzer alone, where `tracelab
report` reads the launch shapes beside the attribution and runs two analyzers at a time. What analyzers share is counted
for the first one that asks for it.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from tracelab.analysis import attribute, device_views, report
from tracelab.load import load_trace
from tracelab.options import Facts, Selection
from tracelab.registry import leaves, load


class Stages:
    """Seconds of each stage, in the order in which they ran."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what runs inside."""
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began

    def print(self) -> None:
        """One line for each, with its share of all."""
        total = sum(self.seconds.values())
        for name, seconds in self.seconds.items():
            print(f"{name:28}{seconds:7.3f} s{seconds / total:8.1%}")
        print(f"{'':28}{total:7.3f} s")


def profile(file: Path) -> Stages:
    """Analyse `file` and print a page of it into nothing."""
    found = {name: load(leaf) for name, leaf in leaves("analyzers").items()}
    terminal = import_module("tracelab.reports.terminal")
    stages = Stages()
    with stages.stage("reading"):
        trace = load_trace(file)
    with stages.stage("reading launch shapes"):
        _ = trace.ops.shapes
    with stages.stage("attribution"):
        analysis = attribute(trace, Facts(), Selection())
    with stages.stage("steps on each device"):
        views = device_views(analysis)
    for name, module in found.items():
        with stages.stage(f"analyzer {name}"):
            for view in views:
                module.analyze(view)
    with stages.stage("facts and warnings"):
        report(analysis, {}, views=views)
    whole = report(analysis, views=views)
    with stages.stage("rendering"):
        terminal.render(whole, full_names=False, width=100, color=False)
    return stages


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    profile(parser.parse_args().file).print()


if __name__ == "__main__":
    main()
