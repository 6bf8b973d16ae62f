"""What the checks of a trace share: which analyzers they speak of, which part of the trace matters, how it is said."""

import numpy as np

from tracelab.step_table import NO_NEXT
from tracelab.trace import I64, Bool
from tracelab.units import count, time
from tracelab.view import View

EVERY = ("*",)  # every analyzer there is, those included that nobody knew of here
# Right only if all work of a step is there, with its times.
WORK = ("kernels", "phases", "gaps", "mbu", "waterfall", "communication")
GPU_ROWS = (*WORK, "grids")
IDLE = ("gaps", "waterfall")  # where work is missing they show idle time

# Idle time of 5 % of a step is what tells a device-bound step from another (View.bound); as much missing work can be
# that idle time. With half of the work missing no number is of the program that ran.
_SHARE_OF_IDLE, _SHARE_OF_ALL = 0.05, 0.5
# Below this share of the steps' time a disturbance is smaller than what captures of one program differ by (1 %).
FELT = 0.01


def refused(share: float, analyzers: tuple[str, ...] = EVERY) -> tuple[str, ...]:
    """Which of `analyzers` mislead where this share of the rows is missing; the others are limited."""
    return analyzers if share > _SHARE_OF_ALL else IDLE if share > _SHARE_OF_IDLE else ()


def counted(number: float, what: str, plural: str = "") -> str:
    """A count with its noun: `1 kernel`, `9 launches`."""
    several = plural or what + ("es" if what.endswith(("ch", "ss")) else "s")
    return f"{count(number)} {what if number == 1 else several}"


def when(start_ns: I64) -> str:
    """Where on the collection's clock events lie: `at 1.2 µs`, `from 1.2 µs to 3.4 µs`."""
    first, last = int(start_ns.min()), int(start_ns.max())
    return f"at {time(first)}" if first == last else f"from {time(first)} to {time(last)}"


def step_windows(view: View) -> tuple[I64, I64]:
    """Start of each used step on the GPU, and the next step's start or, for the last of a group, its end (ns)."""
    start, following = view.table.start[view.used], view.table.next_start[view.used]
    stop = np.where(following == NO_NEXT, view.table.end[view.used], following)
    return start, np.maximum(stop, start)


def ops_near_steps(view: View, rows: I64) -> Bool:
    """Which op rows run between the first used step's start and the last one's end; all of them without steps."""
    if view.steps_used == 0:
        return np.ones(len(rows), bool)
    start, stop = step_windows(view)
    ops = view.trace.ops
    near: Bool = (ops.end[rows] > start.min()) & (ops.start[rows] < stop.max())
    return near


def calls_near_steps(view: View, rows: I64) -> Bool:
    """Which calls are made between the first used step's host start and the last one's host end; all without steps."""
    if view.steps_used == 0 or view.group.source == "whole-trace":
        return np.ones(len(rows), bool)
    steps = view.table.step[view.used]
    at = view.trace.calls.start[rows]
    near: Bool = (at >= view.group.host_start[steps].min()) & (at <= view.group.host_end[steps].max())
    return near
