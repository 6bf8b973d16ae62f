"""Occupancy, waves and idle SMs; grids too small for the GPU."""

from dataclasses import dataclass

import numpy as np

from tracelab import wave_findings
from tracelab.arrays import group_ids
from tracelab.communication import is_communication
from tracelab.grid_findings import Underfill, findings
from tracelab.occupancy import Floats, Occupancy, limiter_names, occupancy
from tracelab.result import Metric, Result, Row
from tracelab.trace import I32, I64
from tracelab.view import View


def analyze(view: View) -> Result:
    """Launch shapes of the used steps' kernels: one row per kernel, phase, block and resources.

    Kernels whose registers the trace does not say are left out.
    """
    if view.steps_used == 0:
        return Result(skipped="No step has GPU work on this device.")
    if not view.is_kernel.any():
        return Result(skipped="The steps have no kernel rows, so no grids.")
    ops = view.trace.ops
    known = ops.registers[view.ops] >= 0  # ABSENT where the trace does not say: any of their limits could be theirs
    if not known[view.is_kernel].any():
        return Result(skipped="The trace does not say how many registers its kernels use, so occupancy cannot be told.")
    if view.machine.limits is None:
        return Result(skipped="The limits of this GPU's SMs are unknown; --gpu NAME takes those of a GPU in the table.")
    rows = view.ops[view.is_kernel & known]
    fit = occupancy(
        view.machine.limits,
        _product(ops.block_x, ops.block_y, ops.block_z, rows),
        ops.registers[rows],
        ops.static_shared_bytes[rows].astype(np.int64) + ops.dynamic_shared_bytes[rows],
        _product(ops.grid_x, ops.grid_y, ops.grid_z, rows),
    )
    parts = _parts(view, rows)
    table = sorted((_row(view, part, fit) for part in parts), key=_rank)
    alone_ns = view.alone_ns[view.is_kernel & known]
    # A collective takes as few SMs as it can, so that others may compute: more blocks are no advice there.
    computing = [part for part in parts if not is_communication(view.trace, part.rows[:1])[0]]
    uses = [use for use in (_underfill(view, part, fit, alone_ns) for part in computing) if use is not None]
    under = int(ops.duration_ns[rows][fit.underfills].sum())
    share = under / view.kernel_sum_ns if view.kernel_sum_ns else 0.0
    found = [*findings(view, uses), *wave_findings.findings(view, table)]
    return Result(metrics={"underfill_share": Metric(share, "ratio")}, tables={"grids": table}, findings=found)


def _product(x: I32, y: I32, z: I32, rows: I64) -> I64:
    return x[rows].astype(np.int64) * y[rows] * z[rows]


@dataclass(frozen=True)
class _Launches:
    """The launches of one table row: op rows and their positions in the occupancy arrays."""

    rows: I64
    at: I64


def _parts(view: View, rows: I64) -> list[_Launches]:
    """The launches of each kernel, phase, block and resources."""
    ops = view.trace.ops
    columns = [ops.name, view.phases.op_phase, ops.block_x, ops.block_y, ops.block_z, ops.registers,
               ops.static_shared_bytes, ops.dynamic_shared_bytes]  # fmt: skip
    group, _ = group_ids([column[rows] for column in columns])
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    return [_Launches(rows[at], at) for at in parts]


def _rank(row: Row) -> tuple[int, str, str]:
    return -row["time_ns_per_step"], row["kernel"], row["phase"]


def _underfill(view: View, launches: _Launches, fit: Occupancy, alone_ns: Floats) -> Underfill | None:
    """Those of the launches that underfill the GPU while nothing else runs on it, or None."""
    under = fit.underfills[launches.at] & (alone_ns[launches.at] > 0)
    rows, at = launches.rows[under], launches.at[under]
    if len(rows) == 0:
        return None
    ops = view.trace.ops
    time_ns, blocks = alone_ns[at], _product(ops.grid_x, ops.grid_y, ops.grid_z, rows)
    reached = (view.machine.sm_count or 0) - fit.idle_sms[at]
    return Underfill(
        kernel=view.trace.names[int(ops.name[rows[0]])],
        phase=view.phase_name(int(view.phases.op_phase[rows[0]])),
        calls=view.per_step(len(rows)),
        time_ns=round(view.per_step(float(time_ns.sum()))),
        share=float(time_ns.sum()) / view.kernel_sum_ns if view.kernel_sum_ns else 0.0,
        sms=(int(reached.min()), int(reached.max())),
        blocks=(int(blocks.min()), int(blocks.max())),
        saving_ns=round(view.per_step(float((time_ns * (1.0 - fit.sm_fill[at])).sum()))),
    )


def _row(view: View, launches: _Launches, fit: Occupancy) -> Row:
    ops, one = view.trace.ops, int(launches.rows[0])
    shapes = np.stack([ops.grid_x[launches.rows], ops.grid_y[launches.rows], ops.grid_z[launches.rows]], axis=1)
    kind, example = group_ids([shapes[:, 0], shapes[:, 1], shapes[:, 2]])
    most = int(np.argmax(np.bincount(kind)))
    at = int(launches.at[example[most]])
    time_ns = ops.duration_ns[launches.rows]
    filled = float(np.average(fit.sm_fill[launches.at], weights=time_ns)) if time_ns.sum() else float(fit.sm_fill[at])
    return {
        "kernel": view.trace.names[int(ops.name[one])],
        "phase": view.phase_name(int(view.phases.op_phase[one])),
        "grid": _grid_text(shapes, shapes[example[most]]),
        "block": _shape_text(np.array([ops.block_x[one], ops.block_y[one], ops.block_z[one]])),
        "blocks": int(np.prod(shapes[example[most]].astype(np.int64))),
        "blocks_per_sm": int(fit.blocks_per_sm[at]),
        "waves": _finite(fit.waves[at]),
        "sm_fill": filled,
        "tail_efficiency": _finite(fit.tail_efficiency[at]),
        "occupancy": float(fit.occupancy[at]),
        "limiter": " ".join(limiter_names(int(fit.limiter[at]))),
        "registers": int(ops.registers[one]),
        "shared_bytes": int(ops.static_shared_bytes[one]) + int(ops.dynamic_shared_bytes[one]),
        "idle_sms": int(fit.idle_sms[at]),
        "calls_per_step": view.per_step(len(launches.rows)),
        "time_ns_per_step": round(view.per_step(int(time_ns.sum()))),
        "share": int(time_ns.sum()) / view.kernel_sum_ns if view.kernel_sum_ns else 0.0,
        "underfills": bool((fit.underfills[launches.at] * time_ns).sum() * 2 > time_ns.sum()),
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _shape_text(shape: np.ndarray[tuple[int], np.dtype[np.int32]]) -> str:
    used = [int(n) for n in shape]
    while len(used) > 1 and used[-1] == 1:
        used.pop()
    return "·".join(map(str, used))


def _grid_text(
    shapes: np.ndarray[tuple[int, int], np.dtype[np.int32]], most: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> str:
    """The most frequent grid, and the range of block counts where it varies."""
    blocks = shapes.astype(np.int64).prod(axis=1)
    text = _shape_text(most)
    return text if blocks.min() == blocks.max() else f"{text} ({blocks.min()}–{blocks.max()})"
