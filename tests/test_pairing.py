"""Kernels of two steps paired by phase, place and family: each kind of change is one row, each place is in one pair."""

from collections import Counter
from pathlib import Path

import pytest
from compare_fixture import Kernel, loaded, places, program, sequence
from hypothesis import given
from hypothesis import strategies as st

from tracelab.compare.compare import compare
from tracelab.compare.options import DiffOptions
from tracelab.compare.pairing import Pair, like, pair_places
from tracelab.difference import COUNT_CHANGED, FUSED, GONE, NEUTRAL, NEW, REPLACED, SAME, SPLIT

Row = tuple[str, tuple[str, ...], tuple[str, ...], int, int]
KIND = {"attention": "attention", "gemm_8": "gemm", "gemm_16": "gemm", "gemv_row": "gemv", "layer_norm": "norm"}
LAYER = ("layer_norm", "gemm_8", "attention")


def _rows(before: list[Kernel], after: list[Kernel], *, ordered: tuple[bool, bool] = (True, True)) -> list[Row]:
    """Pairing, names before and after, and how many places of each, in no order."""
    pairs = pair_places(places(before, ordered=ordered[0]), places(after, ordered=ordered[1]))
    return sorted((p.pairing, p.names_before, p.names_after, len(p.before), len(p.after)) for p in pairs)


def _in_one_phase(before: tuple[str, ...], after: tuple[str, ...]) -> list[Row]:
    return _rows(sequence("p", *before), sequence("p", *after))


def _same(*names: str, count: int = 1) -> list[Row]:
    return [(SAME, (name,), (name,), count, count) for name in names]


def test_the_names_of_these_tests_have_the_families_they_seem_to() -> None:
    made = places(sequence("p", *KIND, "mystery"))
    assert made.family == (*KIND.values(), "other")


def test_a_kernel_with_a_new_tile_is_one_row() -> None:
    found = _in_one_phase(LAYER, ("layer_norm", "gemm_16", "attention"))
    assert found == sorted([(REPLACED, ("gemm_8",), ("gemm_16",), 1, 1), *_same("layer_norm", "attention")])


def test_c9_a_renamed_kernel_in_the_second_slot(tmp_path: Path) -> None:
    """Four kernels, the second `gemm_64x8` of 3.40 ms and then `gemm_128x8` of 3.40 ms: one row, its change 0."""
    names = ("layer_norm", "gemm_64x8", "attention", "silu")
    before = [Kernel("mlp", name, 3_400_000) for name in names]
    after = [kernel._replace(name=kernel.name.replace("64x8", "128x8")) for kernel in before]
    sides = [program(kernels).save(tmp_path / f"{i}.sqlite") for i, kernels in enumerate((before, after))]
    diff = compare(loaded(sides[0]), loaded(sides[1]), DiffOptions())
    assert {row.before: row.pairing for row in diff.kernels} == {
        (name,): REPLACED if name == "gemm_64x8" else SAME for name in names
    }
    (row,) = [row for row in diff.kernels if row.pairing == REPLACED]
    assert (row.after, row.time.delta_ns, row.time.verdict) == (("gemm_128x8",), 0.0, NEUTRAL)


def test_one_kernel_that_became_two_is_a_split() -> None:
    found = _in_one_phase(LAYER, ("layer_norm", "gemm_16", "gemm_reduce", "attention"))
    assert found == sorted([(SPLIT, ("gemm_8",), ("gemm_16", "gemm_reduce"), 1, 2), *_same("layer_norm", "attention")])


def test_three_kernels_that_became_one_were_fused() -> None:
    found = _in_one_phase(("silu", *LAYER), ("silu", "gemm_fused"))
    assert found == sorted([(FUSED, LAYER, ("gemm_fused",), 3, 1), *_same("silu")])


def test_a_kernel_too_many_is_new_and_one_that_lacks_is_gone() -> None:
    longer = ("layer_norm", "gemm_8", "silu", "attention")
    assert _in_one_phase(LAYER, longer) == sorted([(NEW, (), ("silu",), 0, 1), *_same(*LAYER)])
    assert _in_one_phase(longer, LAYER) == sorted([(GONE, ("silu",), (), 1, 0), *_same(*LAYER)])


def test_c5_twice_as_many_calls_of_half_the_time(tmp_path: Path) -> None:
    """10 calls of 10 µs became 20 of 5 µs: Δcount +10, a call −5 µs, in all 0; the row says which."""
    before, after = [Kernel("p", "gemm_8", 10_000)] * 10, [Kernel("p", "gemm_8", 5_000)] * 20
    sides = [program(kernels, [1.0] * 9).save(tmp_path / f"{i}.sqlite") for i, kernels in enumerate((before, after))]
    diff = compare(loaded(sides[0]), loaded(sides[1]), DiffOptions())
    (row,) = diff.kernels
    assert (row.calls_before, row.calls_after, row.time.delta_ns) == (10, 20, 0)
    assert (row.per_call_before_ns, row.per_call_after_ns) == (10_000, 5_000)
    assert (row.pairing, row.time.verdict) == (SAME, COUNT_CHANGED)


def test_a_gemm_takes_the_place_of_a_gemv() -> None:
    assert like("gemv") == like("gemm") == "gemm"
    found = _in_one_phase(("layer_norm", "gemv_row", "attention"), LAYER)
    assert found == sorted([(REPLACED, ("gemv_row",), ("gemm_8",), 1, 1), *_same("layer_norm", "attention")])


def test_a_kernel_of_another_family_at_the_place_is_another_kernel() -> None:
    found = _in_one_phase(LAYER, ("layer_norm", "silu", "attention"))
    assert found == sorted(
        [(GONE, ("gemm_8",), (), 1, 0), (NEW, (), ("silu",), 0, 1), *_same("layer_norm", "attention")]
    )


def test_a_kernel_of_no_known_family_may_take_any_place() -> None:
    found = _in_one_phase(LAYER, ("layer_norm", "mystery", "attention"))
    assert found == sorted([(REPLACED, ("gemm_8",), ("mystery",), 1, 1), *_same("layer_norm", "attention")])


def test_several_kernels_at_the_place_of_several_are_paired_by_family() -> None:
    """norm and gemm stand at the place of norm and gemm, whatever came between them."""
    found = _in_one_phase(("layer_norm", "gemm_8"), ("rms_norm", "silu", "gemm_16"))
    assert found == sorted(
        [
            (REPLACED, ("layer_norm",), ("rms_norm",), 1, 1),
            (REPLACED, ("gemm_8",), ("gemm_16",), 1, 1),
            (NEW, (), ("silu",), 0, 1),
        ]
    )


def test_the_same_name_in_another_phase_is_another_row() -> None:
    before = [*sequence("attn", "gemm_8"), *sequence("mlp", "gemm_8")]
    after = [*sequence("attn", "gemm_8"), *sequence("mlp", "gemm_16")]
    assert _rows(before, after) == sorted([(REPLACED, ("gemm_8",), ("gemm_16",), 1, 1), *_same("gemm_8")])


@pytest.mark.parametrize("layers", [1, 2, 3, 32])
def test_layers_without_ranges_of_their_own_are_told_apart_by_their_period(layers: int) -> None:
    """No name is as before; in each layer the norm stands for the norm, the gemm for the gemm, and silu is new."""
    before, after = ("layer_norm", "gemm_8") * layers, ("rms_norm", "gemm_16", "silu") * layers
    assert _in_one_phase(before, after) == sorted(
        [
            (REPLACED, ("layer_norm",), ("rms_norm",), layers, layers),
            (REPLACED, ("gemm_8",), ("gemm_16",), layers, layers),
            (NEW, (), ("silu",), 0, layers),
        ]
    )


def test_a_split_in_every_layer_is_one_row_with_all_calls() -> None:
    """One kernel a layer became two. As one run, 4 against 8 kernels, the first four would replace the four."""
    assert _in_one_phase(("gemm_8",) * 4, ("gemm_16", "gemm_reduce") * 4) == [
        (SPLIT, ("gemm_8",), ("gemm_16", "gemm_reduce"), 4, 8)
    ]


def test_layers_with_ranges_are_aligned_one_by_one() -> None:
    """The last of three layers got one kernel more: it is new there, and nothing else moved."""
    layer = [*sequence("attn", "attention"), *sequence("mlp", "gemm_8", "gemm_8")]
    found = _rows(layer * 3, [*layer * 3, Kernel("mlp", "silu")])
    assert found == sorted([(NEW, (), ("silu",), 0, 1), *_same("attention", count=3), *_same("gemm_8", count=6)])


def test_a_new_tile_in_the_first_of_two_layers_stays_there() -> None:
    """As one run, the first gemm_8 would be found again in the second layer, and the second would be gone."""
    norm = sequence("norm", "layer_norm")
    before = [*sequence("mlp", "gemm_8"), *norm, *sequence("mlp", "gemm_8")]
    after = [*sequence("mlp", "gemm_16"), *norm, *sequence("mlp", "gemm_8")]
    assert _rows(before, after) == sorted([(REPLACED, ("gemm_8",), ("gemm_16",), 1, 1), *_same("gemm_8", "layer_norm")])


def test_many_layers_without_ranges_find_their_kernels_again() -> None:
    """150 layers with a new kernel before and a new tile in the last one: frequent names count like others."""
    layer = ("layer_norm", "gemm_8")
    found = _in_one_phase(layer * 150, ("silu", *layer * 149, "layer_norm", "gemm_16"))
    assert found == sorted(
        [
            (NEW, (), ("silu",), 0, 1),
            (REPLACED, ("gemm_8",), ("gemm_16",), 1, 1),
            *_same("layer_norm", count=150),
            *_same("gemm_8", count=149),
        ]
    )


def test_another_number_of_layers_is_a_changed_count() -> None:
    """Three layers became four: every kernel of a layer stands once more."""
    layer = [*sequence("attn", "attention"), *sequence("mlp", "gemm_8", "silu")]
    assert _rows(layer * 3, layer * 4) == sorted((SAME, (n,), (n,), 3, 4) for n in ("attention", "gemm_8", "silu"))
    retiled = [*sequence("attn", "attention"), *sequence("mlp", "gemm_16", "silu")]
    found = _rows(layer * 3, retiled * 4)
    assert (SAME, ("attention",), ("attention",), 3, 4) in found
    assert (REPLACED, ("gemm_8",), ("gemm_16",), 3, 3) in found
    assert (NEW, (), ("gemm_16",), 0, 1) in found


def test_a_kernel_that_moved_inside_its_phase_is_the_same() -> None:
    assert _in_one_phase(LAYER, ("gemm_8", "attention", "layer_norm")) == sorted(_same(*LAYER))


@pytest.mark.parametrize("ordered", [(False, True), (True, False), (False, False)])
def test_without_one_sequence_kernels_are_paired_by_name(ordered: tuple[bool, bool]) -> None:
    """Other order, no row more; of the names that are left over each family finds its own, whatever stands between."""
    before, after = sequence("p", "silu", *LAYER), sequence("p", "attention", "gemm_16", "silu", "layer_norm")
    found = _rows(before, after, ordered=ordered)
    expected = [(REPLACED, ("gemm_8",), ("gemm_16",), 1, 1), *_same("silu", "layer_norm", "attention")]
    assert found == sorted(expected)


def test_phases_of_one_side_are_new_or_gone_as_a_whole() -> None:
    found = _rows(sequence("old", "gemm_8", "gemm_8"), sequence("new", "gemm_8"))
    assert found == [(GONE, ("gemm_8",), (), 2, 0), (NEW, (), ("gemm_8",), 0, 1)]


def test_rows_hold_the_places_they_speak_of() -> None:
    before = [*sequence("a", "layer_norm", "gemm_8"), *sequence("b", "gemm_8")]
    after = [*sequence("a", "gemm_8"), *sequence("b", "gemm_16")]
    pairs = pair_places(places(before), places(after))
    assert {(p.phase, p.pairing): (p.before, p.after) for p in pairs} == {
        ("a", SAME): ((1,), (0,)),
        ("a", GONE): ((0,), ()),
        ("b", REPLACED): ((2,), (1,)),
    }


NAMES = (*KIND, "gemm_reduce", "rms_norm", "silu", "mystery", "riddle")
KERNELS = st.tuples(st.sampled_from(("a", "b")), st.sampled_from(NAMES)).map(lambda at: Kernel(*at))
STEPS = st.lists(KERNELS, max_size=14)
LAYERS = st.builds(lambda layer, count: layer * count, STEPS, st.integers(1, 4))
MIRRORED = {SAME: SAME, REPLACED: REPLACED, SPLIT: FUSED, FUSED: SPLIT, NEW: GONE, GONE: NEW}


def _as_set(pairs: list[Pair], *, swapped: bool = False) -> Counter[tuple[object, ...]]:
    def key(p: Pair) -> tuple[object, ...]:
        sides = ((p.names_before, frozenset(p.before)), (p.names_after, frozenset(p.after)))
        return (p.phase, MIRRORED[p.pairing] if swapped else p.pairing, *(sides[::-1] if swapped else sides))

    return Counter(map(key, pairs))


@given(before=LAYERS, after=LAYERS, ordered=st.booleans())
def test_swapped_sides_swap_the_pairs(before: list[Kernel], after: list[Kernel], ordered: bool) -> None:
    one_way = pair_places(places(before, ordered=ordered), places(after))
    other_way = pair_places(places(after), places(before, ordered=ordered))
    assert _as_set(one_way) == _as_set(other_way, swapped=True)


@given(before=LAYERS, after=LAYERS, ordered=st.booleans())
def test_every_place_is_in_exactly_one_pair(before: list[Kernel], after: list[Kernel], ordered: bool) -> None:
    pairs = pair_places(places(before, ordered=ordered), places(after))
    assert sorted(i for pair in pairs for i in pair.before) == list(range(len(before)))
    assert sorted(j for pair in pairs for j in pair.after) == list(range(len(after)))
    for pair in pairs:
        assert pair.names_before == tuple(dict.fromkeys(before[i].name for i in pair.before))
        assert {before[i].phase for i in pair.before} | {after[j].phase for j in pair.after} == {pair.phase}


@given(steps=LAYERS)
def test_a_step_is_paired_with_itself_place_by_place(steps: list[Kernel]) -> None:
    assert all(pair.pairing == SAME and pair.before == pair.after for pair in pair_places(places(steps), places(steps)))


@given(before=STEPS, after=STEPS)
def test_a_kernel_of_both_sides_is_never_new_or_gone(before: list[Kernel], after: list[Kernel]) -> None:
    """It may be replaced in one place; what is left over is one row, count changed."""
    rows = Counter(
        (pair.phase, name)
        for pair in pair_places(places(before), places(after))
        if pair.pairing in (SAME, NEW, GONE)
        for name in {*pair.names_before, *pair.names_after}
    )
    assert all(count == 1 for count in rows.values())
