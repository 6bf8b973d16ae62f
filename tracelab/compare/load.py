"""From trace files to the sides of a comparison."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tracelab.analysis import attribute, device_views, main_device, report
from tracelab.compare.side import Capture, Side
from tracelab.errors import NoGpuWorkError, NotComparableError, UsageError
from tracelab.load import load_trace, read_shapes_ahead
from tracelab.options import Facts, Selection
from tracelab.step_samples import step_samples

_IN_RUN_FOLDER = "trace.sqlite"  # what `tracelab profile` calls every trace


def load_side(paths: Sequence[Path], selection: Selection, facts: Facts, nsys: str | None = None) -> Side:
    """Load one or more captures of one program. Raises NotComparableError for a trace without GPU work, UsageError for
    two files that hold the same capture: a copy would pretend that captures do not differ."""
    captures: list[Capture] = []
    for path in paths:
        new = load_capture(path, selection, facts, nsys)
        twin = next((old for old in captures if _same_steps(old, new)), None)
        if twin is not None:
            raise UsageError(f"{path} holds the same steps as {twin.report.trace.path}: a copy is no second capture.")
        captures.append(new)
    return Side(tuple(captures))


def _same_steps(one: Capture, other: Capture) -> bool:
    """Whether two captures agree to the nanosecond in every step, which two runs of several steps never do."""
    mine, its = one.samples, other.samples
    several = len(mine.busy_ns) > 1
    return several and np.array_equal(mine.busy_ns, its.busy_ns) and np.array_equal(mine.step_ns, its.step_ns)


def _title(path: Path) -> str:
    """The file's name, or that of its run folder where all files have the same."""
    if path.name != _IN_RUN_FOLDER:
        return path.name
    folder = path.resolve().parent
    return f"{folder.parent.name}/{folder.name}" if folder.name.isdecimal() else folder.name


def load_capture(path: Path, selection: Selection, facts: Facts, nsys: str | None = None) -> Capture:
    """Load and analyse one trace, and take the samples of its main device; the trace itself is not kept."""
    trace = load_trace(path, nsys)
    read_shapes_ahead(trace)
    try:
        analysis = attribute(trace, facts, selection)
    except NoGpuWorkError as error:
        raise NotComparableError(str(error)) from error
    views = device_views(analysis)
    view = views[main_device(analysis, views)]
    return Capture(
        report=report(analysis, views=views),
        samples=step_samples(view),
        driver=trace.driver,
        title=_title(path),
    )
