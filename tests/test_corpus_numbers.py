"""Every number that the corpus' manifest states, from the commands that a user would call.

Skipped where the folder is absent (TRACELAB_CORPUS). All times are ns.
"""

import gzip
import json
import lzma
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from called import called
from corpus import CORPUS, IN_CORPUS, KERNELS

from tracelab.inclusive import NO_RANGE
from tracelab.intervals import new_coverage, union
from tracelab.load import load_trace
from tracelab.trace import KERNEL, PUSH_POP, START_END, Trace

pytestmark = IN_CORPUS

# push/pop ranges, start/end ranges; and the version and GPU, as the manifest names them
MARKS = {
    "h200_eager_and_graph.sqlite": (100, 0), "h200_failed_launches.sqlite": (24, 0),
    "h200_autograd_threads.sqlite": (24, 8), "t4_power_iteration.sqlite": (786, 0),
    "rtx4060ti_llama_steps.sqlite": (1601, 0), "v100_null_names.sqlite": (21462, 0),
    "gtx1060_con_kernel.sqlite": (0, 0), "rtx6000_oldest_schema.sqlite": (0, 0), "a100_saxpy_mpi.sqlite": (22, 0),
    "a5000_no_kernels.sqlite": (0, 0), "a100_julia_nvtx_only.sqlite": (0, 0), "rtx3090_trt.parquetdir": (59, 0),
    "rtx3090_trt.arrowdir": (59, 0),
}  # fmt: skip
MACHINES = {
    "h200_eager_and_graph.sqlite": ("nsys 2025.3.2", "H200", 132),
    "h200_failed_launches.sqlite": ("nsys 2025.3.2", "H200", 132),
    "h200_autograd_threads.sqlite": ("nsys 2025.3.2", "H200", 132),
    "t4_power_iteration.sqlite": ("nsys 2025.3.1", "Tesla T4", 40),
    "rtx4060ti_llama_steps.sqlite": ("nsys 2024.6.2", "RTX 4060 Ti", 34),
    "v100_null_names.sqlite": ("nsys 2023.4.4", "V100", 80),
    "gtx1060_con_kernel.sqlite": ("nsys 2022.1.1", "GTX 1060", 10),
    "rtx6000_oldest_schema.sqlite": (None, "Quadro RTX 6000", 72),
    "a100_saxpy_mpi.sqlite": ("nsys 2022.2.1", "A100-SXM4-40GB", 108),
    "rtx3090_trt.parquetdir": ("nsys 2023.4.4", "RTX 3090", 82),
    "rtx3090_trt.arrowdir": ("nsys 2023.4.4", "RTX 3090", 82),
}
# official nvtx_kern_sum: range, kernels, sum; None is the sum of all its rows
_TRT: list[tuple[str | None, int, int]] = [
    ("TensorRT:ExecutionContext::execute", 36, 6415244), ("TensorRT:/conv1/Conv + /relu/Relu", 1, 854662),
    (None, 0, 12830488),
]  # fmt: skip
OFFICIAL: dict[str, list[tuple[str | None, int, int]]] = {
    "h200_eager_and_graph.sqlite": [("mlp", 320, 1594254), ("attn", 160, 1358390)],
    "h200_failed_launches.sqlite": [("norm", 12, 34240), ("mlp", 12, 33824)],
    "h200_autograd_threads.sqlite": [("fwd", 112, 1734550), ("opt", 64, 1439866), (NO_RANGE, 248, 2038386)],
    "t4_power_iteration.sqlite": [
        ("Loop", 3677, 1129090520), ("Step 30 to 40", 85, 26566279), (NO_RANGE, 7, 2640324),
        (None, 0, 3392915217),
    ],
    "rtx4060ti_llama_steps.sqlite": [
        ("layer_processing_simulation", 1536, 18597775), ("layer_3_computation", 192, 2326223), (None, 0, 74391100),
    ],
    "v100_null_names.sqlite": [
        ("FusionExecutor::runFusion", 1000, 1418453), (NO_RANGE, 2, 7199), (None, 0, 11353095),
    ],
    "a100_saxpy_mpi.sqlite": [("saxpy", 5, 88573480)],  # official: twice that, from duplicate API rows
    "rtx3090_trt.parquetdir": _TRT, "rtx3090_trt.arrowdir": _TRT,
}  # fmt: skip
WITHOUT = {
    "a5000_no_kernels.sqlite": "the trace holds no kernels: the program called CUDA but launched no kernel",
    "a100_julia_nvtx_only.sqlite": "the trace holds no kernels: nsys saw no CUDA activity in the program",
    "half_written_export.sqlite": "an incomplete export: the exporter stopped before it wrote any event table",
}


@cache
def loaded(name: str) -> Trace:
    return load_trace(CORPUS / name)


def told(command: str, path: Path, *words: object) -> dict[str, Any]:
    answer = called(command, path, "--format", "json", *words)
    assert (answer.code, answer.err) == (0, "")
    document: dict[str, Any] = json.loads(answer.out)
    return document


def alike(path: Path) -> str:
    """The whole report without its path."""
    document = told("report", path)
    del document["trace"]["path"]
    return json.dumps(document)


def test_the_tables_here_name_every_file_of_the_corpus() -> None:
    assert {path.name for path in CORPUS.iterdir()} == {*KERNELS, *WITHOUT, "MANIFEST.md"}
    stated = (CORPUS / "MANIFEST.md").read_text(encoding="utf-8")
    for name, (_, total, busy, span, _) in KERNELS.items():
        if name != "rtx3090_trt.arrowdir":  # «the same numbers»
            (line,) = [row for row in stated.splitlines() if row.startswith(f"| {name.removesuffix('/')}")]
            assert all(str(number) in line for number in (total, busy, span))


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_numbers(name: str) -> None:
    trace = loaded(name)
    rows = np.flatnonzero(trace.ops.kind == KERNEL)
    start, end = trace.ops.start[rows], trace.ops.end[rows]
    blocks = union(start, end)
    joined = int((trace.ops.call[rows] >= 0).sum())
    found = (len(rows), (end - start).sum(), (blocks.end - blocks.start).sum(), end.max() - start.min(), joined)
    assert found == KERNELS[name]


@pytest.mark.parametrize("name", KERNELS)
def test_the_report_states_kernels_version_and_gpu(name: str) -> None:
    trace = told("report", CORPUS / name)["trace"]
    producer, gpu, sm_count = MACHINES[name]
    assert (trace["kernels"], trace["kernel_sum_ns"]) == KERNELS[name][:2]
    assert trace["producer"] == producer
    (only,) = trace["gpus"]
    assert (gpu in only["name"], only["sm_count"]) == (True, sm_count)


@pytest.mark.parametrize("name", MARKS)
def test_ranges(name: str) -> None:
    kinds = loaded(name).ranges.kind
    assert (int((kinds == PUSH_POP).sum()), int((kinds == START_END).sum())) == MARKS[name]


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_sums_by_the_command(name: str) -> None:
    answer = told("phases", CORPUS / name, "--inclusive")
    rows = answer["results"]["phases"]["tables"]["ranges"]
    totals = {row["range"]: (row["kernels"], row["sum_ns"]) for row in rows}
    for label, kernels, sum_ns in OFFICIAL[name]:
        if label is not None:
            assert totals[label] == (kernels, sum_ns), label
        else:
            assert sum(ns for _, ns in totals.values()) == sum_ns


@pytest.mark.parametrize("name", KERNELS)
def test_against_itself_nothing_changed(name: str) -> None:
    said = told("diff", CORPUS / name, CORPUS / name)
    assert (said["comparable"], said["verdict"]) == (True, "neutral")
    rows = [*said["phases"], *said["kernels"]]
    assert rows and {(row["delta_ns"], row["verdict"]) for row in rows} == {(0, "neutral")}


@pytest.mark.parametrize("name", KERNELS)
def test_the_doctor_answers(name: str) -> None:
    said = told("doctor", CORPUS / name)
    assert said["steps"]["used"] >= 1
    assert called("doctor", CORPUS / name).out.startswith("This trace can be trusted")


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
}


@pytest.mark.parametrize("name", [name for name in KERNELS if name.endswith(".sqlite")])
def test_compressed_copies_say_the_same(name: str, tmp_path: Path) -> None:
    said = alike(CORPUS / name)
    for ending, pack in PACKERS.items():
        copy = tmp_path / f"trace.sqlite.{ending}"
        copy.write_bytes(pack((CORPUS / name).read_bytes()))
        assert alike(copy) == said


def test_both_directory_exports_say_the_same() -> None:
    both = [told("report", CORPUS / f"rtx3090_trt.{kind}") for kind in ("parquetdir", "arrowdir")]
    assert [document["trace"].pop("format") for document in both] == ["nsys-parquetdir", "nsys-arrowdir"]
    for document in both:
        del document["trace"]["path"]
    assert both[0] == both[1]
    assert called("diff", *(CORPUS / f"rtx3090_trt.{kind}" for kind in ("parquetdir", "arrowdir"))).code == 0


@pytest.mark.parametrize("name", WITHOUT)
def test_without_kernels_there_is_one_sentence_and_no_number(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "packed.gz"
    copy.write_bytes(gzip.compress((CORPUS / name).read_bytes(), 1))
    for path in (CORPUS / name, copy):
        for command in ("report", "kernels", "gaps"):
            answer = called(command, path)
            assert (answer.code, answer.out, len(answer.err.splitlines())) == (1, "", 1)
            assert WITHOUT[name] in answer.err
    code = 1 if name.startswith("half") else 4
    assert called("diff", CORPUS / name, CORPUS / name).code == code


# What is special about single files


def test_the_messages_of_a_run_without_kernels_are_counted() -> None:
    trace = loaded("a5000_no_kernels.sqlite")
    assert (len(trace.calls), len(trace.diagnostics), trace.graph_mode) == (2, 235, "graph")
    for text in (
        "No CUDA events collected. Does the process use CUDA?",
        "CUDA profiling might have not been started correctly.",
    ):
        assert sum(diagnostic.text.strip() == text for diagnostic in trace.diagnostics) == 27
        assert f"“{text}” ×27" in called("doctor", CORPUS / "a5000_no_kernels.sqlite").out


def test_490_launch_calls_and_10_graph_launches() -> None:
    trace = loaded("h200_eager_and_graph.sqlite")
    assert len(np.unique(trace.ops.call)) == 490
    graph = np.flatnonzero(trace.ops.graph_node >= 0)
    assert (len(graph), len(np.unique(trace.ops.call[graph]))) == (480, 10)


@pytest.mark.parametrize(
    ("name", "times", "overlap_ns"),
    [("h200_eager_and_graph.sqlite", 220, 23167), ("gtx1060_con_kernel.sqlite", 2, 971512)],
)
def test_kernels_overlap_on_their_own_stream(name: str, times: int, overlap_ns: int) -> None:
    ops = loaded(name).ops
    rows = np.flatnonzero(ops.kind == KERNEL)
    rows = rows[np.lexsort((ops.end[rows], ops.start[rows], ops.stream[rows]))]
    stream = np.unique(ops.stream[rows], return_inverse=True)[1].astype(np.int64)
    overlap = ops.duration_ns[rows] - new_coverage(stream, ops.start[rows], ops.end[rows])
    assert (int((overlap > 0).sum()), int(overlap.sum())) == (times, overlap_ns)


def test_two_kernels_of_the_windows_capture_have_no_launch() -> None:
    trace = loaded("gtx1060_con_kernel.sqlite")
    lone = (trace.ops.kind == KERNEL) & (trace.ops.call < 0)
    assert trace.ops.correlation[lone].tolist() == [1124, 1135]
    kernels = trace.ops.kind == KERNEL
    intervals = list(zip(trace.ops.start[kernels].tolist(), trace.ops.end[kernels].tolist(), strict=True))
    assert len(intervals) - len(set(intervals)) == 1
    assert len(np.unique(trace.ops.stream[kernels])) >= 5
    rows = told("launches", CORPUS / "gtx1060_con_kernel.sqlite")["results"]["launches"]
    assert rows["metrics"]["failed_launches"]["value"] == 0
    assert int((trace.calls.return_value != 0).sum()) == 1
