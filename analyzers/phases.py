"""GPU time of each part of the step, inside CUDA graphs too."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np

from tracelab.arrays import group_starts, rows_by_group
from tracelab.inclusive import range_totals
from tracelab.intervals import largest_remainder
from tracelab.phase_work import busy_by_phase
from tracelab.phases import METHODS
from tracelab.result import Metric, Result, Row
from tracelab.trace import I32, I64, KERNEL
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
    code, kind = view.of_ops(view.phases.op_phase), view.of_ops(ops.kind)
    count = len(view.phases.names)
    busy = busy_by_phase(view)
    total = float(busy.sum())
    kernels = np.bincount(code[kind == KERNEL], minlength=count)
    sums = np.zeros(count, np.int64)
    np.add.at(sums, code, view.of_ops(ops.duration_ns))
    present = np.flatnonzero(np.bincount(code, minlength=count))
    whole = largest_remainder(busy[present], round(float(view.busy_ns.mean())))
    methods = _methods(view, code)
    rows: list[Row] = [
        {
            "phase": view.phase_name(int(p)),
            "kernels_per_step": view.per_step(int(kernels[p])),
            "busy_ns": int(busy_ns),
            "sum_ns": max(round(view.per_step(int(sums[p]))), int(busy_ns)),  # rounding must not reverse them
            "share": float(busy[p] / total) if total else 0.0,
            **spread,
            "attribution": METHODS[methods[p]],
        }
        for p, busy_ns, spread in zip(present, whole, _spreads(view, code), strict=True)
    ]
    return sorted(rows, key=lambda row: (-row["busy_ns"], row["phase"]))


def _spreads(view: View, code: I32) -> Iterator[Row]:
    """Median, least and most busy time over the used steps, of each phase that has work, in the order of the codes."""
    order = rows_by_group(code)
    for rows in np.split(order, group_starts(code[order])[1:]):
        per_step = np.bincount(view.op_step[rows], weights=view.shares_ns[rows], minlength=view.steps_used)
        yield {
            "median_ns": round(float(np.median(per_step))),
            "min_ns": round(float(per_step.min())),
            "max_ns": round(float(per_step.max())),
        }


def _methods(view: View, code: I32) -> I64:
    """How most of the time of each phase was attributed: codes of METHODS."""
    cells = code.astype(np.int64) * len(METHODS) + view.of_ops(view.phases.op_method)
    time_ns = view.of_ops(view.trace.ops.duration_ns) + 1
    totals = np.bincount(cells, weights=time_ns, minlength=len(view.phases.names) * len(METHODS))
    most: I64 = totals.reshape(-1, len(METHODS)).argmax(axis=1)
    return most


def _attributed(view: View) -> float:
    """Share of the kernel sum that has a phase; a step alone, found across threads, is none."""
    rows = _kernels(view)
    time_ns = view.trace.ops.duration_ns[rows]
    return int(time_ns[view.phases.op_phase[rows] > 0].sum()) / max(int(time_ns.sum()), 1)


def _kernels(view: View) -> I64:
    """Kernel rows of the used steps and whole graphs, which stand in for kernels; copies if there is nothing else."""
    computing = view.of_ops(view.trace.ops.computes)
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
