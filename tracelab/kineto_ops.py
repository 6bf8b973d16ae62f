"""GPU work of a PyTorch profiler trace: from rows as read to the table of the trace model."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from tracelab.arrays import lookup, rows_by
from tracelab.coded_rows import code_rows
from tracelab.event_clock import Clock
from tracelab.nsys_ops import link_calls
from tracelab.table_source import NULL, timed
from tracelab.trace import ABSENT, I32, I64, Bool, Calls, Loss, Ops, Shapes

_INT32_MAX = int(np.iinfo(np.int32).max)
_NODE_BITS = 32  # a graph node id is graph id << 32 | node; older versions of CUPTI count nodes from 0 in each graph
_UNTOLD_NODE = 0
_SHAPES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared")


@dataclass(frozen=True)
class Work:
    """GPU work. `ordinals[d]` is the device ordinal of device code d; `ambiguous` rows could belong to the launches of
    several processes and are linked to none."""

    ops: Ops
    ordinals: tuple[int, ...]
    loss: Loss
    ambiguous: int


def read_work(raw: dict[str, I64], names: I32, calls: Calls, replays: Bool, clock: Clock) -> Work:
    """Rows with usable times, in order and linked to `calls`; `replays` marks the calls that launch a graph.

    `raw` has the columns of kineto_rows.OPS, `names` the final name code of each row.
    """
    start = clock.shifted(raw["start"])
    end = np.where(raw["dur"] == NULL, NULL, start + raw["dur"])
    untimed = ~(timed(start) & timed(end))
    inverted = ~untimed & (end < start)
    keep = ~(untimed | inverted)
    raw = {name: column[keep] for name, column in raw.items()}
    ordinals, device = np.unique(np.maximum(raw["device"], 0), return_inverse=True)
    process, ambiguous = _processes(raw["correlation"], device, calls)
    correlation = np.where(ambiguous, ABSENT, np.maximum(raw["correlation"], ABSENT))
    ops = _table(raw, start[keep], end[keep], names[keep], device.astype(np.int32), process, correlation)
    return Work(
        ops=_with_replays(link_calls(ops, calls), replays),
        ordinals=tuple(int(ordinal) for ordinal in ordinals),
        loss=Loss(untimed=int(untimed.sum()), inverted=int(inverted.sum())),
        ambiguous=int(ambiguous.sum()),
    )


def _table(raw: dict[str, I64], start: I64, end: I64, names: I32, device: I32, process: I32, correlation: I64) -> Ops:
    node = _nodes(raw["graph"], raw["node"])
    order = rows_by(start, end, process, device, raw["stream"], correlation, node, raw["kind"], names)
    shapes = _shapes({name: column[order] for name, column in raw.items() if name in _SHAPES})
    return Ops(
        kind=raw["kind"][order].astype(np.uint8),
        start=start[order],
        end=end[order],
        process=process[order],
        device=device[order],
        stream=np.maximum(raw["stream"][order], ABSENT),
        correlation=correlation[order],
        name=names[order],
        call=np.full(len(order), ABSENT, np.int64),
        graph_node=node[order],
        bytes=np.maximum(raw["bytes"][order], 0),
        read_shapes=lambda: shapes,
    )


def _shapes(raw: dict[str, I64]) -> Shapes:
    columns = {name: np.clip(raw[name], ABSENT if name == "registers" else 0, _INT32_MAX) for name in _SHAPES}
    rows = len(raw["registers"])
    coded = code_rows(lambda first, stop: {name: column[first:stop] for name, column in columns.items()}, rows)
    found = {name: values.astype(np.int32) for name, values in coded.distinct.items()}
    shared = found.pop("shared")  # Kineto writes the sum of both
    return Shapes(coded.codes, **found, static_shared_bytes=np.zeros_like(shared), dynamic_shared_bytes=shared)


def _nodes(graph: I64, node: I64) -> I64:
    """Node ids as the trace model has them; ABSENT outside graphs, where Kineto writes 0 for both or nothing."""
    whole = node >> _NODE_BITS > 0
    told = (graph > 0) & (graph < _INT32_MAX) & (node >= 0)
    return np.where(whole, node, np.where(told, graph << _NODE_BITS | node, ABSENT))


def _with_replays(ops: Ops, replays: Bool) -> Ops:
    """Work of a graph launch whose node the file does not tell is in a graph all the same."""
    linked = ops.call >= 0
    in_graph = np.zeros(len(ops), bool)
    in_graph[linked] = replays[ops.call[linked]]
    return dataclasses.replace(ops, graph_node=np.where(in_graph & (ops.graph_node < 0), _UNTOLD_NODE, ops.graph_node))


def _processes(correlation: I64, device: I64, calls: Calls) -> tuple[I32, Bool]:
    """Process of each row, and which rows have launches of their correlation id in several processes.

    GPU rows name no process. Rows without a launch go to the process that has most work on their device.
    """
    owner = np.zeros(len(correlation), np.int32)
    if len(calls) == 0 or calls.process.max() == 0:
        return owner, np.zeros(len(correlation), bool)
    known = calls.correlation > 0
    pairs = np.unique(np.stack([calls.correlation[known], calls.process[known]], axis=1), axis=0)
    ids, first, processes = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    at = lookup(ids, correlation)
    found, ambiguous = at >= 0, np.zeros(len(correlation), bool)
    ambiguous[found] = processes[at[found]] > 1
    sure = found & ~ambiguous
    owner[sure] = pairs[first[at[sure]], 1]
    for code in np.unique(device[~sure]):
        there = owner[sure & (device == code)]
        owner[~sure & (device == code)] = np.bincount(there).argmax() if len(there) else 0
    return owner, ambiguous
