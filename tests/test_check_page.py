"""The page and the JSON of a budget check: what fell short first, with its line of the budget file."""

import json
from dataclasses import replace

import pytest
from diff_fixture_odd import HOSTILE, LONG, check

from tracelab.budget_result import BudgetCheck
from tracelab.reports import json_report, terminal


def _page(found: BudgetCheck, width: int | None = 80) -> list[str]:
    return terminal.render_check(found, full_names=False, width=width, color=False).splitlines()


def _hostile() -> BudgetCheck:
    base = check()
    line = replace(base.lines[1], name=HOSTILE, text=LONG, measured=HOSTILE, limit=HOSTILE, remark=HOSTILE)
    return replace(base, lines=[line, *base.lines], trace=HOSTILE, budget=LONG, recording=HOSTILE)


def test_what_fell_short_comes_first_with_its_line_and_value() -> None:
    rows = [line.split() for line in _page(check())[3:]]
    assert rows[0] == ["limit", "on", "measured", "limit"]
    # 0.2004 against 0.2 would both print as 20.0 %
    assert rows[1] == ["FAILED", "gaps.gap_share", "20.04", "%", "max", "20.00", "%"]
    assert rows[2] == ["budgets.toml:4:", "gap_share", "=", "{", "max", "=", "0.2", "}"]
    assert rows[3] == ["FAILED", "mbu.mbu", "cannot", "tell", "min", "50.0", "%"]
    assert " ".join(rows[5]) == "The floor is unknown: give --params."
    assert [row[0] for row in rows[6:11]] == ["ok"] * 5
    assert ["ok", "gaps.step_ns", "17.70", "ms", "max", "18.00", "ms"] in rows
    assert ["ok", "phases.busy_ns", "of", "L#/ffn", "2689.1", "µs", "max", "3000.0", "µs"] in rows
    assert ["ok", "must", "run", "mla_split", "12", "must", "run"] in rows
    assert _page(check())[-1] == "2 of 7 limits fell short."


def test_all_kept() -> None:
    lines = _page(check(failing=False))
    assert lines[-1] == "5 limits kept."
    assert not [line for line in lines if "FAILED" in line]


def test_one_limit() -> None:
    base = check()
    assert _page(replace(base, lines=base.lines[:1]))[-1] == "1 limit kept."
    assert _page(replace(base, lines=base.lines[1:2]))[-1] == "1 of 1 limit fell short."


def test_a_recording_is_named() -> None:
    assert _page(check())[0] == "RECORDING: recorded on an H200"
    assert _page(replace(check(), recording=None))[0] == "llama8b.sqlite against budgets.toml"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("found", [check(), _hostile()], ids=["plain", "hostile"])
def test_no_line_is_wider_than_the_screen_or_unprintable(found: BudgetCheck, width: int) -> None:
    lines = _page(found, width)
    assert max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines)


def test_json() -> None:
    document = json.loads(json_report.render_check(check(), full_names=False, width=None, color=False))
    assert list(document) == ["schema", "ok", "trace", "recording", "budget", "lines"]
    assert (document["schema"], document["ok"]) == ("tracelab.check/1", False)
    assert document["lines"][1] == {
        "line": 4,
        "text": "gap_share = { max = 0.2 }",
        "name": "gaps.gap_share",
        "bound": "max",
        "limit": 0.2,
        "measured": 0.2004,
        "unit": "ratio",
        "ok": False,
        "remark": "",
    }
    kept = json.loads(json_report.render_check(check(failing=False), full_names=False, width=None, color=False))
    assert kept["ok"] is True
