"""Kernels and launches per step, and which take the time."""

import numpy as np

from tracelab.arrays import group_ids
from tracelab.families import classify
from tracelab.result import Metric, Result, Row
from tracelab.trace import GRAPH
from tracelab.view import View


def analyze(view: View) -> Result:
    """Kernels of the used steps. Times are means per step in ns, shares are of the step's kernel sum."""
    if view.steps_used == 0:
        return Result(skipped="No step has GPU work on this device.")
    used = view.used
    rows = _kernel_rows(view)
    # Of a graph that was traced as a whole nobody knows the kernels: no number rather than a wrong one.
    whole_graphs = bool((view.trace.ops.kind[view.ops] == GRAPH).any())
    counted = {} if whole_graphs else {"kernels_per_step": _count(view.table.kernels[used])}
    metrics = counted | {
        "launches_per_step": _count(view.table.launches[used]),
        "copies_per_step": _count(view.table.copies[used]),
        "distinct_kernels": Metric(len({row["name"] for row in rows}), "kernels"),
        "unmatched_share": Metric(_unmatched(rows), "ratio"),
    }
    return Result(metrics=metrics, tables={"kernels": rows, "families": _families(rows)})


def _count(per_step: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Metric:
    middle = float(np.median(per_step))
    value = int(middle) if middle.is_integer() else middle
    return Metric(value, "per step", per_step.astype(np.float64))


def _kernel_rows(view: View) -> list[Row]:
    """One row per kernel name and phase; a graph that was traced as a whole stands in for its kernels."""
    ops = view.trace.ops
    rows = view.ops[ops.computes[view.ops]]
    if len(rows) == 0:
        return []
    name, phase = ops.name[rows], view.phases.op_phase[rows]
    group, first = group_ids([name, phase])
    calls = np.bincount(group)
    total = np.zeros(len(first), np.int64)
    np.add.at(total, group, ops.duration_ns[rows])
    texts = [view.trace.names[int(code)] for code in name[first]]
    ruled = classify(texts)
    everything = int(total.sum())
    table: list[Row] = [
        {
            "name": texts[i],
            "family": ruled.families[i],
            "phase": view.phase_name(int(phase[first[i]])),
            "calls_per_step": view.per_step(int(calls[i])),
            "time_ns_per_step": round(view.per_step(int(total[i]))),
            "share": int(total[i]) / everything if everything else 0.0,
            "matched": ruled.matched[i],
        }
        for i in np.argsort(-total, kind="stable")
    ]
    return table


def _unmatched(rows: list[Row]) -> float:
    return float(sum(row["share"] for row in rows if not row["matched"]))


def _families(rows: list[Row]) -> list[Row]:
    totals: dict[str, list[float]] = {}
    for row in rows:
        sums = totals.setdefault(row["family"], [0.0, 0, 0.0])
        sums[0] += row["calls_per_step"]
        sums[1] += row["time_ns_per_step"]
        sums[2] += row["share"]
    ranked = sorted(totals.items(), key=lambda item: (-item[1][1], item[0]))
    return [{"family": f, "calls_per_step": c, "time_ns_per_step": t, "share": s} for f, (c, t, s) in ranked]
