"""Kernels and launches per step, and which take the time."""

from typing import Annotated

import numpy as np

from tracelab.arrays import group_ids
from tracelab.families import classify
from tracelab.kernel_names import base_name
from tracelab.result import Metric, Result, Row
from tracelab.trace import GRAPH, I32, I64
from tracelab.view import View
from tracelab.window import is_empty

_COUNTS = ("kernels_per_step", "launches_per_step", "copies_per_step")


def analyze(
    view: View, *, short_names: Annotated[bool, "Add up kernels that differ in template arguments only."] = False
) -> Result:
    """Kernels of the used steps, told apart by their whole names, or with `short_names` by their base names.

    Times are means per step in ns, shares are of the step's kernel sum. A window in which the GPU did nothing has
    zeros.
    """
    if is_empty(view.trace, view.selection):
        return Result(metrics={name: Metric(0, "per step") for name in _COUNTS}, tables={"kernels": []})
    if view.steps_used == 0:
        return Result(skipped="No step has GPU work on this device.")
    used = view.used
    rows = _kernel_rows(view, short_names=short_names)
    # Of a graph that was traced as a whole nobody knows the kernels: no number rather than a wrong one.
    whole_graphs = bool((view.of_ops(view.trace.ops.kind) == GRAPH).any())
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


def _kernel_rows(view: View, *, short_names: bool) -> list[Row]:
    """One row per kernel name and phase; a graph that was traced as a whole stands in for its kernels."""
    ops = view.trace.ops
    rows = view.ops[view.of_ops(ops.computes)]
    if len(rows) == 0:
        return []
    name, phase = ops.name[rows], view.phases.op_phase[rows]
    label = _base_codes(view, name) if short_names else name
    group, first = group_ids([label, phase])
    calls = np.bincount(group)
    total = np.zeros(len(first), np.int64)
    np.add.at(total, group, ops.duration_ns[rows])
    texts = [view.trace.names[int(code)] for code in name[first]]
    ruled = classify(texts)  # by the whole names, which say more
    texts = [base_name(text) for text in texts] if short_names else texts
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


def _base_codes(view: View, name: I32) -> I64:
    """A code for each base name in place of the code of each whole name."""
    codes, inverse = np.unique(name, return_inverse=True)
    _, base = np.unique([base_name(view.trace.names[int(code)]) for code in codes], return_inverse=True)
    found: I64 = base[inverse].astype(np.int64)
    return found


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
