"""Each entry of the list of pitfalls has a test: A1 to A21, B1 to B15, C1 to C13, by the test's name or docstring."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LENGTHS = {"a": 21, "b": 15, "c": 13}  # the entries of each part of the list
IDS = [f"{part}{number}" for part, last in LENGTHS.items() for number in range(1, last + 1)]
_NAME = re.compile(r"test_(?:pitfalls?_)?((?:[abc]\d+_(?:and_)?)+)")
_DOCSTRING = re.compile(r"(?:Pitfalls? )?((?:[ABC]\d+(?:, | and |: ))+)")
_ID = re.compile(r"[abc]\d+")


def ids_of(name: str, docstring: str) -> set[str]:
    """The entries that a test function is of."""
    heads = (_NAME.match(name), _DOCSTRING.match(docstring) if name.startswith("test_") else None)
    return {found for head in heads if head for found in _ID.findall(head[1].lower())}


def covered(paths: Iterator[Path]) -> dict[str, list[str]]:
    """The test functions of each entry."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(paths):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                for entry in ids_of(node.name, ast.get_docstring(node) or ""):
                    found[entry].append(f"{path.name}::{node.name}")
    return found


COVERED = covered(TESTS.glob("test_*.py"))


@pytest.mark.parametrize("entry", IDS)
def test_every_pitfall_has_a_test(entry: str) -> None:
    assert COVERED[entry], f"no test of pitfall {entry.upper()}"


def test_no_test_names_a_pitfall_that_there_is_not() -> None:
    assert sorted(set(COVERED) - set(IDS)) == []
    assert len(IDS) == 49


@pytest.mark.parametrize(
    ("name", "docstring", "ids"),
    [
        ("test_a1_ranges", "", {"a1"}),
        ("test_pitfall_b13_b5_overhead", "", {"b13", "b5"}),
        ("test_pitfalls_b5_and_b13_elsewhere", "", {"b5", "b13"}),
        ("test_ranges", "Pitfall A18: library ranges.", {"a18"}),
        ("test_ranges", "A18 and B2: both.", {"a18", "b2"}),
        ("test_a_range", "A range of 20 µs.", set()),
        ("test_ranges", "Without pitfall A18: nothing.", set()),
        ("test_both_a1_ranges", "", set()),
        ("helper", "A1: no test.", set()),
    ],
)
def test_control_ids_are_read_from_the_beginning_only(name: str, docstring: str, ids: set[str]) -> None:
    assert ids_of(name, docstring) == ids
