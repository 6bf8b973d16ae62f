"""The window of time that the user selected, against what the capture holds."""

import numpy as np

from tracelab.errors import InputError, UsageError
from tracelab.options import Selection
from tracelab.step_table import in_window
from tracelab.trace import Trace


def check_window(trace: Trace, selection: Selection) -> None:
    """Raise UsageError for an inverted window, InputError for one outside the capture or that cuts all its GPU work.

    A window inside the capture in which the GPU did nothing is answered, with zeros.
    """
    if selection.window_ns is None:
        return
    low, high = selection.window_ns
    first, last = _capture_ns(trace)
    if low >= high:
        raise UsageError(f"--window {_seconds(low, high)} is empty or inverted; {_bounds(trace)}.")
    if low >= last or high <= first:
        raise InputError(f"--window {_seconds(low, high)} lies outside the capture; {_bounds(trace)}.")
    if not in_window(trace, selection).any() and not is_empty(trace, selection):
        raise InputError(f"No GPU work lies wholly inside --window {_seconds(low, high)}; {_bounds(trace)}.")


def is_empty(trace: Trace, selection: Selection) -> bool:
    """Whether a window was selected in which the GPU did nothing."""
    if selection.window_ns is None:
        return False
    low, high = selection.window_ns
    return not ((trace.ops.start < high) & (trace.ops.end > low)).any() and not in_window(trace, selection).any()


def empty_window(trace: Trace, selection: Selection) -> str | None:
    """One sentence that every number is zero because nothing ran in the window; None where something did."""
    if selection.window_ns is None or not is_empty(trace, selection):
        return None
    return (
        f"The GPU did nothing in --window {_seconds(*selection.window_ns)}: 0 kernels, 0 copies, 0 ns of GPU time; "
        f"{_bounds(trace)}."
    )


def _capture_ns(trace: Trace) -> tuple[int, int]:
    """First and last time of anything recorded, in ns; the collection itself starts at 0."""
    tables = (trace.ops, trace.calls, trace.ranges, trace.overheads)
    starts = np.concatenate([table.start for table in tables])
    ends = np.concatenate([table.end for table in tables])
    return min(int(starts.min()), 0), int(ends.max())


def _bounds(trace: Trace) -> str:
    works = _from_to(int(trace.ops.start.min()), int(trace.ops.end.max()))
    return f"the capture runs {_from_to(*_capture_ns(trace))}, and GPU work runs {works}"


def _from_to(first_ns: int, last_ns: int) -> str:
    return f"from {first_ns / 1e9:.6f} s to {last_ns / 1e9:.6f} s"


def _seconds(low_ns: int, high_ns: int) -> str:
    """The window as it is given on the command line."""
    return f"{low_ns / 1e9:.9g}:{high_ns / 1e9:.9g}"
