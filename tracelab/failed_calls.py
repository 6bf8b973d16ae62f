"""API calls that returned an error, each with its phase, step, process and the device that it was meant for."""

from collections.abc import Sequence

import numpy as np

from tracelab.arrays import group_ids
from tracelab.communication_ranks import unusual_wait
from tracelab.failures import error_name, is_launch, judge
from tracelab.intervals import outermost
from tracelab.result import Row
from tracelab.steps import step_of_calls
from tracelab.trace import ABSENT, I32, I64, Trace
from tracelab.units import times
from tracelab.view import View

_SHOWN = ("warning", "error", "fatal")
_NAMED = 4  # devices and processes that a sentence names


def failed_calls(view: View) -> list[Row]:
    """Rows by phase, step, process, device, call and code, most severe first, then by time, without harmless codes.

    `device` is the id of the only GPU that the call's thread, else its process, gives work to; None where there is no
    such one: a failed call says nothing of its device.
    """
    trace, calls = view.trace, view.trace.calls
    rows = _outermost(trace, np.flatnonzero(calls.return_value != 0))
    severity = _severities(trace, rows)
    rows, severity = rows[severity >= 0], severity[severity >= 0]
    step, device = _steps(view, rows), driven_devices(trace, rows)
    group, first = group_ids([calls.process[rows], view.phases.call_phase[rows], step, calls.name[rows],
                              calls.return_value[rows], device])  # fmt: skip
    counts = np.bincount(group)
    ranked = sorted(range(len(first)), key=lambda g: (-severity[first[g]], calls.start[rows[first[g]]]))
    return [
        _row(view, int(rows[i]), int(step[i]), int(device[i]), _SHOWN[int(severity[i])], int(counts[g]))
        for g, i in ((g, first[g]) for g in ranked)
    ]


def rank_of(view: View, failed: Sequence[Row]) -> str:
    """Which rank failed, as words that follow the phase: ` of step 4 on device 1 (process 4242)`.

    `failed` are rows of `failed_calls`; empty where the trace has one process and one device, so that there is no
    choice.
    """
    steps = {row["step"] for row in failed}
    devices = sorted({row["device"] for row in failed} - {None})
    processes = sorted({row["process"] for row in failed})
    working = {view.trace.pid(int(code)) for code in np.unique(view.trace.ops.process)}
    if len(view.trace.devices) < 2 and len(working.union(processes)) < 2:
        return ""
    step = steps.pop() if len(steps) == 1 else None
    said = _listed("process", "es", processes)
    where = f" on {_listed('device', 's', devices)} ({said})" if devices else f" in {said}"
    return f"{f' of {step}' if step else ''}{where}"


def waiting_ranks(view: View, failed: Sequence[Row]) -> str:
    """That other ranks spent far more time than usual in a collective of the steps of `failed`; empty if none did."""
    trace, group = view.trace, view.group
    places = {(row["step"], row["process"]) for row in failed}
    pids = [trace.pid(int(code)) for code in range(len(trace.processes))]
    steps = [i for i, name in enumerate(group.names) if (name, pids[int(group.process[i])]) in places]
    wait = unusual_wait(view, np.array(steps, np.int64), _devices_of(trace, failed))
    if wait is None:
        return ""
    waited, usual = times(wait.ns, wait.usual_ns)
    return (
        f"The other ranks wait in {wait.collective}: {waited} on device {trace.devices[wait.device].id} in that step, "
        f"where {usual} are usual."
    )


def _devices_of(trace: Trace, failed: Sequence[Row]) -> I32:
    """Codes of the devices that failed; of a failure whose device nobody knows, all that its process gives work to."""
    known = {row["device"] for row in failed}
    codes = [code for code, gpu in enumerate(trace.devices) if gpu.id in known]
    lost = {row["process"] for row in failed if row["device"] is None}
    theirs = [code for code in range(len(trace.processes)) if trace.pid(code) in lost]
    mine = trace.ops.device[np.isin(trace.ops.process, theirs)]
    return np.union1d(np.array(codes, np.int32), mine).astype(np.int32)


def _listed(what: str, plural: str, numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:_NAMED])
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"{what}{plural if len(numbers) > 1 else ''} {shown}{more}"


def driven_devices(trace: Trace, rows: I64) -> I32:
    """Code of the only device that the thread of each call of `rows`, else its process, gives work to; else ABSENT."""
    if len(rows) == 0:
        return np.zeros(0, np.int32)
    calls, linked = trace.calls, np.flatnonzero(trace.ops.call >= 0)
    by_thread = _only_device(trace, calls.thread[trace.ops.call[linked]], linked, len(trace.threads))
    by_process = _only_device(trace, trace.ops.process, np.arange(len(trace.ops)), len(trace.processes))
    own = by_thread[calls.thread[rows]]
    return np.where(own == ABSENT, by_process[calls.process[rows]], own)


def _only_device(trace: Trace, owner: I32, ops: I64, owners: int) -> I32:
    """The one device on which each owner's work of the op rows `ops` ran; ABSENT where there are none or several."""
    count = len(trace.devices)
    cells = owner.astype(np.int64) * count + trace.ops.device[ops]
    ran = np.bincount(cells, minlength=owners * count).reshape(owners, count) > 0
    return np.where(ran.sum(axis=1) == 1, ran.argmax(axis=1), ABSENT).astype(np.int32)


def _row(view: View, row: int, step: int, device: int, severity: str, count: int) -> Row:
    trace = view.trace
    api, code = trace.names[int(trace.calls.name[row])], int(trace.calls.return_value[row])
    return {
        "phase": view.phase_name(int(view.phases.call_phase[row])),
        "step": _step_name(view, step),
        "process": trace.pid(int(trace.calls.process[row])),
        "device": None if device == ABSENT else trace.devices[device].id,
        "api": api,
        "code": code,
        "error": error_name(code),
        "severity": severity,
        "count": count,
        "launch": is_launch(api),
    }


def _severities(trace: Trace, rows: I64) -> I64:
    """Index into _SHOWN of each failure, -1 for a harmless one; each kind of failure is judged once."""
    calls = trace.calls
    late = calls.start[rows] > (int(trace.ops.start.max()) if len(trace.ops) else 0)
    group, first = group_ids([calls.name[rows], calls.return_value[rows], calls.driver[rows], late])
    judged = [
        judge(
            trace.names[int(calls.name[rows[i]])],
            int(calls.return_value[rows[i]]),
            int(calls.driver[rows[i]]),
            after_last_work=bool(late[i]),
        )
        for i in first
    ]
    return np.array([_SHOWN.index(said) if said in _SHOWN else -1 for said in judged], np.int64)[group]


def _outermost(trace: Trace, rows: I64) -> I64:
    """One of the rows of a failure that shows both as a runtime call and as driver calls inside it; by start."""
    order = np.lexsort((-trace.calls.end[rows], trace.calls.start[rows], trace.calls.thread[rows]))
    rows = rows[order]
    keep = outermost(trace.calls.thread[rows], trace.calls.start[rows], trace.calls.end[rows])
    return rows[keep][np.argsort(trace.calls.start[rows[keep]], kind="stable")]


def _steps(view: View, rows: I64) -> I64:
    """Range row of the step of each failure (NVTX steps), else the step's number in its group; ABSENT outside."""
    if view.steps.nvtx is not None:
        return view.steps.nvtx.call_range[rows]
    return step_of_calls(view.trace, view.group, rows).astype(np.int64)


def _step_name(view: View, step: int) -> str | None:
    if step == ABSENT:
        return None
    if view.steps.nvtx is not None:
        return view.trace.names[int(view.trace.ranges.name[step])]
    return view.group.names[step]
