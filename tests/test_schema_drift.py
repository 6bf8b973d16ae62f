"""The same program in the schemas of nsys from 2019 to 2026.2: one analysis, wherever the columns exist."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import document, shifted
from called import called
from directory_export import tables_of, write_arrowdir, write_parquetdir
from drift_program import CAPTURE, ERAS, OLD_NODES, SYNC, program
from tiny_programs import eager
from tiny_schema import META
from tiny_trace import (
    GRAPH_LAUNCH,
    GRAPH_TRACE,
    KERNEL,
    MAIN,
    MEMCPY,
    NODES,
    NVTX,
    RUNTIME,
    STRINGS,
    Thread,
    TinyTrace,
)

from tracelab.load import load_trace

GROUPS = (None, "graph_step", "^step")


def analysis(path: Path) -> str:
    """All that is said of a trace but its version and the kind of its file, for each group of steps."""
    said = []
    for steps in GROUPS:
        found = document(path, steps=steps)
        del found["trace"]["producer"], found["trace"]["format"]
        said.append(found)
    return json.dumps(said, sort_keys=True)


def first(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)[0]
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    return analysis(program().save(tmp_path_factory.mktemp("drift")))


def test_the_program_has_something_of_everything(expected: str) -> None:
    """Else versions could agree by saying nothing: phases by graph node, aligned or not, a failure, copies."""
    graph, eager_steps = (json.loads(expected)[i]["results"] for i in (1, 2))
    phases = {r["phase"]: (r["busy_ns"], r["attribution"]) for r in graph["phases"]["tables"]["phases"]}
    # attention 10 … 110, gemm 120 … 220 and silu 220 … 320, as captured; the copy node 330 … 340 was not.
    assert phases["attn"] == (100, "graph-node")
    assert phases["mlp"] == (200, "graph-node")
    assert graph["kernels"]["metrics"]["launches_per_step"]["value"] == 1
    assert graph["kernels"]["metrics"]["copies_per_step"]["value"] == 1
    eager_phases = {r["phase"]: (r["busy_ns"], r["attribution"]) for r in eager_steps["phases"]["tables"]["phases"]}
    assert eager_phases["attn"] == (100, "nvtx")
    assert eager_steps["kernels"]["metrics"]["launches_per_step"]["value"] == 3
    assert eager_steps["kernels"]["metrics"]["copies_per_step"]["value"] == 2
    assert eager_steps["launches"]["metrics"]["failed_launches"]["value"] == 1
    assert first(expected)["trace"]["workload"]["bytes_per_step"] == 1000
    assert first(expected)["trace"]["gpus"][0]["sm_count"] == 132


@pytest.mark.parametrize("era", ERAS)
def test_each_version_says_the_same(era: str, tmp_path: Path, expected: str) -> None:
    assert analysis(ERAS[era](program()).save(tmp_path)) == expected


@pytest.mark.parametrize("era", ERAS)
def test_each_version_says_the_same_as_a_directory(era: str, tmp_path: Path, expected: str) -> None:
    tables = tables_of(ERAS[era](program()).save(tmp_path))
    assert analysis(write_parquetdir(tables, tmp_path / "parquet")) == expected
    assert analysis(write_arrowdir(tables, tmp_path / "arrow")) == expected


PRODUCERS = {"2019": None, "2021.2": None, "2022.1": "nsys 2022.1.1", "2025.3": "nsys 2025.3.2"}


@pytest.mark.parametrize("era", PRODUCERS)
def test_the_version_is_told_where_the_export_states_it(era: str, tmp_path: Path) -> None:
    assert load_trace(ERAS[era](program()).save(tmp_path)).producer == PRODUCERS[era]


@pytest.mark.parametrize("era", ["2025.3", "2026.1", "2026.2"])
def test_the_graph_mode_is_read_with_and_without_the_process(era: str, tmp_path: Path) -> None:
    assert load_trace(ERAS[era](program()).save(tmp_path)).graph_mode == "node"
    assert load_trace(ERAS[era](program()).sql(f"DELETE FROM {CAPTURE}").save(tmp_path)).graph_mode is None


@pytest.mark.parametrize("era", ["2022.1", "2026.1"])
def test_a_diff_of_two_versions_finds_no_change(era: str, tmp_path: Path) -> None:
    before = program().save(tmp_path / "a.sqlite")
    after = ERAS[era](program()).save(tmp_path / "b.sqlite")
    said = json.loads(called("diff", before, after, "--format", "json").out)
    assert {row["verdict"] for row in (*said["phases"], *said["kernels"])} == {"neutral"}
    assert {row["delta_ns"] for row in (*said["phases"], *said["kernels"])} == {0}


def test_control_a_column_that_matters_is_missed(tmp_path: Path, expected: str) -> None:
    assert analysis(program().without(f"{KERNEL}.graphNodeId").save(tmp_path)) != expected
    assert analysis(program().without(f"{RUNTIME}.returnValue").save(tmp_path)) != expected
    assert analysis(program().without(NODES).save(tmp_path)) != expected


# Single facts of the schema


def high(trace: TinyTrace) -> TinyTrace:
    """The rows of a process whose hardware id makes every 64-bit id negative in SQLite."""
    del trace
    return program(Thread(MAIN.pid, MAIN.tid, hw=0x81))


def all_registered(trace: TinyTrace) -> TinyTrace:
    trace.sql(f"INSERT INTO {STRINGS} SELECT 1000000 + rowid, text FROM {NVTX}")
    return trace.sql(f"UPDATE {NVTX} SET textId = 1000000 + rowid, text = NULL")


def only_ids(trace: TinyTrace) -> TinyTrace:
    return all_registered(trace).sql(f"ALTER TABLE {NVTX} DROP COLUMN text")


def only_text(trace: TinyTrace) -> TinyTrace:
    return trace.without(f"{NVTX}.textId")


def imported_text(trace: TinyTrace) -> TinyTrace:
    """Ranges as nvtxt imports write them."""
    return trace.sql(f"UPDATE {NVTX} SET eventType = eventType + 11 WHERE eventType IN (59, 60)")


def repeated_calls(trace: TinyTrace) -> TinyTrace:
    """Each call once more as class 67: without suffix, and returning 0 even where it failed."""
    return trace.sql(
        f"INSERT INTO {RUNTIME} (start, end, eventClass, globalTid, correlationId, nameId, returnValue)"
        f" SELECT start, end, 67, globalTid, correlationId, nameId, 0 FROM {RUNTIME}"
    )


def no_class(trace: TinyTrace) -> TinyTrace:
    return trace.without(f"{RUNTIME}.eventClass")


def no_stream(trace: TinyTrace) -> TinyTrace:
    return trace.sql(f"UPDATE {KERNEL} SET streamId = 4294967295 WHERE streamId = 8")


def waits_of_no_stream(trace: TinyTrace) -> TinyTrace:
    return trace.row(SYNC, start=100, end=900, deviceId=0, contextId=1, streamId=4294967295, correlationId=101,
                     globalPid=MAIN.global_pid, syncType=4, eventId=4294967295)  # fmt: skip


def priorities(trace: TinyTrace) -> TinyTrace:
    trace.sql("CREATE TABLE TARGET_INFO_CUDA_STREAM (streamId INTEGER, priority INTEGER, contextId INTEGER)")
    return trace.sql("INSERT INTO TARGET_INFO_CUDA_STREAM VALUES (7, 4294967291, 1), (8, 0, 1)")


def ordinals_as_wrapped(trace: TinyTrace) -> TinyTrace:
    """Correlation ids above 2^31, once signed and once unsigned."""
    trace.sql(f"UPDATE {RUNTIME} SET correlationId = correlationId - 1000")
    for table in (KERNEL, MEMCPY, "CUPTI_ACTIVITY_KIND_MEMSET"):
        trace.sql(f"UPDATE {table} SET correlationId = (correlationId - 1000) & 4294967295")
    return trace


_UNSIGNED = f"UPDATE {RUNTIME} SET correlationId = correlationId & 4294967295"
FACTS: dict[str, Callable[[TinyTrace], TinyTrace]] = {
    function.__name__: function
    for function in (high, all_registered, only_ids, only_text, imported_text, repeated_calls, no_class, no_stream,
                     waits_of_no_stream, priorities, ordinals_as_wrapped)
}  # fmt: skip


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_of_the_schema_changes_nothing(fact: str, tmp_path: Path, expected: str) -> None:
    assert analysis(FACTS[fact](program()).save(tmp_path)) == expected


@pytest.mark.parametrize("fact", ["high", "no_stream", "ordinals_as_wrapped", "all_registered"])
def test_a_fact_of_the_schema_changes_nothing_in_a_directory(fact: str, tmp_path: Path, expected: str) -> None:
    """Unsigned 64-bit ids above 2^63 there, 32-bit ones unsigned."""
    tables = tables_of(FACTS[fact](program()).sql(_UNSIGNED).save(tmp_path))
    assert analysis(write_parquetdir(tables, tmp_path / "parquet")) == expected


@pytest.mark.parametrize("by_ns", [-5_000_000_000, -1, 7, 1 << 40])
def test_times_may_lie_anywhere(by_ns: int, tmp_path: Path, expected: str) -> None:
    """With the whole collection moved, below zero too, nothing is dropped."""
    source = program().without("ANALYSIS_DETAILS").save(tmp_path)
    assert analysis(shifted(source, tmp_path / "moved.sqlite", by_ns)) == expected


def test_rows_without_a_time_are_counted_apart(tmp_path: Path, expected: str) -> None:
    """start = end = 0: out of sums and spans; the warning is the one difference."""
    said = analysis(program().kernel("untimed", 0, 0).copy(0, 0).save(tmp_path))
    for found, plain in zip(json.loads(said), json.loads(expected), strict=True):
        assert [w["code"] for w in found["trace"]["warnings"] if w not in plain["trace"]["warnings"]] == [
            "untimed-work"
        ]
        found["trace"]["warnings"] = plain["trace"]["warnings"]
        assert found == plain


def test_a_range_with_neither_text_nor_id_is_still_a_range(tmp_path: Path) -> None:
    trace = eager()
    for i in range(3):
        trace.range(None, i * 1000 + 195, i * 1000 + 220)  # around the launch of silu, inside mlp
    phases = document(trace.save(tmp_path))["results"]["phases"]["tables"]["phases"]
    assert {r["phase"]: r["kernels_per_step"] for r in phases} == {"attn": 1, "mlp": 1, "mlp/(unnamed)": 1}


def test_a_text_beats_an_id_that_has_none(tmp_path: Path) -> None:
    """Versions that write 0 for NULL: the id 0 is the empty string, or no string at all."""
    plain = document(eager().save(tmp_path))
    for strings in ("", f"INSERT INTO {STRINGS} VALUES (0, '')"):
        trace = eager().sql(f"UPDATE {NVTX} SET textId = 0")
        assert document((trace.sql(strings) if strings else trace).save(tmp_path)) == plain


# Graph mode


def whole_graphs() -> TinyTrace:
    """Four steps that replay a graph of 300 ns, traced as a whole."""
    trace = TinyTrace().graph_mode("Graph")
    for i in range(4):
        t = 1000 * i
        trace.range(f"step {i}", t, t + 20).launch(t, "embed", t + 10, t + 60)
        trace.call(t + 8, t + 13, GRAPH_LAUNCH).graph_trace(t + 70, t + 370)
    return trace.launch(5000, "end", 5010, 5020)


@pytest.mark.parametrize("version", ["2022.4.2.1", "2023.4.4.54"])
def test_graph_mode_of_old_versions_exports_nothing_of_a_graph(version: str, tmp_path: Path) -> None:
    """No row of any kind for the replays: GPU time is incomplete, and no idle time is told."""
    trace = whole_graphs().without(GRAPH_TRACE).sql(f"UPDATE {META} SET value = '{version}'")
    said = document(trace.save(tmp_path))
    assert "gpu-time-incomplete" in {w["code"] for w in said["trace"]["warnings"]}
    assert said["results"]["gaps"]["skipped"] and said["results"]["waterfall"]["skipped"]
    page = called("report", tmp_path / "tiny.sqlite").out
    assert "GPU time is incomplete: 4 CUDA graph replays left no GPU rows" in page


def test_graph_mode_of_old_versions_without_other_kernels_names_the_version(tmp_path: Path) -> None:
    trace = TinyTrace().graph_mode("Graph").call(0, 5, GRAPH_LAUNCH).call(10, 15, GRAPH_LAUNCH)
    answer = called("report", trace.sql(f"UPDATE {META} SET value = '2022.4.2.1'").save(tmp_path))
    assert answer.code == 1
    assert "2 CUDA graphs were launched, and nsys 2022.4.2 in graph mode exports nothing of them" in answer.err


def test_graph_mode_since_2024_has_a_row_for_each_replay(tmp_path: Path) -> None:
    said = document(whole_graphs().save(tmp_path))
    assert said["results"]["gaps"]["metrics"]["busy_ns"]["value"] == 350  # 50 + 300
    assert "gpu-time-incomplete" not in {w["code"] for w in said["trace"]["warnings"]}


def test_graph_level_rows_are_no_node_events(tmp_path: Path) -> None:
    """The name that node events had until 2023.4 now holds whole graphs: none of them is a node."""
    new = load_trace(ERAS["2024.1"](program()).save(tmp_path)).graph_nodes
    old = load_trace(ERAS["2023.4"](program()).save(tmp_path)).graph_nodes
    assert new.node.tolist() == old.node.tolist() == [graph << 32 | k for graph in (1, 2) for k in range(3)]
    assert OLD_NODES != NODES


# GPUs


def quadro(**facts: Any) -> TinyTrace:
    """A GPU that no table of datasheets knows."""
    trace = TinyTrace(gpu=None).row("TARGET_INFO_CUDA_GPU", **facts)
    for i in range(2):
        trace.range(f"step {i}", i * 1000, i * 1000 + 90).launch(i * 1000, "k", i * 1000 + 10, i * 1000 + 60)
    return trace


def test_bandwidth_of_2021_is_in_kilobytes(tmp_path: Path) -> None:
    """672 048 000 kB/s: 672.05 GB/s."""
    path = quadro(id=0, name="Quadro RTX 9999", numMultiprocessors=72, globalMemoryBandwidth=672_048_000,
                  computeCapabilityMajor=7, computeCapabilityMinor=5).save(tmp_path)  # fmt: skip
    (gpu,) = document(path)["trace"]["gpus"]
    assert (gpu["sm_count"], gpu["memory_bandwidth_bytes_per_s"]) == (72, 672_048_000_000)
    assert "672" in called("report", path).out.splitlines()[0]
