"""Occupancy, waves and idle SMs; grids too small for the GPU."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tracelab import wave_findings
from tracelab.arrays import Scalar, group_ids, rows_by_group
from tracelab.communication import is_communication
from tracelab.grid_findings import Underfill, findings
from tracelab.occupancy import Floats, Occupancy, limiter_names, occupancy
from tracelab.result import Metric, Result, Row
from tracelab.trace import I32, I64, Bool
from tracelab.view import View


def analyze(view: View) -> Result:
    """Launch shapes of the used steps' kernels: one row per kernel, phase, block and resources.

    Kernels whose registers the trace does not say are left out.
    """
    if view.steps_used == 0:
        return Result(skipped="No step has GPU work on this device.")
    if not view.is_kernel.any():
        return Result(skipped="The steps have no kernel rows, so no grids.")
    shapes = view.trace.ops.shapes
    known = shapes.registers >= 0  # ABSENT where the trace does not say: any of their limits could be theirs
    told = view.is_kernel & known[view.of_ops(shapes.code)]
    if not told.any():
        return Result(skipped="The trace does not say how many registers its kernels use, so occupancy cannot be told.")
    if view.machine.limits is None:
        return Result(skipped="The limits of this GPU's SMs are unknown; --gpu NAME takes those of a GPU in the table.")
    fit = occupancy(
        view.machine.limits,
        _product(shapes.block_x, shapes.block_y, shapes.block_z),
        shapes.registers,
        shapes.static_shared_bytes.astype(np.int64) + shapes.dynamic_shared_bytes,
        _product(shapes.grid_x, shapes.grid_y, shapes.grid_z),
    )
    parts = _parts(view, told)
    table = sorted((_row(view, part, fit) for part in parts), key=_rank)
    # A collective takes as few SMs as it can, so that others may compute: more blocks are no advice there.
    computing = [part for part in parts if not is_communication(view.trace, part.rows[:1])[0]]
    uses = [use for use in (_underfill(view, part, fit) for part in computing) if use is not None]
    under = sum(int(part.time_ns[fit.underfills[part.shape]].sum()) for part in parts)
    share = under / view.kernel_sum_ns if view.kernel_sum_ns else 0.0
    found = [*findings(view, uses), *wave_findings.findings(view, table)]
    return Result(metrics={"underfill_share": Metric(share, "ratio")}, tables={"grids": table}, findings=found)


def _product(x: I32, y: I32, z: I32) -> I64:
    return x.astype(np.int64) * y * z


@dataclass(frozen=True)
class _Launches:
    """The launches of one table row: op rows, and of each its shape, time and time alone (ns)."""

    rows: I64
    shape: I32
    time_ns: I64
    alone_ns: Floats


def _parts(view: View, told: Bool) -> list[_Launches]:
    """The launches of each kernel, phase, block and resources."""
    ops, shapes = view.trace.ops, view.trace.ops.shapes
    everything = bool(told.all())  # then nothing needs to be copied

    def pick(column: NDArray[Scalar]) -> NDArray[Scalar]:
        return view.of_ops(column) if everything else view.of_ops(column)[told]

    resources, _ = group_ids([shapes.block_x, shapes.block_y, shapes.block_z, shapes.registers,
                              shapes.static_shared_bytes, shapes.dynamic_shared_bytes])  # fmt: skip
    group, _ = group_ids([pick(ops.name), pick(view.phases.op_phase), resources[pick(shapes.code)]])
    order = rows_by_group(group)
    rows = view.ops[order] if everything else view.ops[told][order]
    alone_ns = view.alone_ns[order] if everything else view.alone_ns[told][order]
    shape, time_ns = pick(shapes.code)[order], pick(ops.duration_ns)[order]
    edges = [*np.flatnonzero(np.diff(group[order], prepend=-1)).tolist(), len(rows)]
    return [_Launches(rows[a:b], shape[a:b], time_ns[a:b], alone_ns[a:b]) for a, b in pairwise(edges)]


def _rank(row: Row) -> tuple[int, str, str]:
    return -row["time_ns_per_step"], row["kernel"], row["phase"]


def _underfill(view: View, launches: _Launches, fit: Occupancy) -> Underfill | None:
    """Those of the launches that underfill the GPU while nothing else runs on it, or None."""
    under = fit.underfills[launches.shape] & (launches.alone_ns > 0)
    if not under.any():
        return None
    ops, rows, shape, time_ns = view.trace.ops, launches.rows[under], launches.shape[under], launches.alone_ns[under]
    grid = ops.shapes.grid(np.unique(shape)).prod(axis=1)
    reached = (view.machine.sm_count or 0) - fit.idle_sms[shape]
    return Underfill(
        kernel=view.trace.names[int(ops.name[rows[0]])],
        phase=view.phase_name(int(view.phases.op_phase[rows[0]])),
        calls=view.per_step(len(rows)),
        time_ns=round(view.per_step(float(time_ns.sum()))),
        share=float(time_ns.sum()) / view.kernel_sum_ns if view.kernel_sum_ns else 0.0,
        sms=(int(reached.min()), int(reached.max())),
        blocks=(int(grid.min()), int(grid.max())),
        saving_ns=round(view.per_step(float((time_ns * (1.0 - fit.sm_fill[shape])).sum()))),
    )


def _row(view: View, launches: _Launches, fit: Occupancy) -> Row:
    ops, shapes, one = view.trace.ops, view.trace.ops.shapes, int(launches.rows[0])
    codes, times = np.unique(launches.shape, return_counts=True)
    grids, at = shapes.grid(codes), int(codes[np.argmax(times)])
    time_ns, most = launches.time_ns, grids[np.argmax(times)]
    filled = (
        float(np.average(fit.sm_fill[launches.shape], weights=time_ns)) if time_ns.sum() else float(fit.sm_fill[at])
    )
    return {
        "kernel": view.trace.names[int(ops.name[one])],
        "phase": view.phase_name(int(view.phases.op_phase[one])),
        "grid": _grid_text(grids, most),
        "block": _shape_text(shapes.block(codes[:1])[0]),
        "blocks": int(np.prod(most)),
        "blocks_per_sm": int(fit.blocks_per_sm[at]),
        "waves": _finite(fit.waves[at]),
        "sm_fill": filled,
        "tail_efficiency": _finite(fit.tail_efficiency[at]),
        "occupancy": float(fit.occupancy[at]),
        "limiter": " ".join(limiter_names(int(fit.limiter[at]))),
        "registers": int(shapes.registers[at]),
        "shared_bytes": int(shapes.static_shared_bytes[at]) + int(shapes.dynamic_shared_bytes[at]),
        "idle_sms": int(fit.idle_sms[at]),
        "calls_per_step": view.per_step(len(launches.rows)),
        "time_ns_per_step": round(view.per_step(int(time_ns.sum()))),
        "share": int(time_ns.sum()) / view.kernel_sum_ns if view.kernel_sum_ns else 0.0,
        "underfills": bool((fit.underfills[launches.shape] * time_ns).sum() * 2 > time_ns.sum()),
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _shape_text(shape: I64) -> str:
    used = [int(n) for n in shape]
    while len(used) > 1 and used[-1] == 1:
        used.pop()
    return "·".join(map(str, used))


def _grid_text(grids: I64, most: I64) -> str:
    """The most frequent grid, and the range of block counts where it varies."""
    blocks = grids.prod(axis=1)
    text = _shape_text(most)
    return text if blocks.min() == blocks.max() else f"{text} ({blocks.min()}–{blocks.max()})"
