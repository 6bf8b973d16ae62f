"""Are the times possible? Checks of one device's view."""

from collections.abc import Iterator

import numpy as np

from tracelab.arrays import group_ids
from tracelab.intervals import new_coverage
from tracelab.trace import I64, KERNEL, Bool
from tracelab.trust_checks import IDLE, WORK, counted, when
from tracelab.trust_result import TrustCheck
from tracelab.units import percent, time
from tracelab.view import View

# A kernel of a stream starts when the one before it ended, but for programmatic dependent launch (compute capability
# 9.0 on): then it may start early, wait, and end later. In the bundled captures such kernels overlap the one before by
# up to 98 % of their own time (40.7 µs), so no share of the time is a limit; none ends before the one it follows.
_EARLY_LAUNCH_FROM = 9
_OVERLAP_NS = 1_000  # the timer's grain, taken wide: 32 ns on an H200, up to 1 µs on old GPUs
_SHORT_NS = 1_000  # a time this short is at best as good as the grain: 3 % at 32 ns
_SHORT_SHARE = 0.1  # of the kernels' time: its error then adds 0.3 %


def clocks(view: View) -> Iterator[TrustCheck]:
    """GPU work that starts before the call that launched it: host and GPU clock were not aligned."""
    ops, calls = view.trace.ops, view.trace.calls
    rows = view.device_ops[ops.computes[view.device_ops] & (ops.call[view.device_ops] >= 0)]
    ahead = calls.start[ops.call[rows]] - ops.start[rows] if len(rows) else np.zeros(0, np.int64)
    early = rows[ahead > 0]
    if len(early) == 0:
        return
    most = int(ahead.max())
    yield TrustCheck(
        "clock",
        f"{counted(len(early), 'kernel')} before their launch" if len(early) > 1 else "1 kernel before its launch",
        f"{len(early)} of {counted(len(rows), 'kernel')} start before the call that launched them, by up to "
        f"{time(most)}, {when(ops.start[early])}: the clocks of host and GPU differ.",
        limits=IDLE,
        advice="Who caused an idle time is uncertain by that much; times on the GPU are not touched.",
        numbers={"kernels": len(early), "of_kernels": len(rows), "largest_ns": most},
    )


def overlaps(view: View) -> Iterator[TrustCheck]:
    """Kernels that overlap the one before them on their stream by more than an early launch explains.

    Kernels of CUDA graphs are left out: parallel branches of a replay share the number of a stream.
    """
    rows, overlap, inside = _overlap(view)
    early_launches = (view.trace.devices[view.device].compute_major or _EARLY_LAUNCH_FROM) >= _EARLY_LAUNCH_FROM
    bad = (overlap > _OVERLAP_NS) & (inside if early_launches else True)
    if not bad.any():
        return
    most = int(overlap[bad].max())
    how = "lie wholly inside" if early_launches else "overlap"
    why = "one that starts early ends later" if early_launches else "this GPU starts none before the last one ended"
    yield TrustCheck(
        "impossible-overlap",
        f"{counted(int(bad.sum()), 'impossible overlap')}",
        f"{counted(int(bad.sum()), 'kernel')} {how} the one before on the same stream, by up to {time(most)}, "
        f"{when(view.trace.ops.start[rows[bad]])}: {why}.",
        limits=WORK,
        advice="Two contexts whose streams have one number look like that too.",
        numbers={"kernels": int(bad.sum()), "largest_ns": most, "overlap_ns": int(overlap[bad].sum())},
    )


def _overlap(view: View) -> tuple[I64, I64, Bool]:
    """Kernel rows by stream and start, the time earlier ones of the stream cover of each, and whether all of it."""
    ops = view.trace.ops
    rows = view.device_ops[(ops.kind[view.device_ops] == KERNEL) & (ops.graph_node[view.device_ops] < 0)]
    stream, _ = group_ids([ops.process[rows], ops.stream[rows]])
    order = np.lexsort((ops.end[rows], ops.start[rows], stream))
    rows, stream = rows[order], stream[order]
    overlap = ops.duration_ns[rows] - new_coverage(stream, ops.start[rows], ops.end[rows])
    return rows, overlap, overlap == ops.duration_ns[rows]


def grain(view: View) -> Iterator[TrustCheck]:
    """Kernels so short that the timer's grain shows in their time."""
    ops = view.trace.ops
    rows = view.ops[view.is_kernel]
    short = rows[ops.duration_ns[rows] < _SHORT_NS]
    if len(short) == 0:
        return
    share = int(ops.duration_ns[short].sum()) / max(view.kernel_sum_ns, 1)
    yield TrustCheck(
        "timer-grain",
        f"{percent(share)} of kernel time under {time(_SHORT_NS)} a kernel",
        f"{len(short)} of {counted(len(rows), 'kernel')} of the steps take less than {time(_SHORT_NS)} "
        f"({percent(share)} of kernel time); the GPU's timer counts in steps of 32 ns and more.",
        limits=("kernels", "phases") if share > _SHORT_SHARE else (),
        numbers={"kernels": len(short), "of_kernels": len(rows), "share": share},
    )
