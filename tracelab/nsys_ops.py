"""GPU work of an nsys export: kernel, copy, memset and graph rows as one table, joined to their launching calls."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracelab import nsys_tables as tables
from tracelab.arrays import lookup, order_by
from tracelab.nsys_raw import Identities, Names
from tracelab.table_source import NULL, TableSource, timed
from tracelab.trace import ABSENT, GRAPH, I32, I64, KERNEL, MEMCPY, MEMSET, Bool, Calls, Loss, Ops

_SHAPE = {
    "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ", "block_x": "blockX", "block_y": "blockY",
    "block_z": "blockZ", "registers": "registersPerThread", "static_shared_bytes": "staticSharedMemory",
    "dynamic_shared_bytes": "dynamicSharedMemory",
}  # fmt: skip
_INT32_MAX = int(np.iinfo(np.int32).max)


@dataclass(frozen=True)
class RawOps:
    """GPU rows as read, in file order, with provisional name codes. `host_rows` were left out: they name no device."""

    columns: dict[str, I64]
    names: I32
    loss: Loss
    host_rows: int = 0

    def finish(self, sort: Callable[[I32], I32], identities: Identities, device: I32) -> Ops:
        """Final codes and order; `call` is still unset."""
        raw, names = self.columns, sort(self.names)
        process = identities.process_codes(raw["globalPid"])
        stream = _stream_codes(process, device, raw["contextId"], raw["streamId"])
        correlation = np.where(raw["correlationId"] == NULL, ABSENT, raw["correlationId"] & 0xFFFFFFFF)
        order = order_by(
            raw["start"], raw["end"], process, device, stream, correlation, raw["graphNodeId"], raw["kind"],
            names,
        )  # fmt: skip
        node = raw["graphNodeId"][order]
        return Ops(
            kind=raw["kind"][order].astype(np.uint8),
            start=raw["start"][order],
            end=raw["end"][order],
            process=process[order],
            device=device[order],
            stream=stream[order],
            correlation=correlation[order],
            name=names[order],
            call=np.full(len(order), ABSENT, np.int64),
            graph_node=np.where(node == NULL, ABSENT, node),
            bytes=np.maximum(raw["bytes"][order], 0),
            **{ours: _small(raw[theirs][order]) for ours, theirs in _SHAPE.items()},
        )


def read_ops(source: TableSource, names: Names) -> RawOps:
    """Every row of GPU work that has usable times."""
    parts = [_kernels(source, names), _copies(source, names), _memsets(source, names)]
    parts.append(_graphs(source, names))
    columns = {name: _join([part[0] for part in parts], name) for name in _ALL}
    columns["graphNodeId"][columns["graphNodeId"] == 0] = NULL  # 2019 exports wrote the default 0 in place of NULL
    codes = np.concatenate([part[1] for part in parts])
    start, end = columns["start"], columns["end"]
    untimed = ~(timed(start) & timed(end)) | ((start == 0) & (end == 0))
    inverted = ~untimed & (end < start)
    on_host = ~(untimed | inverted | _on_a_device(columns["deviceId"]))
    keep = ~(untimed | inverted | on_host)
    loss = Loss(untimed=int(untimed.sum()), inverted=int(inverted.sum()))
    if not keep.all():
        columns, codes = {name: column[keep] for name, column in columns.items()}, codes[keep]
    return RawOps(columns, codes, loss, int(on_host.sum()))


def _on_a_device(ordinal: I64) -> Bool:
    """Rows that ran on a GPU: host-started nodes of a graph have INT_MAX or -1 for a device and keep no GPU busy."""
    on_device: Bool = (ordinal == NULL) | ((ordinal >= 0) & (ordinal < _INT32_MAX))
    return on_device


def _stream_codes(process: I32, device: I32, context: I64, stream: I64) -> I64:
    """Stream ids that are unique within a process and device: two contexts there may use the same ids.

    The streams of the context with the lowest id keep their ids, those of the n-th after it have n << 32 added.
    """
    if len(stream) == 0 or context.min() == context.max():
        return stream
    ids, code = np.unique(context, return_inverse=True)
    owner = process.astype(np.int64) * (int(device.max()) + 1) + device
    cell = owner * len(ids) + code
    present = np.bincount(cell, minlength=(int(owner.max()) + 1) * len(ids)).reshape(-1, len(ids)) > 0
    rank = np.cumsum(present, axis=1) - 1
    unique: I64 = stream + (rank.ravel()[cell] << 32)
    return unique


def link_calls(ops: Ops, calls: Calls) -> Ops:
    """Join by (process, correlation id); never by the correlation id alone, which every process counts anew."""
    call_key = (calls.process.astype(np.int64) << 32) | (calls.correlation & 0xFFFFFFFF)
    order = np.argsort(call_key, kind="stable")
    key = (ops.process.astype(np.int64) << 32) | ops.correlation
    at = lookup(call_key[order], key)
    call = np.where((at >= 0) & (ops.correlation >= 0), order[at] if len(order) else ABSENT, ABSENT)
    return dataclasses.replace(ops, call=call)


_ALL = ("kind", *tables.KERNEL.ints[:7], "graphNodeId", "bytes", *_SHAPE.values())


def _join(parts: list[dict[str, I64]], name: str) -> I64:
    empty = {"graphNodeId": NULL}.get(name, 0)
    return np.concatenate([p[name] if name in p else np.full(len(p["start"]), empty, np.int64) for p in parts])


def _with_kind(raw: dict[str, I64], kind: int) -> dict[str, I64]:
    return {**raw, "kind": np.full(len(raw["start"]), kind, np.int64)}


def _kernels(source: TableSource, names: Names) -> tuple[dict[str, I64], I32]:
    raw = source.ints(tables.KERNEL)
    demangled, short = raw.pop("demangledName"), raw.pop("shortName")
    codes = names.by_id(np.where(demangled == NULL, short, demangled))
    return _with_kind(raw, KERNEL), codes


def _copies(source: TableSource, names: Names) -> tuple[dict[str, I64], I32]:
    raw = source.ints(tables.MEMCPY)
    kinds, inverse = np.unique(raw.pop("copyKind"), return_inverse=True)
    labels = [f"memcpy {tables.COPY_KINDS.get(int(kind), '')}".strip() for kind in kinds]
    return _with_kind(raw, MEMCPY), names.by_text(labels)[inverse]


def _memsets(source: TableSource, names: Names) -> tuple[dict[str, I64], I32]:
    raw = source.ints(tables.MEMSET)
    return _with_kind(raw, MEMSET), np.repeat(names.by_text(["memset"]), len(raw["start"]))


def _graphs(source: TableSource, names: Names) -> tuple[dict[str, I64], I32]:
    raw = source.ints(tables.GRAPH_TRACE)
    graph_id, exec_id = raw.pop("graphId"), raw.pop("graphExecId")
    graph = np.where(exec_id == NULL, graph_id, exec_id)
    unique, inverse = np.unique(graph, return_inverse=True)
    labels = ["CUDA_graph" if g == NULL else f"CUDA_graph_{g}" for g in unique]  # one word: names are shortened
    raw["graphNodeId"] = np.where(graph == NULL, NULL, graph << 32)
    return _with_kind(raw, GRAPH), names.by_text(labels)[inverse]


def _small(column: I64) -> I32:
    return np.clip(column, 0, _INT32_MAX).astype(np.int32)
