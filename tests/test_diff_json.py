"""Comparisons and ladders as JSON: the contract's keys, whole ns, null for what a side lacks."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from diff_fixture import moved, regression
from diff_fixture_odd import DIFFS, EVIL_PHASE, HOSTILE, hostile, ladder, odd_kernels

from tracelab.difference import IMPROVEMENT, NEUTRAL
from tracelab.reports import json_report

DIFF_KEYS = {
    "schema", "comparable", "reasons", "verdict", "noise_floor", "controls", "step", "phases", "kernels",
    "before", "after", "warnings", "device_time", "metrics", "findings", "regressed", "notes",
}  # fmt: skip
JUDGED_KEYS = {"change", "interval", "floor", "verdict", "remark"}
TIME_KEYS = {"before_ns", "after_ns", "delta_ns", *JUDGED_KEYS}
PHASE_KEYS = TIME_KEYS | {"phase", "share_before", "share_after", "kernels_before", "kernels_after", "control"}
KERNEL_KEYS = TIME_KEYS | {
    "name", "phase", "pairing", "names_before", "names_after", "calls_before", "calls_after", "per_call_before_ns",
    "per_call_after_ns", *(f"{what}_{side}" for side in ("before", "after")
                           for what in ("grid", "block", "blocks", "registers", "sm_fill", "shapes")),
}  # fmt: skip


def _document(render: Callable[..., str], found: object) -> dict[str, Any]:
    text = render(found, full_names=False, width=80, color=True)
    document: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
    return document


@pytest.mark.parametrize("name", DIFFS)
def test_keys_of_a_comparison(name: str) -> None:
    document = _document(json_report.render_diff, DIFFS[name]())
    assert set(document) == DIFF_KEYS
    assert document["schema"] == "tracelab.diff/1"
    assert set(document["noise_floor"]) == {"device_time", "step_time", "source", "step_source"}
    assert all(set(control) == {"phase", "change"} for control in document["controls"])
    assert set(document["step"]) == set(document["device_time"]) == {"before_ns", "after_ns", *JUDGED_KEYS}
    assert all(set(row) == PHASE_KEYS for row in document["phases"])
    assert all(set(row) == KERNEL_KEYS for row in document["kernels"])
    assert all(set(message) == {"code", "message"} for message in (*document["reasons"], *document["warnings"]))
    assert document["before"]["bound"] == DIFFS[name]().before.bound


def test_values_of_a_comparison() -> None:
    document = _document(json_report.render_diff, odd_kernels())
    rows = {row["name"]: row for row in document["kernels"]}
    split = rows["mla_split + mla_merge"]
    assert (split["before_ns"], split["after_ns"], split["delta_ns"]) == (10_162_000, 93_200, -10_068_800)
    assert (split["grid_before"], split["grid_after"], split["registers_after"]) == ("12", "8·16 + 32", None)
    assert [shape["registers"] for shape in split["shapes_after"]] == [168, 40]
    assert split["per_call_before_ns"] == 317_562  # 10162 µs / 32 calls = 317.5625
    new, gone = rows["memset_state"], rows["cast_bf16"]
    assert (new["before_ns"], new["delta_ns"], new["change"], new["grid_after"]) == (None, 18_400, None, None)
    assert (gone["name"], gone["names_after"], gone["delta_ns"]) == ("cast_bf16", [], -9_600)
    assert document["metrics"]["kernels"]["launches_per_step"] == {"before": 224, "after": 160, "unit": "count"}
    assert document["noise_floor"]["device_time"] is None


def test_json_keeps_names_whole_and_has_no_nan() -> None:
    document = _document(json_report.render_diff, hostile())
    assert document["kernels"][0]["names_before"] == [HOSTILE]
    assert document["phases"][-1]["phase"] == EVIL_PHASE
    nan = replace(regression(), step=replace(moved(1, 2), before_ns=float("nan"), change=float("nan")))
    step = _document(json_report.render_diff, nan)["step"]
    assert (step["before_ns"], step["after_ns"], step["change"]) == (None, 2000, None)


def test_json_of_a_ladder() -> None:
    document = _document(json_report.render_ladder, ladder())
    assert set(document) == {"schema", "rungs", "whole"}
    assert document["schema"] == "tracelab.ladder/1"
    assert [rung["verdict"] for rung in document["rungs"]] == [IMPROVEMENT, NEUTRAL, IMPROVEMENT]
    increments = [rung["device_time"]["after_ns"] - rung["device_time"]["before_ns"] for rung in document["rungs"]]
    assert (
        sum(increments) == document["whole"]["device_time"]["after_ns"] - document["whole"]["device_time"]["before_ns"]
    )
