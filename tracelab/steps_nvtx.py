"""Steps that the program marked itself: recurring NVTX ranges, by the rules of DESIGN section 2."""

import re
from dataclasses import dataclass

import numpy as np

from tracelab.arrays import group_ids
from tracelab.attribution import (
    Launches,
    OwnRanges,
    across_threads,
    fold_codes,
    forest_of_domains,
    forest_of_rows,
    ranges_named,
    work_in_ranges,
)
from tracelab.nesting import Forest
from tracelab.trace import ABSENT, I32, I64, Bool, Trace

_NEARLY_EVERY_TIME = 0.9  # share of a pattern's ranges that must launch GPU work
_RECURS = 2  # ranges that a pattern needs


@dataclass(frozen=True)
class NvtxSteps:
    """The outermost recurring ranges. `rows` are range rows, `pattern` the code of each in `patterns`.

    `chosen` marks the patterns that the user asked for (all, if none was asked for). `domains` marks the domains they
    lie in; `call_range` is the step range of each call of `Calls` (ABSENT: none, or
    not asked), `call_crossed` marks those found across threads. `own` is the innermost range, of these domains, of
    each launch on its own thread.
    """

    rows: I64
    pattern: I32
    patterns: tuple[str, ...]
    chosen: Bool
    domains: Bool
    forest: Forest
    call_range: I64
    call_crossed: Bool
    own: I64


def nvtx_steps(trace: Trace, launched: Launches, wanted: re.Pattern[str] | None) -> NvtxSteps | None:
    """The marked steps, default domain first; None where no range recurs. With `wanted`, the ranges it matches."""
    default = trace.default_domain
    own = OwnRanges(trace, launched)
    found = _first_recurring(trace, launched, own, (default, ~default & ~trace.framework_domain))
    if wanted is None:
        return _assign(trace, found, np.ones(len(found), bool), launched, own) if len(found) else None
    asked = _matching(trace, forest_of_domains(trace, np.ones(len(default), bool)), wanted)
    if len(asked) == 0:
        return None
    rows = np.union1d(asked, _apart(trace, asked, found))
    return _assign(trace, rows, np.isin(rows, asked), launched, own)


def _first_recurring(trace: Trace, launched: Launches, own: OwnRanges, choices: tuple[Bool, ...]) -> I64:
    for domains in choices:
        rows = _recurring(trace, *own.of(domains), launched)
        if len(rows):
            return rows
    return np.zeros(0, np.int64)


def _apart(trace: Trace, asked: I64, found: I64) -> I64:
    """Those of `found` whose whole pattern lies neither inside nor around any range of `asked`."""
    forest = forest_of_rows(trace, np.concatenate((asked, found)))
    nested = np.flatnonzero(forest.parent >= 0)
    touched = np.union1d(forest.rows[nested], forest.rows[forest.parent[nested]])
    pattern, _ = fold_codes(trace, trace.ranges.name[found])
    clashing = np.unique(pattern[np.isin(found, touched) | np.isin(found, asked)])
    return found[~np.isin(pattern, clashing)]


def _assign(trace: Trace, rows: I64, asked: Bool, launched: Launches, own: OwnRanges) -> NvtxSteps:
    domains = np.isin(np.arange(len(trace.domains)), trace.ranges.domain[rows])
    forest, innermost = own.of(domains)
    steps = forest_of_rows(trace, rows)
    call_range = np.full(len(trace.calls), ABSENT, np.int64)
    crossed = np.zeros(len(trace.calls), bool)
    calls = launched.rows
    call_range[calls] = steps.innermost(trace.calls.thread[calls], trace.calls.start[calls])
    lone = calls[innermost == ABSENT]
    call_range[lone] = across_threads(trace, steps, lone)
    crossed[lone] = call_range[lone] >= 0
    pattern, patterns = fold_codes(trace, trace.ranges.name[rows])
    chosen = np.bincount(pattern, weights=asked, minlength=len(patterns)) > 0
    return NvtxSteps(rows, pattern, patterns, chosen, domains, forest, call_range, crossed, innermost)


def _matching(trace: Trace, forest: Forest, wanted: re.Pattern[str]) -> I64:
    """Ranges whose full name `wanted` matches and that lie in no other such range."""
    chosen = forest_of_rows(trace, forest.rows[ranges_named(trace, wanted)[forest.rows]])
    outermost: I64 = chosen.rows[chosen.parent == ABSENT]
    return outermost


def _recurring(trace: Trace, forest: Forest, own: I64, launched: Launches) -> I64:
    """Rows of the outermost patterns that recur without overlap and launch GPU work nearly every time."""
    group, qualifies = _patterns(trace, forest, own, launched)
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


def _patterns(trace: Trace, forest: Forest, own: I64, launched: Launches) -> tuple[I64, Bool]:
    """Pattern group (thread, domain, folded name) of each range of the forest, and which groups could be steps."""
    rows = forest.rows
    if len(rows) == 0:
        return np.zeros(0, np.int64), np.zeros(0, bool)
    pattern, _ = fold_codes(trace, trace.ranges.name[rows])
    group, _ = group_ids([forest.thread, trace.ranges.domain[rows], pattern])
    count = np.bincount(group)
    share = np.bincount(group, weights=_has_work(trace, forest, own, launched)) / count
    return group, (count >= _RECURS) & (share >= _NEARLY_EVERY_TIME) & ~_overlapping(forest, group)


def _has_work(trace: Trace, forest: Forest, own: I64, launched: Launches) -> Bool:
    has_work = trace.first_op_of_call[launched.rows] >= 0
    working = launched.rows[has_work]
    found = work_in_ranges(trace, forest.rows, working) > 0
    lone = working[own[has_work] == ABSENT]
    if len(lone) == 0:
        return found
    return found | (work_in_ranges(trace, forest.rows, lone, any_thread=True) > 0)


def _overlapping(forest: Forest, group: I64) -> Bool:
    """Groups in which a range begins before the one before it has ended."""
    order = np.argsort(group, kind="stable")
    same = group[order][1:] == group[order][:-1]
    clash = same & (forest.start[order][1:] < forest.end[order][:-1])
    return np.bincount(group[order][1:], weights=clash, minlength=int(group.max()) + 1) > 0
