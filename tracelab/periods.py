"""The period of a symbol sequence: how a loop shows itself where nobody marked its steps."""

from dataclasses import dataclass

import numpy as np

from tracelab.arrays import group_counts, group_starts, mix_hash
from tracelab.trace import I64

_REPEATS = 3  # exact repetitions that make a loop
_RAREST = 64  # symbols whose distances propose periods; the rarest occur once per step
_NEIGHBOURS = 4  # … up to this many times per step
_EVIDENCE = 12  # symbols that a loop must cover: three equal kernels alone are no loop
_MOSTLY = 2 / 3  # share of the periods in which a position must be marked to begin a step
_ENOUGH = 0.5  # share of the sequence that the loop must cover


@dataclass(frozen=True)
class Loop:
    """A period of `length` symbols, and the half-open runs [start, stop) in which it holds exactly."""

    length: int
    starts: I64
    stops: I64

    @property
    def covered(self) -> int:
        """Symbols inside the runs."""
        return int((self.stops - self.starts).sum())


def find_loop(symbols: I64, marks: I64) -> Loop | None:
    """The shortest exact period that repeats at least three times and covers half of `symbols`.

    `marks` are positions just after which the host waited for the GPU or read from it. A layer repeats inside a token
    as a token does inside a request; what tells them apart is that the host takes each token. So where there are
    marks, a period must hold one on average; where there are none, the period that covers most wins, the shorter of
    equals.
    """
    loops = [loop for loop in (_runs(symbols, p) for p in _candidates(symbols)) if loop is not None]
    loops = [loop for loop in loops if loop.covered >= max(_ENOUGH * len(symbols), _EVIDENCE)]
    if not loops:
        return None
    marked = [loop for loop in loops if _marks_per_period(loop, marks) >= 1 - 1 / _REPEATS]
    if marked:
        return min(marked, key=lambda loop: loop.length)
    return min(loops, key=lambda loop: (-loop.covered, loop.length))


def boundaries(symbols: I64, loop: Loop, pauses: I64, marks: I64) -> I64:
    """First position of every whole period, in every run at the same symbol.

    The loop is cut just after the host took a step's result: at a position that is marked (see `find_loop`) in most
    periods, of several the one before which the host paused longest in the median; without marks, at the longest pause.
    """
    longest = int(np.argmax(loop.stops - loop.starts))
    start, p = int(loop.starts[longest]), loop.length
    repeats = (int(loop.stops[longest]) - start) // p
    inside = marks[(marks >= start) & (marks < start + repeats * p)]
    marked = np.bincount((inside - start) % p, minlength=p) >= _MOSTLY * repeats
    typical = np.median(pauses[start : start + repeats * p].reshape(repeats, p), axis=0)
    cut = int(np.argmax(np.where(marked, typical, -1.0) if marked.any() else typical))
    template = symbols[start + cut : start + cut + p]
    if cut + p > int(loop.stops[longest]) - start:
        template = np.roll(symbols[start : start + p], -cut)
    found = [_cuts(symbols, int(a), int(b), template) for a, b in zip(loop.starts, loop.stops, strict=True)]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _cuts(symbols: I64, start: int, stop: int, template: I64) -> I64:
    offset = find_sequence(symbols[start:stop], template)
    if offset < 0:
        return np.zeros(0, np.int64)
    return np.arange(start + offset, stop - len(template) + 1, len(template), dtype=np.int64)


def find_sequence(symbols: I64, wanted: I64) -> int:
    """Position at which `wanted` first occurs whole in `symbols`, -1 if it does not."""
    haystack, needle = symbols.astype(np.int64).tobytes(), wanted.astype(np.int64).tobytes()
    at = haystack.find(needle)
    while at > 0 and at % 8:
        at = haystack.find(needle, at + 1)
    return at // 8 if at >= 0 else -1


def _candidates(symbols: I64) -> list[int]:
    """Distances at which the rarer symbols like to come back."""
    order = np.argsort(symbols, kind="stable")
    starts = group_starts(symbols[order])
    counts = group_counts(starts, len(symbols))
    usable = np.flatnonzero(counts >= _REPEATS)
    rarest = usable[np.argsort(counts[usable], kind="stable")][:_RAREST]
    found: set[int] = set()
    for group in rarest:
        positions = order[starts[group] : starts[group] + counts[group]]
        for k in range(1, min(_NEIGHBOURS, len(positions) - 1) + 1):
            distances, times = np.unique(positions[k:] - positions[:-k], return_counts=True)
            found.update(int(d) for d in distances[np.argsort(-times, kind="stable")][:2])
    found.update(_echoes(symbols))
    return sorted(p for p in found if p * _REPEATS <= len(symbols))


def _echoes(symbols: I64) -> list[int]:
    """Distances at which the sequence is most like itself: peaks of its autocorrelation, each symbol a direction.

    This finds periods in which no symbol is rare.
    """
    angles = mix_hash(symbols, np.zeros(len(symbols), np.int64)).astype(np.float64) * (2 * np.pi / 2.0**64)
    size = 1 << (2 * len(symbols)).bit_length()
    spectrum = np.fft.fft(np.exp(1j * angles), size)
    likeness = np.fft.ifft(np.abs(spectrum) ** 2).real[1 : len(symbols) // _REPEATS + 1]
    best = np.argsort(-likeness, kind="stable")[:_RAREST]
    return [int(lag) + 1 for lag in best]


def _runs(symbols: I64, p: int) -> Loop | None:
    differs = np.flatnonzero(symbols[p:] != symbols[:-p])
    edges = np.concatenate(([-1], differs, [len(symbols) - p]))
    first, last = edges[:-1] + 1, edges[1:]
    long_enough = last - first >= (_REPEATS - 1) * p
    if not long_enough.any():
        return None
    starts, stops = first[long_enough], last[long_enough] + p
    stops[:-1] = np.minimum(stops[:-1], starts[1:])
    return Loop(p, starts, stops)


def _marks_per_period(loop: Loop, marks: I64) -> float:
    inside = np.searchsorted(marks, loop.stops) - np.searchsorted(marks, loop.starts)
    return float(inside.sum()) / (loop.covered / loop.length)
