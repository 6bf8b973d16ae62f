"""The split plan: every token once, no empty slice, the GPU filled, the scratch within its budget."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelab.kernels._split_plan import GATE_TOKENS, SplitPlan, split_plan

LONG = 131_072
SMS = 132


def mla(length: int, units: int) -> SplitPlan:
    """Latent attention: 16 heads a block, tiles of 64 tokens, 512 values."""
    return split_plan(length, units, block_tokens=64, value_dim=512, rows=16)


def gqa(length: int, units: int) -> SplitPlan:
    """Grouped queries: 4 heads a block, tiles of 128 tokens, 128 values."""
    return split_plan(length, units, block_tokens=128, value_dim=128, rows=4)


@st.composite
def plans(draw: st.DrawFn) -> tuple[int, int, int, SplitPlan]:
    length, units = draw(st.integers(1, 300_000)), draw(st.integers(1, 400))
    block_tokens = draw(st.sampled_from([1, 4, 16, 32, 64, 128, 256]))
    plan = split_plan(
        length,
        units,
        sms=draw(st.integers(1, 264)),
        blocks_per_sm=draw(st.integers(1, 4)),
        block_tokens=block_tokens,
        value_dim=draw(st.sampled_from([16, 128, 512])),
        rows=draw(st.sampled_from([1, 4, 16, 64])),
        gate=draw(st.sampled_from([0, 1000, GATE_TOKENS])),
        scratch_bytes=draw(st.sampled_from([1, 1 << 20, 64 << 20])),
        cap=draw(st.sampled_from([None, 1, 8])),
    )
    return length, units, block_tokens, plan


@given(plans())
def test_slices_cover_every_token_once_and_none_is_empty(drawn: tuple[int, int, int, SplitPlan]) -> None:
    length, _, block_tokens, plan = drawn
    slices = plan.slices(length)
    assert len(slices) == plan.splits
    assert slices[0][0] == 0
    assert slices[-1][1] == length
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(slices))
    assert all(0 < end - start <= plan.slice_tokens for start, end in slices)
    assert all(start % block_tokens == 0 for start, _ in slices)


@given(
    st.integers(1, 300_000),
    st.integers(1, 2000),
    st.integers(0, 1 << 26),
    st.sampled_from([1, 4, 16]),
    st.one_of(st.none(), st.integers(1, 64)),
)
def test_partials_and_blocks_stay_within_their_budgets(
    length: int, units: int, scratch: int, rows: int, cap: int | None
) -> None:
    plan = split_plan(length, units, block_tokens=64, value_dim=512, rows=rows, scratch_bytes=scratch, cap=cap)
    if plan.splits == 1:  # whatever the budgets say: nothing is written to scratch
        assert plan.slice_tokens == length
        return
    assert units * plan.splits * rows * (512 + 2) * 4 <= scratch
    assert units * plan.splits <= SMS
    assert cap is None or plan.splits <= cap


@pytest.mark.parametrize("heads", [96, 48, 24, 12, 8, 1])
def test_long_contexts_fill_the_gpu_for_any_number_of_heads(heads: int) -> None:
    # blocks of 16 heads: 6, 3, 2, 1, 1, 1 units, 22 × 6 to 128 × 1 blocks of 132; grouped queries with 8 KV heads have
    # 8 units, and one KV head left has one
    assert 0.9 * SMS <= mla(LONG, -(-heads // 16)).splits * -(-heads // 16) <= SMS
    if heads <= 8:
        assert 0.9 * SMS <= gqa(LONG, heads).splits * heads <= SMS


@pytest.mark.parametrize(
    ("plan", "length", "units", "blocks"),
    [(gqa, LONG, 8, 128), (gqa, 12_289, 8, 112), (mla, 20_000, 1, 105), (mla, LONG, 1, 128), (mla, LONG, 6, 132)],
)
def test_blocks_at_lengths_that_tiles_do_not_divide(
    plan: Callable[[int, int], SplitPlan], length: int, units: int, blocks: int
) -> None:
    # by hand: 12 289 / 16 = 769 → 7 tiles of 128 = 896 tokens, 13.7 → 14 slices × 8; 20 000 / 132 = 152 → 3 tiles of
    # 64 = 192, 104.2 → 105; 131 072 / 132 = 993 → 1024, 128; 131 072 / 22 = 5958 → 94 tiles = 6016, 21.8 → 22 × 6
    assert plan(length, units).splits * units == blocks
    assert blocks >= 0.75 * SMS


@pytest.mark.parametrize("gate", [0, 100, GATE_TOKENS])
def test_at_the_gate_one_kernel_and_past_it_a_split(gate: int) -> None:
    at, past = (split_plan(n, 8, block_tokens=16, value_dim=128, gate=gate) for n in (gate, gate + 17))
    assert at == SplitPlan(1, max(1, gate))
    assert past.splits > 1


def test_fewer_heads_get_more_splits_and_no_more_scratch() -> None:
    # the plan is derived again when tensor parallelism takes heads away: 8, 4, 2, 1 KV heads
    # 131 072 / 33 = 3972 → 32 tiles of 128, so 32 slices, not 33
    splits = [gqa(LONG, units).splits for units in (8, 4, 2, 1)]
    assert splits == [16, 32, 64, 128]
    # a budget of 1 MiB: 1 048 576 / (8 · 4 · 130 · 4 B) = 63 partials a unit with 8 units, 504 with 1
    small = [split_plan(LONG, u, block_tokens=64, value_dim=128, rows=4, scratch_bytes=1 << 20) for u in (8, 1)]
    assert [plan.splits for plan in small] == [16, 128]
    # a tenth of it: 104 857 / 16 640 = 6 with 8 units, 50 with 1
    tight = [split_plan(LONG, u, block_tokens=64, value_dim=128, rows=4, scratch_bytes=104_857) for u in (8, 1)]
    assert [plan.splits for plan in tight] == [6, 50]


def test_a_cap_starves_and_two_blocks_an_sm_double() -> None:
    capped = split_plan(LONG, 8, block_tokens=128, value_dim=128, cap=8)
    assert capped == SplitPlan(8, 16_384)  # 64 blocks of 132
    assert split_plan(LONG, 8, block_tokens=128, value_dim=128, blocks_per_sm=2).splits == 32


def test_more_units_than_the_gpu_holds_are_not_split() -> None:
    assert split_plan(LONG, 133, block_tokens=64, value_dim=128) == SplitPlan(1, LONG)


def test_slices_past_the_end_are_empty_when_a_captured_plan_meets_a_shorter_context() -> None:
    assert SplitPlan(4, 64).slices(100) == [(0, 64), (64, 100), (100, 100), (100, 100)]


def test_an_empty_context_is_one_empty_slice() -> None:
    plan = split_plan(0, 8, block_tokens=64, value_dim=128, gate=0)
    assert plan.slices(0) == [(0, 0)]


@pytest.mark.parametrize(("units", "block_tokens", "length"), [(0, 64, 10), (8, 0, 10), (8, 64, -1)])
def test_senseless_sizes_are_refused(units: int, block_tokens: int, length: int) -> None:
    with pytest.raises(ValueError, match="no plan"):
        split_plan(length, units, block_tokens=block_tokens, value_dim=128)
