"""What the corpus' manifest says is special about single files; skipped where the folder is absent."""

import json
from typing import Any

import numpy as np
import pytest
from asking import ask, document
from called import called
from corpus import CORPUS, IN_CORPUS

from tracelab.load import load_trace
from tracelab.trace import KERNEL

pytestmark = IN_CORPUS


def ranges_of(name: str) -> list[dict[str, Any]]:
    answer = called("phases", CORPUS / name, "--inclusive", "--format", "json")
    rows: list[dict[str, Any]] = json.loads(answer.out)["results"]["phases"]["tables"]["ranges"]
    return rows


def test_failed_launches_stand_in_their_phase() -> None:
    """12 of 42 launch calls failed inside attn_bad, two in each of 6 steps; 5 kernels a step where 7 calls were."""
    said = document(CORPUS / "h200_failed_launches.sqlite")
    launches = said["results"]["launches"]
    assert launches["metrics"]["failed_launches"]["value"] == 12
    failed = {r["step"]: (r["phase"], r["count"], r["code"]) for r in launches["tables"]["failed"]}
    assert failed == {f"step {i}": ("attn_bad", 2, 1) for i in range(6)}
    phases = {r["phase"]: r["kernels_per_step"] for r in said["results"]["phases"]["tables"]["phases"]}
    assert phases == {"norm": 2, "attn_bad": 1, "mlp": 2}
    assert said["findings"][0]["code"] == "failed-launch"


def test_a_train_step_by_its_thread_and_by_its_time() -> None:
    """By the launching thread 184 kernels (3180688) in 8 steps of 23, 248 (2038386) in none; by time 54 in each."""
    rows = {r["range"]: r for r in ranges_of("h200_autograd_threads.sqlite")}
    steps = [r for name, r in rows.items() if name.startswith("train_step_")]
    assert ([r["kernels"] for r in steps], sum(r["sum_ns"] for r in steps)) == ([23] * 8, 3180688)
    assert (rows["(no range)"]["kernels"], rows["(no range)"]["sum_ns"]) == (248, 2038386)
    said = document(CORPUS / "h200_autograd_threads.sqlite")
    assert [s["kernels"] for s in said["steps"]["per_step"]] == [54] * 8


def test_rows_from_before_time_0_are_kept() -> None:
    """The row that names the domain CCCL is the first of NVTX, at -1957198520; graph nodes are from -143.45 ms on."""
    trace = load_trace(CORPUS / "t4_power_iteration.sqlite")
    assert set(trace.domains) == {"", "CCCL"}
    assert int((trace.ranges.domain == trace.domains.index("CCCL")).sum()) == 565  # 566 rows with that one
    assert trace.graph_mode == "graph"
    nodes = load_trace(CORPUS / "h200_eager_and_graph.sqlite").graph_nodes
    assert len(nodes) == 160
    assert round(int(nodes.start.min()) / 1e6, 2) == -143.45


def test_the_llama_like_loop() -> None:
    """Eight layers of 64 tokens, four levels deep, 97 % of the span idle, nine side processes without CUDA."""
    path = CORPUS / "rtx4060ti_llama_steps.sqlite"
    rows = {r["range"]: r for r in ranges_of(path.name)}
    layers = [r for name, r in rows.items() if name.startswith("layer_") and name.endswith("_computation")]
    assert sorted(r["ranges"] for r in layers) == [64] * 8
    trace = load_trace(path)
    kernels = trace.ops.kind == KERNEL
    span = int(trace.ops.end[kernels].max() - trace.ops.start[kernels].min())
    assert round(100 * (1 - int(trace.ops.duration_ns[kernels].sum()) / span)) == 97
    said = document(path)
    assert said["results"]["gaps"]["metrics"]["gap_share"]["value"] == pytest.approx(0.97, abs=0.01)
    assert said["results"]["gaps"]["metrics"]["bound"]["value"] == "host"
    assert "process-without-work" not in {w["code"] for w in said["trace"]["warnings"]}


def test_ranges_without_a_name() -> None:
    trace = load_trace(CORPUS / "v100_null_names.sqlite")
    empty = [code for code, name in enumerate(trace.names) if name == ""]
    assert int(np.isin(trace.ranges.name, empty).sum()) == 1998
    assert any(name.endswith("nvFusion0(a, b)") for name in trace.names)


@pytest.mark.parametrize(("name", "ids"), [("v100_null_names.sqlite", range(8)), ("rtx3090_trt.parquetdir", range(4))])
def test_the_order_of_the_gpu_table_does_not_matter(name: str, ids: range) -> None:
    """All work is of ordinal 0, whose row is not the first of the table."""
    trace = load_trace(CORPUS / name)
    (gpu,) = trace.devices
    assert gpu.id in ids
    (told,) = ask(CORPUS / name).trace.devices
    assert told.id == 0


def test_the_oldest_schema_has_its_kernels_by_name() -> None:
    said = document(CORPUS / "rtx6000_oldest_schema.sqlite")
    trace = load_trace(CORPUS / "rtx6000_oldest_schema.sqlite")
    code = next(i for i, name in enumerate(trace.names) if "probe_group_by_GPU2" in name)
    rows = trace.ops.name == code
    assert (int(rows.sum()), int(trace.ops.duration_ns[rows].sum())) == (3, 8419851)
    assert said["trace"]["gpus"][0]["memory_bandwidth_bytes_per_s"] == pytest.approx(672e9, rel=0.01)
    assert said["trace"]["producer"] is None


def test_an_api_call_in_two_rows_counts_once() -> None:
    """5 kernels, where a plain join gives 10: the rows of class 67 are dropped, each call has its kernel once."""
    trace = load_trace(CORPUS / "a100_saxpy_mpi.sqlite")
    kernels = trace.ops.kind == KERNEL
    assert sorted(np.bincount(trace.ops.call[kernels]).tolist())[-1] == 1
    assert trace.events is not None
    assert trace.events.dropped_calls > 0
    assert {r["range"]: (r["kernels"], r["sum_ns"]) for r in ranges_of("a100_saxpy_mpi.sqlite")}["saxpy"] == (
        5, 88573480
    )  # fmt: skip
    assert "MPI" in trace.domains


def test_nvtx_without_one_range() -> None:
    trace = load_trace(CORPUS / "a100_julia_nvtx_only.sqlite")
    assert (len(trace.ranges), len(trace.ops), trace.producer) == (0, 0, "nsys 2026.2.1")
    assert trace.events is not None
    assert trace.events.marks == 1


def test_the_bandwidth_that_each_file_states() -> None:
    stated = {
        "t4_power_iteration.sqlite": 320e9, "rtx4060ti_llama_steps.sqlite": 288e9, "a100_saxpy_mpi.sqlite": 1555e9,
    }  # fmt: skip
    for name, bandwidth in stated.items():
        (gpu,) = load_trace(CORPUS / name).devices
        assert gpu.bandwidth_bytes_per_s == pytest.approx(bandwidth, rel=0.01)
