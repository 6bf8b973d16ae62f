"""Phases of kernels inside CUDA graphs, whose replays carry no NVTX ranges of their own.

By node creation: the ranges open on the capturing thread when the node was created. Else by alignment: the replay's
kernel-name sequence, found whole in that of an eager step of the same trace, takes its phases by position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tracelab.arrays import group_counts, group_starts, lookup, mix_hash, position_in_group
from tracelab.nesting import Forest
from tracelab.paths import NO_PHASE, Paths, join_paths, strip_common
from tracelab.periods import find_sequence
from tracelab.steps import StepGroup
from tracelab.trace import ABSENT, GRAPH, I32, I64, Bool, Trace

_CLONES = 4  # a graph is instantiated from a captured graph, or from a clone of one
_SEQUENCES = 256  # distinct replay sequences that are aligned; more means their order is not stable


@dataclass(frozen=True)
class Found:
    """Op rows whose phase inside the graph is `labels[code]`."""

    rows: I64
    code: I32
    labels: tuple[str, ...]

    def grouped(self, outer: I32) -> Iterator[tuple[int, int, I64]]:
        """(outer phase code, inner label code, op rows) for each pair that occurs."""
        key = outer[self.rows].astype(np.int64) * (len(self.labels) + 1) + self.code
        for value in np.unique(key):
            pair, inner = divmod(int(value), len(self.labels) + 1)
            yield pair, inner, self.rows[key == value]

    def name(self, outer: str, inner: int) -> str:
        """The whole path."""
        return join_paths(outer, self.labels[inner])


_NOTHING = Found(np.zeros(0, np.int64), np.zeros(0, np.int32), ())


def node_phases(trace: Trace, forest: Forest, paths: Paths) -> Found:
    """Phases by the ranges open when each node was created."""
    rows = np.flatnonzero((trace.ops.graph_node >= 0) & (trace.ops.kind != GRAPH))
    nodes, inverse = np.unique(trace.ops.graph_node[rows], return_inverse=True)
    created = _creation(trace, nodes)
    known = np.flatnonzero(created >= 0)
    if len(known) == 0:
        return _NOTHING
    code = np.zeros(len(nodes), np.int32)
    events = created[known]
    code[known] = paths.at(forest.innermost(trace.graph_nodes.thread[events], trace.graph_nodes.start[events]))
    labels: dict[str, int] = {}
    inner = np.full(len(nodes), ABSENT, np.int32)
    for graph in np.unique(nodes >> 32):
        at = np.flatnonzero(nodes >> 32 == graph)
        stripped = strip_common([paths.names[c] for c in code[at]])
        inner[at] = [labels.setdefault(s, len(labels)) if s != NO_PHASE else ABSENT for s in stripped]
    told = inner[inverse] >= 0
    return Found(rows[told], inner[inverse][told], tuple(labels))


def _creation(trace: Trace, nodes: I64) -> I64:
    """Row of the event that created each node's original, ABSENT where the trace has none."""
    log = trace.graph_nodes
    cloned, fresh = np.flatnonzero(log.origin >= 0), np.flatnonzero(log.origin < 0)
    cloned = cloned[np.argsort(log.node[cloned], kind="stable")]
    fresh = fresh[np.argsort(log.node[fresh], kind="stable")]
    current = nodes.copy()
    for _ in range(_CLONES):
        at = lookup(log.node[cloned], current)
        if not (at >= 0).any():
            break
        current = np.where(at >= 0, log.origin[cloned[at]] if len(cloned) else ABSENT, current)
    at = lookup(log.node[fresh], current)
    return np.where(at >= 0, fresh[at] if len(fresh) else ABSENT, ABSENT)


def aligned_phases(
    trace: Trace, groups: Sequence[StepGroup], phase: I32, by_nvtx: Bool, names: Sequence[str], done: Bool
) -> Found:
    """Phases by position in an eager step with the same kernel-name sequence; `done` ops need none."""
    templates = [t for t in (_template(trace, group, by_nvtx) for group in groups) if t is not None]
    in_graph = (trace.ops.graph_node >= 0) & (trace.ops.kind != GRAPH) & (trace.ops.call >= 0)
    in_graph &= ~np.isin(trace.ops.call, np.unique(trace.ops.call[done & in_graph]))
    rows = np.flatnonzero(in_graph)
    if not templates or len(rows) == 0:
        return _NOTHING
    rows = rows[np.argsort(trace.ops.call[rows], kind="stable")]
    starts = group_starts(trace.ops.call[rows])
    counts = group_counts(starts, len(rows))
    names_here = trace.ops.name[rows].astype(np.int64)
    mixed = np.add.reduceat(mix_hash(names_here, position_in_group(starts, len(rows))), starts)
    code = np.full(len(rows), ABSENT, np.int32)
    for value in np.unique(mixed)[:_SEQUENCES]:
        calls = np.flatnonzero(mixed == value)
        length = int(counts[calls[0]])
        sequence = names_here[starts[calls[0]] : starts[calls[0]] + length]
        matched = _match(trace, templates, sequence)
        if matched is not None:
            at = (starts[calls][:, None] + np.arange(length)).ravel()
            code[at] = np.tile(phase[matched], len(calls))
    told = code > 0
    return Found(rows[told], code[told], tuple(names))


def _template(trace: Trace, group: StepGroup, by_nvtx: Bool) -> I64 | None:
    """Op rows, in GPU order, of the first eager step after the first whose kernels have NVTX phases."""
    eager = (group.op_step >= 0) & (trace.ops.kind != GRAPH)
    steps = np.unique(group.op_step[eager & by_nvtx])
    mixed = np.unique(group.op_step[eager & (trace.ops.graph_node >= 0)])
    usable = np.setdiff1d(steps, mixed)
    if len(usable) == 0:
        return None
    return np.flatnonzero(eager & (group.op_step == usable[min(1, len(usable) - 1)]))


def _match(trace: Trace, templates: list[I64], sequence: I64) -> I64 | None:
    for template in templates:
        at = find_sequence(trace.ops.name[template].astype(np.int64), sequence)
        if at >= 0:
            return template[at : at + len(sequence)]
    return None
