"""Where one step went, from the floor up, to the nanosecond."""

import numpy as np

from tracelab.gap_classes import CLASSES
from tracelab.intervals import union
from tracelab.result import Check, Result, Row
from tracelab.step_table import NO_NEXT
from tracelab.view import View


def analyze(view: View) -> Result:
    """Components of the used step with the median period (of two the lower), else the median span."""
    if view.steps_used == 0:
        return Result(skipped="No step has GPU work on this device.")
    if view.time_incomplete:
        return Result(skipped="GPU time is incomplete, so a step cannot be divided into work and idle time.")
    row = int(view.used[view.representative])
    start, end = int(view.table.start[row]), int(view.table.end[row])
    following = int(view.table.next_start[row])
    stop = end if following == NO_NEXT else following
    parts = _parts(view, row, start, stop)
    step = stop - start
    rows: list[Row] = [{"component": name, "ns": ns, "share": ns / step if step else 0.0} for name, ns in parts.items()]
    total = sum(parts.values())
    check = Check("components add up to the step", total == step, total, step, "ns")
    return Result(tables={"waterfall": rows}, checks=[check])


def _parts(view: View, row: int, start: int, stop: int) -> dict[str, int]:
    busy = _own_busy(view, row, stop)
    covered = int(view.timeline.covered(np.array([start]), np.array([stop]))[0])
    inside = view.step_idle_by_class[:, view.representative]
    between = int(view.between_by_class[:, view.representative].sum())
    gaps = {f"{name} gaps": int(inside[c]) for c, name in enumerate(CLASSES)}
    return {**_inside_kernels(view, busy), "other work": covered - busy, **gaps, "between steps": between}


def _inside_kernels(view: View, busy: int) -> dict[str, int]:
    """Floor and time above it; one row where the floor is unknown or, with wrong inputs, above the time itself."""
    floor = view.floor.ns
    if floor is None or floor > busy:
        return {"kernels": busy}
    return {"floor": floor, "above the floor": busy - floor}


def _own_busy(view: View, row: int, stop: int) -> int:
    """Union of the step's own work up to `stop`, where the next step begins."""
    ops = view.table.ops[view.table.op_row == row]
    ops = ops[view.trace.ops.start[ops] < stop]
    own = union(view.trace.ops.start[ops], np.minimum(view.trace.ops.end[ops], stop))
    return int((own.end - own.start).sum())
