"""What a trace cannot say by itself: the GPU it ran on, and what a step must do. Checks of one device's view."""

from collections.abc import Iterator

import numpy as np

from tracelab.trust_result import TrustCheck
from tracelab.units import times
from tracelab.view import View


def gpu(view: View) -> Iterator[TrustCheck]:
    """The limits of the GPU's SMs, which occupancy and waves need."""
    if view.machine.limits is None:
        yield TrustCheck(
            "no-gpu-info",
            "limits of the GPU are unknown",
            "The trace does not say what limits the SMs of its GPU, so blocks per SM and waves cannot be told.",
            refuses=("grids",),
            advice="Give --gpu NAME." if view.trace.devices[view.device].is_nvidia else "",
        )


def mapping(view: View) -> Iterator[TrustCheck]:
    """Which GPU of several it was, where the trace only numbers them."""
    told = view.facts.gpu is not None
    for code, message in view.trace.notes:
        if code == "device-mapping" and not told:
            yield TrustCheck(
                code,
                "which GPU it was is guessed",
                message,
                limits=("mbu", "grids"),
                advice="No matter if all of them are alike; else give --gpu NAME.",
            )


def floor(view: View) -> Iterator[TrustCheck]:
    """The floor of a step: unknown without a workload record, and wrong where it is above the GPU's own time."""
    found = view.floor
    if found.ns is None:
        brief = "no workload record" if view.trace.workload is None else "the floor is unknown"
        seen = f"The floor of a step is unknown: {found.why_not}."
        yield TrustCheck("no-floor", brief, seen, refuses=("mbu",))
        return
    busy = int(np.median(view.busy_ns)) if view.steps_used else 0
    if found.ns > busy > 0:
        least, took = times(found.ns, busy)
        yield TrustCheck(
            "mbu-above-1",
            "the floor is above the GPU time",
            f"The floor of a step, {least}, is above its time on the GPU, {took}: the facts do not fit the trace, or "
            "the data sits in L2.",
            refuses=("mbu",),
            advice="Check parameters, dtype and steps per range.",
            numbers={"floor_ns": found.ns, "busy_ns": busy},
        )
