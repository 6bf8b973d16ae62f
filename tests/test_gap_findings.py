"""What findings say of idle time: which gap, how long, and what the host did in it."""

from pathlib import Path

from asking import result, view
from tiny_trace import SYNC, US, TinyTrace

from tracelab.result import Finding


def found(trace: TinyTrace, folder: Path, code: str) -> Finding:
    """The one finding of this code by the analyzer `gaps`."""
    (finding,) = [f for f in result("gaps", view(trace.save(folder))).findings if f.code == code]
    return finding


def late_steps(inside: int, between: int) -> TinyTrace:
    """Four steps of kernels of 100 µs: a launch gap of `inside` µs in each, `between` µs from one to the next."""
    trace, period = TinyTrace(), (200 + inside + between) * US
    for i in range(4):
        t = i * period
        trace.range(f"step {i}", t, t + (100 + inside) * US).launch(t, "first", t + US, t + 101 * US)
        trace.launch(t + (95 + inside) * US, "second", t + (101 + inside) * US, t + (201 + inside) * US)
    return trace


def test_the_longest_gap_is_looked_for_inside_the_step(tmp_path: Path) -> None:
    # 150 µs inside, 800 µs between the steps: the finding on the step's own gaps names its own 250 µs.
    finding = found(late_steps(250, 800), tmp_path, "host-bound")
    assert "The longest, 250.0 µs, comes before second" in finding.evidence
    assert finding.saving_ns == 250 * US


def test_calls_inside_calls_are_the_hosts_time_once(tmp_path: Path) -> None:
    # The gap runs from 101 to 351 µs; a call of 200 µs holds a driver call of 150 µs: 200 of 250 µs, not 350.
    trace = late_steps(250, 10)
    period = 460 * US
    for i in range(4):
        t = i * period
        trace.call(t + 110 * US, t + 310 * US, "cudaMalloc_v3020")
        trace.call(t + 120 * US, t + 270 * US, "cuMemAlloc_v2", event_class=1)
    assert "200.0 µs of it in cudaMalloc" in found(trace, tmp_path, "host-bound").evidence


def test_time_outside_any_call_counts_calls_inside_calls_once(tmp_path: Path) -> None:
    # 20 of the 250 µs are spent in a call, 15 of those in a call inside it.
    trace = late_steps(250, 10)
    for i in range(4):
        t = i * 460 * US
        trace.call(t + 110 * US, t + 130 * US, "cudaMalloc_v3020")
        trace.call(t + 112 * US, t + 127 * US, "cuMemAlloc_v2", event_class=1)
    evidence = found(trace, tmp_path, "host-bound").evidence
    assert "230.0 µs of it outside any CUDA call" in evidence


def test_steps_that_overlap_never_lose_more_than_their_time(tmp_path: Path) -> None:
    # Each step's second kernel runs while the next steps do: the span is 4 periods long, the idle time shared.
    trace = TinyTrace()
    for i in range(6):
        t = i * 100 * US
        trace.range(f"step {i}", t, t + 50 * US).launch(t + 5 * US, "a", t + 10 * US, t + 20 * US)
        trace.launch(t + 40 * US, "b", t + 345 * US, t + 355 * US)
    for finding in result("gaps", view(trace.save(tmp_path))).findings:
        assert "-" not in finding.title
        assert (finding.saving_ns or 0) <= 100 * US


def test_a_wait_in_the_step_names_its_own_gap(tmp_path: Path) -> None:
    trace = late_steps(250, 800)
    for i in range(4):
        t = i * 1250 * US
        trace.call(t + 20 * US, t + 340 * US, SYNC)
    evidence = found(trace, tmp_path, "sync-in-step").evidence
    assert "The longest, 250.0 µs" in evidence and "239.0 µs of it in cudaStreamSynchronize" in evidence
