"""Reading budget files: the line of every limit, quantities with units, and what is refused, each with its line."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tracelab.budgets import IS, MAX, MIN, SHARE, TIME, KernelRule, Limit, read_budget
from tracelab.errors import InputError, UsageError
from tracelab.toml_lines import Keys, toml_lines

AWKWARD = r'''# kernels_per_step = { max = 1 }
title = """
[limits]
kernels_per_step = 7 # in a text, with \""" inside
"""  # the text has ended
"quoted # key" = 'it"s'
date = 1979-05-27 07:32:00
[ limits ]  # spaces
"kernels_per_step" = { max = 300, min = 2 }
gaps . gap_share.max = 0.5
'mbu' = { min = 0.7 } # = { max = 1 }
[limits.step_ns]
max = "4.5 ms"

min = 1_000
[phases."L#/ffn"]
mbu = { min = 0.1 }
kernels_per_step = { max = 96 }
[phases]
head = { mbu = { min = 0.2 }, busy_ns = { max = "3 ms" } }
[kernels]
must_run = [ # [
  "a[,]",  # "b",
  'c"#"', "d",

  [1, { x = [
    2] }],
  QQQe
fQQQ, "g",
]
'''.replace("QQQ", "'''")


def valid(text: str) -> str:
    tomllib.loads(text)
    return text


def lines_of(text: str) -> dict[Keys, int]:
    return toml_lines(valid(text)).places


def every_path(value: Any, keys: Keys = ()) -> list[Keys]:
    """What `tomllib` says is in a file."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    own = [keys] if keys else []
    return own + [path for key, item in items for path in every_path(item, (*keys, key))]


EXPECTED: dict[Keys, str] = {
    ("title",): 'title = """',
    ("limits",): "[ limits ]",
    ("limits", "kernels_per_step", "min"): '"kernels_per_step" = { max = 300, min = 2 }',
    ("limits", "gaps"): "gaps . gap_share.max = 0.5",
    ("limits", "gaps", "gap_share", "max"): "gaps . gap_share.max = 0.5",
    ("limits", "mbu", "min"): "'mbu' = { min = 0.7 }",
    ("limits", "step_ns"): "[limits.step_ns]",
    ("limits", "step_ns", "min"): "min = 1_000",
    ("phases", "L#/ffn"): '[phases."L#/ffn"]',
    ("phases", "L#/ffn", "kernels_per_step", "max"): "kernels_per_step = { max = 96 }",
    ("phases", "head", "busy_ns", "max"): 'head = { mbu = { min = 0.2 }, busy_ns = { max = "3 ms" } }',
    ("kernels", "must_run"): "must_run = [",
    ("kernels", "must_run", 0): '"a[,]",',
    ("kernels", "must_run", 1): '\'c"#"\', "d",',
    ("kernels", "must_run", 2): '\'c"#"\', "d",',
    ("kernels", "must_run", 3, 1, "x", 0): "2] }],",
    ("kernels", "must_run", 4): "'''e",
    ("kernels", "must_run", 5): "f''', \"g\",",
}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("keys", EXPECTED)
def test_each_key_is_found_on_its_line(keys: Keys, ending: str) -> None:
    found = toml_lines(valid(AWKWARD.replace("\n", ending)))
    assert found.code[found.places[keys] - 1].strip() == EXPECTED[keys]


def test_the_walk_finds_exactly_what_the_file_holds() -> None:
    assert set(lines_of(AWKWARD)) == set(every_path(tomllib.loads(AWKWARD)))


def test_control_a_line_more_moves_every_place_by_one() -> None:
    assert lines_of("\n" + AWKWARD) == {keys: line + 1 for keys, line in lines_of(AWKWARD).items()}


def test_the_nearest_table_stands_in_for_a_path_that_is_not_there() -> None:
    found = toml_lines("\n[limits]\n")
    assert found.line(("limits", "mbu", "max")) == 2
    assert found.line(("phases",)) == 1


def test_texts_end_where_toml_says() -> None:
    # A multi-line text may end in two quotes of its own before its three, and an empty one has no inside.
    text = 'a = """""x"""""\nb = """"""\nc = ""\nd = \'\'\'\'x\'\'\'\'\ne = "\\\\"\nf = "\\""\n'
    assert lines_of(text) == {(key,): line for line, key in enumerate("abcdef", 1)}


def budget(tmp_path: Path, text: str) -> list[Limit | KernelRule]:
    path = tmp_path / "budgets.toml"
    path.write_text(text, encoding="utf-8")
    return list(read_budget(path).demands)


def test_limits_of_every_kind_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = budget(
        tmp_path,
        '[kernels]\nmust_run = [\n  "mla_(few|many)",  # either\n]\nmust_not_run = ["serial"]\n'
        '[limits]\nkernels_per_step = { max = 300, min = 2 }  # both\n"gaps.gap_share" = { max = "20 %" }\n'
        'gaps.step_ns = { max = "4.5 ms" }\nbound = { is = "device" }\n'
        '[phases."L#/ffn"]\nmbu = { min = 0.8 }\n',
    )
    both = "kernels_per_step = { max = 300, min = 2 }"
    rules = [(r.line, r.text, r.pattern.pattern, r.must_run) for r in found if isinstance(r, KernelRule)]
    assert rules == [
        (3, '"mla_(few|many)"', "mla_(few|many)", True),
        (5, 'must_not_run = ["serial"]', "serial", False),
    ]
    assert [limit for limit in found if isinstance(limit, Limit)] == [
        Limit(7, both, None, "kernels_per_step", MAX, 300, ""),
        Limit(7, both, None, "kernels_per_step", MIN, 2, ""),
        Limit(8, '"gaps.gap_share" = { max = "20 %" }', None, "gaps.gap_share", MAX, 0.2, SHARE),
        Limit(9, 'gaps.step_ns = { max = "4.5 ms" }', None, "gaps.step_ns", MAX, 4_500_000, TIME),
        Limit(10, 'bound = { is = "device" }', None, "bound", IS, "device", ""),
        Limit(12, "mbu = { min = 0.8 }", "L#/ffn", "mbu", MIN, 0.8, ""),
    ]
    assert [demand.line for demand in found] == [3, 5, 7, 7, 8, 9, 10, 12]


QUANTITIES = {
    '"7 ns"': (7, TIME), '"7us"': (7_000, TIME), '"7 µs"': (7_000, TIME), '"7 μs"': (7_000, TIME),
    '"4.1 ms"': (4_100_000, TIME), '" 2e-3 s "': (2_000_000, TIME), '".5 %"': (0.005, SHARE), "1_000": (1000, ""),
    "-0.5": (-0.5, ""),
}  # fmt: skip


@pytest.mark.parametrize("text", QUANTITIES)
def test_quantities(tmp_path: Path, text: str) -> None:
    (found,) = budget(tmp_path, f"[limits]\nx = {{ max = {text} }}\n")
    assert isinstance(found, Limit)
    assert (found.value, found.unit) == QUANTITIES[text]


# Each with the line that is to blame and what the sentence must say.
REFUSED = {
    "": (None, "sets no limit"),
    "[limits]\n[phases.head]\n[kernels]\nmust_run = []\n": (None, "sets no limit"),
    "\n[limit]\nx = { max = 1 }\n": (2, "sections are limits, phases, kernels"),
    "kernels_per_step = { max = 1 }\n": (1, "no section 'kernels_per_step'"),
    "[limits]\n\nx = {}\n": (3, "x sets no bound"),
    "[limits]\nx = { mx = 1 }\n": (2, "unknown key 'mx'"),
    "[limits.x]\nmax = 1\nmxa = 1\n": (3, "unknown key 'mxa'"),
    "[limits]\nx = 300\n": (2, "a limit is written"),
    "[limits]\nx = { max = true }\n": (2, "takes a number"),
    "[limits]\nx = { max = nan }\n": (2, "takes a number"),
    "[limits]\nx = { max = inf }\n": (2, "takes a number"),
    f"[limits]\nx = {{ max = {10**400} }}\n": (2, "takes a number"),
    '[limits]\nx = { max = "300" }\n': (2, "takes a number"),
    '[limits]\nx = { max = "4 hours" }\n': (2, "takes a number"),
    '[limits]\nx = { max = "1e999999999 ms" }\n': (2, "takes a number"),
    "[limits]\nx = { max = [1] }\n": (2, "takes a number"),
    "[limits]\nx = { is = 3 }\n": (2, "takes a word"),
    "phases = 3\n": (1, "phases must be a table"),
    "[phases]\nhead = 3\n": (2, "phases.head must be a table"),
    '[kernels]\nmust_run = "a"\n': (2, "takes a list"),
    '[kernels]\nmust_run = [\n"a",\n3]\n': (4, "as text, not 3"),
    '[kernels]\nmust_run = [\n"a",\n"b(",\n]\n': (4, "'b(' is no regular expression"),
    '[kernels]\nmay_run = ["a"]\n': (2, "unknown key 'may_run'"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_no_budget_can_hold_is_a_usage_error_with_its_line(tmp_path: Path, text: str) -> None:
    line, said = REFUSED[text]
    with pytest.raises(UsageError) as caught:
        budget(tmp_path, text)
    assert said in str(caught.value)
    assert f"budgets.toml{'' if line is None else f':{line}:'}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"), [("[limits]\nx = {\n", 2), ("[limits]\nx = 1\nx = 2\n", 3), ('a = """\n', 2)]
)
def test_broken_toml_is_an_input_error_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(InputError, match=rf"budgets\.toml:{line}: the budget is not valid TOML"):
        budget(tmp_path, text)


def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml cannot be read: No such file"):
        read_budget(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(InputError, match=r"latin\.toml cannot be read: not UTF-8"):
        read_budget(tmp_path / "latin.toml")


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "marked.toml"
    path.write_text("[limits]\nx = { max = 1 }\n", encoding="utf-8-sig")
    assert [demand.line for demand in read_budget(path).demands] == [2]
