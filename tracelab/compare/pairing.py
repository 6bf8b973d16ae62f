"""Which kernels of two steps stand at the same place: by phase, position and family before name.

A kernel with a new tile shape has a new name at the old place: one row, not one kernel lost and another gained. Where
several kernels stand at the place of one, they are a split, and the other way round they were fused.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from math import gcd

from tracelab.difference import FUSED, GONE, NEW, REPLACED, SAME, SPLIT
from tracelab.step_samples import Places

# Pairs of equal names, above which names alone are compared: a degenerate sequence would take seconds to align.
_MOST_PAIRS = 400_000

# Families that take each other's place: a product with one row of activations or with several.
_ALIKE = {"gemv": "gemm"}
ANY_FAMILY = "other"  # a kernel of an unknown family may replace any


@dataclass(frozen=True)
class Pair:
    """Places of one phase that belong together; `before` and `after` are columns of the two `Places`. Each name stands
    once, in order, however often a split or a fused run repeats it."""

    phase: str
    pairing: str
    names_before: tuple[str, ...]
    names_after: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


def pair_places(before: Places, after: Places) -> list[Pair]:
    """One pair for each phase, pairing and names; places alike in all of these are together."""
    phases = dict.fromkeys((*before.phase, *after.phase))
    rows: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], Pair] = {}
    for pair in (pair for phase in phases for pair in _in_phase(phase, before, after)):
        key = (pair.phase, pair.pairing, pair.names_before, pair.names_after)
        rows[key] = _joined(rows[key], pair) if key in rows else pair
    return _counts_together(rows.values())


def like(family: str) -> str:
    """The family under which kernels take each other's place."""
    return _ALIKE.get(family, family)


def _joined(first: Pair, second: Pair) -> Pair:
    return replace(first, before=first.before + second.before, after=first.after + second.after)


def _counts_together(pairs: Iterable[Pair]) -> list[Pair]:
    """A kernel that stands in its phase before and after, only more or less often, is one row."""
    found: list[Pair] = []
    alone: dict[tuple[str, tuple[str, ...]], int] = {}
    for pair in sorted(pairs, key=lambda pair: pair.pairing != SAME):
        key = (pair.phase, pair.names_before or pair.names_after)
        if pair.pairing in (SAME, NEW, GONE) and key in alone:
            first = _joined(found[alone[key]], pair)
            found[alone[key]] = replace(first, pairing=SAME, names_before=key[1], names_after=key[1])
            continue
        if pair.pairing in (SAME, NEW, GONE):
            alone[key] = len(found)
        found.append(pair)
    return found


def _in_phase(phase: str, before: Places, after: Places) -> Iterator[Pair]:
    mine_b, mine_a = _runs(phase, before), _runs(phase, after)
    in_order = before.ordered and after.ordered
    if not in_order or len(mine_b) != len(mine_a):
        mine_b, mine_a = [_flat(mine_b)], [_flat(mine_a)]
    known: dict[tuple[tuple[str, ...], tuple[str, ...]], list[_Block]] = {}
    for run_b, run_a in zip(mine_b, mine_a, strict=True):
        key = (tuple(before.name[i] for i in run_b), tuple(after.name[i] for i in run_a))
        if key not in known:  # the layers of a model are alike
            families = [before.family[i] for i in run_b], [after.family[i] for i in run_a]
            known[key] = list(_aligned(*key, *families, in_order=in_order))
        for block in known[key]:
            yield _pair(phase, block, before, after, [run_b[i] for i in block.before], [run_a[j] for j in block.after])


def _runs(phase: str, places: Places) -> list[list[int]]:
    runs: dict[int, list[int]] = defaultdict(list)
    for i, name in enumerate(places.phase):
        if name == phase:
            runs[places.run[i]].append(i)
    return [runs[number] for number in sorted(runs)]


def _flat(runs: Sequence[Sequence[int]]) -> list[int]:
    return [i for run in runs for i in run]


def _pair(phase: str, block: "_Block", before: Places, after: Places, b: list[int], a: list[int]) -> Pair:
    names_b, names_a = dict.fromkeys(before.name[i] for i in b), dict.fromkeys(after.name[i] for i in a)
    return Pair(phase, block.pairing, tuple(names_b), tuple(names_a), tuple(b), tuple(a))


@dataclass(frozen=True)
class _Block:
    """Positions in two sequences that belong together."""

    pairing: str
    before: tuple[int, ...]
    after: tuple[int, ...]


def _aligned(
    names_b: tuple[str, ...], names_a: tuple[str, ...], families_b: list[str], families_a: list[str], *, in_order: bool
) -> Iterator[_Block]:
    """Blocks of two runs of one phase: equal names first, what stands between them by family."""
    if in_order and _equal_pairs(names_b, names_a) <= _MOST_PAIRS:
        matched = _stretches(names_b, names_a)
        gaps = [(list(range(i1, i2)), list(range(j1, j2))) for alike, i1, i2, j1, j2 in matched if not alike]
        equal = [(i1 + n, j1 + n) for alike, i1, i2, j1, _ in matched if alike for n in range(i2 - i1)]
    else:
        equal = _equal_names(names_b, names_a)
        taken_b, taken_a = {i for i, _ in equal}, {j for _, j in equal}
        rest_b = [i for i in range(len(names_b)) if i not in taken_b]
        rest_a = [j for j in range(len(names_a)) if j not in taken_a]
        gaps = [(rest_b, rest_a)]
    yield from (_Block(SAME, (i,), (j,)) for i, j in equal)
    for gap_b, gap_a in gaps:
        times = gcd(_repeats([names_b[i] for i in gap_b]), _repeats([names_a[j] for j in gap_a])) if in_order else 1
        for part_b, part_a in zip(_parts(gap_b, times), _parts(gap_a, times), strict=True):
            yield from _by_family(part_b, part_a, families_b, families_a)


def _equal_pairs(before: Sequence[str], after: Sequence[str]) -> int:
    one, other = Counter(before), Counter(after)
    return 0 if before == after else sum(number * other[name] for name, number in one.items())


def _repeats(names: Sequence[str]) -> int:
    """How many times in a row the sequence runs its shortest period: layers without ranges of their own. 0 if empty,
    which divides anything."""
    if not names:
        return 0
    overlap = [0] * len(names)  # Knuth, Morris and Pratt: the longest beginning that each prefix ends with
    for i in range(1, len(names)):
        n = overlap[i - 1]
        while n and names[i] != names[n]:
            n = overlap[n - 1]
        overlap[i] = n + (names[i] == names[n])
    period = len(names) - overlap[-1]
    return len(names) // period if len(names) % period == 0 else 1


def _parts(positions: list[int], times: int) -> list[list[int]]:
    size = len(positions) // max(times, 1)
    return [positions[n * size : (n + 1) * size] for n in range(max(times, 1))]


def _stretches(before: Sequence[str], after: Sequence[str]) -> list[tuple[bool, int, int, int, int]]:
    """Stretches of two sequences, alike or not, as (alike, first and end before, first and end after).

    difflib decides ties by the first sequence, so the same one is always put first, and swapped sides swap the result.
    """
    swapped = list(after) < list(before)
    first, second = (after, before) if swapped else (before, after)
    found = SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    if swapped:
        return [(tag == "equal", j1, j2, i1, i2) for tag, i1, i2, j1, j2 in found]
    return [(tag == "equal", i1, i2, j1, j2) for tag, i1, i2, j1, j2 in found]


def _equal_names(names_b: Sequence[str], names_a: Sequence[str]) -> list[tuple[int, int]]:
    """The n-th of a name with the n-th of the same name."""
    where: dict[str, list[int]] = defaultdict(list)
    for j, name in enumerate(names_a):
        where[name].append(j)
    used: dict[str, int] = defaultdict(int)
    found = []
    for i, name in enumerate(names_b):
        if used[name] < len(where[name]):
            found.append((i, where[name][used[name]]))
            used[name] += 1
    return found


def _by_family(b: list[int], a: list[int], families_b: list[str], families_a: list[str]) -> Iterator[_Block]:
    """Kernels of other names at one place: one for one, one for several, several for one, else by family in order."""
    pairing = REPLACED if len(b) == len(a) == 1 else SPLIT if len(b) == 1 else FUSED
    if b and a and (len(b) == 1 or len(a) == 1):
        if any(_fits(families_b[i], families_a[j]) for i in b for j in a):
            yield _Block(pairing, tuple(b), tuple(a))
        else:
            yield from _unpaired(b, a)
        return
    like_b, like_a = [like(families_b[i]) for i in b], [like(families_a[j]) for j in a]
    for alike, i1, i2, j1, j2 in _stretches(like_b, like_a):
        if alike:
            yield from (_Block(REPLACED, (b[i1 + n],), (a[j1 + n],)) for n in range(i2 - i1))
        elif i2 - i1 == j2 - j1 == 1 and _fits(like_b[i1], like_a[j1]):
            yield _Block(REPLACED, (b[i1],), (a[j1],))
        else:
            yield from _unpaired(b[i1:i2], a[j1:j2])


def _fits(family_b: str, family_a: str) -> bool:
    return like(family_b) == like(family_a) or ANY_FAMILY in (family_b, family_a)


def _unpaired(b: Sequence[int], a: Sequence[int]) -> Iterator[_Block]:
    yield from (_Block(GONE, (i,), ()) for i in b)
    yield from (_Block(NEW, (), (j,)) for j in a)
