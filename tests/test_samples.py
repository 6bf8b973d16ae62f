"""The bundled recordings: real captures, small, scrubbed, and with the numbers that their manifest states."""

import json
import re
import sqlite3
from typing import Any

import pytest
from asking import column, document, metric, result, view

from tracelab.capture.recordings import workload_defaults
from tracelab.registry import leaves
from tracelab.samples import FOLDER, default_sample, samples

RECORDINGS: list[dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["recordings"]
BY_FILE = pytest.mark.parametrize("recording", RECORDINGS, ids=[r["file"] for r in RECORDINGS])
BUNDLED = pytest.mark.parametrize("recording", [r for r in RECORDINGS if "workload" in r], ids=lambda r: r["file"])
LARGEST_BYTES, ALL_BYTES = 2_000_000, 12_000_000
# What an export knows of the machine it was made on: environment, paths, addresses, accounts.
LEAKS = re.compile(
    rb"ENVIRONMENT_VARIABLE|DeviceEnvironment|LD_PRELOAD|PIP_INDEX|PYTHONPATH|HOSTNAME|/home/|/root/|/tmp/|/usr/|/opt/|"
    rb"\b(?:\d{1,3}\.){3}\d{1,3}\b|[\w.+-]+@[\w-]+\.[a-z]{2,}"
)


def rows(recording: dict[str, Any], query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{FOLDER / recording['file']}?mode=ro&immutable=1", uri=True) as connection:
        return connection.execute(query).fetchall()


def test_the_manifest_names_every_recording_and_they_are_small() -> None:
    files = sorted(FOLDER.glob("*.sqlite"))
    assert [path.name for path in files] == sorted(r["file"] for r in RECORDINGS)
    assert [sample.path.name for sample in samples()] == [r["file"] for r in RECORDINGS]
    assert default_sample().title == RECORDINGS[0]["title"]
    assert max(path.stat().st_size for path in files) <= LARGEST_BYTES
    assert sum(path.stat().st_size for path in files) <= ALL_BYTES


@BY_FILE
def test_nothing_of_the_machine_is_left(recording: dict[str, Any]) -> None:
    data = (FOLDER / recording["file"]).read_bytes()
    assert LEAKS.findall(data) == []
    tables = {name for (name,) in rows(recording, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not tables & {"TARGET_INFO_SYSTEM_ENV", "PROCESSES", "ANALYSIS_FILE", "ProcessStreams", "ThreadNames"}


def test_the_search_for_leaks_finds_them() -> None:
    for leak in (b"x /home/me/y", b"mail a.b@example.org", b"host 10.0.0.7 z", b"PROCESS_0:ENVIRONMENT_VARIABLE_3"):
        assert LEAKS.search(leak) is not None


@BY_FILE
def test_kernels_and_their_sum_are_those_of_the_table(recording: dict[str, Any]) -> None:
    known = recording["known"]
    query = "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL"
    assert rows(recording, query) == [(known["kernels"], known["kernel_sum_ns"])]
    trace = document(FOLDER / recording["file"])["trace"]
    assert (trace["kernels"], trace["kernel_sum_ns"]) == (known["kernels"], known["kernel_sum_ns"])


@BY_FILE
def test_steps_have_the_known_times(recording: dict[str, Any]) -> None:
    known, seen = recording["known"], view(FOLDER / recording["file"], skip_steps=1)
    gaps = result("gaps", seen)
    assert len(seen.table) == known["steps"]
    assert {key: metric(gaps, key) for key in ("step_ns", "span_ns", "busy_ns", "bound")} == {
        key: known[key] for key in ("step_ns", "span_ns", "busy_ns", "bound")
    }


@BUNDLED
def test_a_step_of_a_bundled_workload(recording: dict[str, Any]) -> None:
    known, seen = recording["known"], view(FOLDER / recording["file"])
    kernels, phases, launches = (result(name, seen) for name in ("kernels", "phases", "launches"))
    assert metric(kernels, "kernels_per_step") == known["kernels_per_step"]
    assert metric(kernels, "launches_per_step") == known["launches_per_step"]
    assert column(phases, "phases", "phase", "kernels_per_step") == known["phase_kernels"]
    assert {row["attribution"] for row in phases.tables["phases"]} == {known["attribution"]}
    assert metric(launches, "failed_launches") == known["failed_launches"]
    # The graph recordings hold the capture of the graph itself: its launches ran nothing and are no failures.
    assert metric(launches, "launches_without_work") == known["launches_without_work"] == 0


@BUNDLED
def test_the_record_gives_floor_and_mbu_without_any_option(recording: dict[str, Any]) -> None:
    answer = result("mbu", view(FOLDER / recording["file"], skip_steps=1))
    if recording["workload"] == "guard":  # its kernels have no byte model
        assert answer.skipped is not None
        return
    assert metric(answer, "mbu_busy") == pytest.approx(recording["known"]["mbu_busy"], abs=1e-4)
    assert 0 < metric(answer, "mbu") <= 1.0001 * metric(answer, "mbu_busy") < 1.0


@BUNDLED
def test_a_recording_answers_for_all_options_of_its_workload(recording: dict[str, Any]) -> None:
    source = leaves("kernels")[recording["workload"]].path
    assert {f"--{name.replace('_', '-')}" for name in recording["options"]} == set(workload_defaults(source))


def test_failing_launches_are_found_where_they_fail() -> None:
    (recording,) = [r for r in RECORDINGS if r["file"] == "failed_launch_h200.sqlite"]
    known = recording["known"]
    for skipped in (0, 1, 5):
        answer = result("launches", view(FOLDER / recording["file"], skip_steps=skipped))
        assert metric(answer, "failed_launches") == known["failed_launches"]
        failed = answer.tables["failed"]
        assert {(row["phase"], row["error"]) for row in failed} == {(known["failed_phase"], known["failed_error"])}
        assert [row["step"] for row in failed] == [f"step {i}" for i in range(4, 12)]
    assert rows(recording, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE returnValue <> 0") == [(8,)]
