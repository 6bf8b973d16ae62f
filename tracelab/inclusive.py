"""Kernels under each NVTX range name over the whole trace, inclusive: what NVIDIA's nvtx_kern_sum calls a range."""

import numpy as np

from tracelab.arrays import group_ids
from tracelab.attribution import forest_of_domains, work_in_ranges
from tracelab.intervals import outermost, start_past_earlier
from tracelab.result import Row
from tracelab.trace import ABSENT, I64, KERNEL, TORCH_DOMAIN, Trace

NO_RANGE = "(no range)"


def range_totals(trace: Trace) -> list[Row]:
    """Range name, ranges, kernels and summed kernel time; a kernel counts once per name, however deep names repeat.

    Names of other than the default domain carry it in front, as `domain:name`; PyTorch's operators do not. Kernels
    launched on a thread without any range are the row `(no range)`.
    """
    merged = _merged_rows(trace)
    kernels = np.flatnonzero((trace.ops.kind == KERNEL) & (trace.ops.call >= 0))
    call = trace.ops.call[kernels]
    count = np.bincount(call, minlength=len(trace.calls)).astype(np.int64)
    time_ns = np.zeros(len(trace.calls), np.int64)
    np.add.at(time_ns, call, trace.ops.duration_ns[kernels])
    calls = np.flatnonzero(count)
    table = _by_name(trace, merged, calls, count[calls], time_ns[calls])
    return [*table, *_without_range(trace, calls, count, time_ns)]


def _merged_rows(trace: Trace) -> tuple[I64, I64, I64]:
    """Range rows that lie in no other range of the same name, thread and domain, the (domain, name) group of each, and
    the time from which each counts: where it overlaps its namesake, from that one's end on."""
    ranges = trace.ranges
    group, _ = group_ids([ranges.domain, ranges.name])
    key, _ = group_ids([ranges.thread, group])
    order = np.argsort(key, kind="stable")
    rows = order[outermost(key[order], ranges.start[order], ranges.end[order])]
    return rows, group[rows], start_past_earlier(key[rows], ranges.start[rows], ranges.end[rows])


def _by_name(trace: Trace, merged: tuple[I64, I64, I64], calls: I64, count: I64, time_ns: I64) -> list[Row]:
    rows, owner, from_ns = merged
    if len(rows) == 0:
        return []
    kernels = work_in_ranges(trace, rows, calls, count, from_ns=from_ns)
    sums = work_in_ranges(trace, rows, calls, time_ns, from_ns=from_ns)
    total_kernels, total_ns = np.zeros(owner.max() + 1, np.int64), np.zeros(owner.max() + 1, np.int64)
    np.add.at(total_kernels, owner, kernels)
    np.add.at(total_ns, owner, sums)
    instances = np.bincount(owner)
    owners, first = np.unique(owner, return_index=True)
    table: list[Row] = [
        {"range": _label(trace, int(rows[at])), "ranges": int(instances[o]), "kernels": int(total_kernels[o]),
         "sum_ns": int(total_ns[o])}
        for o, at in zip(owners, first, strict=True)
        if total_kernels[o]
    ]  # fmt: skip
    return sorted(table, key=lambda row: (-row["sum_ns"], row["range"]))


def _label(trace: Trace, row: int) -> str:
    name = trace.names[int(trace.ranges.name[row])] or "(unnamed)"
    domain = trace.domains[int(trace.ranges.domain[row])]
    return f"{domain}:{name}" if domain and domain != TORCH_DOMAIN else name


def _without_range(trace: Trace, calls: I64, count: I64, time_ns: I64) -> list[Row]:
    forest = forest_of_domains(trace, np.ones(len(trace.domains), bool))
    lone = calls[forest.innermost(trace.calls.thread[calls], trace.calls.start[calls]) == ABSENT]
    orphans = np.flatnonzero((trace.ops.kind == KERNEL) & (trace.ops.call < 0))
    kernels = int(count[lone].sum()) + len(orphans)
    total_ns = int(time_ns[lone].sum() + trace.ops.duration_ns[orphans].sum())
    return [{"range": NO_RANGE, "ranges": 0, "kernels": kernels, "sum_ns": total_ns}] if kernels else []
