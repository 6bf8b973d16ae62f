"""What holds on every trace: exact sums, nothing negative, no share above 1, no dependence on row order or origin."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import assert_sound, document, shifted, shuffled, view
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_trace import SYNC, Shape, Thread, TinyTrace

Draw = Callable[[st.SearchStrategy[int]], int]
THREADS = (Thread(100, 100), Thread(100, 101), Thread(200, 200, hw=0x81))
NAMES = ("attention", "gemm", "layer_norm")
BOUNDED = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@st.composite
def traces(draw: Draw) -> TinyTrace:
    """Up to five steps on up to three threads and two devices: kernels, copies, replays, failures, waits, overheads."""
    trace = TinyTrace().gpu(id=1, name="NVIDIA H200", smCount=132, cuDevice=1, computeMajor=9)
    clock = draw(st.integers(0, 50))
    for step in range(draw(st.integers(1, 5))):
        for on in THREADS[: draw(st.integers(1, 3))]:
            begin = clock
            for _ in range(draw(st.integers(0, 4))):
                clock = _something(draw, trace, on, clock)
            if draw(st.integers(0, 5)):
                trace.range(f"step {step}", begin, clock, on=on)
            clock += draw(st.integers(0, 200))
    return trace.launch(clock, "last", clock + 1, clock + 1 + draw(st.integers(1, 9)))


def _something(draw: Draw, trace: TinyTrace, on: Thread, clock: int) -> int:
    start = clock + draw(st.integers(-3, 40))
    end = start + draw(st.integers(0, 60))
    where: dict[str, Any] = {"on": on, "device": draw(st.integers(0, 1)), "stream": draw(st.integers(7, 8))}
    name = NAMES[draw(st.integers(0, 2))]
    choice = draw(st.integers(0, 6))
    if choice <= 1:
        shape = Shape(grid=(draw(st.integers(1, 300)), 1, 1))
        trace.range(name, clock, clock + 9, on=on).launch(clock, name, start, end, shape=shape, **where)
    elif choice == 2:
        trace.call(clock, clock + 5, "cudaMemcpyAsync_v3020", on=on).copy(start, end, **where)
    elif choice == 3:
        trace.replay(clock, [(n, start + 7 * i, end + 7 * i, 2 << 32 | i) for i, n in enumerate(NAMES)], **where)
    elif choice == 4:
        trace.call(clock, clock + 4, on=on, code=draw(st.integers(0, 1)))
    elif choice == 5:
        trace.call(clock, clock + draw(st.integers(1, 50)), SYNC, on=on)
    else:
        trace.overhead(clock, clock + draw(st.integers(1, 30)), "CUPTI Buffer flush", on=on)
    return clock + draw(st.integers(5, 60))


@BOUNDED
@given(trace=traces(), skip=st.integers(0, 2))
def test_sums_are_exact_and_nothing_is_negative(trace: TinyTrace, skip: int, tmp_path: Path) -> None:
    path = trace.save(tmp_path)
    said = document(path, skip_steps=skip)
    for seen in (view(path, skip_steps=skip, device=code) for code in range(len(view(path).trace.devices))):
        if seen.trace.devices[seen.device].id == said["device"]:
            assert_sound(seen, said)


@BOUNDED
@given(trace=traces(), seed=st.integers(0, 1000))
def test_the_order_of_rows_says_nothing(trace: TinyTrace, seed: int, tmp_path: Path) -> None:
    path = trace.save(tmp_path)
    assert document(shuffled(path, tmp_path / "mixed.sqlite", seed)) == document(path)


@BOUNDED
@given(trace=traces(), by_ns=st.sampled_from((-7_000_000_000, -12_345, 12_345, 7_000_000_000)))
def test_the_origin_of_time_says_nothing(trace: TinyTrace, by_ns: int, tmp_path: Path) -> None:
    path = trace.save(tmp_path)
    assert document(shifted(path, tmp_path / "moved.sqlite", by_ns)) == document(path)


@BOUNDED
@given(trace=traces())
def test_the_same_holds_with_a_floor(trace: TinyTrace, tmp_path: Path) -> None:
    trace.workload(bytes_per_step=100, phases={"gemm": {"bytes": 60}})
    path = trace.save(tmp_path)
    waterfall = document(path)["results"]["waterfall"]
    if waterfall["skipped"] is None:
        assert sum(r["ns"] for r in waterfall["tables"]["waterfall"]) == waterfall["checks"][0]["limit"]


def test_the_walk_would_find_a_wrong_share(tmp_path: Path) -> None:
    path = TinyTrace().launch(0, "a", 10, 20).launch(5, "b", 30, 50).save(tmp_path)
    said, seen = document(path), view(path)
    assert_sound(seen, said)
    said["results"]["kernels"]["tables"]["kernels"][0]["share"] = 1.01
    with pytest.raises(AssertionError, match="share"):
        assert_sound(seen, said)
    said["results"]["kernels"]["tables"]["kernels"][0]["share"] = 0.5
    said["results"]["waterfall"]["tables"]["waterfall"][0]["ns"] += 1
    with pytest.raises(AssertionError):
        assert_sound(seen, said)
