"""Are the steps clean and enough? Profiler overhead, other processes, open ranges, few steps, no steps; and facts."""

from pathlib import Path

import pytest
from tiny_schema import H200
from tiny_trace import US, Thread, TinyTrace
from trust_asking import GPU_ROWS, IDLE, WORK, check, codes, healthy, judged, names, verdicts

from tracelab.options import Facts

OTHER = Thread(pid=200, tid=200)
WORKER = Thread(tid=111)  # of the same process, launches nothing
# Of `healthy` the steps 1 … 7 are used: GPU time 1030 … 7030 and 7030 … 7240 µs, 6210 µs in all.
USED_US = 6210


def test_healthy_steps_show_nothing(tmp_path: Path) -> None:
    trust = judged(healthy(), tmp_path)
    assert codes(trust) == set()
    fine = {"profiler overhead", "flushes", "other processes", "open ranges", "steps left out", "number of steps"}
    assert fine <= set(trust.fine)


def test_overhead_inside_steps_limits_idle_time(tmp_path: Path) -> None:
    # 100 µs in step 2, and of 60 µs at the end of step 7 the 40 before it ends: 140 of 6210 µs, 2.3 %.
    trace = healthy().overhead(2300 * US, 2400 * US).overhead(7200 * US, 7260 * US)
    found = check(judged(trace, tmp_path), "profiler-overhead")
    assert found.numbers == {
        "ns_per_step": 140 * US / 7, "share": pytest.approx(140 / USED_US), "steps": 2
    }  # fmt: skip
    assert "20.0 µs a step, 2.3 % of the steps' time, in 2 of 7 steps; the most 100.0 µs, in step 2." in found.seen
    assert names(found.limits) == IDLE


def test_overhead_that_nests_counts_once_and_below_a_percent_is_a_note(tmp_path: Path) -> None:
    trace = healthy().overhead(2300 * US, 2340 * US).overhead(2310 * US, 2320 * US)
    found = check(judged(trace, tmp_path), "profiler-overhead")
    assert found.numbers["share"] == pytest.approx(40 / USED_US)  # 0.6 %
    assert found.severity == "note"


@pytest.mark.parametrize(
    ("start", "end"),
    [(7240, 11_000), (100, 1030), (-900, -100)],  # behind the last kernel, in the warm-up, before everything
)
def test_pitfalls_b5_and_b13_overhead_elsewhere_is_none(tmp_path: Path, start: int, end: int) -> None:
    trace = healthy().overhead(start * US, end * US).overhead(start * US, end * US, "CUPTI Buffer flush")
    assert codes(judged(trace, tmp_path)) == set()


def test_overhead_of_other_threads_and_processes_is_none_of_the_steps(tmp_path: Path) -> None:
    trace = healthy().overhead(2300 * US, 2900 * US, on=WORKER).overhead(2300 * US, 2900 * US, on=OTHER)
    assert codes(judged(trace, tmp_path)) == set()


def test_a_flush_stops_every_thread(tmp_path: Path) -> None:
    trace = healthy().overhead(2300 * US, 2400 * US, "CUDA profiling data flush", on=WORKER)
    found = check(judged(trace, tmp_path), "profiler-flush")
    assert found.numbers["share"] == pytest.approx(100 / USED_US)  # 1.6 %
    assert names(found.limits) == IDLE
    assert "profiler-overhead" not in codes(judged(trace, tmp_path))


@pytest.mark.parametrize(("each_us", "limits"), [(100, GPU_ROWS), (5, set())])
def test_another_process_on_the_gpu(tmp_path: Path, each_us: int, limits: set[str]) -> None:
    # At 500 µs into each step; the last one is behind the steps. 6 × 100 of 6210 µs are 9.7 %, 6 × 5 are 0.5 %.
    trace = healthy()
    for i in range(8):
        start = (i * 1000 + 500) * US
        trace.launch(start - 9 * US, "other", start, start + each_us * US, on=OTHER)
    found = check(judged(trace, tmp_path, steps="step"), "several-processes")
    assert found.numbers == {
        "processes": 2, "ns_per_step": 6 * each_us * US / 7, "share": pytest.approx(6 * each_us / USED_US)
    }  # fmt: skip
    assert names(found.limits) == limits


def test_a_range_that_never_ended_inside_the_steps(tmp_path: Path) -> None:
    # Opened in step 4 at 4110 µs: its mlp and both kernels of the steps 5, 6 and 7 are launched after it: 7.
    found = check(judged(healthy().range("lost", 4110 * US, None), tmp_path), "open-ranges")
    assert found.numbers == {"ranges": 1, "launches_after": 7}
    assert found.limits == ("phases",)
    assert "(lost), the first begun at 4110.0 µs" in found.seen


def test_an_open_range_around_all_steps_or_on_another_thread_touches_no_phase(tmp_path: Path) -> None:
    for trace in (healthy().range("serve", -5, None), healthy().range("lost", 4110 * US, None, on=WORKER)):
        assert check(judged(trace, tmp_path), "open-ranges").severity == "note"


def test_names_of_open_ranges_are_printable(tmp_path: Path) -> None:
    trace = healthy()
    for name in ("a\x1b[31m", "b", "c", "d"):
        trace.range(name, 4110 * US, None, on=WORKER)
    assert r"(a\x1b[31m, b, c and 1 more)" in check(judged(trace, tmp_path), "open-ranges").seen


def test_steps_left_out_with_their_reasons(tmp_path: Path) -> None:
    trust = judged(healthy().launch(3250 * US, "more", 3260 * US, 3300 * US), tmp_path)
    found = check(trust, "steps-left-out")
    assert found.seen == "2 of 8 steps are left out: 1 warm-up, 1 deviates; 6 are used."
    assert found.severity == "note"
    assert trust.steps.used == 6


def test_where_most_steps_are_left_out_the_rest_says_little(tmp_path: Path) -> None:
    # 12 steps, modules loaded in 8 of those after the warm-up: 3 are used.
    trace = healthy(12)
    for i in range(1, 9):
        trace.call((i * 1000 + 200) * US, (i * 1000 + 210) * US, "cuModuleLoadData")
    found = check(judged(trace, tmp_path), "steps-left-out")
    assert found.numbers == {"steps": 12, "steps_used": 3, "left_out": 9}
    assert names(found.limits) == WORK


@pytest.mark.parametrize(
    ("steps", "limits"), [(7, None), (6, {"gaps", "mbu", "waterfall"}), (2, WORK)]
)  # 6, 5 and 1 used
def test_few_steps(tmp_path: Path, steps: int, limits: set[str] | None) -> None:
    trust = judged(healthy(steps), tmp_path)
    assert ("few-steps" in codes(trust)) is (limits is not None)
    if limits is not None:
        assert names(check(trust, "few-steps").limits) == limits


def test_without_steps_the_floor_misleads(tmp_path: Path) -> None:
    trace = TinyTrace().workload(bytes_per_step=480_000).launch(0, "a", 10 * US, 110 * US)
    trace.launch(200 * US, "b", 300 * US, 400 * US)
    trust = judged(trace, tmp_path)
    found = check(trust, "no-steps")
    assert found.refuses == ("mbu",)
    assert names(found.limits) == WORK - {"mbu"}
    assert "few-steps" not in codes(trust)


def test_steps_that_nobody_marked(tmp_path: Path) -> None:
    trace = TinyTrace().workload(bytes_per_step=480_000_000)
    for i in range(8):
        t = i * 1000 * US
        trace.replay(t, [("decode", t + 10 * US, t + 310 * US, 2 << 32)])
    assert codes(judged(trace, tmp_path)) == {"steps-inferred"}
    assert check(judged(trace, tmp_path), "steps-inferred").severity == "note"


def test_modules_loaded_in_steps_that_are_used_for_want_of_others(tmp_path: Path) -> None:
    trace = healthy()
    for i in range(1, 8):
        trace.call((i * 1000 + 200) * US, (i * 1000 + 210) * US, "cuModuleLoadData")
    assert names(check(judged(trace, tmp_path), "module-load").limits) == IDLE


@pytest.mark.parametrize("step", [0, 2])
def test_modules_loaded_in_steps_that_are_left_out_touch_nothing(tmp_path: Path, step: int) -> None:
    at = (step * 1000 + 200) * US
    assert "module-load" not in codes(judged(healthy().call(at, at + 9, "cuModuleLoadData"), tmp_path))


def test_a_gpu_that_is_not_described(tmp_path: Path) -> None:
    trust = judged(healthy(trace=TinyTrace(None)), tmp_path)
    assert {"no-gpu-info", "no-floor"} <= codes(trust)
    assert verdicts(trust, "refused") == {"grids", "mbu"}
    assert trust.verdict == "reliable"  # the trace is not at fault
    told = judged(healthy(trace=TinyTrace(None)), tmp_path, Facts(gpu="H200"))
    assert verdicts(told, "refused") == set()


def test_which_of_several_gpus_it_was(tmp_path: Path) -> None:
    def two_gpus() -> TinyTrace:
        return healthy(trace=TinyTrace().gpu(**{**H200, "id": 1, "cuDevice": 1}))

    trust = judged(two_gpus(), tmp_path)
    assert names(check(trust, "device-mapping").limits) == {"mbu", "grids"}
    assert codes(judged(two_gpus(), tmp_path, Facts(gpu="H200"))) == set()
    assert codes(judged(two_gpus().cuda_device(0, 0), tmp_path)) == set()


def test_without_a_record_there_is_no_floor(tmp_path: Path) -> None:
    trace = healthy().sql("DELETE FROM NVTX_EVENTS WHERE eventType = 34")
    trust = judged(trace, tmp_path)
    assert check(trust, "no-floor").refuses == ("mbu",)
    assert [found.because[0].text for found in trust.verdicts if found.analyzer == "mbu"] == ["no workload record"]
    assert codes(judged(trace, tmp_path, Facts(params=1e6))) == set()


def test_a_floor_above_the_gpu_time_misleads(tmp_path: Path) -> None:
    # 2 bytes × 1e9 parameters at 4.8 TB/s take 416.7 µs, above 200 µs.
    found = check(judged(healthy(), tmp_path, Facts(params=1e9)), "mbu-above-1")
    assert found.numbers == {"floor_ns": 416_667, "busy_ns": 200 * US}
    assert found.refuses == ("mbu",)


def test_a_window_that_cuts_steps_leaves_those_out(tmp_path: Path) -> None:
    # 1.1 … 7.2 ms cuts step 1 and step 7; steps 2 … 6 are whole, step 1 is the warm-up.
    trust = judged(healthy(), tmp_path, window_ns=(1_100 * US, 7_200 * US))
    assert check(trust, "steps-left-out").seen == "2 of 7 steps are left out: 1 warm-up, 1 truncated; 5 are used."
