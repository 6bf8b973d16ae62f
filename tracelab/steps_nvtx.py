"""Steps that the program marked itself: recurring NVTX ranges, by the rules of DESIGN section 2."""

import re
from dataclasses import dataclass

import numpy as np

from tracelab.arrays import group_ids
from tracelab.attribution import (
    Launches,
    across_threads,
    fold,
    forest_of_domains,
    without_own_range,
    work_in_ranges,
)
from tracelab.nesting import Forest, build_forest
from tracelab.trace import ABSENT, I64, Bool, Trace

_NEARLY_EVERY_TIME = 0.9  # share of a pattern's ranges that must launch GPU work
_RECURS = 2  # ranges that a pattern needs


@dataclass(frozen=True)
class NvtxSteps:
    """The outermost recurring ranges. `rows` are range rows, `pattern` the code of each in `patterns`.

    `domains` marks the domains they lie in; `call_range` is the step range of each call of `Calls` (ABSENT: none, or
    not asked), `call_crossed` marks those found across threads.
    """

    rows: I64
    pattern: I64
    patterns: tuple[str, ...]
    domains: Bool
    forest: Forest
    call_range: I64
    call_crossed: Bool


def nvtx_steps(trace: Trace, launched: Launches, wanted: re.Pattern[str] | None) -> NvtxSteps | None:
    """The marked steps, default domain first; None where no range recurs. With `wanted`, the ranges it matches."""
    default = np.array([domain == "" for domain in trace.domains], bool)
    choices = (np.ones(len(default), bool),) if wanted else (default, ~default)
    for domains in choices:
        forest = forest_of_domains(trace, domains)
        rows = _matching(trace, forest, wanted) if wanted else _recurring(trace, forest, launched)
        if len(rows):
            inside = domains & np.isin(np.arange(len(domains)), trace.ranges.domain[rows])
            return _assign(trace, rows, inside, launched)
    return None


def _assign(trace: Trace, rows: I64, domains: Bool, launched: Launches) -> NvtxSteps:
    forest = forest_of_domains(trace, domains)
    mask = np.zeros(len(trace.ranges), bool)
    mask[rows] = True
    steps = build_forest(trace.ranges, mask)
    call_range = np.full(len(trace.calls), ABSENT, np.int64)
    crossed = np.zeros(len(trace.calls), bool)
    asked = launched.rows
    call_range[asked] = steps.innermost(trace.calls.thread[asked], trace.calls.start[asked])
    lone = asked[without_own_range(trace, forest, asked)]
    call_range[lone] = across_threads(trace, steps, lone)
    crossed[lone] = call_range[lone] >= 0
    folded = [fold(trace.names[int(name)]) for name in trace.ranges.name[rows]]
    patterns = tuple(sorted(set(folded)))
    pattern = np.array([patterns.index(text) for text in folded], np.int64)
    return NvtxSteps(rows, pattern, patterns, domains, forest, call_range, crossed)


def _matching(trace: Trace, forest: Forest, wanted: re.Pattern[str]) -> I64:
    """Ranges whose full name `wanted` matches and that lie in no other such range."""
    hits = np.array([bool(wanted.search(name)) for name in trace.names], bool)
    mask = np.zeros(len(trace.ranges), bool)
    mask[forest.rows] = hits[trace.ranges.name[forest.rows]]
    chosen = build_forest(trace.ranges, mask)
    return chosen.rows[chosen.parent == ABSENT]


def _recurring(trace: Trace, forest: Forest, launched: Launches) -> I64:
    """Rows of the outermost patterns that recur without overlap and launch GPU work nearly every time."""
    group, qualifies = _patterns(trace, forest, launched)
    if not qualifies.any():
        return np.zeros(0, np.int64)
    covered = np.zeros(len(forest.rows), bool)
    ancestor = forest.parent.copy()
    while (ancestor >= 0).any():
        at = np.flatnonzero(ancestor >= 0)
        above = group[ancestor[at]]
        covered[at] |= qualifies[above] & (above != group[at])
        ancestor[at] = forest.parent[ancestor[at]]
    inner = np.bincount(group, weights=covered, minlength=len(qualifies)) / np.bincount(group)
    outermost = qualifies & (inner < 0.5)
    return forest.rows[outermost[group]]


def _patterns(trace: Trace, forest: Forest, launched: Launches) -> tuple[I64, Bool]:
    """Pattern group (thread, domain, folded name) of each range of the forest, and which groups could be steps."""
    rows = forest.rows
    if len(rows) == 0:
        return np.zeros(0, np.int64), np.zeros(0, bool)
    names = trace.ranges.name[rows]
    unique, inverse = np.unique(names, return_inverse=True)
    folded = [fold(trace.names[int(code)]) for code in unique]
    codes = {text: i for i, text in enumerate(dict.fromkeys(folded))}
    pattern = np.array([codes[text] for text in folded], np.int64)[inverse]
    group, _ = group_ids([forest.thread, trace.ranges.domain[rows], pattern])
    count = np.bincount(group)
    share = np.bincount(group, weights=_has_work(trace, forest, launched)) / count
    return group, (count >= _RECURS) & (share >= _NEARLY_EVERY_TIME) & ~_overlapping(forest, group)


def _has_work(trace: Trace, forest: Forest, launched: Launches) -> Bool:
    working = launched.rows[launched.gpu_ns > 0]
    ones = np.ones(len(working), np.int64)
    own = work_in_ranges(trace, forest.rows, working, ones) > 0
    lone = working[without_own_range(trace, forest, working)]
    if len(lone) == 0:
        return own
    return own | (work_in_ranges(trace, forest.rows, lone, np.ones(len(lone), np.int64), any_thread=True) > 0)


def _overlapping(forest: Forest, group: I64) -> Bool:
    """Groups in which a range begins before the one before it has ended."""
    order = np.argsort(group, kind="stable")
    same = group[order][1:] == group[order][:-1]
    clash = same & (forest.start[order][1:] < forest.end[order][:-1])
    return np.bincount(group[order][1:], weights=clash, minlength=int(group.max()) + 1) > 0
