"""Files of the PyTorch profiler on the command line: real ones of an H200, compressed ones, ones by any name."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from called import called
from kineto_fixture import program

# torch 2.11 on an H200 (tests/gpu/kineto_loop.py): 8 steps of 48 kernels in both; sums as in the files' own durations.
CAPTURES = Path(__file__).parent / "captures"
EAGER, GRAPH = CAPTURES / "kineto_eager.json.gz", CAPTURES / "kineto_graph.json.gz"


def _document(*words: object, code: int = 0) -> dict[str, Any]:
    answer = called(*words, "--format", "json")
    assert answer.code == code, answer.err
    document: dict[str, Any] = json.loads(answer.out)
    return document


@pytest.mark.parametrize(("path", "sum_ns", "launches"), [(EAGER, 1_780_629, 48), (GRAPH, 1_810_992, 1)])
def test_real_traces_have_the_numbers_of_their_own_events(path: Path, sum_ns: int, launches: int) -> None:
    document = _document("report", path)
    trace, kernels = document["trace"], document["results"]["kernels"]["metrics"]
    assert (trace["format"], trace["kernels"], trace["kernel_sum_ns"]) == ("kineto", 384, sum_ns)
    assert (document["steps"]["pattern"], document["steps"]["found"]) == ("ProfilerStep#", 8)
    assert (kernels["kernels_per_step"]["value"], kernels["launches_per_step"]["value"]) == (48, launches)
    assert document["results"]["launches"]["skipped"] is not None


def test_annotations_are_the_phases_of_the_eager_trace() -> None:
    """28 kernels of attention and 20 of the feed-forward block in each step: 7 and 5 in each of 4 layers."""
    rows = _document("phases", EAGER)["results"]["phases"]["tables"]["phases"]
    assert {row["phase"]: row["kernels_per_step"] for row in rows} == {"attn": 28, "mlp": 20}


def test_eager_and_graph_compare_by_kernel_names() -> None:
    assert _document("diff", EAGER, GRAPH, code=4)["reasons"][0]["code"] == "other-kernels"
    document = _document("diff", EAGER, GRAPH, "--phases", "kernels")
    assert document["comparable"]
    assert document["step"]["verdict"] == "inconclusive"  # one capture of a host-bound program
    assert "regression" not in {row["verdict"] for row in document["phases"]}
    assert any("Launches 48 → 1 a step" in finding["title"] for finding in document["findings"])


def test_what_is_in_the_file_decides(tmp_path: Path) -> None:
    plain = program().save(tmp_path / "trace.json")
    said = _document("report", plain)
    content = plain.read_bytes()
    for name, data in (("a.json.gz", gzip.compress(content)), ("b", content), ("c.sqlite.xz", lzma.compress(content))):
        path = tmp_path / name
        path.write_bytes(data)
        document = _document("report", path)
        assert document["trace"].pop("path") == str(path)
        assert document == {**said, "trace": {k: v for k, v in said["trace"].items() if k != "path"}}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json.gz", "b", "c.sqlite.xz", "trace.json"]


def test_the_page_speaks_of_the_profiler_it_was() -> None:
    answer = called("report", EAGER)
    assert "PyTorch profiler" in answer.out
    assert "steps/s under the profiler" in answer.out
    assert "nsys" not in answer.out
