"""Budget files: the limits that CI holds a trace to, read from TOML, each with the line that it stands on.

```toml
[limits]                                # metrics of the step; `analyzer.metric` where two analyzers have the name
kernels_per_step = { max = 300 }        # plain numbers are in the metric's own unit
launch_gap_share = { max = "20 %" }
bound = { is = "device" }

[phases."L#/ffn"]                       # columns of the phases tables
busy_ns = { max = "3 ms" }

[kernels]                               # regular expressions, searched in the full kernel names
must_run = ["mla_(few|many)"]
must_not_run = ["serial"]
```
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from tracelab.errors import InputError, UsageError
from tracelab.toml_lines import Keys, TomlLines, toml_lines

MAX, MIN, IS = "max", "min", "is"
TIME, SHARE = "ns", "ratio"
_LIMITS, _PHASES, _KERNELS = "limits", "phases", "kernels"
_SECTIONS = (_LIMITS, _PHASES, _KERNELS)
_MUST_RUN, _MUST_NOT_RUN = "must_run", "must_not_run"
_BOUNDS = (MAX, MIN, IS)
_HOW = 'a limit is written { max = … }, { min = … } or { is = "word" }'
_QUANTITY = re.compile(r"\s*([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,2})?)\s*(ns|[µμu]s|ms|s|%)\s*")
_UNITS = {
    "ns": (TIME, Decimal(1)),
    "µs": (TIME, Decimal(1_000)),  # the micro sign
    "μs": (TIME, Decimal(1_000)),  # the Greek letter, which looks the same
    "us": (TIME, Decimal(1_000)),
    "ms": (TIME, Decimal(1_000_000)),
    "s": (TIME, Decimal(1_000_000_000)),
    "%": (SHARE, Decimal("0.01")),
}


@dataclass(frozen=True)
class Limit:
    """A bound on one metric of the step, or on one column of a phase.

    `bound` is MAX, MIN or IS. `unit` is TIME (`value` is in ns) or SHARE (1 is the whole) where the file gives a unit,
    else empty: `value` is in the metric's own unit, or a word.
    """

    line: int
    text: str
    phase: str | None
    name: str
    bound: str
    value: float | str
    unit: str


@dataclass(frozen=True)
class KernelRule:
    """A kernel that must run in the step, or must not: `pattern` is searched in full kernel names."""

    line: int
    text: str
    pattern: re.Pattern[str]
    must_run: bool


@dataclass(frozen=True)
class Budget:
    """What one budget file demands, in the file's order."""

    path: str
    demands: tuple[Limit | KernelRule, ...]


@dataclass(frozen=True)
class _Source:
    """The file, to say where something stands in it."""

    path: Path
    lines: TomlLines

    def place(self, keys: Keys) -> tuple[int, str]:
        """Line number and text of a key."""
        line = self.lines.line(keys)
        return line, self.lines.code[line - 1].strip().rstrip(",").rstrip()

    def refuse(self, keys: Keys, sentence: str) -> NoReturn:
        raise UsageError(f"{self.path}:{self.lines.line(keys)}: {sentence}.")


def read_budget(path: Path) -> Budget:
    """The budget in the file `path`.

    Raises InputError where the file cannot be read or is no TOML, UsageError where it asks for what no budget can hold;
    both name the line.
    """
    text = _text(path)
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = re.search(r"at line (\d+)", str(error))
        line = int(said[1]) if said else text.count("\n") + 1
        raise InputError(f"{path}:{line}: the budget is not valid TOML: {error}.") from None
    demands = list(_demands(_Source(path, toml_lines(text)), sections))
    if not demands:
        raise UsageError(f"{path} sets no limit; write one, such as kernels_per_step = {{ max = 300 }} below [limits].")
    return Budget(str(path), tuple(sorted(demands, key=lambda demand: demand.line)))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark that TOML does not know
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(f"The budget {path} cannot be read: {reason}.") from None


def _demands(source: _Source, sections: Mapping[str, Any]) -> Iterator[Limit | KernelRule]:
    for section in sections:
        if section not in _SECTIONS:
            source.refuse((section,), f"there is no section {section!r}; sections are {', '.join(_SECTIONS)}")
        table = _table(source, (section,), sections[section])
        if section == _LIMITS:
            yield from _step_limits(source, table)
        elif section == _PHASES:
            for phase, columns in table.items():
                yield from _limits(source, (section, phase), columns, phase=phase)
        else:
            yield from _kernel_rules(source, table)


def _step_limits(source: _Source, table: Mapping[str, Any]) -> Iterator[Limit]:
    """Limits below [limits]; `gaps.gap_share` may stand there without quotes: TOML reads it as a table in a table."""
    for name, value in table.items():
        if _holds_metrics(value):
            yield from _limits(source, (_LIMITS, name), value, analyzer=f"{name}.")
        else:
            yield from _bounds(source, (_LIMITS, name), value, name, None)


def _holds_metrics(value: Any) -> bool:
    """Whether a table is an analyzer's, with a limit below each of its keys, and no limit itself."""
    inside = isinstance(value, dict) and not set(value) & set(_BOUNDS)
    return inside and bool(value) and all(isinstance(limit, dict) for limit in value.values())


def _limits(
    source: _Source, keys: Keys, table: Any, *, analyzer: str = "", phase: str | None = None
) -> Iterator[Limit]:
    for name, value in _table(source, keys, table).items():
        yield from _bounds(source, (*keys, name), value, analyzer + name, phase)


def _bounds(source: _Source, keys: Keys, table: Any, name: str, phase: str | None) -> Iterator[Limit]:
    """One Limit for each bound that the table of a metric sets."""
    if not isinstance(table, dict):
        source.refuse(keys, f"{name}: {_HOW}")
    unknown = [key for key in table if key not in _BOUNDS]
    if unknown or not table:
        what = f"has the unknown key {unknown[0]!r}" if unknown else "sets no bound"
        source.refuse((*keys, *unknown[:1]), f"{name} {what}; {_HOW}")
    for bound, value in table.items():
        here = (*keys, bound)
        line, text = source.place(here)
        yield Limit(line, text, phase, name, bound, *_amount(source, here, name, value))


def _amount(source: _Source, keys: Keys, name: str, value: Any) -> tuple[float | str, str]:
    """The value of a bound and its unit, empty for a plain number and for a word."""
    if keys[-1] == IS:
        if not isinstance(value, str):
            source.refuse(keys, f'{name}: is takes a word, as in {{ is = "device" }}')
        return value, ""
    amount, unit = _with_unit(value) if isinstance(value, str) else (value, "")
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not abs(amount) <= sys.float_info.max:
        source.refuse(keys, f'{name}: {keys[-1]} takes a number, or one with ns, µs, ms, s or %, as in "4.5 ms"')
    return amount, unit


def _with_unit(text: str) -> tuple[float | None, str]:
    hit = _QUANTITY.fullmatch(text)
    if hit is None:
        return None, ""
    unit, factor = _UNITS[hit[2]]
    exact = Decimal(hit[1]) * factor  # in decimal, so that 4.1 ms is 4100000 ns and not a neighbour of it
    return float(exact), unit


def _kernel_rules(source: _Source, table: Mapping[str, Any]) -> Iterator[KernelRule]:
    for key, patterns in table.items():
        keys = (_KERNELS, key)
        if key not in (_MUST_RUN, _MUST_NOT_RUN):
            source.refuse(keys, f"[kernels] has the unknown key {key!r}; it takes {_MUST_RUN} and {_MUST_NOT_RUN}")
        if not isinstance(patterns, list):
            source.refuse(keys, f'{key} takes a list of regular expressions, as in ["mla_split"]')
        for index, pattern in enumerate(patterns):
            line, text = source.place((*keys, index))
            yield KernelRule(line, text, _compiled(source, (*keys, index), pattern), key == _MUST_RUN)


def _compiled(source: _Source, keys: Keys, pattern: Any) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        source.refuse(keys, f"{keys[1]} takes regular expressions as text, not {pattern!r}")
    if not pattern:
        source.refuse(keys, f"{keys[1]} has an empty expression, which every name matches")
    try:
        return re.compile(pattern)
    except re.error as error:
        source.refuse(keys, f"{pattern!r} is no regular expression: {error}")


def _table(source: _Source, keys: Keys, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        source.refuse(keys, f"{'.'.join(map(str, keys))} must be a table of limits")
    return value
