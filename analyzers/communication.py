"""Communication between GPUs: how much of it the step waits for, and which GPU comes last."""

import numpy as np

from tracelab.arrays import median_int
from tracelab.communication import PEER_COPY, Communication, collectives, communication, sums
from tracelab.communication_ranks import Arrivals, arrivals
from tracelab.result import Finding, Metric, Result, Row
from tracelab.trace import GRAPH, I64
from tracelab.units import percent, times
from tracelab.units import time as format_time
from tracelab.view import View

_WORTH_A_LINE = 0.05  # share of the step from which exposed communication is a finding
_MOSTLY_WAITING = 0.5  # share of the exposed time from which the ranks, not the transfer, are to blame


def analyze(view: View) -> Result:
    """Communication of the used steps: exposed while nothing else of the step runs on this device, else hidden.

    Metrics are medians over the steps, so exposed and hidden time need not add up to the whole; tables are means per
    step, and do; all in ns. The start times of several devices are compared
    directly: those of one capture on one host are on one clock.
    """
    reason = _why_not(view)
    found = communication(view)
    if reason or len(found) == 0:
        return Result(skipped=reason or "No NCCL or other communication kernel ran in the steps.")
    met = arrivals(view)
    tables = {"collectives": _collectives(view, found), "phases": _phases(view, found)}
    return Result(
        metrics=_metrics(view, found) | (_skew(view, met) if met else {}),
        tables=tables | ({"arrivals": _arrivals(view, met)} if met else {}),
        findings=_findings(view, found, met),
    )


def _why_not(view: View) -> str | None:
    if view.steps_used == 0:
        return "No step has GPU work on this device."
    if (view.of_ops(view.trace.ops.kind) == GRAPH).any():
        return (
            "CUDA graphs were traced as a whole, so communication inside them cannot be told; "
            "capture with --cuda-graph-trace=node."
        )
    return None


def _metrics(view: View, found: Communication) -> dict[str, Metric]:
    exposed = _per_step(view, found, found.exposed_ns)
    share = _share(view, exposed)
    return {
        "communication_ns": _ns(_per_step(view, found, found.union_ns)),
        "exposed_ns": _ns(exposed),
        "hidden_ns": _ns(_per_step(view, found, found.union_ns - found.exposed_ns)),
        "exposed_share": Metric(float(np.median(share)), "ratio", share),
    }


def _per_step(view: View, found: Communication, of_each: I64) -> I64:
    return sums(found.step, of_each, view.steps_used)


def _ns(per_step: I64) -> Metric:
    return Metric(median_int(per_step), "ns", per_step.astype(np.float64))


def _share(view: View, exposed: I64) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of the step time, in the steps that have one. Steps that overlap last longer than their period: 1 at most."""
    return np.minimum(exposed[view.timed] / np.maximum(view.step_ns, 1), 1.0)


def _collectives(view: View, found: Communication) -> list[Row]:
    """By collective. `sum_ns` is the plain sum; how many bytes a kernel moved is nowhere in the trace."""
    ops = view.trace.ops
    group, names = collectives(view.trace, found.rows)
    calls = np.bincount(group, minlength=len(names))
    total = sums(group, ops.duration_ns[found.rows], len(names))
    exposed = sums(group, found.exposed_ns, len(names))
    moved = sums(group, ops.bytes[found.rows], len(names))
    return [
        {
            "collective": names[i],
            "calls_per_step": view.per_step(int(calls[i])),
            "sum_ns": round(view.per_step(int(total[i]))),
            "exposed_ns": round(view.per_step(int(exposed[i]))),
            "bytes_per_step": round(view.per_step(int(moved[i]))) if names[i] == PEER_COPY else None,
        }
        for i in np.argsort(-total, kind="stable")
    ]


def _phases(view: View, found: Communication) -> list[Row]:
    code = view.phases.op_phase[found.rows].astype(np.int64)
    everything = sums(code, found.union_ns, len(view.phases.names))
    exposed = sums(code, found.exposed_ns, len(view.phases.names))
    present = np.unique(code)
    return [
        {
            "phase": view.phase_name(int(p)),
            "communication_ns": round(view.per_step(int(everything[p]))),
            "exposed_ns": round(view.per_step(int(exposed[p]))),
        }
        for p in present[np.lexsort((-everything[present], -exposed[present]))]
    ]


def _skew(view: View, met: Arrivals) -> dict[str, Metric]:
    own = met.wait_ns[:, np.searchsorted(met.devices, view.device)]
    return {
        "arrival_skew_ns": Metric(median_int(own), "ns"),
        "collectives_compared": Metric(len(met), "collectives"),
        "last_device": Metric(_device_id(view, _most_often_last(met)), "device"),
    }


def _arrivals(view: View, met: Arrivals) -> list[Row]:
    """Of each device: how often it came last, and how long it waited in a collective for the last one (median)."""
    last = np.bincount(met.last, minlength=len(met.devices))
    return [
        {
            "device": _device_id(view, column),
            "collectives": len(met),
            "came_last": int(last[at]),
            "wait_median_ns": median_int(met.wait_ns[:, at]),
        }
        for at, column in enumerate(met.devices)
    ]


def _most_often_last(met: Arrivals) -> int:
    return int(met.devices[np.bincount(met.last, minlength=len(met.devices)).argmax()])


def _device_id(view: View, device: int) -> int:
    return view.trace.devices[device].id


def _findings(view: View, found: Communication, met: Arrivals | None) -> list[Finding]:
    exposed = _per_step(view, found, found.exposed_ns)
    share = float(np.median(_share(view, exposed)))
    lost = median_int(exposed)
    if lost == 0 or share < _WORTH_A_LINE:
        return []
    part, whole = times(lost, view.step_time_ns)
    a_step = "" if view.group.source == "whole-trace" else " a step"
    title = f"Exposed communication: {part} of {whole}{a_step} ({percent(share)})."
    return [Finding("exposed-communication", title, _advice(view, met, lost), lost)]


def _advice(view: View, met: Arrivals | None, lost: int) -> str:
    overlap = (
        "Overlap it with compute on another stream, or use kernels for small messages "
        "(custom or one-shot all-reduce, NCCL symmetric memory)."
    )
    if met is None:
        return overlap
    column = int(np.searchsorted(met.devices, view.device))
    waited = median_int(sums(met.step, met.wait_ns[:, column], view.steps_used))
    if waited < _MOSTLY_WAITING * lost:
        return overlap
    late = _most_often_last(met)
    times_last = int((met.devices[met.last] == late).sum())
    return (
        f"This device waits {format_time(waited)} a step inside collectives for the last one, most often device "
        f"{_device_id(view, late)} ({times_last} of {len(met)} times): find out why that one comes late."
    )
