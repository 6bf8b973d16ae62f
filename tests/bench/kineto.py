"""A large trace of the PyTorch profiler, made from a bundled recording: all of it again and again, each time later and
with ids of its own, in the layout in which Kineto writes its files.

python tests/bench/kineto.py TARGET.json KERNELS

The eight recorded steps of 48 kernels become one of 384, which is what a model of 32 layers launches. That is for the
tools that tracelab is compared with: HTA looks every event up among all steps, and with 2000 of them takes minutes.
"""

import argparse
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

EAGER = Path(__file__).parents[1] / "captures" / "kineto_eager.json.gz"
_PAUSE_NS = 50_000  # between the end of one repetition and the start of the next
_BEGIN = '"traceEvents": [\n'
_FACTS = '  {\n    "name": "process_name", "ph": "M"'  # from here on each event is about the whole file
_TIME = re.compile(r'"ts": (\d+)\.(\d{3})(?:, "dur": (\d+)\.(\d{3}))?')
# What differs from one repetition to the next: times in µs, the numbers that Kineto counts up, and those of steps.
_CHANGING = re.compile(r'("ts": )(\d+\.\d{3})|("(?:correlation|External id|id|Ev Idx)": )(\d+)|(ProfilerStep#)(\d+)')
_STEP = re.compile(r'  \{\n    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#.*?\n  \},\n', re.DOTALL)
_SPAN = re.compile(r'("dur": )(\d+\.\d{3})')
_TIMES, _IDS, _STEPS = range(3)


class _Repeated:
    """The events that are repeated: a template, and what stands in it as (kind, number), times in ns."""

    def __init__(self, text: str) -> None:
        self.fields: list[tuple[int, int]] = []
        self.template = _CHANGING.sub(self._take, text.replace("%", "%%"))
        self.kernels = text.count('"cat": "kernel"')
        begin, end = zip(*(_extent(found) for found in _TIME.finditer(text)), strict=True)
        self.period_ns = max(end) - min(begin) + _PAUSE_NS
        self._growth = (self.period_ns, 1 + self._largest(_IDS), self._largest(_STEPS))

    def _largest(self, kind: int) -> int:
        return max(value for field, value in self.fields if field == kind)

    def _take(self, found: re.Match[str]) -> str:
        kind = ((found.lastindex or 0) - 2) // 2
        value = str(found.group(found.lastindex or 0))
        self.fields.append((kind, _to_ns(value) if kind == _TIMES else int(value)))
        return f"{found.group((found.lastindex or 0) - 1)}%s"

    def text(self, i: int) -> str:
        """Repetition `i`."""
        grown = ((kind, value + i * self._growth[kind]) for kind, value in self.fields)
        return self.template % tuple(_to_us(value) if kind == _TIMES else value for kind, value in grown)


def _extent(found: re.Match[str]) -> tuple[int, int]:
    begin = int(found[1] + found[2])
    return begin, begin + (int(found[3] + found[4]) if found[3] else 0)


def _to_ns(us: str) -> int:
    return int(us.replace(".", ""))


def _to_us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _one_step(events: str) -> str:
    """The events with one step, which lasts from the begin of the first to the end of the last."""
    steps = _STEP.findall(events)
    begin, end = zip(*(_extent(found) for step in steps for found in _TIME.finditer(step)), strict=True)
    whole = _SPAN.sub(lambda found: found[1] + _to_us(max(end) - min(begin)), steps[0])
    return whole + _STEP.sub("", events)


def _parts(text: str, kernels: int) -> Iterator[str]:
    head, _, rest = text.partition(_BEGIN)
    events, mark, facts = rest.partition(_FACTS)
    repeated = _Repeated(_one_step(events))
    times = -(-kernels // repeated.kernels)
    yield head + _BEGIN
    for i in range(times):
        yield repeated.text(i)
    later_ns = (times - 1) * repeated.period_ns
    yield mark + _SPAN.sub(lambda found: f"{found[1]}{_to_us(_to_ns(found[2]) + later_ns)}", facts)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", type=Path)
    parser.add_argument("kernels", type=int)
    options = parser.parse_args()
    text = gzip.decompress(EAGER.read_bytes()).decode()
    with options.target.open("w") as file:
        file.writelines(_parts(text, options.kernels))


if __name__ == "__main__":
    main()
