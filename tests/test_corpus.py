"""Real exports against the numbers their manifest states; skipped where the folder is absent (TRACELAB_CORPUS)."""

from pathlib import Path

import numpy as np
import pytest
from asking import ask, assert_plausible, assert_sound, document, shifted, shuffled, view
from corpus import CORPUS, IN_CORPUS, KERNELS

from tracelab.analysis import view_of
from tracelab.errors import InputError, TracelabError
from tracelab.inclusive import NO_RANGE, range_totals
from tracelab.load import load_trace
from tracelab.trace import GRAPH, MEMCPY, MEMSET, Trace

pytestmark = IN_CORPUS

SQLITE = [name.removesuffix(".sqlite") for name in KERNELS if name.endswith(".sqlite")]
H200_FILES = ("h200_eager_and_graph", "h200_failed_launches", "h200_autograd_threads")


def corpus_file(name: str) -> Path:
    return CORPUS / f"{name}.sqlite"


def kind_rows(trace: Trace, kind: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.flatnonzero(trace.ops.kind == kind)


def test_copies_and_memsets() -> None:
    def total(name: str, kind: int) -> tuple[int, int]:
        trace = load_trace(corpus_file(name))
        rows = kind_rows(trace, kind)
        return len(rows), int(trace.ops.duration_ns[rows].sum())

    assert total("rtx4060ti_llama_steps", MEMSET) == (512, 164416)
    assert total("rtx6000_oldest_schema", MEMCPY) == (48, 87995)
    assert total("rtx6000_oldest_schema", MEMSET) == (12, 47965)
    assert total("a100_saxpy_mpi", MEMCPY) == (15, 284699600)


# (range, kernels, summed ns) of the official nvtx_kern_sum; «None» is the whole column of ranges added up, no range too
INCLUSIVE: dict[str, list[tuple[str | None, int, int]]] = {
    "h200_eager_and_graph": [("mlp", 320, 1594254), ("attn", 160, 1358390)],
    "h200_failed_launches": [("norm", 12, 34240), ("mlp", 12, 33824)],
    "h200_autograd_threads": [("fwd", 112, 1734550), ("opt", 64, 1439866), (NO_RANGE, 248, 2038386)],
    "t4_power_iteration": [
        ("Loop", 3677, 1129090520), ("Step 30 to 40", 85, 26566279), (NO_RANGE, 7, 2640324), (None, 0, 3392915217)
    ],
    "rtx4060ti_llama_steps": [
        ("layer_processing_simulation", 1536, 18597775), ("layer_3_computation", 192, 2326223), (None, 0, 74391100)
    ],
    "v100_null_names": [("FusionExecutor::runFusion", 1000, 1418453), (NO_RANGE, 2, 7199), (None, 0, 11353095)],
    "a100_saxpy_mpi": [("saxpy", 5, 88573480)],  # the official report says twice that, from duplicate API rows
}  # fmt: skip


@pytest.mark.parametrize("name", INCLUSIVE)
def test_inclusive_ranges(name: str) -> None:
    totals = {row["range"]: (row["kernels"], row["sum_ns"]) for row in range_totals(load_trace(corpus_file(name)))}
    for label, kernels, sum_ns in INCLUSIVE[name]:
        found = totals[label] if label is not None else (0, sum(ns for _, ns in totals.values()))
        assert found == (kernels, sum_ns), label


def test_train_steps_by_the_launching_thread() -> None:
    totals = {row["range"]: row for row in range_totals(load_trace(corpus_file("h200_autograd_threads")))}
    steps = [row for label, row in totals.items() if label.startswith("train_step_")]
    assert [row["kernels"] for row in steps] == [23] * 8
    assert sum(row["sum_ns"] for row in steps) == 3180688


ONE_SENTENCE = {
    "a5000_no_kernels.sqlite": "no kernels",
    "a100_julia_nvtx_only.sqlite": "No CUDA events collected",
    "half_written_export.sqlite": "incomplete export",
}


@pytest.mark.parametrize("name", ONE_SENTENCE)
def test_what_cannot_be_analysed_is_one_sentence(name: str) -> None:
    with pytest.raises(InputError, match=ONE_SENTENCE[name]) as caught:
        ask(CORPUS / name)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith((".", ")."))
    assert caught.value.exit_code == 1


def test_every_entry_of_the_corpus_is_answered_or_refused_in_one_sentence() -> None:
    refused = set()
    for path in sorted(CORPUS.iterdir()):
        try:
            assert_plausible(document(path))
        except TracelabError:
            refused.add(path.name)
    assert refused == set(ONE_SENTENCE) | {"MANIFEST.md"}


@pytest.mark.parametrize("name", SQLITE)
def test_sums_are_exact(name: str) -> None:
    path = corpus_file(name)
    analysis = ask(path, skip_steps=1)
    said = document(path, skip_steps=1)
    main = next(c for c, gpu in enumerate(analysis.trace.devices) if gpu.id == said["device"])
    assert_sound(view_of(analysis, main), said)


@pytest.mark.parametrize("name", H200_FILES)
def test_row_order_and_origin_say_nothing(name: str, tmp_path: Path) -> None:
    path = corpus_file(name)
    said = document(path, skip_steps=1)
    assert document(shuffled(path, tmp_path / "mixed.sqlite", 1), skip_steps=1) == said
    for number, by_ns in enumerate((-9_000_000_000, 123_456_789)):
        assert document(shifted(path, tmp_path / f"moved{number}.sqlite", by_ns), skip_steps=1) == said


def test_no_graph_is_traced_as_a_whole_in_node_mode() -> None:
    trace = load_trace(corpus_file("h200_eager_and_graph"))
    assert trace.graph_mode == "node"
    assert len(kind_rows(trace, GRAPH)) == 0
    assert int((trace.ops.graph_node >= 0).sum()) == 480


GPUS = {
    "h200_eager_and_graph": ("H200", 132),
    "t4_power_iteration": ("T4", 40),
    "rtx4060ti_llama_steps": ("4060 Ti", 34),
    "gtx1060_con_kernel": ("GTX 1060", 10),  # beside two adapters without SMs
    "rtx6000_oldest_schema": ("Quadro RTX 6000", 72),
    "a100_saxpy_mpi": ("A100-SXM4-40GB", 108),
}


@pytest.mark.parametrize("name", GPUS)
def test_gpus_are_named(name: str) -> None:
    (gpu,) = load_trace(corpus_file(name)).devices
    label, sm_count = GPUS[name]
    assert label in gpu.name
    assert gpu.sm_count == sm_count


def test_untouched_input(tmp_path: Path) -> None:
    copy = tmp_path / "trace.sqlite"
    copy.write_bytes(corpus_file("h200_failed_launches").read_bytes())
    view(copy)
    assert copy.read_bytes() == corpus_file("h200_failed_launches").read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["trace.sqlite"]
