"""The analyzer `communication`: what of it is exposed, by collective and phase."""

from pathlib import Path

import numpy as np
import pytest
from asking import column, metric, result, row, view
from called import called
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_programs import ALL_GATHER, ALL_REDUCE, STEP_NS, one_rank, two_ranks
from tiny_trace import GRAPH_LAUNCH, Thread, TinyTrace

from tracelab.result import Result
from tracelab.view import View


def asked(trace: TinyTrace, folder: Path) -> Result:
    return result("communication", view(trace.save(folder)))


def split(answer: Result) -> list[float]:
    """Communication, exposed and hidden time, in ns."""
    return [metric(answer, f"{what}_ns") for what in ("communication", "exposed", "hidden")]


def test_worked_numbers(tmp_path: Path) -> None:
    answer = asked(one_rank(), tmp_path)
    assert split(answer) == [600, 500, 100]
    assert metric(answer, "exposed_share") == 0.25
    assert np.asarray(answer.metrics["exposed_ns"].samples).tolist() == [500] * 3
    assert np.asarray(answer.metrics["exposed_share"].samples).tolist() == [0.25] * 2  # the last step has no period
    assert answer.tables["collectives"] == [
        {"collective": "AllReduce", "calls_per_step": 1, "sum_ns": 600, "exposed_ns": 500, "bytes_per_step": None}
    ]
    assert answer.tables["phases"] == [{"phase": "comm", "communication_ns": 600, "exposed_ns": 500}]
    assert "arrivals" not in answer.tables  # one device has nobody to wait for


def test_exposed_communication_is_a_finding_with_its_upper_bound(tmp_path: Path) -> None:
    (finding,) = asked(one_rank(), tmp_path).findings
    assert finding.title == "Exposed communication: 0.5 µs of 2.0 µs a step (25.0 %)."
    assert finding.evidence.startswith("Overlap it with compute")
    assert finding.saving_ns == 500


@pytest.mark.parametrize(
    ("gemm_ends", "expected", "findings"),
    [
        (1000, [600, 0, 600], 0),  # the gemm covers all of it
        (901, [600, 99, 501], 0),  # 4.95 % of the step
        (900, [600, 100, 500], 1),  # 5 %
        (400, [600, 600, 0], 1),  # nothing covers any of it: touching is no overlap
    ],
)
def test_control_hidden_and_exposed_as_wholes(
    tmp_path: Path, gemm_ends: int, expected: list[int], findings: int
) -> None:
    answer = asked(one_rank(gemm_ends=gemm_ends), tmp_path)
    assert split(answer) == expected
    assert len(answer.findings) == findings


def test_two_collectives_at_once_count_once(tmp_path: Path) -> None:
    """A gather T+900 … T+1100 overlaps the reduce by 100, and `lm_head` from T+1000: the union is 700, of which
    500 + 0 are exposed; 100 + 100 hidden. The plain sum is 800."""
    trace = one_rank()
    for i in range(3):
        t = i * STEP_NS
        trace.launch(t + 130, ALL_GATHER, t + 900, t + 1100, stream=21)
    answer = asked(trace, tmp_path)
    assert split(answer) == [700, 500, 200]
    rows = column(answer, "collectives", "collective", "sum_ns")
    assert rows == {"AllReduce": 600, "AllGather": 200}
    assert column(answer, "collectives", "collective", "exposed_ns") == {"AllReduce": 500, "AllGather": 0}
    assert sum(rows.values()) != metric(answer, "communication_ns")


def test_copies_between_gpus_are_communication_with_known_bytes(tmp_path: Path) -> None:
    """A peer copy T+1300 … T+1400 is exposed; a copy to the host T+1350 … T+1400 hides half of it."""
    trace = TinyTrace()
    for i in range(3):
        t = i * STEP_NS
        trace.range(f"step {i}", t, t + 400).launch(t + 20, "gemm", t + 100, t + 500)
        trace.call(t + 30, t + 35, "cudaMemcpyPeerAsync_v4000").copy(t + 1300, t + 1400, kind=10, size=4096)
        trace.call(t + 40, t + 45, "cudaMemcpyAsync_v3020").copy(t + 1350, t + 1400, kind=2, stream=9)
    answer = asked(trace, tmp_path)
    assert split(answer) == [100, 50, 50]
    assert row(answer, "collectives", collective="peer copy")["bytes_per_step"] == 4096


def test_work_of_another_step_hides_nothing(tmp_path: Path) -> None:
    """Kernels of another process run throughout: this step's communication stays exposed."""
    trace, other = one_rank(), Thread(900, 900)
    for i in range(3):
        trace.launch(i * STEP_NS + 10, "stranger", i * STEP_NS + 20, i * STEP_NS + 1900, on=other)
    assert split(asked(trace, tmp_path)) == [600, 500, 100]


def test_no_communication_and_unknown_communication_differ(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(3):
        trace.range(f"step {i}", i * 100, i * 100 + 50).launch(i * 100, "gemm", i * 100 + 10, i * 100 + 60)
    assert asked(trace, tmp_path).skipped == "No NCCL or other communication kernel ran in the steps."
    whole = TinyTrace().graph_mode("Graph")
    for i in range(3):
        whole.call(i * 100, i * 100 + 5, GRAPH_LAUNCH).graph_trace(i * 100 + 10, i * 100 + 90)
    assert "cannot be told" in (asked(whole, tmp_path).skipped or "")


Interval = tuple[int, int, bool]
INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 25), st.booleans()), min_size=1, max_size=12)


def random_steps(intervals: list[Interval], folder: Path) -> View:
    """Two steps 100 ns apart with these kernels: start, length, whether it communicates."""
    trace = TinyTrace()
    for i in range(2):
        trace.range(f"step {i}", i * 100, i * 100 + 60)
        for k, (start, length, talks) in enumerate(intervals):
            at = i * 100 + start
            trace.launch(i * 100 + k, ALL_REDUCE if talks else "gemm", at, at + length, stream=k)
    return view(trace.save(folder), steps="step")


def by_counting(intervals: list[Interval]) -> list[float]:
    """Communication, exposed and hidden time, nanosecond by nanosecond."""
    active = [
        {talks for start, length, talks in intervals if start <= ns < start + length} for ns in range(70)
    ]  # fmt: skip
    exposed, hidden = active.count({True}), active.count({True, False})
    return [exposed + hidden, exposed, hidden]


@given(intervals=INTERVALS)
@settings(max_examples=60, deadline=None)
def test_property_exposed_and_hidden_add_up(
    tmp_path_factory: pytest.TempPathFactory, intervals: list[Interval]
) -> None:
    seen = random_steps(intervals, tmp_path_factory.mktemp("random"))
    answer = result("communication", seen)
    if not any(talks for _, _, talks in intervals):
        assert answer.skipped
        return
    assert split(answer) == by_counting(intervals)
    samples_of = [np.asarray(answer.metrics[f"{w}_ns"].samples) for w in ("communication", "exposed", "hidden")]
    np.testing.assert_array_equal(samples_of[0], samples_of[1] + samples_of[2])
    for table in ("collectives", "phases"):
        assert sum(r["exposed_ns"] for r in answer.tables[table]) == metric(answer, "exposed_ns")


def test_control_of_the_property(tmp_path: Path) -> None:
    """Taking the plain sum for the union would break it: two equal collectives of 10 ns are 10 ns."""
    twice = [(0, 10, True), (0, 10, True)]
    assert by_counting(twice) == [10, 10, 0]
    assert row(result("communication", random_steps(twice, tmp_path)), "collectives")["sum_ns"] == 20


def test_a_family_of_ones_own_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("[[rule]]\npattern = '^gemm$'\nfamily = 'communication'\n", encoding="utf-8")
    monkeypatch.setenv("TRACELAB_FAMILIES", str(rules))
    assert split(asked(one_rank(), tmp_path)) == [900, 900, 0]


@pytest.mark.parametrize("kind", ["terminal", "markdown", "json"])
def test_it_prints_in_every_format(tmp_path: Path, kind: str) -> None:
    answer = called("communication", two_ranks().save(tmp_path), "--format", kind)
    assert answer.code == 0, answer.err
    assert "AllReduce" in answer.out and "arrival" in answer.out
