"""Time, gaps and utilisation: inputs on which trace tools go wrong, with the right numbers (others stand by topic)."""

from pathlib import Path

import pytest
from asking import column, document, metric, result, view
from tiny_programs import eager
from tiny_trace import MS, US, TinyTrace

from tracelab.errors import InputError, UsageError
from tracelab.load import load_trace


def test_b1_two_full_streams_are_busy_once(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "a", 10, 10 + 100 * MS).launch(5, "b", 10, 10 + 100 * MS, stream=8)
    seen = view(trace.save(tmp_path))
    assert (seen.busy_ns.tolist(), seen.table.sum_ns.tolist()) == ([100 * MS], [200 * MS])
    assert metric(result("gaps", seen), "gap_share") == 0.0


def test_b4_every_number_honours_the_window(tmp_path: Path) -> None:
    path = eager(5).save(tmp_path)
    said = document(path, window_ns=(1_000, 2_400))  # steps 1 and 2 whole, 3 kernels each
    assert said["steps"]["found"] == 2
    assert said["results"]["kernels"]["metrics"]["kernels_per_step"]["value"] == 3
    assert said["results"]["gaps"]["metrics"]["busy_ns"]["value"] == 290
    assert said["steps"]["outside_ns"] == 0


def test_b4_a_window_that_cuts_every_kernel_is_a_sentence_not_zeros(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No GPU work lies wholly inside"):
        document(eager().save(tmp_path), window_ns=(40, 120))  # attention runs 30 … 130


def test_b5_overhead_elsewhere_is_no_part_of_the_window(tmp_path: Path) -> None:
    trace = eager().overhead(320 * MS, 640 * MS)
    answer = result("gaps", view(trace.save(tmp_path), window_ns=(0, 400)))
    assert metric(answer, "profiler_gap_ns") == 0


def test_b6_nothing_is_trimmed_without_being_asked(tmp_path: Path) -> None:
    """80 ms busy, a pause of 10 ms, one kernel of 1 ms: 10 of 91 ms idle."""
    trace = TinyTrace().launch(0, "a", 10, 10 + 80 * MS).launch(5, "b", 10 + 90 * MS, 10 + 91 * MS)
    answer = result("gaps", view(trace.save(tmp_path)))
    assert metric(answer, "gap_share") == pytest.approx(10 / 91)


@pytest.mark.parametrize("window_ns", [(5, 5), (9, 2)])
def test_b7_inverted_windows_name_the_bounds(tmp_path: Path, window_ns: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match=r"GPU work runs from 0\.000000 s"):
        document(eager().save(tmp_path), window_ns=window_ns)


def test_b7_windows_outside_the_capture_name_the_bounds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"GPU work runs from 0\.000000 s to 0\.000002 s"):
        document(eager().save(tmp_path), window_ns=(100 * MS, 200 * MS))


def test_b9_nanoseconds_stay_whole(tmp_path: Path) -> None:
    """A kernel from 100 700 to 100 900 ns: rounded to µs it would last -1 µs."""
    path = TinyTrace().launch(0, "k", 100_700, 100_900).save(tmp_path)
    assert load_trace(path).ops.duration_ns.tolist() == [200]
    assert column(result("kernels", view(path)), "kernels", "name", "time_ns_per_step") == {"k": 200}


def test_b11_a_kernel_before_its_launch_is_attributed_by_id(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(3):
        t = 100 * US * i
        trace.range(f"step {i}", t, t + 20 * US).range("attn", t, t + 19 * US)
        trace.launch(t + 10 * US, "k", t + 5 * US, t + 8 * US)
        trace.launch(t + 15 * US, "tail", t + 60 * US, t + 70 * US)  # ends after its range
    path = trace.save(tmp_path)
    said = document(path)
    (warning,) = [w for w in said["trace"]["warnings"] if w["code"] == "clock"]
    assert warning["message"].startswith("3 rows")
    assert column(result("phases", view(path)), "phases", "phase", "kernels_per_step") == {"attn": 2}


def test_b12_shares_name_their_base(tmp_path: Path) -> None:
    """Step 100, busy 40, kernel A 10: A is 25 % of GPU time; the step is 60 % idle."""
    trace = TinyTrace()
    for i in range(3):
        t = 100 * US * i
        trace.range(f"step {i}", t, t + 90 * US)
        trace.launch(t, "A", t + 1, t + 1 + 10 * US).launch(t + 50, "B", t + 1 + 10 * US, t + 1 + 40 * US)
    seen = view(trace.save(tmp_path))
    assert column(result("kernels", seen), "kernels", "name", "share") == pytest.approx({"A": 0.25, "B": 0.75})
    assert metric(result("gaps", seen), "gap_share") == pytest.approx(0.6)


def test_b13_a_flush_after_the_last_kernel_is_nobodys(tmp_path: Path) -> None:
    trace = TinyTrace()
    for k in range(10):
        trace.launch(k * 100 * US, f"k{k % 3}", k * 100 * US + 10, k * 100 * US + 99 * US)
    trace.overhead(2 * MS, 5 * MS, "CUDA profiling data flush on cudaProfilerStop")
    answer = result("gaps", view(trace.save(tmp_path)))
    assert metric(answer, "profiler_gap_ns") == 0
