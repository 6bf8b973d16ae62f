"""How far step and phases are from their floor (bytes / β)."""

import numpy as np

from tracelab.floor import NS_PER_S
from tracelab.phase_work import PhaseWork, phase_work
from tracelab.result import Check, Finding, Metric, Result, Row
from tracelab.units import data, percent, ratio, times
from tracelab.view import View

_FAR = 0.5  # below this MBU a phase that takes long is a finding
_NEXT_TO_NOTHING = 0.05  # with a floor below this share of its time a phase is slow for other reasons: see its grids
_WORTH_A_LINE = 0.05  # share of the step that a phase must lose against its floor


def analyze(view: View) -> Result:
    """Bytes and FLOPs per step from the workload record or the options; MBU is over the step time."""
    floor = view.floor
    if view.steps_used == 0:
        return Result(skipped="No step has GPU work on this device.")
    metrics = {
        name: Metric(value, unit)
        for name, value, unit in (("bytes_per_step", floor.bytes, "bytes"), ("flops_per_step", floor.flops, "FLOP"))
        if value is not None
    }
    if floor.ns is None:
        return Result(skipped=f"Floor unknown: {floor.why_not}.", metrics=metrics)
    metrics |= {"floor_ns": Metric(floor.ns, "ns"), "floor_kind": Metric(floor.kind, "")}
    checks = []
    if floor.bytes is not None and view.machine.bandwidth_bytes_per_s:
        over_step, over_busy = _mbu(view, view.step_ns), _mbu(view, view.busy_ns)
        metrics |= {"mbu": over_step, "mbu_busy": over_busy}
        checks.append(_plausible(over_busy))
    work = phase_work(view)
    return Result(metrics=metrics, tables={"phases": _rows(work)}, checks=checks, findings=_findings(view, work))


def _mbu(view: View, times_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Metric:
    beta = view.machine.bandwidth_bytes_per_s or float("inf")
    per_step = (view.floor.bytes or 0.0) / (np.maximum(times_ns, 1) / NS_PER_S * beta)
    return Metric(float(np.median(per_step)), "ratio", per_step)


def _plausible(over_busy: Metric) -> Check:
    value = float(over_busy.value or 0.0)
    return Check("MBU is at most 1: bytes, dtype and steps per range fit the trace", value <= 1.0, value, 1.0, "ratio")


def _rows(work: list[PhaseWork]) -> list[Row]:
    return [
        {"phase": w.phase, "bytes": w.bytes, "floor_ns": w.floor_ns, "busy_ns": round(w.busy_ns), "mbu": w.mbu}
        for w in sorted(work, key=lambda w: -w.busy_ns)
    ]


def _findings(view: View, work: list[PhaseWork]) -> list[Finding]:
    found = []
    for w in work:
        lost = round(w.busy_ns) - w.floor_ns
        reached = w.floor_ns / max(w.busy_ns, 1)  # MBU, or the share of the peak where FLOPs make the floor
        far = w.mbu is not None and _NEXT_TO_NOTHING <= reached < _FAR
        if far and lost > _WORTH_A_LINE * view.step_time_ns:
            found.append(_far(w, lost))
    return found


def _far(w: PhaseWork, lost: int) -> Finding:
    takes, least = times(w.busy_ns, w.floor_ns)
    title = f"{w.phase} takes {takes}, {ratio(w.times_floor)} its floor of {least}."
    if w.bound_by == "flops":
        evidence = f"It must compute for that long; it reaches {percent(w.floor_ns / w.busy_ns, 0)} of the peak."
    else:
        evidence = f"It must move {data(w.bytes)} per step: that is {percent(w.mbu or 0.0, 0)} of the memory bandwidth."
    return Finding("far-from-floor", title, evidence, lost)
