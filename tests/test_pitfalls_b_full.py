"""Time, gaps and utilisation with the numbers of the list of pitfalls, as commands print them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from asking import assert_plausible, document
from called import called
from tiny_programs import eager
from tiny_trace import LAUNCH, MAIN, MS, US, TinyTrace

S = 1000 * MS


def gaps(path: Path, *words: object) -> dict[str, Any]:
    """The metrics of `tracelab gaps` over every step, by name."""
    answer = called("gaps", path, "--format", "json", "--skip-steps", 0, *words)
    assert (answer.code, answer.err) == (0, "")
    metrics = json.loads(answer.out)["results"]["gaps"]["metrics"]
    return {name: metric["value"] for name, metric in metrics.items()}


def picked(found: Mapping[str, Any], *names: str) -> list[Any]:
    return [found[name] for name in names]


def test_b1_utilisation_never_exceeds_the_whole(tmp_path: Path) -> None:
    """Two streams of 100 ms at the same time: busy 100 ms, sum 200 ms, 100 % and not 200 %."""
    trace = TinyTrace().launch(0, "a", 10, 10 + 100 * MS).launch(5, "b", 10, 10 + 100 * MS, stream=8)
    path = trace.save(tmp_path)
    (step,) = document(path)["steps"]["per_step"]
    assert picked(step, "span_ns", "busy_ns", "sum_ns") == [100 * MS, 100 * MS, 200 * MS]
    assert picked(gaps(path), "idle_ns", "gap_share") == [0, 0.0]


def test_b2_an_idle_stream_is_no_idle_gpu(tmp_path: Path) -> None:
    """Stream 7 pauses for 49 ms, stream 8 is busy throughout: 0."""
    trace = TinyTrace().launch(0, "a", 100, MS).launch(5, "long", 100, 51 * MS, stream=8)
    trace.launch(20, "b", 50 * MS, 51 * MS)
    assert picked(gaps(trace.save(tmp_path)), "idle_ns", "gap_share") == [0, 0.0]


def test_b2_control_without_the_other_stream_it_is(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "a", 100, MS).launch(20, "b", 50 * MS, 51 * MS)
    assert gaps(trace.save(tmp_path))["idle_ns"] == 49 * MS


def test_b3_idle_is_a_share_of_the_window(tmp_path: Path) -> None:
    """0–10, 5–15, 20–30 µs: busy 25 of 30, idle 5, 16.7 %."""
    trace = TinyTrace()
    for stream, (start, end) in enumerate(((0, 10), (5, 15), (20, 30))):
        trace.launch(-1000 + stream, f"k{stream}", start * US, end * US, stream=stream)
    found = gaps(trace.save(tmp_path))
    assert picked(found, "span_ns", "busy_ns", "idle_ns") == [30 * US, 25 * US, 5 * US]
    assert found["gap_share"] == pytest.approx(1 / 6)


def captured(first_ns: int = 500 * MS, last_ns: int = 5 * S) -> TinyTrace:
    """A capture of 6 s; GPU work from 0.5 s to 5 s in steps of 0.5 s, each a kernel of 100 ms."""
    trace = TinyTrace().range("main", 0, 6 * S).call(10, 20, "cudaMalloc_v3020")
    for i, t in enumerate(range(first_ns, last_ns, 500 * MS)):
        trace.range(f"step {i}", t - 100, t + 50).launch(t - 50, "k", t, t + 100 * MS)
    return trace.duration(6 * S)


@pytest.mark.parametrize("window", ["0:0.4", "0.61:0.99", "5.1:6"])
def test_b4_a_window_in_which_nothing_ran_is_answered_with_zeros(tmp_path: Path, window: str) -> None:
    """Before the first kernel, between two, after the last: 0 kernels, 0 steps, and a sentence that says so."""
    path = captured().save(tmp_path)
    answer = called("report", path, "--format", "json", "--window", window)
    assert (answer.code, answer.err) == (0, "")
    said = json.loads(answer.out)
    kernels = said["results"]["kernels"]["metrics"]
    assert {name: kernels[name]["value"] for name in kernels} == {
        "kernels_per_step": 0, "launches_per_step": 0, "copies_per_step": 0
    }  # fmt: skip
    assert picked(said["steps"], "found", "used", "per_step", "outside_ns", "outside_kernels") == [0, 0, [], 0, 0]
    (warning,) = [w["message"] for w in said["trace"]["warnings"] if w["code"] == "empty-window"]
    assert warning.startswith(f"The GPU did nothing in --window {window}: 0 kernels, 0 copies, 0 ns of GPU time")
    for words in (("report",), ("phases",), ("gaps",), ("doctor",), ("kernels",)):
        page = called(words[0], path, "--window", window)
        assert (page.code, page.err) == (0, "")
    assert "The GPU did nothing in --window" in called("report", path, "--window", window).out
    assert called("diff", path, path, "--window", window).code == 4  # nothing to compare


def test_b4_control_a_window_that_cuts_a_kernel_is_not_zero(tmp_path: Path) -> None:
    """0.52 to 0.58 s lies inside a kernel: the GPU is busy, though no kernel lies wholly inside."""
    answer = called("report", captured().save(tmp_path), "--window", "0.52:0.58")
    assert (answer.code, answer.out) == (1, "")
    assert "No GPU work lies wholly inside --window 0.52:0.58; the capture runs from 0.000000 s" in answer.err


def test_b5_overhead_elsewhere_is_0_of_9_microseconds(tmp_path: Path) -> None:
    """A step of 9 µs: 4 busy, 1 idle, 4 busy. 320 ms of profiler overhead before it and after it."""
    trace = TinyTrace().range("step 0", 0, 10 * US).launch(100, "a", US, 5 * US).launch(4 * US, "b", 6 * US, 10 * US)
    trace.overhead(-400 * MS, -80 * MS).overhead(20 * US, 320 * MS + 20 * US)
    found = gaps(trace.save(tmp_path), "--steps", "step")
    assert picked(found, "span_ns", "profiler_gap_ns", "idle_ns") == [9 * US, 0, US]


def test_b5_control_overhead_in_the_gap_counts_up_to_its_ends(tmp_path: Path) -> None:
    trace = TinyTrace().range("step 0", 0, 10 * US).launch(100, "a", US, 5 * US).launch(4 * US, "b", 6 * US, 10 * US)
    trace.overhead(5 * US + 500, 320 * MS)
    assert gaps(trace.save(tmp_path), "--steps", "step")["profiler_gap_ns"] == 500


def test_b6_the_page_names_the_window_of_its_ratios(tmp_path: Path) -> None:
    """80 ms busy, 10 ms pause, 1 ms busy: 10 of 91 ms, 11.0 %, of the whole trace, which the page says."""
    trace = TinyTrace().launch(0, "a", 10, 10 + 80 * MS).launch(5, "b", 10 + 90 * MS, 10 + 91 * MS)
    path = trace.save(tmp_path)
    found = gaps(path)
    assert picked(found, "span_ns", "busy_ns", "idle_ns") == [91 * MS, 81 * MS, 10 * MS]
    page = called("report", path).out
    assert "the whole trace counts as one" in page
    assert "91.00 ms in all" in page
    assert "11.0 %" in page


@pytest.mark.parametrize(("window", "code"), [("5:5", 2), ("9:2", 2), ("100:200", 1), ("6:7", 1), ("-3:-1", 1)])
@pytest.mark.parametrize("command", ["report", "gaps", "doctor"])
def test_b7_windows_that_are_none_end_with_a_code_and_the_bounds(
    tmp_path: Path, window: str, code: int, command: str
) -> None:
    """On a capture of 6 s with GPU work from 0.5 to 4.6 s."""
    answer = called(command, captured().save(tmp_path), "--window", window)
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (code, "", 1)
    assert f"--window {window}" in answer.err
    assert "the capture runs from 0.000000 s to 6.000000 s, and GPU work" in answer.err
    assert "GPU work runs from 0.500000 s to 4.600000 s" in answer.err


def test_b8_left_out_steps_are_listed_by_name_and_the_median_holds(tmp_path: Path) -> None:
    """50 steps of 70 ms, step 2 180 times as long. The mean of 49 would be (48 · 70 + 12600) / 49 = 326 ms."""
    trace, clock = TinyTrace(), 0
    for i in range(50):
        length = 70 * MS * (180 if i == 2 else 1)
        trace.range(f"step {i}", clock, clock + length - 10).launch(clock, "k", clock + 10, clock + length - 100)
        clock += length
    path = trace.save(tmp_path)
    said = document(path, skip_steps=1)
    assert [(s["name"], s["reason"]) for s in said["steps"]["left_out"]] == [("step 0", "warm-up")]
    assert said["results"]["gaps"]["metrics"]["step_ns"]["value"] == 70 * MS
    page = called("report", path).out
    assert "step 0 left out: warm-up" in page
    assert "slow but counted: step 2 12600.00 ms" in page


def test_b10_a_synchronisation_row_is_no_gpu_work(tmp_path: Path) -> None:
    """Kernel 0–10 µs, a SYNCHRONIZATION row and an event row 0–100 µs: busy 10 µs, and so is the span."""
    trace = TinyTrace().launch(0, "k", 0, 10 * US)
    trace.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=0, end=100 * US, deviceId=0, streamId=7, correlationId=101,
              globalPid=MAIN.global_pid, syncType=2)  # fmt: skip
    assert picked(gaps(trace.save(tmp_path)), "busy_ns", "span_ns", "idle_ns") == [10 * US, 10 * US, 0]


def test_b11_no_latency_is_negative(tmp_path: Path) -> None:
    """Each kernel starts 5 µs before its launch: nothing in the document is below 0, and 3 rows are counted."""
    trace = TinyTrace()
    for i in range(3):
        t = 100 * US * i
        trace.range(f"step {i}", t, t + 20 * US).launch(t + 10 * US, "k", t + 5 * US, t + 8 * US)
    path = trace.save(tmp_path)
    assert_plausible(document(path))
    assert "3 rows of GPU work start before their launching call" in called("report", path).out


def test_b12_the_page_names_the_base_of_each_share(tmp_path: Path) -> None:
    """Step 100 µs, busy 40, A 10: A is 25.0 % of GPU time and 10 of 100 µs; the kernels are 40.0 % of the step."""
    trace = TinyTrace()
    for i in range(4):
        t = 100 * US * i
        trace.range(f"step {i}", t, t + 90 * US)
        trace.range("of_a", t + 1, t + 30).launch(t + 10, "A", t + 100, t + 100 + 10 * US)
        trace.range("of_b", t + 40, t + 90).launch(t + 50, "B", t + 100 + 10 * US, t + 100 + 40 * US)
    page = called("report", trace.save(tmp_path)).out.splitlines()
    (steps,) = [at for at, line in enumerate(page) if line.startswith("where it goes")]
    assert page[steps].endswith("of step")
    assert page[steps + 1].split()[:4] == ["kernels", "40.0", "40.0", "%"]
    (phases,) = [at for at, line in enumerate(page) if line.startswith("phase ")]
    assert "of GPU time" in page[phases]
    assert [line.split()[:5] for line in page[phases + 1 : phases + 3]] == [
        ["of_b", "1", "30.0", "75.0", "%"], ["of_a", "1", "10.0", "25.0", "%"]
    ]  # fmt: skip


def test_b13_a_flush_after_the_last_kernel_has_no_share(tmp_path: Path) -> None:
    """10 kernels in 0–1 ms, PROFILER_OVERHEAD 2–5 ms: 0 of the 1 ms, though 3 of 5 ms of the file."""
    trace = TinyTrace()
    for k in range(10):
        trace.launch(k * 100 * US, f"k{k % 3}", k * 100 * US + 10, k * 100 * US + 99 * US)
    trace.overhead(2 * MS, 5 * MS, "CUDA profiling data flush on cudaProfilerStop")
    found = gaps(trace.save(tmp_path))
    assert found["profiler_gap_ns"] == 0
    assert found["span_ns"] == 9 * 100 * US + 99 * US - 10


def test_b14_the_verdict_uses_all_idle_time(tmp_path: Path) -> None:
    """1000 kernels of 4 µs with gaps of 6 µs: 999 · 6 of 999 · 6 + 1000 · 4 µs idle, 60 %, and the host is to blame."""
    trace = TinyTrace().range("step 0", 0, 11 * MS)
    for k in range(1000):
        trace.launch(k * 10 * US, "k", k * 10 * US + 100, k * 10 * US + 4 * US + 100)
    found = gaps(trace.save(tmp_path), "--steps", "step")
    assert found["idle_ns"] == 999 * 6 * US
    assert found["gap_share"] == pytest.approx(0.6, abs=0.0005)
    assert found["bound"] == "host"


def test_windows_of_programs_that_only_call_are_answered_too(tmp_path: Path) -> None:
    """Whatever was recorded bounds the capture: here an API call 5 µs after the last kernel."""
    path = eager().call(10 * US, 11 * US, LAUNCH).save(tmp_path)
    assert called("report", path, "--window", "5us:9us").code == 0
    assert called("report", path, "--window", "11us:12us").code == 1
