"""Time of each phase beside the bytes and FLOPs that the workload record gives it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.floor import LONGEST_FLOOR_NS, NS_PER_S, floor_ns
from tracelab.view import View


@dataclass(frozen=True)
class PhaseWork:
    """One phase of the record: mean busy time per step (ns, overlaps shared evenly), bytes, floor, MBU, and which of
    `bytes` and `flops` makes its floor."""

    phase: str
    bytes: float
    floor_ns: int
    busy_ns: float
    mbu: float | None
    bound_by: str

    @property
    def times_floor(self) -> float:
        """Busy time in units of the floor."""
        return self.busy_ns / max(self.floor_ns, 1)


def busy_by_phase(view: View) -> NDArray[np.float64]:
    """Mean busy time per step of each phase code (ns, overlaps shared evenly)."""
    codes = view.of_ops(view.phases.op_phase)
    totals = np.bincount(codes, weights=view.shares_ns, minlength=len(view.phases.names))
    return totals / max(view.steps_used, 1)


def belongs(path: str, name: str) -> bool:
    """Whether a phase path is the record's phase `name`: the same path, or one that ends in it or lies below it."""
    return f"/{name}/" in f"/{path}/"


def phase_work(view: View) -> list[PhaseWork]:
    """The record's phases that have bytes and ran, in the record's order."""
    beta = view.machine.bandwidth_bytes_per_s
    if not beta:
        return []
    busy = busy_by_phase(view)
    dtype = str((view.trace.workload or {}).get("dtype") or "bf16")
    found = []
    for name, (moved, flops) in view.floor.phases.items():
        codes = [code for code, path in enumerate(view.phases.names) if code and belongs(path, name)]
        time_ns = float(busy[codes].sum())
        if moved and time_ns > 0:
            ns, kind = floor_ns(view.machine, dtype, moved, flops)
            if ns > LONGEST_FLOOR_NS:
                continue
            found.append(PhaseWork(name, moved, ns, time_ns, moved / (time_ns / NS_PER_S * beta), kind))
    return found


def work_of_phase(known: Sequence[PhaseWork], path: str) -> PhaseWork | None:
    """Of what `phase_work` found, the phase that the path `path` is part of; None where it is unknown."""
    return next((work for work in known if belongs(path, work.phase)), None)
