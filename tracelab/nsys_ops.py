"""GPU work of an nsys export: kernel, copy, memset and graph rows as one table, joined to their launching calls."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tracelab import nsys_tables as tables
from tracelab.arrays import ByCode, first_row_of, in_order, order_by, spread
from tracelab.coded_rows import CodedRows, merged
from tracelab.nsys_raw import Identities, Names
from tracelab.table_source import NULL, TableSource, timed
from tracelab.trace import ABSENT, GRAPH, I32, I64, KERNEL, MEMCPY, MEMSET, Bool, Calls, Loss, Ops, Shapes

_TIMES = ("start", "end", "correlationId")
_PLACE = ("globalPid", "deviceId", "contextId", "streamId", "graphNodeId")
KERNEL_COLUMNS = (tables.KERNEL, _TIMES, (*_PLACE, "demangledName", "shortName"))
_INT32_MAX = int(np.iinfo(np.int32).max)


@dataclass(frozen=True)
class RawOps:
    """GPU rows as read, in file order. `places` are the columns of _PLACE with `kind` and provisional name codes.

    `keep` marks the rows of the file that were not left out, `host_rows` were: they name no device.
    """

    columns: dict[str, I64]
    places: CodedRows
    keep: Bool
    loss: Loss
    host_rows: int = 0

    def finish(
        self,
        sort: Callable[[I32], I32],
        identities: Identities,
        device: I32,
        shapes: Callable[[Bool, I64 | None], Callable[[], Shapes]],
    ) -> Ops:
        """Final codes and order; `device` is that of each place, `call` is still unset.

        `shapes` makes the reader of launch shapes of the rows that were kept, and their order.
        """
        raw, place, codes = self.columns, self.places.distinct, self.places.codes
        names = sort(place["name"].astype(np.int32))
        process = identities.process_codes(place["globalPid"])
        stream = _stream_codes(process, device, place["contextId"], place["streamId"])
        node, kind = place["graphNodeId"], place["kind"]
        correlation = raw["correlationId"]
        correlation = np.where(correlation == NULL, ABSENT, correlation & 0xFFFFFFFF)
        before, after = (process, device, stream), (node, kind, names)
        order = order_by(
            raw["start"], raw["end"], *(ByCode(column, codes) for column in before), correlation,
            *(ByCode(column, codes) for column in after),
        )  # fmt: skip
        code = in_order(codes, order)
        return Ops(
            kind=spread(kind.astype(np.uint8), code),
            start=in_order(raw["start"], order),
            end=in_order(raw["end"], order),
            process=spread(process, code),
            device=spread(device, code),
            stream=spread(stream, code),
            correlation=in_order(correlation, order),
            name=spread(names, code),
            call=np.broadcast_to(np.int64(ABSENT), len(code)),
            graph_node=spread(np.where(node == NULL, ABSENT, node), code),
            bytes=in_order(raw["bytes"], order),
            read_shapes=shapes(self.keep, order),
        )


def read_ops(source: TableSource, names: Names) -> RawOps:
    """Every row of GPU work that has usable times."""
    parts = [_kernels(source, names), _copies(source, names), _memsets(source, names), _graphs(source, names)]
    parts = [part for part in parts if len(part[1])] or parts[:1]
    columns = {name: _join([part[0][name] for part in parts]) for name in (*_TIMES, "bytes")}
    places = merged([part[1] for part in parts])
    start, end = columns["start"], columns["end"]
    untimed = ~(timed(start) & timed(end)) | ((start == 0) & (end == 0))
    inverted = ~untimed & (end < start)
    on_host = ~(untimed | inverted | _on_a_device(places.distinct["deviceId"])[places.codes])
    keep = ~(untimed | inverted | on_host)
    loss = Loss(untimed=int(untimed.sum()), inverted=int(inverted.sum()))
    if not keep.all():
        columns = {name: column[keep] for name, column in columns.items()}
    return RawOps(columns, places.kept(keep), keep, loss, int(on_host.sum()))


def _on_a_device(ordinal: I64) -> Bool:
    """Rows that ran on a GPU: host-started nodes of a graph have INT_MAX or -1 for a device and keep no GPU busy."""
    on_device: Bool = (ordinal == NULL) | ((ordinal >= 0) & (ordinal < _INT32_MAX))
    return on_device


def _stream_codes(process: I32, device: I32, context: I64, stream: I64) -> I64:
    """Stream ids of places that are unique within a process and device: two contexts there may use the same ids.

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
    correlation = calls.correlation & 0xFFFFFFFF
    low, high = (int(correlation.min()), int(correlation.max())) if len(calls) else (0, 0)
    width = high - low + 1  # each process has a stretch of keys of its own
    known = (ops.correlation >= low) & (ops.correlation <= high)
    key = np.where(known, ops.process.astype(np.int64) * width + (ops.correlation - low), ABSENT)
    call = first_row_of(calls.process.astype(np.int64) * width + (correlation - low), key)
    return dataclasses.replace(ops, call=call)


def _join(parts: Sequence[I64]) -> I64:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _placed(coded: CodedRows, kind: int, names: I32, node: I64 | None = None) -> CodedRows:
    """The columns of _PLACE of one table, with the kind of work and the name of each distinct row."""
    given = coded.distinct
    # 2019 exports wrote the default 0 in place of NULL.
    found = given["graphNodeId"] if node is None else node
    columns = {name: given[name] for name in _PLACE if name != "graphNodeId"}
    columns["graphNodeId"] = np.where(found == 0, NULL, found)
    return CodedRows(
        coded.codes, {**columns, "kind": np.full(coded.count, kind, np.int64), "name": names.astype(np.int64)}
    )


def _zero_bytes(columns: dict[str, I64]) -> dict[str, I64]:
    return {**columns, "bytes": np.broadcast_to(np.int64(0), len(columns["start"]))}


def _kernels(source: TableSource, names: Names) -> tuple[dict[str, I64], CodedRows]:
    columns, coded = source.coded_ints(*KERNEL_COLUMNS)
    demangled, short = coded.distinct["demangledName"], coded.distinct["shortName"]
    codes = names.by_id(np.where(demangled == NULL, short, demangled))
    return _zero_bytes(columns), _placed(coded, KERNEL, codes)


def _copies(source: TableSource, names: Names) -> tuple[dict[str, I64], CodedRows]:
    columns, coded = source.coded_ints(tables.MEMCPY, (*_TIMES, "bytes"), (*_PLACE, "copyKind"))
    columns["bytes"] = np.maximum(columns["bytes"], 0)
    kinds, inverse = np.unique(coded.distinct["copyKind"], return_inverse=True)
    labels = [f"memcpy {tables.COPY_KINDS.get(int(kind), '')}".strip() for kind in kinds]
    return columns, _placed(coded, MEMCPY, names.by_text(labels)[inverse])


def _memsets(source: TableSource, names: Names) -> tuple[dict[str, I64], CodedRows]:
    columns, coded = source.coded_ints(tables.MEMSET, (*_TIMES, "bytes"), _PLACE)
    columns["bytes"] = np.maximum(columns["bytes"], 0)
    return columns, _placed(coded, MEMSET, np.repeat(names.by_text(["memset"]), coded.count))


def _graphs(source: TableSource, names: Names) -> tuple[dict[str, I64], CodedRows]:
    ids = ("graphId", "graphExecId")
    columns, coded = source.coded_ints(tables.GRAPH_TRACE, _TIMES, (*_PLACE, *ids))
    graph_id, exec_id = (coded.distinct[name] for name in ids)
    graph = np.where(exec_id == NULL, graph_id, exec_id)
    unique, inverse = np.unique(graph, return_inverse=True)
    labels = ["CUDA_graph" if g == NULL else f"CUDA_graph_{g}" for g in unique]  # one word: names are shortened
    node = np.where(graph == NULL, NULL, graph << 32)
    return _zero_bytes(columns), _placed(coded, GRAPH, names.by_text(labels)[inverse], node)
