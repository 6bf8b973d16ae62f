"""The phase of every GPU op of the steps, and how it was found out."""

from dataclasses import dataclass

import numpy as np

from tracelab.attribution import forest_of_domains
from tracelab.families import classify
from tracelab.graph_phases import Found, aligned_phases, node_phases
from tracelab.nesting import Forest
from tracelab.paths import NO_PHASE, Paths, phase_paths
from tracelab.steps import Steps
from tracelab.trace import ABSENT, GRAPH, I32, I64, KERNEL, U8, Bool, Trace

METHODS = ("nvtx", "graph-node", "aligned", "rules", "cross-thread", "none")
BY_NVTX, BY_NODE, BY_ALIGNMENT, BY_RULES, ACROSS_THREADS, BY_NONE = range(len(METHODS))


@dataclass(frozen=True)
class Phases:
    """Phase code and method code of every row of `Ops`; code 0 is "(no phase)". `call_phase` is that of every call."""

    op_phase: I32
    op_method: U8
    names: tuple[str, ...]
    call_phase: I32


class _Table:
    """Phase names under construction."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = list(names)
        self._at = {name: code for code, name in enumerate(names)}

    def code(self, name: str) -> int:
        if name not in self._at:
            self._at[name] = len(self.names)
            self.names.append(name)
        return self._at[name]


def find_phases(trace: Trace, steps: Steps, mode: str, depth: int | None) -> Phases:
    """Phases by NVTX, then inside graphs by node creation and alignment, then by kernel-name rules.

    `mode` is one of options.PHASE_MODES: `nvtx` and `graph` stop after that stage, `kernels` uses only the rules.
    """
    forest = _forest(trace, steps)
    paths = phase_paths(trace, forest, _resets(steps), depth)
    call_phase, crossed = _call_phases(trace, steps, forest, paths)
    table = _Table(paths.names)
    linked = trace.ops.call >= 0
    phase = np.zeros(len(trace.ops), np.int32)
    method = np.full(len(trace.ops), BY_NONE, np.uint8)
    if mode != "kernels":
        phase[linked] = call_phase[trace.ops.call[linked]]
        method[linked] = np.where(crossed[trace.ops.call[linked]], ACROSS_THREADS, BY_NVTX)
        method[(phase == 0) & (method == BY_NVTX)] = BY_NONE
    if mode in ("auto", "graph"):
        _inside_graphs(trace, steps, forest, paths, phase, method, table)
    if mode in ("auto", "kernels"):
        _by_rules(trace, steps, mode, phase, method, table)
    return Phases(phase, method, tuple(table.names), call_phase)


def _forest(trace: Trace, steps: Steps) -> Forest:
    if steps.nvtx is not None:
        return steps.nvtx.forest
    return forest_of_domains(trace, trace.default_domain)


def _resets(steps: Steps) -> I64:
    inside = [group.inside_range for group in steps.groups if group.inside_range != ABSENT]
    rows = steps.nvtx.rows if steps.nvtx is not None else np.zeros(0, np.int64)
    return np.concatenate((rows, np.array(inside, np.int64)))


def _call_phases(
    trace: Trace, steps: Steps, forest: Forest, paths: Paths
) -> tuple[I32, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Phase code of each call by its own thread's ranges, or by those of the thread that holds its step."""
    calls, asked = trace.calls, steps.launched.rows
    crossed = np.zeros(len(calls), bool)
    if steps.nvtx is None:
        innermost = forest.innermost(calls.thread[asked], calls.start[asked])
    else:
        crossed, innermost = steps.nvtx.call_crossed, steps.nvtx.own
        across = np.flatnonzero(crossed[asked])
        if len(across):
            innermost, rows = innermost.copy(), asked[across]
            innermost[across] = forest.innermost(trace.ranges.thread[steps.nvtx.call_range[rows]], calls.start[rows])
    code = np.zeros(len(calls), np.int32)
    code[asked] = paths.at(innermost)
    return code, crossed


def _inside_graphs(
    trace: Trace, steps: Steps, forest: Forest, paths: Paths, phase: I32, method: U8, table: _Table
) -> None:
    _apply(node_phases(trace, forest, paths), BY_NODE, phase, method, table)
    by_nvtx, done = method == BY_NVTX, method == BY_NODE
    _apply(aligned_phases(trace, steps.groups, phase, by_nvtx, table.names, done), BY_ALIGNMENT, phase, method, table)


def _apply(found: Found, how: int, phase: I32, method: U8, table: _Table) -> None:
    for outer, inner, rows in found.grouped(phase.copy()):
        phase[rows] = table.code(found.name(table.names[outer], inner))
        method[rows] = how


def _by_rules(trace: Trace, steps: Steps, mode: str, phase: I32, method: U8, table: _Table) -> None:
    """Rules for graph work that nothing else explains; for all work of a group of steps that has no phase at all."""
    for group in steps.groups:  # each for itself: another device may show another group
        _rules_in(trace, group.op_step >= 0, mode, phase, method, table)


def _rules_in(trace: Trace, in_steps: Bool, mode: str, phase: I32, method: U8, table: _Table) -> None:
    open_rows = in_steps & (phase == 0) & (trace.ops.kind != GRAPH)
    if mode == "auto" and (phase[in_steps] > 0).any():
        open_rows &= trace.ops.graph_node >= 0
    rows = np.flatnonzero(open_rows)
    codes, inverse = np.unique(trace.ops.name[rows], return_inverse=True)
    ruled = classify([trace.names[int(code)] for code in codes])
    labels = [p or f if m else NO_PHASE for p, f, m in zip(ruled.phases, ruled.families, ruled.matched, strict=True)]
    found = np.array([table.code(label) for label in labels], np.int32)[inverse] if len(rows) else phase[rows]
    is_kernel = trace.ops.kind[rows] == KERNEL
    phase[rows] = np.where(is_kernel, found, table.code("copy") if len(rows) else 0)
    method[rows] = np.where(phase[rows] > 0, BY_RULES, method[rows])  # work of another thread keeps its mark
