"""Starved grids: which kernels leave SMs without a block, and what more blocks could save."""

from collections.abc import Sequence

from tracelab.kernel_names import shorten
from tracelab.phase_work import mbu_of_phase
from tracelab.result import Finding, Row
from tracelab.units import percent
from tracelab.units import time as format_time
from tracelab.view import View

_STARVED_MBU = 0.3  # below it a half-empty GPU is not bandwidth-bound, so more blocks will pay
_WORTH_A_LINE = 0.05  # share of the kernel sum from which one kernel is a finding of its own


def findings(view: View, rows: Sequence[Row]) -> list[Finding]:
    """One finding per starved kernel that matters, one for the other grids that reach too few SMs together."""
    under = [row for row in rows if row["underfills"]]
    alone = [row for row in under if row["share"] >= _WORTH_A_LINE]
    rest = [row for row in under if row["share"] < _WORTH_A_LINE]
    found = [_starved(view, row) for row in alone]
    return [*found, _together(view, rest)] if rest else found


def _saving(row: Row) -> int:
    return round(float(row["time_ns_per_step"]) * (1.0 - float(row["sm_fill"])))


def _blocks(row: Row) -> str:
    return "1 block" if row["blocks"] == 1 else f"{row['blocks']} blocks"


def _starved(view: View, row: Row) -> Finding:
    sms = view.machine.sm_count or 0
    mbu = mbu_of_phase(view, row["phase"])
    reached = sms - row["idle_sms"]
    title = (
        f"{shorten(row['kernel'], 48)} reaches {reached} of {sms} SMs ({_blocks(row)}): "
        f"{format_time(row['time_ns_per_step'])}, {percent(row['share'])} of GPU time."
    )
    if mbu is not None and mbu < _STARVED_MBU:
        why = f"MBU of {row['phase']} is {percent(mbu, 0)}: starved, not bandwidth-bound; more blocks will pay."
        return Finding("starved-grid", title, why, _saving(row))
    known = (
        f"MBU of {row['phase']} is {percent(mbu, 0)}." if mbu is not None else "Split a serial axis over more blocks."
    )
    return Finding("underfilled-grid", title, known, _saving(row))


def _together(view: View, rows: Sequence[Row]) -> Finding:
    sms = view.machine.sm_count or 0
    kernels = sum(row["calls_per_step"] for row in rows)
    most = max(sms - row["idle_sms"] for row in rows)
    time_ns = sum(row["time_ns_per_step"] for row in rows)
    share = sum(row["share"] for row in rows)
    title = (
        f"{kernels:.4g} kernels a step reach {most} or fewer of {sms} SMs: "
        f"{format_time(time_ns)}, {percent(share)} of GPU time."
    )
    why = "Fuse them with their neighbours, or give them more blocks."
    return Finding("underfilled-grids", title, why, sum(_saving(row) for row in rows))
