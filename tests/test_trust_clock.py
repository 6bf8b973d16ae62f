"""Are the times possible? Clocks, overlaps on a stream, and kernels as short as the timer's grain."""

from pathlib import Path
from typing import Any

import pytest
from tiny_schema import H200
from tiny_trace import GRAPH_LAUNCH, US, TinyTrace
from trust_asking import IDLE, WORK, check, codes, healthy, judged, names, verdicts

T4: dict[str, Any] = {**H200, "name": "Tesla T4", "computeMajor": 7, "computeMinor": 5, "smCount": 40}


def test_healthy_times_show_nothing(tmp_path: Path) -> None:
    trust = judged(healthy(), tmp_path)
    assert {"clocks", "stream overlaps", "timer grain"} <= set(trust.fine)
    assert codes(trust) == set()


def test_pitfall_b11_kernels_that_start_before_their_launch(tmp_path: Path) -> None:
    # Two kernels, 5 and 8 µs before their calls.
    trace = healthy().launch(3405 * US, "k", 3400 * US, 3420 * US).launch(4408 * US, "k", 4400 * US, 4420 * US)
    trust = judged(trace, tmp_path)
    found = check(trust, "clock")
    assert found.numbers == {"kernels": 2, "of_kernels": 18, "largest_ns": 8 * US}
    assert "by up to 8.0 µs, from 3400.0 µs to 4400.0 µs" in found.seen
    assert verdicts(trust, "limited") == IDLE


def test_a_kernel_that_starts_before_its_call_returns_is_usual(tmp_path: Path) -> None:
    assert codes(judged(healthy().launch(3400 * US, "k", 3400 * US, 3420 * US, api_ns=30 * US), tmp_path)) == set()


def pair(first: tuple[int, int], second: tuple[int, int], gpu: dict[str, Any], **where: Any) -> TinyTrace:
    """Healthy steps, and two kernels (start, end in µs) of one stream in step 3."""
    trace = healthy(trace=TinyTrace(gpu))
    for at, (start, end) in enumerate((first, second)):
        trace.launch((3300 + at) * US, f"k{at}", start * US, end * US, api_ns=1, **where)
    return trace


def test_old_gpus_start_no_kernel_before_the_last_one_ended(tmp_path: Path) -> None:
    # 3400 … 3500 and 3460 … 3600: 40 µs at once.
    found = check(judged(pair((3400, 3500), (3460, 3600), T4), tmp_path), "impossible-overlap")
    assert found.numbers == {"kernels": 1, "largest_ns": 40 * US, "overlap_ns": 40 * US}
    assert names(found.limits) == WORK
    assert "this GPU starts none before" in found.seen


def test_an_early_launch_explains_any_overlap_but_not_an_earlier_end(tmp_path: Path) -> None:
    # Seen on an H200: 98 % of the second kernel's time. It may start early, but it ends last.
    assert "impossible-overlap" not in codes(judged(pair((3400, 3500), (3402, 3502), H200), tmp_path))
    found = check(judged(pair((3400, 3500), (3420, 3490), H200), tmp_path), "impossible-overlap")
    assert found.numbers == {"kernels": 1, "largest_ns": 70 * US, "overlap_ns": 70 * US}
    assert "lie wholly inside" in found.seen


@pytest.mark.parametrize(("overlap_ns", "seen"), [(1000, False), (1001, True)])
def test_the_grain_of_the_timer_is_no_overlap(tmp_path: Path, overlap_ns: int, seen: bool) -> None:
    trace = healthy(trace=TinyTrace(T4)).launch(3300 * US, "a", 3400 * US, 3500 * US)
    trace.launch(3301 * US, "b", 3500 * US - overlap_ns, 3600 * US)
    assert ("impossible-overlap" in codes(judged(trace, tmp_path))) is seen


def test_other_streams_and_branches_of_one_replay_may_overlap(tmp_path: Path) -> None:
    trace = healthy(trace=TinyTrace(T4))
    trace.launch(3300 * US, "a", 3400 * US, 3500 * US).launch(3301 * US, "b", 3410 * US, 3490 * US, stream=8)
    trace.call(3302 * US, 3303 * US, GRAPH_LAUNCH)
    trace.kernel("c", 3600 * US, 3700 * US, node=2 << 32 | 1).kernel("d", 3610 * US, 3690 * US, node=2 << 32 | 2)
    assert "impossible-overlap" not in codes(judged(trace, tmp_path))


def short(kernels: int) -> TinyTrace:
    """Healthy steps, and in each of them short kernels of 900 ns one after the other."""
    trace = healthy()
    for step in range(8):
        for i in range(kernels):
            start = (step * 1000 + 250 + i) * US
            trace.launch(step * 1000 * US + 200 * US + i, "short", start, start + 900, api_ns=1)
    return trace


def test_a_few_short_kernels_are_a_note(tmp_path: Path) -> None:
    # 10 × 0.9 of 209 µs a step: 4.3 %.
    found = check(judged(short(10), tmp_path), "timer-grain")
    assert found.numbers == {"kernels": 70, "of_kernels": 84, "share": pytest.approx(9 / 209)}
    assert found.severity == "note"


def test_many_short_kernels_limit(tmp_path: Path) -> None:
    # 30 × 0.9 of 227 µs a step: 11.9 %.
    found = check(judged(short(30), tmp_path), "timer-grain")
    assert found.numbers["share"] == pytest.approx(27 / 227)
    assert names(found.limits) == {"kernels", "phases"}
