"""Steps as they ran on one device: span, busy time, counts, period, and which of them the statistics use."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from tracelab.arrays import (
    U64,
    as_stretch,
    distinct_pairs,
    group_counts,
    group_starts,
    group_sum,
    in_order,
    mix_hash,
    order_by,
    position_in_group,
    rows_in_order,
)
from tracelab.failures import is_module_load
from tracelab.intervals import new_coverage, require_countable
from tracelab.options import Selection
from tracelab.steps import StepGroup, step_of_calls
from tracelab.trace import I32, I64, KERNEL, Bool, Trace

NO_NEXT = int(np.iinfo(np.int64).max)  # next_start of the last step of a group
_UNLIKE_MOST = 0.5  # a step deviates only if more than this share of the others agree with each other

USED, WARM_UP, MODULE_LOAD, DEVIATES, TRUNCATED = range(5)
REASONS = ("used", "warm-up", "module-load", "deviates", "truncated")


@dataclass(frozen=True)
class StepTable:
    """One row per step with GPU work on this device, by process, thread and start.

    `step` numbers the group's steps; `span` is [start, end); times in ns; `reason` is a code of REASONS. `ops` are the
    rows of `Ops` of all these steps, by row and start, and `op_row` the table row of each.
    """

    step: I32
    process: I32
    thread: I32
    start: I64
    end: I64
    busy_ns: I64
    sum_ns: I64
    kernels: I64
    copies: I64
    launches: I64
    next_start: I64
    reason: I32
    ops: I64
    op_row: I64

    def __len__(self) -> int:
        return len(self.step)

    @property
    def span_ns(self) -> I64:
        return self.end - self.start

    @property
    def used(self) -> I64:
        """Rows that the statistics use."""
        return np.flatnonzero(self.reason == USED)


def build_table(trace: Trace, group: StepGroup, device: int, selection: Selection) -> StepTable:
    """The steps of `group` on device code `device`."""
    here = (group.op_step >= 0) & (trace.ops.device == device)
    kept = here & in_window(trace, selection)
    cut = np.unique(group.op_step[here & ~kept])
    steps, ops, op_row = _by_row(trace, group, np.flatnonzero(kept))
    starts, here_ops = group_starts(op_row), as_stretch(ops)
    start = trace.ops.start[ops[starts]]
    end = np.maximum.reduceat(trace.ops.end[here_ops], starts) if len(starts) else start
    require_countable(end - start + 1)
    coverage = new_coverage(op_row, trace.ops.start[here_ops], trace.ops.end[here_ops])
    process, thread = group.process[steps], group.thread[steps]
    if group.source == "whole-trace" and len(ops):
        process = trace.ops.process[ops[:1]]
    table = StepTable(
        step=steps,
        process=process,
        thread=thread,
        start=start,
        end=end,
        busy_ns=group_sum(coverage, starts),
        sum_ns=group_sum(trace.ops.duration_ns[here_ops], starts),
        kernels=group_sum(trace.ops.kind[here_ops] == KERNEL, starts),
        copies=group_sum(~trace.ops.computes[here_ops], starts),
        launches=_launches(trace, here_ops, op_row, len(starts)),
        next_start=_next_starts(process, thread, start),
        reason=np.zeros(len(steps), np.int32),
        ops=ops,
        op_row=op_row,
    )
    return _judged(trace, group, table, np.isin(steps, cut), selection)


def in_window(trace: Trace, selection: Selection) -> Bool:
    """GPU work wholly inside the selected window; all of it without one."""
    if selection.window_ns is None:
        return np.ones(len(trace.ops), bool)
    low, high = selection.window_ns
    return (trace.ops.start >= low) & (trace.ops.end <= high)


def _by_row(trace: Trace, group: StepGroup, ops: I64) -> tuple[I32, I64, I64]:
    """The steps of `ops` by process, thread and first op; the ops in that order, each step's by start; their rows."""
    step = group.op_step[ops]
    order = order_by(step.astype(np.int64))
    ops, step = in_order(ops, order), in_order(step, order)
    starts = group_starts(step)
    steps, counts = step[starts], group_counts(starts, len(ops))
    by_row = np.lexsort((trace.ops.start[ops[starts]], group.thread[steps], group.process[steps]))
    if not rows_in_order(by_row):
        steps, counts = steps[by_row], counts[by_row]
        before = np.cumsum(counts) - counts
        ops = ops[np.arange(len(ops)) + np.repeat(starts[by_row] - before, counts)]
    return steps, ops, np.repeat(np.arange(len(steps)), counts)


def _launches(trace: Trace, ops: I64 | slice, op_row: I64, rows: int) -> I64:
    """Distinct calls that launched kernels or graphs; copies are counted on their own."""
    call = trace.ops.call[ops]
    counted = (call >= 0) & (trace.ops.computes[ops] | (trace.ops.graph_node[ops] >= 0))
    if not counted.all():
        op_row, call = op_row[counted], call[counted]
    return np.bincount(op_row[distinct_pairs(op_row, call)], minlength=rows).astype(np.int64)


def _next_starts(process: I32, thread: I32, start: I64) -> I64:
    following = np.full(len(start), NO_NEXT, np.int64)
    same = (process[1:] == process[:-1]) & (thread[1:] == thread[:-1])
    following[:-1][same] = start[1:][same]
    return following


def _judged(trace: Trace, group: StepGroup, table: StepTable, cut: Bool, selection: Selection) -> StepTable:
    reason = np.zeros(len(table), np.int32)
    reason[_unlike_most(sequence_hash(trace, table), reason == USED)] = DEVIATES
    reason[_loads_modules(trace, group, table.step)] = MODULE_LOAD
    reason[group.open[table.step] | cut] = TRUNCATED
    reason[_warm_up(table, selection.skip_steps)] = WARM_UP
    if len(table) and not (reason == USED).any():
        reason[reason != WARM_UP] = USED
        if not (reason == USED).any():
            reason[-1] = USED
    return dataclasses.replace(table, reason=reason)


def _warm_up(table: StepTable, skip: int) -> Bool:
    """The first `skip` steps of each process and thread, always leaving one."""
    if len(table) == 0:
        return np.zeros(0, bool)
    changed = (table.process[1:] != table.process[:-1]) | (table.thread[1:] != table.thread[:-1])
    starts = np.concatenate(([0], np.flatnonzero(changed) + 1))
    counts = group_counts(starts, len(table))
    early: Bool = position_in_group(starts, len(table)) < np.repeat(np.minimum(skip, counts - 1), counts)
    return early


def _loads_modules(trace: Trace, group: StepGroup, steps: I32) -> Bool:
    """Steps inside whose host window their process loaded a module or compiled code."""
    return np.isin(steps, step_of_calls(trace, group, np.flatnonzero(trace.calls_named(is_module_load))))


def _unlike_most(signature: U64, among: Bool) -> Bool:
    values, counts = np.unique(signature[among], return_counts=True)
    if len(values) < 2 or counts.max() <= _UNLIKE_MOST * among.sum():
        return np.zeros(len(signature), bool)
    unlike: Bool = signature != values[np.argmax(counts)]
    return unlike


def launch_order(trace: Trace, table: StepTable) -> I64:
    """Positions in `table.ops` by row and launch: call start, then graph node, then GPU start."""
    ops, row = table.ops, table.op_row
    launched_ns = trace.launched_ns(ops)
    if ((row[1:] > row[:-1]) | ((row[1:] == row[:-1]) & (launched_ns[1:] > launched_ns[:-1]))).all():
        return np.arange(len(ops))  # launched one by one, and run in that order
    return np.lexsort((trace.ops.start[ops], trace.ops.graph_node[ops], launched_ns, row))


def sequence_hash(trace: Trace, table: StepTable) -> U64:
    """One number per row that is equal for equal kernel-name sequences (grids follow the context; names do not)."""
    order = launch_order(trace, table)
    ops = as_stretch(table.ops if rows_in_order(order) else table.ops[order])
    row, is_kernel = table.op_row, trace.ops.kind[ops] == KERNEL  # the order is by row: the rows stay as they are
    name = trace.ops.name[ops]
    if not is_kernel.all():
        row, name = row[is_kernel], name[is_kernel]
    position = position_in_group(group_starts(row), len(row))
    total = np.zeros(len(table), np.uint64)
    np.add.at(total, row, mix_hash(name.astype(np.int64), position))
    return total
