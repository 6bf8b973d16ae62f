"""Theoretical occupancy against the launches of a real H200 trace, against wrong variants, and by its properties."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelab.occupancy import SmLimits, limiter_names, occupancy

_FOUND = SmLimits.with_defaults(9, 0, sm_count=132)
assert _FOUND is not None
H200 = _FOUND

# name, blocks, threads, registers, shared bytes; blocks per SM, occupancy, limiter, waves, fill (nsys 2025.3.2, H200)
SEEN = [
    ("sdpa", 256, 128, 183, 86336, 2, 0.125, ("registers", "shared-memory"), 256 / 264, 1.0),
    ("nvjet", 128, 384, 168, 164292, 1, 0.1875, ("registers", "shared-memory"), 128 / 132, 128 / 132),
    ("splitKreduce", 128, 512, 32, 0, 4, 1.0, ("registers", "warps"), 128 / 528, 128 / 132),
    ("lean_reduction", 32, 256, 32, 4160, 8, 1.0, ("registers", "warps"), 32 / 1056, 32 / 132),
    ("elementwise r40", 4, 128, 40, 0, 12, 0.75, ("registers",), 4 / 1584, 4 / 132),
    ("elementwise r32", 4, 128, 32, 0, 16, 1.0, ("registers", "warps"), 4 / 2112, 4 / 132),
]


@pytest.mark.parametrize("case", SEEN, ids=[case[0] for case in SEEN])
def test_seen_launches(case: tuple[str, int, int, int, int, int, float, tuple[str, ...], float, float]) -> None:
    _, blocks, threads, registers, shared, per_sm, occ, limiter, waves, fill = case
    got = occupancy(H200, threads, registers, shared, blocks)
    assert (int(got.blocks_per_sm), float(got.occupancy)) == (per_sm, occ)
    assert limiter_names(int(got.limiter)) == limiter
    assert (float(got.waves), float(got.sm_fill)) == (waves, fill)
    assert float(got.tail_efficiency) == waves
    assert bool(got.underfills) == (fill < 0.9)
    assert int(got.idle_sms) == max(132 - blocks, 0)


def test_many_launches_at_once_give_one_value_each() -> None:
    columns = [np.array([case[i] for case in SEEN]) for i in (2, 3, 4, 1)]
    got = occupancy(H200, *columns)
    assert got.blocks_per_sm.tolist() == [case[5] for case in SEEN]
    assert got.underfills.tolist() == [False, False, False, True, True, True]


# what a common shortcut would say: threads, registers, shared bytes, right, wrong
SHORTCUTS = {
    "no sub-partitions": (96, 200, 0, 2, 65536 // (200 * 32 * 3)),
    "warps rounded up to 4": (160, 32, 0, 12, 64 // 8),
    "no reserve of 1 KiB": (128, 32, 116736, 1, 233472 // 116736),
}


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_negative_controls(shortcut: str) -> None:
    threads, registers, shared, right, wrong = SHORTCUTS[shortcut]
    assert right != wrong
    assert int(occupancy(H200, threads, registers, shared, 1).blocks_per_sm) == right


def test_before_capability_8_there_is_no_reserve() -> None:
    t4 = SmLimits.with_defaults(7, 5, sm_count=40)
    assert t4 is not None
    assert int(occupancy(t4, 64, 16, 32768, 1).blocks_per_sm) == 2
    assert int(occupancy(t4, 64, 16, 32769, 1).blocks_per_sm) == 1


@pytest.mark.parametrize(
    ("threads", "registers", "limiter"), [(2048, 32, "warps"), (0, 32, "warps"), (1024, 80, "registers")]
)
def test_a_block_that_cannot_run(threads: int, registers: int, limiter: str) -> None:
    got = occupancy(H200, threads, registers, 0, 10)
    assert int(got.blocks_per_sm) == 0
    assert limiter in limiter_names(int(got.limiter))
    assert float(got.occupancy) == 0.0
    assert np.isnan(got.waves) and np.isnan(got.tail_efficiency)


def test_a_tail_of_more_than_one_wave() -> None:
    got = occupancy(H200, 512, 32, 0, 528 * 2 + 264)
    assert float(got.waves) == 2.5
    assert float(got.tail_efficiency) == 2.5 / 3
    assert float(got.sm_fill) == 1.0


def test_zeros_of_an_old_export_are_filled() -> None:
    got = SmLimits.with_defaults(8, 6, sm_count=82, blocks_per_sm=0, shared_per_sm=0, warps_per_sm=0)
    assert got is not None
    assert (got.blocks_per_sm, got.shared_per_sm, got.warps_per_sm, got.registers_per_block) == (16, 102400, 48, 65536)


@pytest.mark.parametrize(("major", "minor", "sms"), [(9, 0, 0), (None, None, 132), (6, 1, 10), (0, 0, 10)])
def test_limits_that_nobody_knows(major: int | None, minor: int | None, sms: int) -> None:
    assert SmLimits.with_defaults(major, minor, sm_count=sms) is None


def test_a_trace_that_gives_every_limit_needs_no_table() -> None:
    pascal = SmLimits.with_defaults(6, 1, sm_count=10, warps_per_sm=64, blocks_per_sm=32, shared_per_sm=98304)
    assert pascal is not None
    assert int(occupancy(pascal, 256, 32, 0, 5).blocks_per_sm) == 8


launches = st.tuples(
    st.integers(0, 1200), st.integers(0, 255), st.integers(0, 300_000), st.integers(1, 1_000_000)
)  # threads, registers, shared bytes, blocks


@given(launches)
def test_bounds(launch: tuple[int, int, int, int]) -> None:
    got = occupancy(H200, *launch)
    assert 0.0 <= float(got.occupancy) <= 1.0
    assert 0.0 < float(got.sm_fill) <= 1.0
    assert int(got.limiter) != 0
    if int(got.blocks_per_sm):
        assert 0.0 < float(got.tail_efficiency) <= 1.0
        if float(got.waves) >= 1.0:
            assert float(got.sm_fill) == 1.0


@given(launches, st.integers(1, 64), st.integers(1, 65536))
def test_more_resources_per_block_never_raise_occupancy(
    launch: tuple[int, int, int, int], registers: int, shared: int
) -> None:
    threads, regs, smem, blocks = launch
    regs = max(regs, 1)
    base = float(occupancy(H200, threads, regs, smem, blocks).occupancy)
    assert float(occupancy(H200, threads, regs + registers, smem, blocks).occupancy) <= base
    assert float(occupancy(H200, threads, regs, smem + shared, blocks).occupancy) <= base


def test_the_block_limit_counts() -> None:
    got = occupancy(replace(H200, blocks_per_sm=8), 32, 16, 0, 1)
    assert int(got.blocks_per_sm) == 8
    assert limiter_names(int(got.limiter)) == ("blocks",)
