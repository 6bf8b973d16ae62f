"""Phase paths: the folded names of the ranges around a leaf, joined by `/`, cut at the step."""

from dataclasses import dataclass

import numpy as np

from tracelab.arrays import group_ids
from tracelab.attribution import fold_codes
from tracelab.nesting import Forest
from tracelab.trace import I32, I64, Trace

NO_PHASE = "(no phase)"


@dataclass(frozen=True)
class Paths:
    """Path code of every range row (0: no phase), and the paths."""

    code: I32
    names: tuple[str, ...]

    def at(self, rows: I64) -> I32:
        """Path codes of range rows, 0 for ABSENT."""
        return np.where(rows >= 0, self.code[rows] if len(self.code) else 0, 0).astype(np.int32)


def phase_paths(trace: Trace, forest: Forest, resets: I64, depth: int | None) -> Paths:
    """Paths of the ranges of `forest`; the range rows `resets` (steps) are the roots and themselves have no phase.

    Paths longer than `depth` names are cut there.
    """
    code = np.zeros(len(trace.ranges), np.int32)
    names = [NO_PHASE]
    parent = forest.parent_rows(len(trace.ranges))
    folded, patterns = fold_codes(trace, trace.ranges.name)
    is_reset = np.zeros(len(trace.ranges), bool)
    is_reset[resets] = True
    length = np.zeros(len(trace.ranges), np.int32)
    for level in _levels(forest, parent):
        rows = level[~is_reset[level]]
        above = np.where(parent[rows] >= 0, code[parent[rows]], 0)
        long = np.where(parent[rows] >= 0, length[parent[rows]], 0) + 1
        length[rows] = long
        # Levels are disjoint, so a path is interned once: its parent's level holds all its occurrences.
        full = (long > depth) if depth else np.zeros(len(rows), bool)
        code[rows[full]] = above[full]
        grown, outer = rows[~full], above[~full]
        group, first = group_ids([outer, folded[grown]])
        code[grown] = group + len(names)
        names.extend(_join(names[outer[i]], patterns[folded[grown[i]]]) for i in first)
    return _merge(code, names)


def _join(parent: str, name: str) -> str:
    label = name or "(unnamed)"
    return label if parent == NO_PHASE else f"{parent}/{label}"


def _merge(code: I32, names: list[str]) -> Paths:
    """Equal paths that were reached at different depths of the whole forest become one."""
    unique = [NO_PHASE, *sorted(set(names) - {NO_PHASE})]
    at = {text: i for i, text in enumerate(unique)}
    return Paths(np.array([at[text] for text in names], np.int32)[code], tuple(unique))


def _levels(forest: Forest, parent: I64) -> list[I64]:
    """Rows of the forest by depth, roots first."""
    depth = np.zeros(len(parent), np.int32)
    above = parent.copy()
    while True:
        deeper = np.flatnonzero(above >= 0)
        if len(deeper) == 0:
            break
        depth[deeper] += 1
        above[deeper] = parent[above[deeper]]
    rows = forest.rows
    by_depth = rows[np.argsort(depth[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(depth[by_depth])) + 1
    return np.split(by_depth, cuts) if len(by_depth) else []


def strip_common(paths: list[str]) -> list[str]:
    """Paths of one graph without the leading names that all of them share (say, `capture`); the last name stays."""
    known = [path.split("/") for path in paths if path != NO_PHASE]
    if not known:
        return paths
    shared = 0
    while all(len(p) > shared for p in known) and len({p[shared] for p in known}) == 1:
        shared += 1
    shared = min(shared, min(map(len, known)) - 1) if all(len(p) == shared for p in known) else shared
    return [path if path == NO_PHASE else "/".join(path.split("/")[shared:]) or NO_PHASE for path in paths]


def join_paths(outer: str, inner: str) -> str:
    """A path inside a graph below the path of the replay's launch, without saying a shared name twice."""
    if outer == NO_PHASE or inner == NO_PHASE:
        return inner if outer == NO_PHASE else outer
    return inner if inner == outer or inner.startswith(outer + "/") else f"{outer}/{inner}"
