"""Kernel families and phases by name: rules from `families.toml`, first match wins.

A file of one's own, named by the environment variable TRACELAB_FAMILIES, is tried before the bundled rules.
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tracelab.errors import InputError

FAMILIES = (
    "attention",
    "gemm",
    "gemv",
    "norm",
    "elementwise",
    "reduction",
    "copy",
    "communication",
    "sampling",
    "other",
)
USER_FILE_VARIABLE = "TRACELAB_FAMILIES"
_UNMATCHED = "other"
_BUNDLED = Path(__file__).with_name("families.toml")
_KEYS = {"pattern", "family", "phase"}


@dataclass(frozen=True)
class Rule:
    """Names in which `pattern` is found have this family and, if the name tells it, this phase."""

    pattern: re.Pattern[str]
    family: str
    phase: str | None


@dataclass(frozen=True)
class Families:
    """One entry per name asked for. `matched` is False where no rule fits (family `other`, phase None)."""

    families: Sequence[str]
    phases: Sequence[str | None]
    matched: Sequence[bool]


def classify(names: Sequence[str], environment: Mapping[str, str] | None = None) -> Families:
    """Family and phase of each of a trace's distinct kernel names.

    Raises InputError if the user's file cannot be read or has a broken rule.
    """
    rules = _rules(environment)
    hits = [next((rule for rule in rules if rule.pattern.search(name)), None) for name in names]
    return Families(
        families=[hit.family if hit else _UNMATCHED for hit in hits],
        phases=[hit.phase if hit else None for hit in hits],
        matched=[hit is not None for hit in hits],
    )


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of one file. Raises InputError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(f"The kernel rules {path} cannot be read: {reason}.") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The kernel rules {path} are not valid TOML: {error}.") from None
    return tuple(_rule(row, where) for row, where in _located(path, text, table))


def _rules(environment: Mapping[str, str] | None) -> tuple[Rule, ...]:
    own = (os.environ if environment is None else environment).get(USER_FILE_VARIABLE)
    return (read_rules(Path(own)) if own else ()) + _bundled()


@cache
def _bundled() -> tuple[Rule, ...]:
    return read_rules(_BUNDLED)


def _located(path: Path, text: str, table: dict[str, Any]) -> list[tuple[Any, str]]:
    """Each rule with the words that name its line: TOML keeps no line numbers, but rules keep their order."""
    rows = table.get("rule")
    if not isinstance(rows, list) or set(table) != {"rule"}:
        raise InputError(f"The kernel rules {path} must hold [[rule]] tables only (line 1).")
    lines = [i for i, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*rule\s*\]\]", line)]
    if len(lines) != len(rows):
        lines = [1] * len(rows)
    return [(row, f"The kernel rule in {path}, line {line},") for row, line in zip(rows, lines, strict=True)]


def _rule(row: Any, where: str) -> Rule:
    if not isinstance(row, dict) or not set(row) <= _KEYS or not {"pattern", "family"} <= set(row):
        raise InputError(f"{where} must have a pattern, a family and at most a phase.")
    if not all(isinstance(value, str) for value in row.values()):
        raise InputError(f"{where} has a value that is no text.")
    if row["family"] not in FAMILIES:
        raise InputError(f"{where} has the unknown family {row['family']!r}; known are {', '.join(FAMILIES)}.")
    try:
        pattern = re.compile(row["pattern"])
    except re.error as error:
        raise InputError(f"{where} has a pattern that is no regular expression: {error}.") from None
    return Rule(pattern, row["family"], row.get("phase"))
