"""The JSON report against the contract, key by key."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from report_fixture import sketch_report
from report_fixture_odd import REPORTS, odd_report

from tracelab.reports import json_report
from tracelab.result import Metric, Result

TRACE_KEYS = {
    "path",
    "format",
    "producer",
    "kernels",
    "kernel_sum_ns",
    "cuda_graphs",
    "recording",
    "workload",
    "gpus",
    "warnings",
}
GPU_KEYS = {"id", "name", "sm_count", "memory_bandwidth_bytes_per_s", "bandwidth_source"}
STEPS_KEYS = {"source", "pattern", "found", "used", "left_out", "others", "per_step", "outside_ns", "outside_kernels"}
STEP_KEYS = ["index", "name", "process", "device", "kernels", "launches", "span_ns", "busy_ns", "sum_ns", "period_ns"]


def _document(name: str) -> dict[str, Any]:
    text = json_report.render(REPORTS[name](), full_names=False, width=80, color=True)
    document: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
    return document


@pytest.mark.parametrize("name", REPORTS)
def test_keys(name: str) -> None:
    document = _document(name)
    top = {"schema", "trace", "capture", "device", "steps", "results", "findings"}
    assert set(document) == top | ({"devices"} if name == "odd" else set())
    assert document["schema"] == "tracelab.report/1"
    assert set(document["trace"]) == TRACE_KEYS
    assert all(set(gpu) == GPU_KEYS for gpu in document["trace"]["gpus"])
    assert all(set(warning) == {"code", "message"} for warning in document["trace"]["warnings"])
    assert set(document["steps"]) == STEPS_KEYS
    assert all(list(step) == STEP_KEYS for step in document["steps"]["per_step"])
    assert all({"index", "name", "reason"} <= set(step) for step in document["steps"]["left_out"])
    assert all({"pattern", "found", "step_ns", "kernels_per_step"} <= set(o) for o in document["steps"]["others"])
    assert all(set(r) == {"skipped", "metrics", "tables", "checks"} for r in document["results"].values())
    assert all(set(f) == {"code", "title", "evidence", "saving_ns"} for f in document["findings"])


def test_values_of_the_sketch() -> None:
    document = _document("sketch")
    assert document["results"]["gaps"]["metrics"]["step_ns"] == {"value": 1_167_100, "unit": "ns"}
    assert document["results"]["gaps"]["checks"][0]["ok"] is True
    assert document["results"]["mbu"]["skipped"].endswith("give --params.")
    assert document["steps"]["per_step"][-1]["period_ns"] is None
    assert document["capture"] is None
    assert document["findings"][0]["saving_ns"] == 793_880


def test_several_devices_and_a_capture() -> None:
    document = _document("odd")
    assert [set(device) for device in document["devices"]] == [{"device", "results", "findings"}] * 2
    assert document["capture"] == {"program_exit_code": 3, "nsys": "nsys", "nsys_version": "2025.3.2"}


def test_numpy_values_and_what_is_no_number() -> None:
    result = Result(
        metrics={"a": Metric(np.float64("nan"), "ns"), "b": Metric(np.int64(3).item(), "count")},
        tables={"t": [{"x": np.int64(7), "y": np.float32(0.5), "z": float("inf"), "on": np.bool_(True), "l": (1, 2)}]},
    )
    base = sketch_report()
    report = replace(base, main=replace(base.main, results={"new": result}))
    new = json.loads(json_report.render(report, full_names=False, width=80, color=False))["results"]["new"]
    assert new["metrics"]["a"]["value"] is None
    assert new["tables"]["t"] == [{"x": 7, "y": 0.5, "z": None, "on": True, "l": [1, 2]}]


def test_one_analyzer_alone() -> None:
    text = json_report.render_result(odd_report(), "gaps", full_names=False, width=80, color=False)
    document = json.loads(text)
    assert list(document["results"]) == ["gaps"]
    assert document["findings"] == []
    assert [list(device["results"]) for device in document["devices"]] == [["gaps"], ["gaps"]]


@pytest.mark.parametrize("code", [0x7F, 0x85, 0x9B, 0x200B, 0x202E, 0x2066, 0xFEFF, 0xDC80])
def test_what_a_terminal_obeys_or_hides_is_escaped(code: int) -> None:
    # A kernel's name may hold CSI as one character, a change of direction or nothing that is seen.
    report = sketch_report()
    named = replace(report, trace=replace(report.trace, path=f"a{chr(code)}b"))
    text = json_report.render(named, full_names=False, width=80, color=True)
    assert chr(code) not in text
    assert f"a\\u{code:04x}b" in text
    assert json.loads(text)["trace"]["path"] == f"a{chr(code)}b"
