"""The analyzer `phases`: busy time, sums and attribution of hand-made steps."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from asking import ask, column, metric, result, row, view
from numpy.typing import NDArray
from tiny_programs import eager
from tiny_trace import MAIN, Thread, TinyTrace

from tracelab.analysis import attribute, view_of
from tracelab.load import load_trace
from tracelab.options import Facts, Selection
from tracelab.trace import I64

HELPER = Thread(pid=100, tid=101)


def test_phases_of_an_eager_step(tmp_path: Path) -> None:
    answer = result("phases", view(eager().save(tmp_path)))
    attn, mlp = row(answer, "phases", phase="attn"), row(answer, "phases", phase="mlp")
    assert (attn["kernels_per_step"], attn["busy_ns"], attn["sum_ns"], attn["attribution"]) == (1, 100, 100, "nvtx")
    assert (mlp["kernels_per_step"], mlp["busy_ns"], mlp["sum_ns"]) == (2, 190, 200)  # 140 … 330, 10 ns twice
    assert (attn["share"], mlp["share"]) == pytest.approx((100 / 290, 190 / 290))
    assert metric(answer, "attributed_share") == 1.0
    assert column(answer, "attribution", "method", "sum_ns") == {"nvtx": 300}


def overlapping() -> TinyTrace:
    """attn 0 … 100 and mlp 50 … 150 on two streams: 50 ns belong to both, 25 to each."""
    trace = TinyTrace()
    for i in range(2):
        t = i * 1000
        trace.range(f"step {i}", t, t + 60)
        trace.range("attn", t + 1, t + 10).launch(t + 2, "a", t + 100, t + 200)
        trace.range("mlp", t + 20, t + 30).launch(t + 22, "b", t + 150, t + 250, stream=8)
    return trace


def test_overlaps_are_shared_evenly(tmp_path: Path) -> None:
    answer = result("phases", view(overlapping().save(tmp_path)))
    assert column(answer, "phases", "phase", "busy_ns") == {"attn": 75, "mlp": 75}
    assert column(answer, "phases", "phase", "median_ns") == {"attn": 75, "mlp": 75}
    assert column(answer, "phases", "phase", "share") == pytest.approx({"attn": 0.5, "mlp": 0.5})


def test_plain_durations_would_exceed_the_steps_busy_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(group: I64, start: I64, end: I64) -> NDArray[np.float64]:
        del group
        return (end - start).astype(np.float64)

    monkeypatch.setattr("tracelab.view.even_shares", plain)
    seen = view(overlapping().save(tmp_path))
    rows = column(result("phases", seen), "phases", "phase", "median_ns")
    assert sum(rows.values()) == 200 != seen.busy_ns[0]


def test_pitfall_a14_gpu_time_never_enters_attribution(tmp_path: Path) -> None:
    """The kernels of `overlapping` run when no phase is open: by the launch attn and mlp, by GPU time nothing."""
    path = overlapping().save(tmp_path)
    assert "(no phase)" not in column(result("phases", view(path)), "phases", "phase", "busy_ns")
    trace = load_trace(path)
    by_gpu_time = dataclasses.replace(trace.calls, start=trace.ops.start[trace.first_op_of_call])
    wrong = attribute(dataclasses.replace(trace, calls=by_gpu_time), Facts(), Selection(skip_steps=0))
    assert "attn" not in column(result("phases", view_of(wrong, 0)), "phases", "phase", "busy_ns")


def threaded() -> TinyTrace:
    """Each step: one kernel of 100 ns from the main thread in `fwd`, two from a helper thread while `bwd` is open."""
    trace = TinyTrace()
    for i in range(3):
        t = i * 1000
        trace.range(f"train {i}", t, t + 500).range("fwd", t, t + 100).launch(t + 10, "f", t + 20, t + 120)
        trace.range("bwd", t + 110, t + 400)
        for k in range(2):
            trace.launch(t + 200 + 20 * k, "b", t + 300 + 100 * k, t + 400 + 100 * k, on=HELPER)
    return trace


def test_pitfall_a21_work_of_another_thread_is_marked(tmp_path: Path) -> None:
    answer = result("phases", view(threaded().save(tmp_path)))
    bwd = row(answer, "phases", phase="bwd")
    assert (bwd["kernels_per_step"], bwd["attribution"]) == (2, "cross-thread")
    assert row(answer, "phases", phase="fwd")["attribution"] == "nvtx"
    assert column(answer, "attribution", "method", "kernels_per_step") == {"cross-thread": 2, "nvtx": 1}
    assert row(answer, "attribution", method="cross-thread")["share"] == pytest.approx(2 / 3)


def test_a_per_thread_rule_would_lose_two_thirds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(trace: object, steps: object, rows: I64) -> I64:
        del trace, steps
        return np.full(len(rows), -1, np.int64)

    monkeypatch.setattr("tracelab.steps_nvtx.across_threads", nobody)
    assert "bwd" not in column(result("phases", view(threaded().save(tmp_path))), "phases", "phase", "busy_ns")


def test_a_thread_with_a_range_of_its_own_is_not_lent_a_step(tmp_path: Path) -> None:
    path = threaded().range("loader", 0, 5000, on=HELPER).save(tmp_path)
    seen = view(path)
    assert seen.table.kernels.tolist() == [1, 1, 1]  # fwd only


def test_two_threads_with_steps_lend_none(tmp_path: Path) -> None:
    trace = threaded()
    for i in range(3):
        other = Thread(pid=100, tid=102)
        trace.range(f"train {i}", i * 1000, i * 1000 + 500, on=other).launch(i * 1000, "g", 600 + i * 1000, 700 + i * 1000, on=other)  # fmt: skip # noqa: E501
    seen = view(trace.save(tmp_path))
    assert seen.table.kernels.tolist() == [1] * 6


def test_work_outside_every_range_has_no_phase(tmp_path: Path) -> None:
    trace = eager()
    for i in range(3):
        trace.launch(i * 1000 + 350, "sampler_tail", i * 1000 + 360, i * 1000 + 460)
    answer = result("phases", view(trace.save(tmp_path)))
    nothing = row(answer, "phases", phase="(no phase)")
    assert (nothing["busy_ns"], nothing["attribution"]) == (100, "none")
    assert metric(answer, "attributed_share") == pytest.approx(0.75)  # 300 of 400 ns


def test_paths_fold_digits_and_stop_at_depth(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(2):
        t = i * 1000
        trace.range(f"step {i}", t, t + 100)
        for layer in range(3):
            at = t + layer * 30
            trace.range(f"layer {layer}", at, at + 25).range("attn", at + 5, at + 20)
            trace.launch(at + 10, "k", at + 11, at + 21)
    path = trace.save(tmp_path)
    assert column(result("phases", view(path)), "phases", "phase", "kernels_per_step") == {"layer #/attn": 3}
    shallow = result("phases", view(path, depth=1))
    assert column(shallow, "phases", "phase", "kernels_per_step") == {"layer #": 3}


def test_inclusive_lists_ranges_unfolded(tmp_path: Path) -> None:
    answer = result("phases", view(eager(2).save(tmp_path)), inclusive=True)
    assert column(answer, "ranges", "range", "sum_ns") == {"mlp": 400, "step 0": 300, "step 1": 300, "attn": 200}


def test_pitfall_a13_busy_is_not_the_projected_span(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(2):
        t = i * 100
        trace.range(f"step {i}", t, t + 60).range("attn", t, t + 50)
        trace.launch(t + 1, "k", t + 10, t + 11).launch(t + 2, "k", t + 19, t + 20)
    seen = view(trace.save(tmp_path))
    assert row(result("phases", seen), "phases", phase="attn")["busy_ns"] == 2
    assert seen.span_ns.tolist() == [10, 10]


def test_phases_of_another_domain_do_not_bury_the_users(tmp_path: Path) -> None:
    """Pitfall A18: library ranges in a domain of their own stay out of the phases."""
    trace = eager().domain(5, "NCCL")
    for i in range(3):
        trace.range("ncclAllReduce", i * 1000 + 15, i * 1000 + 90, domain=5)
    rows = column(result("phases", view(trace.save(tmp_path))), "phases", "phase", "busy_ns")
    assert rows == {"attn": 100, "mlp": 190}


def test_every_call_of_the_analysis_is_in_one_phase_only(tmp_path: Path) -> None:
    analysis = ask(eager().save(tmp_path))
    kernels = len(analysis.trace.ops)
    assert len(analysis.phases.op_phase) == kernels == 9
    assert MAIN.pid == analysis.trace.pid(0)


def test_rows_add_up_to_the_mean_busy_time_where_it_ends_in_a_half(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i, extra in enumerate((0, 1)):  # three kernels at once: 7 ns and 8 ns of busy time, mean 7.5
        t = i * 100
        trace.range(f"step {i}", t, t + 50)
        for k, phase in enumerate("abc"):
            trace.range(phase, t + 5 * k, t + 5 * k + 4)
            trace.launch(t + 5 * k, phase, t + 20, t + 27 + extra, stream=k)
    seen = view(trace.save(tmp_path))
    rows = column(result("phases", seen), "phases", "phase", "busy_ns")
    assert sum(rows.values()) == round(float(seen.busy_ns.mean())) == 8
