"""Starved grids: which kernels leave SMs without a block, and what more blocks could save."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracelab.kernel_names import shorten
from tracelab.phase_work import PhaseWork, phase_work, work_of_phase
from tracelab.result import Finding
from tracelab.units import percent, ratio
from tracelab.units import time as format_time
from tracelab.view import View

_STARVED_MBU = 0.3  # below it a half-empty GPU is not bandwidth-bound, so more blocks will pay
_NEXT_TO_NOTHING = 0.05  # a phase whose floor is below this share of its time is not slow for what it moves
_ONE_PERCENT = 0.01
_MANY_CALLS = 16  # of one kernel a step, each on a part of the GPU: one launch could do the work of all
_SERIAL_NS = 50_000  # a call this long in one wave is a serial walk: blocks that each do little end within a few µs
_WORTH_A_LINE = 0.05  # share of the kernel sum from which one kernel is a finding of its own


@dataclass(frozen=True)
class Underfill:
    """The launches of one kernel in one phase that reach fewer than 90 % of the SMs: per step, with the time in ns that
    they run alone, its share of the kernel sum, least and most SMs reached and blocks, and that time × (1 − fill).

    Beside another kernel (a dependent launch that waits for it, say) the SMs that a grid does not reach are not empty.
    """

    kernel: str
    phase: str
    calls: float
    time_ns: int
    share: float
    sms: tuple[int, int]
    blocks: tuple[int, int]
    saving_ns: int


def findings(view: View, under: Sequence[Underfill]) -> list[Finding]:
    """One finding per starved kernel that matters, one for the other grids that reach too few SMs together."""
    alone = [use for use in under if use.share >= _WORTH_A_LINE]
    rest = [use for use in under if use.share < _WORTH_A_LINE]
    known = phase_work(view) if alone else []
    found = [_starved(view, use, work_of_phase(known, use.phase)) for use in alone]
    return [*found, _together(view, rest)] if rest else found


def _span(low_high: tuple[int, int]) -> str:
    low, high = low_high
    return str(low) if low == high else f"{low}–{high}"


def _starved(view: View, use: Underfill, work: PhaseWork | None) -> Finding:
    blocks = "1 block" if use.blocks == (1, 1) else f"{_span(use.blocks)} blocks"
    title = (
        f"{shorten(use.kernel)} reaches {_span(use.sms)} of {view.machine.sm_count} SMs ({blocks}): "
        f"{format_time(use.time_ns)}, {percent(use.share)} of GPU time."
    )
    if work is None or work.mbu is None:
        return Finding("underfilled-grid", title, "Split a serial axis over more blocks.", use.saving_ns)
    known = f"MBU of {use.phase} is {percent(work.mbu, 0) if work.mbu >= _ONE_PERCENT else 'below 1 %'}"
    if use.time_ns >= _SERIAL_NS * use.calls and work.mbu < _STARVED_MBU:
        each = format_time(use.time_ns / use.calls)
        why = (
            f"{known}, {ratio(work.times_floor)} its floor: every block walks its part alone for up to {each}. "
            "Split that axis over more blocks, and read once what several blocks share."
        )
        # Split, the walk would also read faster: what is left is the floor, not the walk on all SMs.
        return Finding("starved-grid", title, why, max(use.saving_ns, use.time_ns - work.floor_ns))
    if work.floor_ns < _NEXT_TO_NOTHING * work.busy_ns:
        if use.calls >= _MANY_CALLS and use.time_ns >= _SERIAL_NS:
            why = (
                f"{known}: {use.calls:.4g} launches of it a step; do their work, where there is any, in one that fills "
                "the GPU."
            )
            return Finding("starved-grid", title, why, max(use.saving_ns, use.time_ns - work.floor_ns))
        why = (
            f"{known}: the phase has next to nothing to move; fuse the kernel with a neighbour, or give it more blocks."
        )
        return Finding("starved-grid", title, why, use.saving_ns)
    if work.mbu < _STARVED_MBU:
        why = f"{known}: starved, not bandwidth-bound; more blocks will pay."
        return Finding("starved-grid", title, why, use.saving_ns)
    why = f"{known}; this kernel leaves SMs empty: split a serial axis (KV, K) over more blocks."
    return Finding("underfilled-grid", title, why, use.saving_ns)


def _together(view: View, uses: Sequence[Underfill]) -> Finding:
    calls = sum(use.calls for use in uses)
    most = max(use.sms[1] for use in uses)
    reach = f"{most} or fewer" if most > 1 else "1"
    title = (
        f"{calls:.4g} {'kernel a step reaches' if calls == 1 else 'kernels a step reach'} {reach} of "
        f"{view.machine.sm_count} SMs: {format_time(sum(use.time_ns for use in uses))}, "
        f"{percent(sum(use.share for use in uses))} of GPU time."
    )
    why = "Fuse them with their neighbours, or give them more blocks."
    if calls == 1:
        why = "Fuse it with a neighbour, or give it more blocks."
    return Finding("underfilled-grids", title, why, sum(use.saving_ns for use in uses))
