"""Two ranks on two H200s with NCCL all-reduces between phases (tests/gpu/two_ranks.py), and one launch that fails."""

import json
import sqlite3
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from called import called
from recorded import capture_file


def _document(program: str, *words: object) -> dict[str, Any]:
    answer = called("report", capture_file(program, 1), *words, "--format", "json")
    assert answer.code == 0, answer.err
    document: dict[str, Any] = json.loads(answer.out)
    return document


def _exposed_ns(device: int) -> list[int]:
    """NCCL time of each step but the first of a device, straight from the file: no two kernels overlap there."""
    with closing(sqlite3.connect(capture_file("ranks", 1))) as db:
        steps = db.execute(
            "SELECT start, end, globalTid FROM NVTX_EVENTS WHERE text LIKE 'step %' ORDER BY globalTid, start"
        ).fetchall()
        rows = db.execute(
            "SELECT r.start, r.globalTid, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s "
            "ON s.id = k.demangledName JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND "
            "r.globalTid & -16777216 = k.globalPid WHERE s.value LIKE '%nccl%' AND k.deviceId = ?", (device,)
        ).fetchall()  # fmt: skip
    thread = rows[0][1]
    mine = [(start, end) for start, end, tid in steps if tid == thread][1:]
    return [sum(ns for at, _, ns in rows if start <= at <= end) for start, end in mine]


@pytest.mark.parametrize(("device", "median_ns"), [(0, 12_896), (1, 663_198)])
def test_exposed_communication_of_each_device(device: int, median_ns: int) -> None:
    """Rank 1 waits in the all-reduces for rank 0; nothing runs beside them, so all of it is exposed."""
    devices = {found["device"]: found for found in _document("ranks")["devices"]}
    metrics = devices[device]["results"]["communication"]["metrics"]
    assert metrics["exposed_ns"]["value"] == median_ns == int(np.median(_exposed_ns(device)))
    assert metrics["hidden_ns"]["value"] == 0
    assert metrics["communication_ns"]["value"] == median_ns


def test_who_comes_last_is_told() -> None:
    devices = {found["device"]: found for found in _document("ranks")["devices"]}
    metrics = devices[1]["results"]["communication"]["metrics"]
    assert (metrics["collectives_compared"]["value"], metrics["last_device"]["value"]) == (22, 0)
    assert metrics["arrival_skew_ns"]["value"] == 312_160
    assert any("most often device 0 (22 of 22 times)" in f["evidence"] for f in devices[1]["findings"])


def test_a_collective_is_not_told_to_take_more_blocks() -> None:
    findings = [f for device in _document("ranks")["devices"] for f in device["findings"]]
    assert not [f for f in findings if "nccl" in f["title"].lower() and "SMs" in f["title"]]


def test_a_failed_launch_is_reported_at_its_phase_and_rank() -> None:
    document = _document("ranks_fail")
    assert document["findings"][0]["title"] == (
        "1 × cudaLaunchKernelExC failed in mlp of step 6 on device 1 (process 1035): cudaErrorInvalidValue (1)."
    )
    row = document["results"]["launches"]["tables"]["failed"][0]
    assert (row["phase"], row["step"], row["device"], row["process"]) == ("mlp", "step 6", 1, 1035)


def test_the_page_compares_the_devices_and_one_can_be_chosen() -> None:
    page = called("report", capture_file("ranks_fail", 1)).out
    assert "device         process  steps  kernels  step µs  busy µs  exposed µs  bound   failed" in page
    alone = called("report", capture_file("ranks_fail", 1), "--device", 1).out
    assert "(this page)" not in alone
    assert "host-bound" in alone
