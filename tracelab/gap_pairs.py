"""Idle time by the kernels around it, and what the host did in the longest gap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelab.coded_rows import totals
from tracelab.gap_classes import CLASSES, PROFILER
from tracelab.intervals import new_coverage
from tracelab.kernel_names import shorten
from tracelab.result import Row
from tracelab.trace import I64
from tracelab.units import time as format_time
from tracelab.view import View

_NAMED = 0.2  # share of a gap, or of all idle time, from which something in it is named


def gap_pairs(view: View) -> list[Row]:
    """Gaps inside the used spans by the kernels around them and the class, longest in total first."""
    gaps, names = view.gaps, view.trace.ops.name
    rows = gaps.rows_within(view.table.start[view.used], view.table.end[view.used])
    if len(rows) == 0:
        return []
    profiled = rows[gaps.profiler_ns[rows] > 0]
    rows = np.concatenate((rows, profiled))  # a gap that the profiler cut has a row for each part
    whole = len(rows) - len(profiled)

    def columns(first: int, stop: int) -> dict[str, I64]:
        part = rows[first:stop]
        cause = np.where(np.arange(first, stop) < whole, gaps.cause[part], PROFILER)
        return {"before": names[gaps.before[part]], "after": names[gaps.after[part]], "cause": cause}

    def time_ns(first: int, stop: int) -> I64:
        part = rows[first:stop]
        profiler_ns = gaps.profiler_ns[part]
        rest_ns = gaps.end[part] - gaps.start[part] - profiler_ns
        return np.where(np.arange(first, stop) < whole, rest_ns, profiler_ns)

    pairs, counts, total = totals(columns, time_ns, len(rows))
    return [
        {
            "after_kernel": view.trace.names[int(pairs["before"][g])],
            "before_kernel": view.trace.names[int(pairs["after"][g])],
            "class": CLASSES[int(pairs["cause"][g])],
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
