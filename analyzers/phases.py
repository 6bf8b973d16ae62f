"""GPU time of each part of the step, inside CUDA graphs too."""

from typing import Annotated

import numpy as np

from tracelab.inclusive import range_totals
from tracelab.intervals import largest_remainder
from tracelab.phase_work import busy_by_phase
from tracelab.phases import METHODS
from tracelab.result import Metric, Result, Row
from tracelab.trace import I64, KERNEL
from tracelab.view import View


def analyze(
    view: View, *, inclusive: Annotated[bool, "List each range name, unfolded, with all kernels under it."] = False
) -> Result:
    """Phases of the used steps, or with `inclusive` every range name of the whole trace, unfolded.

    Busy times share overlaps evenly, so rows add up to the step's busy time; sums do not. Inclusive rows count a
    kernel in every range around its launch, so they must not be added up.
    """
    if inclusive:
        return Result(tables={"ranges": range_totals(view.trace)})
    if view.steps_used == 0:
        return Result(skipped="No step has GPU work on this device.")
    metrics = {"attributed_share": Metric(_attributed(view), "ratio")}
    return Result(metrics=metrics, tables={"phases": _phases(view), "attribution": _attribution(view)})


def _phases(view: View) -> list[Row]:
    ops = view.trace.ops
    code, kind = view.phases.op_phase[view.ops], ops.kind[view.ops]
    count = len(view.phases.names)
    busy = busy_by_phase(view)
    total = float(busy.sum())
    kernels = np.bincount(code[kind == KERNEL], minlength=count)
    sums = np.zeros(count, np.int64)
    np.add.at(sums, code, ops.duration_ns[view.ops])
    present = np.flatnonzero(np.bincount(code, minlength=count))
    whole = largest_remainder(busy[present], round(float(view.busy_ns.mean())))
    rows: list[Row] = [
        {
            "phase": view.phase_name(int(p)),
            "kernels_per_step": view.per_step(int(kernels[p])),
            "busy_ns": int(busy_ns),
            "sum_ns": max(round(view.per_step(int(sums[p]))), int(busy_ns)),  # rounding must not reverse them
            "share": float(busy[p] / total) if total else 0.0,
            **_spread(view, code == p),
            "attribution": _method(view, code == p),
        }
        for p, busy_ns in zip(present, whole, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row["busy_ns"], row["phase"]))


def _spread(view: View, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Row:
    """Median, least and most busy time of one phase over the used steps."""
    per_step = np.bincount(view.op_step[mine], weights=view.shares_ns[mine], minlength=view.steps_used)
    return {
        "median_ns": round(float(np.median(per_step))),
        "min_ns": round(float(per_step.min())),
        "max_ns": round(float(per_step.max())),
    }


def _method(view: View, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> str:
    """How most of the phase's time was attributed."""
    rows = view.ops[mine]
    totals = np.bincount(
        view.phases.op_method[rows], weights=view.trace.ops.duration_ns[rows] + 1, minlength=len(METHODS)
    )
    return METHODS[int(np.argmax(totals))]


def _attributed(view: View) -> float:
    """Share of the kernel sum that has a phase; a step alone, found across threads, is none."""
    rows = _kernels(view)
    time_ns = view.trace.ops.duration_ns[rows]
    return int(time_ns[view.phases.op_phase[rows] > 0].sum()) / max(int(time_ns.sum()), 1)


def _kernels(view: View) -> I64:
    """Kernel rows of the used steps and whole graphs, which stand in for kernels; copies if there is nothing else."""
    computing = view.trace.ops.computes[view.ops]
    return view.ops[computing] if computing.any() else view.ops


def _attribution(view: View) -> list[Row]:
    rows = _kernels(view)
    method = view.phases.op_method[rows]
    counts = np.bincount(method, minlength=len(METHODS))
    sums = np.zeros(len(METHODS), np.int64)
    np.add.at(sums, method, view.trace.ops.duration_ns[rows])
    total = int(sums.sum())
    return [
        {
            "method": METHODS[m],
            "kernels_per_step": view.per_step(int(counts[m])),
            "sum_ns": round(view.per_step(int(sums[m]))),
            "share": int(sums[m]) / total if total else 0.0,
        }
        for m in np.argsort(-sums, kind="stable")
        if counts[m]
    ]
