"""How long the GPU was idle, and who is to blame for it."""

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import median_int
from tracelab.gap_classes import CLASSES, HOST_LATE, LAUNCH
from tracelab.gap_findings import findings
from tracelab.gap_pairs import gap_pairs
from tracelab.result import Metric, Result
from tracelab.trace import I64
from tracelab.view import View


def analyze(view: View) -> Result:
    """Idle time of the used steps by class. Metrics are medians over the steps, in ns; shares are of the step time."""
    if view.steps_used == 0:
        return Result(skipped="No step has GPU work on this device.")
    metrics = _times(view)
    if view.time_incomplete:
        # Replays without GPU rows: idle time cannot be told from work that was not recorded.
        bound = {"bound": Metric("unknown", "")}
        return Result(
            skipped="GPU time is incomplete: CUDA graph replays left no GPU rows, so idle time cannot be told; "
            "capture with --cuda-graph-trace=node.",
            metrics={name: metrics[name] for name in ("step_ns", "span_ns")} | bound,
        )
    metrics |= _shares(view) | {"bound": Metric(view.bound, "")}
    pairs = gap_pairs(view)
    return Result(metrics=metrics, tables={"gaps": pairs}, findings=findings(view, pairs))


def _ns(per_step: I64) -> Metric:
    return Metric(median_int(per_step), "ns", per_step.astype(np.float64))


def _times(view: View) -> dict[str, Metric]:
    idle = view.idle_by_class
    classes = {f"{name}_gap_ns": _ns(idle[c]) for c, name in enumerate(CLASSES)}
    timed = view.timed
    late = view.between_by_class[HOST_LATE].sum(axis=0)
    launches = np.maximum(view.table.launches[view.used], 1)
    return {
        "step_ns": _ns(view.step_ns),
        "span_ns": _ns(view.span_ns),
        "busy_ns": _ns(view.busy_ns),
        "other_ns": _ns(view.other_ns),
        "idle_ns": _ns(idle.sum(axis=0)),
        **classes,
        "between_steps_ns": _ns(view.between_by_class.sum(axis=0)[timed]),
        "between_steps_late_ns": _ns(late[timed]),
        "idle_per_launch_ns": _ns(idle.sum(axis=0) // launches),
        "launch_api_ns": _ns(launch_api_ns(view)),
    }


def _shares(view: View) -> dict[str, Metric]:
    step = np.maximum(view.step_ns, 1)
    idle = (view.step_idle_by_class.sum(axis=0) + view.between_by_class.sum(axis=0))[view.timed]
    launch = view.step_idle_by_class[LAUNCH][view.timed]
    return {"gap_share": _ratio(idle / step), "launch_gap_share": _ratio(launch / step)}


def _ratio(per_step: NDArray[np.float64]) -> Metric:
    clipped = np.minimum(per_step, 1.0)
    return Metric(float(np.median(clipped)), "ratio", clipped)


def launch_api_ns(view: View) -> I64:
    """Host time of the distinct launching calls of each used step: once per call, however many kernels it launched."""
    step, calls = view.launching_calls
    total = np.zeros(view.steps_used, np.int64)
    np.add.at(total, step, view.trace.calls.end[calls] - view.trace.calls.start[calls])
    return total
