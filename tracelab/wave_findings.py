"""Kernels that fill the GPU but queue for it: one block fits on an SM, so a large grid runs in many waves."""

from collections.abc import Sequence

from tracelab.kernel_names import shorten
from tracelab.phase_work import PhaseWork, phase_work, work_of_phase
from tracelab.result import Finding, Row
from tracelab.units import data, percent, ratio
from tracelab.units import time as format_time
from tracelab.view import View

_WAVES = 1.5  # from here on most of a grid waits for its turn; a full first wave and a small tail are no queue
# Far from its floor in bytes. Streams that keep enough of them in flight reach 1.1 to 1.3 times theirs; a kernel bound
# by FLOPs at one block per SM (flash attention) is as it should be: low occupancy alone is never advice.
_TIMES_FLOOR = 1.5
_WORTH_A_LINE = 0.05  # share of the kernel sum
_SIZE = {"registers": "fewer registers", "shared-memory": "less shared memory"}  # what a smaller block takes


def findings(view: View, rows: Sequence[Row]) -> list[Finding]:
    """One finding for each row of the grids table whose waves, not its grid, hold it back."""
    queued = [row for row in rows if _queues(row)]
    known = phase_work(view) if queued else []
    found = []
    for row in queued:
        work = work_of_phase(known, row["phase"])
        if work is not None and work.bound_by == "bytes" and work.busy_ns > _TIMES_FLOOR * work.floor_ns:
            found.append(_finding(row, work))
    return found


def _queues(row: Row) -> bool:
    return (
        not row["underfills"]
        and row["share"] >= _WORTH_A_LINE
        and row["blocks_per_sm"] == 1
        and (row["waves"] or 0.0) >= _WAVES
        and _limiter(row) in _SIZE
    )


def _limiter(row: Row) -> str:
    """The tightest limit; of two that tie the first, registers."""
    return str(row["limiter"]).partition(" ")[0]


def _finding(row: Row, work: PhaseWork) -> Finding:
    by_registers = _limiter(row) == "registers"
    size = f"{row['registers']} registers a thread" if by_registers else f"{data(row['shared_bytes'])} of shared memory"
    title = (
        f"{shorten(row['kernel'])} runs {row['blocks']} blocks in {row['waves']:.1f} waves, one block per SM ({size}): "
        f"{format_time(row['time_ns_per_step'])}, {percent(row['share'])} of GPU time."
    )
    evidence = (
        f"{work.phase} takes {ratio(work.times_floor)} its floor. More blocks would only queue: make a block smaller "
        f"({_SIZE[_limiter(row)]}), or let one block serve more of the work that is read again."
    )
    return Finding("waves", title, evidence, max(0, row["time_ns_per_step"] - work.floor_ns))
