"""Which ranges, launches or periods are steps, which GPU work is theirs, and which of them are left out."""

from pathlib import Path

import pytest
from asking import ask, document, result, view
from tiny_programs import eager, replays, synchronised_replays
from tiny_trace import SYNC, Thread, TinyTrace

from tracelab.analysis import view_of
from tracelab.errors import InputError, UsageError
from tracelab.step_table import REASONS
from tracelab.view import View

WORKER = Thread(pid=100, tid=101)
OTHER = Thread(pid=200, tid=200)


def reasons(seen: View) -> list[str]:
    return [REASONS[code] for code in seen.table.reason]


def test_the_outermost_recurring_range_is_the_step(tmp_path: Path) -> None:
    seen = view(eager().range("run", -10, 5000).save(tmp_path))
    assert (seen.group.source, seen.group.pattern) == ("nvtx", "step #")
    assert seen.group.names == ("step 0", "step 1", "step 2")


def test_several_groups_the_one_with_most_gpu_time_first(tmp_path: Path) -> None:
    """Three eager steps of sum 300 and four replays of sum 300: the replays hold more."""
    seen = view(replays(4, eager(3), start=10_000).save(tmp_path))
    assert seen.group.pattern == "graph_step #"
    (other,) = seen.others
    assert (other.pattern, other.found, other.step_ns) == ("step #", 3, 1000)
    assert (other.kernels_per_step, other.launches_per_step) == (3.0, 3.0)


def test_steps_chooses_by_full_name(tmp_path: Path) -> None:
    path = replays(4, eager(3), start=10_000).save(tmp_path)
    assert view(path, steps="^step").group.pattern == "step #"
    assert view(path, steps="graph_step [12]$").table.kernels.tolist() == [3, 3]
    assert [g.pattern for g in ask(path, steps="^step").steps.groups] == ["step #", "graph_step #"]


def test_steps_that_match_nothing_or_no_work(tmp_path: Path) -> None:
    path = eager().range("idle", 5000, 5100).save(tmp_path)
    with pytest.raises(InputError, match=r"matches no range name; there are: .*step #"):
        ask(path, steps="nonsense")
    with pytest.raises(InputError, match="none of them launched GPU work"):
        ask(path, steps="idle")
    with pytest.raises(UsageError, match="not a regular expression"):
        ask(path, steps="(")


def test_the_default_domain_goes_first(tmp_path: Path) -> None:
    trace = eager().domain(4, "library")
    for i in range(3):
        trace.range(f"call {i}", 1000 * i - 5, 1000 * i + 410, domain=4)
    assert view(trace.save(tmp_path)).group.pattern == "step #"


def test_steps_in_a_domain_of_their_own(tmp_path: Path) -> None:
    trace = TinyTrace().domain(4, "engine")
    for i in range(3):
        trace.range(f"token {i}", 100 * i, 100 * i + 50, domain=4).launch(
            100 * i, f"k{i % 2}", 100 * i + 5, 100 * i + 30
        )
    assert view(trace.save(tmp_path)).group.pattern == "token #"


def test_a_range_that_rarely_launches_is_no_step(tmp_path: Path) -> None:
    trace = eager()
    for i in range(30):
        trace.range(f"poll {i}", 10_000 + 10 * i, 10_005 + 10 * i)
    assert [g.pattern for g in ask(trace.save(tmp_path)).steps.groups] == ["step #"]


def test_a_range_that_launches_only_now_and_then_is_no_step(tmp_path: Path) -> None:
    """Ticks stand around the steps, but 5 of 8 hold none."""
    trace = eager(3)
    for i in range(8):
        trace.range(f"tick {i}", 1000 * i - 5, 1000 * i + 900)
    assert view(trace.save(tmp_path)).group.pattern == "step #"


def test_overlapping_ranges_are_no_steps(tmp_path: Path) -> None:
    """Requests in flight at once overlap; the steps inside them do not."""
    trace = eager(4)
    for i in range(3):
        trace.range(f"request {i}", 1000 * i - 10, 1000 * i + 1900, kind=60)
    assert view(trace.save(tmp_path)).group.pattern == "step #"


def test_start_end_ranges_can_be_steps(tmp_path: Path) -> None:
    """Pitfall A1: start/end ranges (type 60) hold the work launched inside them."""
    trace = TinyTrace()
    for i in range(3):
        trace.range(f"step {i}", 1000 * i, 1000 * i + 400, kind=60, ended_by=WORKER if i == 1 else None)
        trace.launch(1000 * i + 10, "k", 1000 * i + 20, 1000 * i + 120)
    assert view(trace.save(tmp_path)).table.kernels.tolist() == [1, 1, 1]


def prefill_and_decode() -> TinyTrace:
    """One range `prefill`, then one `decode` around a loop of 6 tokens of three kernels, synchronised each."""
    trace = TinyTrace().range("prefill", 0, 900).launch(10, "big_gemm", 20, 720).range("decode", 1000, 20_000)
    for i in range(6):
        t = 1000 + 1000 * i
        for k, name in enumerate(("norm", "attention", "gemm")):
            trace.launch(t + 50 * k + 10, name, t + 200 * k + 100, t + 200 * k + 250)
        trace.call(t + 200, t + 700, SYNC)
    return trace


def test_without_a_recurring_range_the_period_of_names_makes_the_steps(tmp_path: Path) -> None:
    said = document(prefill_and_decode().save(tmp_path))["steps"]
    assert (said["source"], said["pattern"], said["found"]) == ("period", "period of 3 kernels", 6)
    assert [s["kernels"] for s in said["per_step"]] == [3] * 6
    assert (said["outside_kernels"], said["outside_ns"]) == (1, 700)  # prefill is a line of its own
    assert {s["period_ns"] for s in said["per_step"]} == {1000, None}


def test_graph_launches_make_the_steps(tmp_path: Path) -> None:
    seen = view(synchronised_replays(6).save(tmp_path))
    assert (seen.group.source, seen.group.pattern) == ("graph-launch", "CUDA graph launch")
    assert len(seen.table) == 6


def test_several_graphs_make_one_step(tmp_path: Path) -> None:
    """A step of two graphs (say attention and MLP), with a wait after each second one."""
    trace = TinyTrace()
    for i in range(6):
        t = i * 1000
        trace.replay(t, [("a", t + 10, t + 110, 2 << 32)]).replay(t + 200, [("b", t + 210, t + 310, 3 << 32)])
        trace.call(t + 230, t + 320, SYNC)
    seen = view(trace.save(tmp_path))
    assert (seen.group.source, seen.group.pattern) == ("graph-launch", "2 CUDA graph launches")
    assert seen.table.kernels.tolist() == [2] * 6


def test_a_graph_of_little_work_makes_no_steps(tmp_path: Path) -> None:
    """Each token: two kernels of 200 ns, then a graph of 20 ns, say for sampling."""
    trace = TinyTrace()
    for i in range(9):
        t = i * 2000
        trace.launch(t, "a", t + 10, t + 210).launch(t + 20, "b", t + 210, t + 410)
        trace.replay(t + 40, [("sample", t + 420, t + 440, 2 << 32)]).call(t + 60, t + 500, SYNC)
    seen = view(trace.save(tmp_path))
    assert (seen.group.source, seen.group.pattern) == ("period", "period of 3 kernels")


def test_last_the_whole_trace(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "a", 10, 20).launch(30, "b", 40, 60).launch(70, "c", 80, 90)
    seen = view(trace.save(tmp_path), skip_steps=1)
    assert (seen.group.source, seen.steps_used, seen.step_time_ns) == ("whole-trace", 1, 80)


def test_another_threads_launch_belongs_to_the_only_open_step(tmp_path: Path) -> None:
    trace = eager()
    trace.launch(1250, "helper", 1400, 1450, on=WORKER)  # inside step 1
    trace.launch(1250, "stranger", 1460, 1470, on=OTHER)  # of another process
    seen = view(trace.save(tmp_path))
    assert seen.table.kernels.tolist() == [3, 4, 3]


def test_warm_up_is_left_out_per_process_and_thread(tmp_path: Path) -> None:
    seen = view(eager(4, on=OTHER, trace=eager(4)).save(tmp_path), skip_steps=2)
    assert reasons(seen) == ["warm-up", "warm-up", "used", "used"] * 2
    everything = view(tmp_path / "tiny.sqlite", skip_steps=99)
    assert reasons(everything) == ["warm-up", "warm-up", "warm-up", "used"] * 2  # one stays in each process


@pytest.mark.parametrize("skip", [1, 2, 3, 50])
def test_one_step_always_stays(tmp_path: Path, skip: int) -> None:
    assert view(eager(2).save(tmp_path), skip_steps=skip).steps_used == 1


def test_a_step_with_another_kernel_sequence_deviates(tmp_path: Path) -> None:
    trace = eager(5).launch(2310, "extra", 2400, 2410)
    seen = view(trace.save(tmp_path))
    assert reasons(seen) == ["used", "used", "deviates", "used", "used"]
    assert seen.step_ns.tolist() == [1000, 1000, 1000]


def test_grids_are_no_part_of_the_sequence(tmp_path: Path) -> None:
    path = eager(4).sql("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = start").save(tmp_path)
    assert reasons(view(path)) == ["used"] * 4


def test_where_no_sequence_has_a_majority_none_deviates(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(4):
        trace.range(f"step {i}", 100 * i, 100 * i + 50).launch(100 * i, f"k{i}", 100 * i + 10, 100 * i + 20)
    assert reasons(view(trace.save(tmp_path))) == ["used"] * 4


def test_a_step_that_loads_a_module_is_left_out(tmp_path: Path) -> None:
    seen = view(eager(4).call(2300, 2350, "cuModuleLoadData", event_class=1).save(tmp_path))
    assert reasons(seen) == ["used", "used", "module-load", "used"]


def test_an_open_step_is_truncated(tmp_path: Path) -> None:
    trace = eager(3).range("step 3", 3000, None).launch(3020, "attention", 3030, 3130)
    seen = view(trace.save(tmp_path))
    assert reasons(seen) == ["used", "used", "used", "truncated"]


def test_a_window_cuts_steps(tmp_path: Path) -> None:
    seen = view(eager(5).save(tmp_path), window_ns=(1000, 3200))
    # Steps 1 and 2 lie inside; of step 3 (3030 … 3330) only attention does.
    assert list(zip([seen.group.names[s] for s in seen.table.step], reasons(seen), strict=True)) == [
        ("step 1", "used"), ("step 2", "used"), ("step 3", "truncated")
    ]  # fmt: skip


def test_pitfall_b8_a_slow_step_stays_and_the_median_holds(tmp_path: Path) -> None:
    """50 steps of 70 ms, step 2 times 180: the mean would be 0.32 s, the median is 70 ms."""
    trace, clock = TinyTrace(), 0
    for i in range(50):
        length = 70_000_000 * (180 if i == 2 else 1)
        trace.range(f"step {i}", clock, clock + length - 10).launch(clock, "k", clock + 10, clock + length - 100)
        clock += length
    seen = view(trace.save(tmp_path))
    assert reasons(seen) == ["used"] * 50
    assert seen.step_time_ns == 70_000_000


def test_periods_never_cross_processes(tmp_path: Path) -> None:
    trace = eager(2)
    eager(2, trace=trace, on=OTHER)
    seen = view(trace.save(tmp_path))
    assert seen.step_ns.tolist() == [1000, 1000]
    assert seen.timed.tolist() == [0, 2]


def test_devices_are_looked_at_apart(tmp_path: Path) -> None:
    trace = TinyTrace().gpu(id=1, name="NVIDIA H200", smCount=132, cuDevice=1)
    for i in range(3):
        t = 1000 * i
        trace.range(f"step {i}", t, t + 100).launch(t, "a", t + 10, t + 60).launch(
            t + 5, "b", t + 20, t + 320, device=1
        )
    analysis = ask(trace.save(tmp_path))
    first, second = view_of(analysis, 0), view_of(analysis, 1)
    assert (first.busy_ns.tolist(), second.busy_ns.tolist()) == ([50] * 3, [300] * 3)
    assert first.idle_by_class.sum() == second.idle_by_class.sum() == 0
    with pytest.raises(UsageError, match="--device 7"):
        document(tmp_path / "tiny.sqlite", device=7)
    assert document(tmp_path / "tiny.sqlite")["device"] == 1  # the one with most GPU time


def test_pitfall_a16_threads_and_devices_are_kept_apart(tmp_path: Path) -> None:
    trace = TinyTrace().gpu(id=1, name="NVIDIA H200", smCount=132, cuDevice=1)
    for i in range(2):
        for device, on in enumerate((Thread(100, 100), WORKER)):
            t = 1000 * i
            trace.range("step", t, t + 100, on=on).launch(t, "k", t + 10, t + 60, on=on, device=device)
    analysis = ask(trace.save(tmp_path))
    assert [view_of(analysis, device).table.kernels.tolist() for device in (0, 1)] == [[1, 1], [1, 1]]


def test_periods_of_unmarked_steps_never_cross_processes(tmp_path: Path) -> None:
    trace = TinyTrace()
    for on, start in ((Thread(100, 100), 0), (OTHER, 400)):
        for i in range(3):
            t = start + 1000 * i
            trace.replay(t, [("k", t + 10, t + 110, 2 << 32)], on=on)
    seen = view(trace.save(tmp_path))
    assert seen.group.source == "graph-launch"
    assert seen.step_ns.tolist() == [1000] * 4


def test_steps_of_zero_length_kernels_are_still_steps(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(4):
        trace.range(f"step {i}", i * 100, i * 100 + 50).launch(i * 100 + 5, "k", i * 100 + 20, i * 100 + 20)
    seen = view(trace.save(tmp_path))
    assert (seen.group.source, seen.group.pattern, len(seen.table)) == ("nvtx", "step #", 4)
    assert all(finding.saving_ns != 0 for name in ("gaps", "grids") for finding in result(name, seen).findings)
