"""Idle time by the kernels around it, and what the host did in the longest gap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelab.arrays import group_ids
from tracelab.gap_classes import CLASSES, PROFILER
from tracelab.intervals import new_coverage
from tracelab.kernel_names import shorten
from tracelab.result import Row
from tracelab.units import time as format_time
from tracelab.view import View

_NAMED = 0.2  # share of a gap, or of all idle time, from which something in it is named


def gap_pairs(view: View) -> list[Row]:
    """Gaps inside the used spans by the kernels around them and the class, longest in total first."""
    gaps, names = view.gaps, view.trace.ops.name
    rows = gaps.rows_within(view.table.start[view.used], view.table.end[view.used])
    if len(rows) == 0:
        return []
    profiler_ns = gaps.profiler_ns[rows]
    profiled = np.flatnonzero(profiler_ns)
    time_ns = np.concatenate((gaps.end[rows] - gaps.start[rows] - profiler_ns, profiler_ns[profiled]))
    cause = np.concatenate((gaps.cause[rows], np.full(len(profiled), PROFILER, np.uint8)))
    rows = np.concatenate((rows, rows[profiled]))  # a gap that the profiler cut has a row for each part
    before, after = names[gaps.before[rows]], names[gaps.after[rows]]
    group, first = group_ids([before, after, cause])
    total = np.zeros(len(first), np.int64)
    np.add.at(total, group, time_ns)
    counts = np.bincount(group)
    return [
        {
            "after_kernel": view.trace.names[int(before[first[g]])],
            "before_kernel": view.trace.names[int(after[first[g]])],
            "class": CLASSES[int(cause[first[g]])],
            "count_per_step": view.per_step(int(counts[g])),
            "ns_per_step": round(view.per_step(int(total[g]))),
        }
        for g in np.argsort(-total, kind="stable")
    ]


def costliest_pair(pairs: Sequence[Row], cause: str) -> str:
    """Of the rows of `gap_pairs`, the kernels between which most idle time of this class lies, as a sentence; empty if
    none stands out."""
    rows = [row for row in pairs if row["class"] == cause]
    total = sum(row["ns_per_step"] for row in rows)
    if not rows or rows[0]["ns_per_step"] < _NAMED * total:
        return ""
    top = rows[0]
    times = f"{top['count_per_step']:.3g} times" if top["count_per_step"] > 1 else "once"
    mean = format_time(top["ns_per_step"])
    pair = f"{shorten(top['after_kernel'])} and {shorten(top['before_kernel'])}"
    return f"On average {mean} a step lie between {pair} ({times})."


@dataclass(frozen=True)
class _Gap:
    start: int
    end: int
    after: int


def longest_gap(view: View, cause: int, idle_ns: int) -> str:
    """What the longest gap of the representative step with this cause (a class code) ends in, and what the host did
    in it; empty if no gap stands out of `idle_ns`."""
    row = int(view.used[view.representative])
    stop = min(int(view.table.end[row]), int(view.table.next_start[row]))
    gaps = view.gaps
    rows = gaps.rows_within(np.array([view.table.start[row]]), np.array([stop]))
    rows = rows[gaps.cause[rows] == cause]
    if len(rows) == 0:
        return ""
    at = int(rows[np.argmax(gaps.end[rows] - gaps.start[rows])])
    gap = _Gap(int(gaps.start[at]), int(gaps.end[at]), int(gaps.after[at]))
    if gap.end - gap.start < _NAMED * idle_ns:
        return ""
    name = shorten(view.trace.names[int(view.trace.ops.name[gap.after])])
    return f"The longest, {format_time(gap.end - gap.start)}, comes before {name}{_host_in(view, gap)}."


def _host_in(view: View, gap: _Gap) -> str:
    """The host's longest kind of call in the gap, on the thread that then launched; or that it made hardly any."""
    calls = view.trace.calls
    call = int(view.trace.ops.call[gap.after])
    rows = np.flatnonzero((calls.thread == calls.thread[call]) & (calls.start < gap.end) & (calls.end > gap.start))
    begin, end = np.maximum(calls.start[rows], gap.start), np.minimum(calls.end[rows], gap.end)
    spent = new_coverage(np.zeros(len(rows), np.int64), begin, end)  # calls inside calls once
    by_name = np.bincount(calls.name[rows], weights=spent)
    length = gap.end - gap.start
    if len(by_name) and by_name.max() >= _NAMED * length:
        return f", {format_time(by_name.max())} of it in {view.trace.names[int(by_name.argmax())]}"
    free = length - int(spent.sum())
    return f", {format_time(free)} of it outside any CUDA call" if free >= (1 - _NAMED) * length else ""
