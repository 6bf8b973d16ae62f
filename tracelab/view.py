"""What an analyzer sees: one device of an attributed trace, with what several analyzers need computed once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Scalar, as_stretch, distinct_pairs, marked, median_int, rows_in_order
from tracelab.floor import Floor, step_floor
from tracelab.gap_classes import HOST_LATE, Gaps, classify_gaps
from tracelab.gpu_facts import Machine
from tracelab.intervals import Timeline, even_shares, time_alone, union
from tracelab.launch_state import graph_launches_without_work
from tracelab.options import Facts, Selection
from tracelab.phases import Phases
from tracelab.report import OtherGroup
from tracelab.step_table import NO_NEXT, USED, StepTable, in_window
from tracelab.steps import StepGroup, Steps
from tracelab.trace import I64, KERNEL, Bool, Trace

# Share of launch and sync idle in the step above which the host, and below which the device, bounds it. Proposed
# thresholds, not calibrated beyond the captures that tests and README name.
HOST_BOUND, DEVICE_BOUND = 0.3, 0.05


@dataclass(frozen=True)
class View:
    """One device (code `device`) of a trace, its steps and phases. Arrays per used step have length `steps_used`."""

    trace: Trace
    facts: Facts
    selection: Selection
    steps: Steps
    group: StepGroup
    table: StepTable
    phases: Phases
    device: int
    machine: Machine
    others: tuple[OtherGroup, ...]

    @cached_property
    def used(self) -> I64:
        """Rows of `table` that the statistics use."""
        return self.table.used

    @property
    def steps_used(self) -> int:
        return len(self.used)

    @cached_property
    def _kept(self) -> Bool | slice:
        return marked((self.table.reason == USED)[self.table.op_row])

    @cached_property
    def ops(self) -> I64:
        """Rows of `Ops` in the used steps, by step and start."""
        return self.table.ops[self._kept]

    @cached_property
    def _stretch(self) -> I64 | slice:
        return as_stretch(self.ops)

    def of_ops(self, column: NDArray[Scalar]) -> NDArray[Scalar]:
        """The values that a column of `Ops` (or of the same length) has for `ops`; without a copy where it can."""
        return column[self._stretch]

    @cached_property
    def op_step(self) -> I64:
        """Used step (0 …) of each of `ops`."""
        number = np.zeros(len(self.table), np.int64)
        number[self.used] = np.arange(self.steps_used)
        return number[self.table.op_row[self._kept]]

    @cached_property
    def launching_calls(self) -> tuple[I64, I64]:
        """Used step and row of `Calls` of every call that launched work there: once, however many kernels it holds."""
        step, call = self.op_step, self.of_ops(self.trace.ops.call)
        linked = call >= 0
        if not linked.all():
            step, call = step[linked], call[linked]
        first = distinct_pairs(step, call)
        return (step, call) if len(first) == len(step) and rows_in_order(first) else (step[first], call[first])

    @cached_property
    def shares_ns(self) -> NDArray[np.float64]:
        """Busy time of each of `ops`, overlaps within a step shared evenly; adds up to the busy time."""
        return even_shares(self.op_step, self.of_ops(self.trace.ops.start), self.of_ops(self.trace.ops.end))

    @cached_property
    def alone_ns(self) -> NDArray[np.float64]:
        """Time of each of `ops` in which no other of its step ran: only then are the SMs it does not reach empty."""
        return time_alone(self.op_step, self.of_ops(self.trace.ops.start), self.of_ops(self.trace.ops.end))

    @cached_property
    def is_kernel(self) -> Bool:
        kernels: Bool = self.of_ops(self.trace.ops.kind) == KERNEL
        return kernels

    @cached_property
    def kernel_sum_ns(self) -> int:
        """Plain sum of the kernels of the used steps."""
        return int(self.of_ops(self.trace.ops.duration_ns).sum(where=self.is_kernel))

    @cached_property
    def span_ns(self) -> I64:
        return self.table.span_ns[self.used]

    @cached_property
    def busy_ns(self) -> I64:
        return self.table.busy_ns[self.used]

    @cached_property
    def has_period(self) -> Bool:
        """Used steps that have a next one; where no step has one, all False."""
        followed: Bool = self.table.next_start[self.used] != NO_NEXT
        return followed

    @cached_property
    def step_ns(self) -> I64:
        """Period of each used step that has one, else the span of each used step."""
        if not self.has_period.any():
            return self.span_ns
        rows = self.used[self.has_period]
        return self.table.next_start[rows] - self.table.start[rows]

    @cached_property
    def timed(self) -> I64:
        """Used steps (0 …) that `step_ns` speaks of."""
        return np.flatnonzero(self.has_period) if self.has_period.any() else np.arange(self.steps_used)

    @property
    def step_time_ns(self) -> int:
        """The step time: the median of `step_ns`."""
        return median_int(self.step_ns)

    @cached_property
    def device_ops(self) -> I64:
        """All GPU work on this device in the window, of every process, by start."""
        return np.flatnonzero((self.trace.ops.device == self.device) & in_window(self.trace, self.selection))

    @cached_property
    def timeline(self) -> Timeline:
        ops, rows = self.trace.ops, self.device_ops
        if len(rows) == len(ops):  # all of it: no copies
            return union(ops.start, ops.end)
        return union(ops.start[rows], ops.end[rows])

    @cached_property
    def gaps(self) -> Gaps:
        return classify_gaps(self.trace, self.timeline, self.device_ops)

    @cached_property
    def other_ns(self) -> I64:
        """Time in each used span in which only work of other steps or processes ran."""
        start, end = self.table.start[self.used], self.table.end[self.used]
        return self.timeline.covered(start, end) - self.busy_ns

    @cached_property
    def step_idle_by_class(self) -> I64:
        """The same up to the next step's first op only: steps that overlap share no idle time."""
        start, end = self.table.start[self.used], self.table.end[self.used]
        return self.gaps.within(start, np.maximum(np.minimum(end, self.table.next_start[self.used]), start))

    @cached_property
    def idle_by_class(self) -> I64:
        """Idle time in each used span by gap class; shape [len(CLASSES), steps]."""
        return self.gaps.within(self.table.start[self.used], self.table.end[self.used])

    @cached_property
    def between_by_class(self) -> I64:
        """Idle time from each used span's end to the next one's start by gap class; 0 for the last of a group."""
        end, following = self.table.end[self.used], self.table.next_start[self.used]
        return self.gaps.within(end, np.where(following == NO_NEXT, end, np.maximum(following, end)))

    @cached_property
    def representative(self) -> int:
        """Used step whose step time is the median, the lower of two; the waterfall shows this one."""
        order = self.timed[np.argsort(self.step_ns, kind="stable")]
        return int(order[(len(order) - 1) // 2])

    @cached_property
    def time_incomplete(self) -> bool:
        """True where graph replays left no GPU rows, so that idle time cannot be told from missing work."""
        return len(graph_launches_without_work(self.trace)) > 0

    @cached_property
    def floor(self) -> Floor:
        return step_floor(self.machine, self.facts, self.trace.workload)

    @cached_property
    def bound(self) -> str:
        """`host`, `device` or `mixed` by the share of launch and sync idle in the step; `unknown` if incomplete."""
        if self.time_incomplete or self.steps_used == 0:
            return "unknown"
        late = self.late_ns[self.timed]
        share = float(np.median(late / np.maximum(self.step_ns, 1)))
        return "host" if share > HOST_BOUND else "device" if share < DEVICE_BOUND else "mixed"

    @cached_property
    def late_ns(self) -> I64:
        """Idle time of each used step for which the host is to blame, that between steps included."""
        late_ns: I64 = (self.step_idle_by_class[HOST_LATE] + self.between_by_class[HOST_LATE]).sum(axis=0)
        return late_ns

    def phase_name(self, code: int) -> str:
        return self.phases.names[code]

    def per_step(self, total: float) -> float:
        """A total over the used steps as a mean per step."""
        return total / max(self.steps_used, 1)
