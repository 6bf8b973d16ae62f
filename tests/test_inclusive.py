"""Kernels under each range name of the whole trace: a kernel counts once per name."""

from pathlib import Path

from tiny_programs import eager
from tiny_trace import Thread, TinyTrace

from tracelab.inclusive import NO_RANGE, range_totals
from tracelab.load import load_trace

WORKER = Thread(pid=100, tid=101)


def totals(trace: TinyTrace, folder: Path) -> dict[str, tuple[int, int, int]]:
    """Ranges, kernels and summed ns by name."""
    rows = range_totals(load_trace(trace.save(folder)))
    return {row["range"]: (row["ranges"], row["kernels"], row["sum_ns"]) for row in rows}


def test_every_level_counts(tmp_path: Path) -> None:
    assert totals(eager(2).range("run", -5, 5000), tmp_path) == {
        "run": (1, 6, 600), "mlp": (2, 4, 400), "attn": (2, 2, 200), "step 0": (1, 3, 300), "step 1": (1, 3, 300),
    }  # fmt: skip


def test_pitfall_a11_a_range_inside_its_namesake_counts_once(tmp_path: Path) -> None:
    trace = TinyTrace().range("A", 0, 100).range("B", 1, 99).range("B", 2, 98).launch(50, "k", 60, 70)
    assert totals(trace, tmp_path) == {"A": (1, 1, 10), "B": (1, 1, 10)}


def test_namesakes_on_two_threads_are_both_counted(tmp_path: Path) -> None:
    trace = TinyTrace().range("A", 0, 100).launch(50, "k", 60, 70)
    trace.range("A", 0, 100, on=WORKER).launch(51, "k", 70, 80, on=WORKER)
    assert totals(trace, tmp_path) == {"A": (2, 2, 20)}


def test_domains_stand_in_front(tmp_path: Path) -> None:
    trace = TinyTrace().domain(2, "NCCL").range("A", 0, 100, domain=2).range("A", 0, 100).launch(50, "k", 60, 70)
    assert totals(trace, tmp_path) == {"A": (1, 1, 10), "NCCL:A": (1, 1, 10)}


def test_work_in_no_range(tmp_path: Path) -> None:
    trace = TinyTrace().range("A", 0, 10).launch(5, "k", 60, 70).launch(50, "k", 80, 95)
    trace.kernel("orphan", 100, 107, correlation=999)
    assert totals(trace, tmp_path) == {"A": (1, 1, 10), NO_RANGE: (0, 2, 22)}


def test_unnamed_ranges_have_a_row(tmp_path: Path) -> None:
    assert totals(TinyTrace().range(None, 0, 10).launch(5, "k", 60, 70), tmp_path) == {"(unnamed)": (1, 1, 10)}


def test_copies_are_no_kernels(tmp_path: Path) -> None:
    trace = TinyTrace().range("A", 0, 90).launch(5, "k", 60, 70).call(20, 25, "cudaMemcpyAsync_v3020").copy(70, 99)
    assert totals(trace, tmp_path) == {"A": (1, 1, 10)}


def test_pitfall_a1_start_end_ranges_that_overlap(tmp_path: Path) -> None:
    trace = TinyTrace().launch(5, "k", 60, 70).launch(25, "k", 70, 80).launch(45, "k", 80, 90)
    trace.range("one", 0, 30, kind=60).range("two", 20, 50, kind=60).range("three", 40, 60, kind=60, ended_by=WORKER)
    assert totals(trace, tmp_path) == {"one": (1, 2, 20), "two": (1, 2, 20), "three": (1, 1, 10)}


def test_pitfall_a3_all_kernels_of_a_replay_are_its_launchs(tmp_path: Path) -> None:
    ops = [("k", 100 + 10 * k, 105 + 10 * k, 2 << 32 | k) for k in range(24)]
    trace = TinyTrace().range("A", 0, 9).replay(5, ops)
    for k in range(7):
        trace.copy(500 + 10 * k, 505 + 10 * k, node=2 << 32 | 100 + k)
    loaded = load_trace(trace.save(tmp_path))
    assert (loaded.ops.call == 0).all()
    assert len(loaded.ops) == 31
    assert totals(trace, tmp_path) == {"A": (1, 24, 120)}


def test_the_edges_of_a_range_belong_to_it(tmp_path: Path) -> None:
    trace = TinyTrace().range("A", 10, 50).launch(10, "k", 60, 70).launch(50, "k", 70, 80).launch(51, "k", 80, 90)
    assert totals(trace, tmp_path) == {"A": (1, 2, 20), NO_RANGE: (0, 1, 10)}


def test_overlapping_namesakes_count_their_common_kernels_once(tmp_path: Path) -> None:
    # Start/end ranges A [0, 20] and A [10, 30]: launches at 5, 15 and 25 lie in one, both and the other: 3, not 4.
    trace = TinyTrace().range("A", 0, 20, kind=60).range("A", 10, 30, kind=60)
    trace.launch(5, "k", 60, 70).launch(15, "k", 70, 80).launch(25, "k", 80, 90)
    assert totals(trace, tmp_path) == {"A": (2, 3, 30)}
