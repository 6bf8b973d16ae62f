"""One collective on several devices: who came last to it, and who waited unusually long in it.

A rank is a device here. Its kernel of a collective cannot end before every rank's has started, so the time from its own
start to the last one's is time it waits inside the collective. Start times of several devices are compared directly:
the times of one nsys capture on one host are all on one clock.
"""

from dataclasses import dataclass

import numpy as np

from tracelab.arrays import group_counts, group_ids, group_starts, median_int, position_in_group
from tracelab.communication import collectives, is_communication, sums
from tracelab.step_table import in_window
from tracelab.steps import StepGroup
from tracelab.trace import ABSENT, I32, I64, KERNEL, Bool
from tracelab.view import View

_UNUSUAL = 2.0  # a collective this many times as long as usual had to wait
_USUAL_FROM = 3  # steps from which the usual time is known


@dataclass(frozen=True)
class Arrivals:
    """Collectives of the used steps that all devices took part in: `start` has shape [collectives, devices].

    `devices` are the device codes of the columns; `step` is the used step (0 …) of each collective on the own device.
    """

    devices: I32
    step: I64
    start: I64

    def __len__(self) -> int:
        return len(self.step)

    @property
    def wait_ns(self) -> I64:
        """Time from each device's start to the last one's; shape [collectives, devices]."""
        waits: I64 = self.start.max(axis=1, keepdims=True) - self.start
        return waits

    @property
    def last(self) -> I64:
        """Column of the device that started last in each collective; of two the first."""
        column: I64 = np.argmax(self.start, axis=1)
        return column


@dataclass(frozen=True)
class Wait:
    """A device (code) that spent `ns` of one step in a collective that takes `usual_ns` a step (median)."""

    device: int
    collective: str
    ns: int
    usual_ns: int


@dataclass(frozen=True)
class _Kernels:
    """Communication kernels of a step group on every device: op row, device code, step of the group and collective.

    `keys` has for each step of the group a number that is the same on every rank.
    """

    rows: I64
    device: I32
    step: I32
    label: I64
    labels: tuple[str, ...]
    keys: I64

    @property
    def key(self) -> I64:
        return self.keys[self.step]

    def take(self, which: Bool | I64) -> "_Kernels":
        return _Kernels(
            self.rows[which], self.device[which], self.step[which], self.label[which], self.labels, self.keys
        )


def arrivals(view: View) -> Arrivals | None:
    """When each device started each collective; None where no collective can be found on several devices.

    A collective is found again on another device as the same one in order in the step of the same name. It counts only
    where every device runs as many of its kind in that step, and where all its kernels overlap, as they must.
    """
    found = _in_launch_order(view, _one_step_per_device(_kernels(view)))
    devices = np.unique(found.device)
    if len(devices) < 2 or view.device not in devices:
        return None
    start, end, step = _matched(view, found, len(devices))
    number = np.full(len(view.group.names), ABSENT, np.int64)
    number[view.table.step[view.used]] = np.arange(view.steps_used)
    used = number[step[:, np.searchsorted(devices, view.device)]]
    kept = (used != ABSENT) & (start.max(axis=1) < end.min(axis=1))
    return Arrivals(devices, used[kept], start[kept]) if kept.any() else None


def unusual_wait(view: View, steps: I64, but: I32) -> Wait | None:
    """The longest time that a device other than those of `but` (codes) spent in a collective during `steps`.

    `steps` are steps of the view's group, on any device. None where no time is far above the usual one there.
    """
    found = _kernels(view)
    found = found.take(~np.isin(found.device, but))
    cell, first = group_ids([found.device, found.label, found.key])
    total = sums(cell, view.trace.ops.duration_ns[found.rows], len(first))
    device, label = found.device[first], found.label[first]
    asked = np.isin(found.key[first], found.keys[steps])
    waits = []
    for at in np.flatnonzero(asked):
        usual = total[(device == device[at]) & (label == label[at]) & ~asked]
        if len(usual) >= _USUAL_FROM and total[at] >= max(_UNUSUAL * np.median(usual), 1):
            waits.append(Wait(int(device[at]), found.labels[int(label[at])], int(total[at]), median_int(usual)))
    return max(waits, key=lambda wait: wait.ns, default=None)


def _kernels(view: View) -> _Kernels:
    trace, group = view.trace, view.group
    rows = np.flatnonzero((group.op_step >= 0) & (trace.ops.kind == KERNEL) & in_window(trace, view.selection))
    rows = rows[is_communication(trace, rows)]
    device, step = trace.ops.device[rows], group.op_step[rows]
    label, labels = collectives(trace, rows)
    return _Kernels(rows, device, step, label, tuple(labels), _step_keys(group, step, device))


def _step_keys(group: StepGroup, step: I32, device: I32) -> I64:
    """For each step of the group a number that is the same on every rank: by its name and how often its thread had that
    name before; where ranks name their steps apart, by its place among its thread's. `step` and `device` are those of
    some work."""
    _, name = np.unique(np.array(group.names), return_inverse=True)
    thread, _ = group_ids([group.process, group.thread])
    by_name, _ = group_ids([name, _nth(thread, name)])
    devices = int(device.max(initial=0)) + 1
    ran_on = np.bincount(by_name[step] * devices + device, minlength=len(by_name) * devices).reshape(-1, devices) > 0
    named_alike = bool((ran_on.sum(axis=1) > 1).any())
    return by_name if named_alike else _nth(thread, np.zeros_like(thread))


def _nth(thread: I64, name: I64) -> I64:
    """How many steps of the same thread and name stand before each."""
    order = np.lexsort((name, thread))
    pair, _ = group_ids([thread, name])
    position = np.empty(len(order), np.int64)
    position[order] = position_in_group(group_starts(pair[order]), len(order))
    return position


def _one_step_per_device(found: _Kernels) -> _Kernels:
    """Without the steps of which a device has several, as two processes on one device do."""
    group, first = group_ids([found.device, found.key])
    lowest, highest = (np.full(len(first), edge, np.int64) for edge in (np.iinfo(np.int64).max, -1))
    np.minimum.at(lowest, group, found.step)
    np.maximum.at(highest, group, found.step)
    return found.take((lowest == highest)[group])


def _in_launch_order(view: View, found: _Kernels) -> _Kernels:
    """By step, collective, device and launch."""
    ops, rows = view.trace.ops, found.rows
    launched = view.trace.launched_ns(rows)
    order = np.lexsort((ops.start[rows], ops.graph_node[rows], launched, found.device, found.label, found.key))
    return found.take(order)


def _matched(view: View, found: _Kernels, devices: int) -> tuple[I64, I64, I64]:
    """Start, end and step of the collectives that every device ran; each of shape [collectives, devices]."""
    kind, _ = group_ids([found.key, found.label])  # sorted, as the rows are
    cell, _ = group_ids([kind, found.device])
    cells = group_starts(cell)
    each = group_counts(cells, len(cell))
    first = group_starts(kind[cells])
    alike = np.minimum.reduceat(each, first) == np.maximum.reduceat(each, first)
    complete = (group_counts(first, len(cells)) == devices) & alike
    kept = complete[kind]
    position = position_in_group(cells, len(cell))[kept]
    order = np.lexsort((found.device[kept], position, kind[kept]))
    rows, step = found.rows[kept][order], found.step[kept][order]
    start, end = view.trace.ops.start[rows], view.trace.ops.end[rows]
    return start.reshape(-1, devices), end.reshape(-1, devices), step.reshape(-1, devices).astype(np.int64)
