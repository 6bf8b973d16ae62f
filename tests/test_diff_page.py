"""The pages of a comparison and of a ladder: verdicts in words, sums as printed, widths, what is left away."""

import re
from dataclasses import replace
from decimal import Decimal

import pytest
from diff_fixture import forced, host_bound, moved, not_comparable, phase, regression, side
from diff_fixture_odd import DIFFS, LADDERS, bare, hostile, ladder, odd_kernels

from tracelab.difference import REGRESSION, Diff, Ladder
from tracelab.reports import terminal

WIDTHS = (60, 80, 120, 200)
SIGNED = re.compile(r"[+−]\d")


def _page(diff: Diff, width: int | None = 80, *, full_names: bool = False, color: bool = False) -> list[str]:
    return terminal.render_diff(diff, full_names=full_names, width=width, color=color).splitlines()


def _ladder_page(found: Ladder, width: int | None = 80) -> list[str]:
    return terminal.render_ladder(found, full_names=False, width=width, color=False).splitlines()


def _block(lines: list[str], start: str) -> list[str]:
    """The lines from the one that begins so to the next blank one."""
    first = next(i for i, line in enumerate(lines) if line.startswith(start))
    return lines[first : lines.index("", first)] if "" in lines[first:] else lines[first:]


def _said(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def _numbers(line: str) -> list[Decimal]:
    return [Decimal(text.replace("−", "-")) for text in re.findall(r"(?<![\w.])[+−]?\d+\.\d+", line)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", DIFFS)
def test_no_line_is_wider_than_the_screen(name: str, width: int) -> None:
    lines = _page(DIFFS[name](), width)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", LADDERS)
def test_no_line_of_a_ladder_is_wider_than_the_screen(name: str, width: int) -> None:
    assert max(map(len, _ladder_page(LADDERS[name](), width))) <= width


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", [name for name in DIFFS if name != "hostile"])
def test_the_page_fits_a_screen(name: str, width: int) -> None:
    assert len(_page(DIFFS[name](), width)) <= 46


def test_many_changed_kernels_and_phases_give_up_rows() -> None:
    base = regression()
    kernels = [replace(base.kernels[0], before=(f"a{i}",), after=(f"b{i}",)) for i in range(30)]
    phases = [phase(f"p{i}", moved(50, 60 + i, REGRESSION), (0.1, 0.1), (1, 1), False) for i in range(20)]
    lines = _page(replace(base, kernels=tuple(kernels), phases=tuple(phases)), 80)
    assert len(lines) <= 46
    # 20 phases: the shown ones and the row of the others hold 20 × 50 = 1000 µs before.
    rows = _block(lines, "phase,")[1:]
    assert rows[-1].startswith("… ") and "more rows" in rows[-1]
    assert sum(_numbers(row)[0] for row in rows) == 1000


def test_the_regression_says_it_all() -> None:
    said = _said(_page(regression(), 120))
    for text in (
        "before llama8b_graph.sqlite 11 steps of decode_step # device-bound NVIDIA H200, 132 SMs",
        # 4219.4 − 3981.9 = 237.5; 4219.4 / 3981.9 − 1 = 5.96 %, the interval 0.2 points to each side
        "REGRESSION: device time 3981.9 → 4219.4 µs a step (+237.5 µs, +6.0 %; 95 % interval +5.8 to +6.2 %)",
        "step time 4140.2 → 4380.1 µs a step, slower (+239.9 µs, +5.8 %;",
        # 0.2 % of 3981.9 µs
        "noise floor 0.2 % of device time (8.0 µs), from odd against even steps,",
        "; 0.4 % of step time (16.6 µs)",
        "controls: L#/attn_gqa 0.0 %, head 0.0 %",
        "L#/ffn 2689.1 2926.4 +237.3 +8.8 % +8.6 to +9.0 % 67.5 → 69.4 % slower",
        "gemv_row_t32 → gemv_row_t16 L#/ffn 2620.0 2857.5 +237.5 +9.1 % 32 81.9 → 89.3 slower",
        "grid 448 → 224 · 64 → 96 registers",
        "… 12 rows with no measurable change 666.0 667.2",
        "GPU busy 3981.9 96.2 % 4219.4 96.3 %",
        "293 kernels a step 1 launch a step API time 310.0 → 309.1 µs a launch floor 3155.0 µs",
        "MBU 76.2 % → 72.0 % of the step",
        "exit code 3: slower than before: the step, device time of the step, L#/ffn",
    ):
        assert text in said


@pytest.mark.parametrize("width", [*WIDTHS, None])
@pytest.mark.parametrize("name", ["regression", "host-bound", "odd-kernels"])
def test_rows_without_a_verdict_show_no_signed_number(name: str, width: int | None) -> None:
    lines = _page(DIFFS[name](), width)
    quiet = [line for line in lines if re.search(r"no(t)? measurable|inconclusive$", line) and "verdict" not in line]
    assert quiet
    shown = [re.sub(r"[+−]\d+\.\d to [+−]\d+\.\d %", "", line) for line in quiet]  # an interval is no change
    assert [line for line in shown if SIGNED.search(line)] == []


def test_control_judged_rows_show_signed_numbers() -> None:
    rows = _block(_page(regression(), 80), "phase,")
    assert [bool(SIGNED.search(row)) for row in rows] == [False, True, False, False]


@pytest.mark.parametrize("start", ["phase,", "kernel,"])
def test_after_minus_before_is_the_difference_as_printed(start: str) -> None:
    rows = [row for row in _block(_page(odd_kernels(), 120), start) if row.endswith(("faster", "count changed"))]
    assert len(rows) >= 2
    for row in rows:
        before, after, delta = _numbers(row)[:3]
        assert after - before == delta


def test_shares_add_up_as_printed() -> None:
    # A third each: 33.3 + 33.3 + 33.4
    thirds = (1 / 3, 1 / 3)
    rows = tuple(phase(f"p{i}", moved(100 + i, 100 + i), thirds, (1, 1), False) for i in range(3))
    block = _block(_page(replace(regression(), phases=rows), 80), "phase,")
    assert sum(Decimal(text) for text in re.findall(r"(\d+\.\d) %", "\n".join(block))) == 100


def test_a_host_bound_step_is_inconclusive_and_explained_in_full() -> None:
    lines = _page(host_bound(), 80)
    said = _said(lines)
    assert "INCONCLUSIVE: step time device time 3982.5 → 3984.1 µs a step, no measurable change" in said
    assert "step time 83.20 → 54.20 ms a step, inconclusive: a host-bound step needs two captures a side" in said
    where = _block(lines, "where the step went, ms")
    assert [row.split("  ")[0] for row in where[1:8]] == [
        "step", "GPU busy", "launch gaps", "sync gaps", "dependency gaps", "between steps", "idle in all",
    ]  # fmt: skip
    assert "API time 23.2 → 15.1 µs a launch" in said  # 6797.6 / 293 and 4424.3 / 293
    assert "exit code" not in said
    assert not SIGNED.search(said)


def test_classes_without_time_are_left_away_where_the_step_was_judged() -> None:
    assert not [line for line in _page(regression(), 80) if line.startswith(("sync gaps", "launch gaps"))]


def test_what_cannot_be_compared_says_so_first_and_nothing_else() -> None:
    said = _said(_page(not_comparable(), 200))
    assert "NOT COMPARABLE The GPUs differ: NVIDIA H100 PCIe (114 SMs) and NVIDIA H200 (132 SMs)." in said
    assert "nsys 2024.6.1" in said
    assert "phase" not in said and "device time" not in said


def test_a_forced_comparison_keeps_the_reasons() -> None:
    said = _said(_page(forced(), 120))
    assert said.index("NOT COMPARABLE") < said.index("REGRESSION:")
    assert "warning: not comparable, and compared all the same: The GPUs differ" in said
    assert "exit code 3: slower than before: L#/ffn" in said


def test_every_pairing_of_kernels() -> None:
    rows = _block(_page(odd_kernels(), 120), "kernel,")
    said = _said(rows)
    for text in (
        "mla_unsplit → mla_split + mla_merge L#/ffn",
        "norm + rope + append → norm_rope_append L#/ffn",
        "memset_state L#/ffn – 0.02 +0.02 0 → 16 – → 1.1 new",  # 18.4 µs / 16 = 1.15, printed 1.1
        "cast_bf16 L#/ffn 0.01 – −0.01 32 → 0 0.3 → – gone",
        "gemv L#/ffn 1.20 1.80 +0.60 +50.0 % 32 → 48 37.5 count changed",
        "grid 12 → 8·16 + 32 · block 128 → 128 + 128 · 168 → 168 + 40 registers · reaches 9 % → 97 % + 24 % of the SMs",
        "inconclusive: one step on a side: nothing tells its spread",
    ):
        assert text in said
    assert rows[1].startswith("mla_unsplit") and rows[-2].startswith("… 1 row with no measurable change")


def test_a_narrow_screen_names_what_runs_now_and_the_rest_below() -> None:
    rows = _block(_page(odd_kernels(), 60), "kernel,")
    fused = next(i for i, row in enumerate(rows) if row.startswith("norm_rope_append "))
    assert rows[fused + 1] == "    norm + rope + append → norm_rope_append"


def test_a_pipe_gets_every_kernel_uncut() -> None:
    lines = _page(regression(), None)
    assert len([line for line in lines if line.startswith("small_")]) == 12
    assert "…" not in "".join(lines)
    assert any(line.endswith("gemv_row_t32 → gemv_row_t16") for line in _page(regression(), 80, full_names=True))


def test_a_verdict_that_is_not_of_the_device_time_names_what_it_is_of() -> None:
    calm = replace(regression(), device_time=moved(3981.9, 3982.0), step=moved(4140.2, 4140.3), regressed=("L#/ffn",))
    said = _said(_page(calm, 200))
    assert "REGRESSION: L#/ffn device time 3981.9 → 3982.0 µs a step, no measurable change" in said
    passed = _said(_page(replace(calm, regressed=()), 200))
    assert "REGRESSION: L#/ffn device time" in passed
    assert "exit code" not in passed


def test_sides_with_one_title_are_told_apart() -> None:
    alike = replace(
        regression(), before=side("x", paths=("a/x.sqlite", "a/y.sqlite")), after=side("x", paths=("b/x.sqlite",))
    )
    first, second = _page(alike, None)[:2]
    assert first.startswith("before  x.sqlite, y.sqlite ") and "11 steps of decode_step # in 2 captures" in first
    assert second.startswith("after   x.sqlite ")


def test_almost_nothing_known() -> None:
    said = _said(_page(bare(), 120))
    assert "INCONCLUSIVE: device time unknown: one step on a side" in said
    assert "the whole trace as one step bound unknown" in said
    assert "noise floor unknown; no phase serves as a control" in said


@pytest.mark.parametrize("full_names", [False, True])
def test_nothing_in_a_trace_reaches_the_terminal_raw(full_names: bool) -> None:
    lines = _page(hostile(), None, full_names=full_names)
    assert all(line.isprintable() for line in lines)
    assert any("\\x1b[2J" in line for line in lines)


def test_colour_changes_nothing_but_colour() -> None:
    coloured = _page(regression(), 80, color=True)
    assert "\x1b[1;31mREGRESSION" in coloured[3]
    assert [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in coloured] == _page(regression(), 80)


def _increments(block: list[str]) -> tuple[list[Decimal], Decimal]:
    """The signed increments above the last row, and the last row's."""
    signed = [re.search(r"[+−]\d+\.\d+", row) for row in block[1:]]
    values = [Decimal(found[0].replace("−", "-")) for found in signed if found]
    return values[:-1], values[-1]


@pytest.mark.parametrize("width", [80, None])
@pytest.mark.parametrize("start", ["device time a step", "step time a step"])
def test_increments_of_a_ladder_add_up_as_printed(start: str, width: int | None) -> None:
    parts, whole = _increments(_block(_ladder_page(ladder(), width), start))
    assert len(parts) == 3  # two rungs were judged, and the third is in the row of those that were not
    assert sum(parts) == whole


def test_increments_of_a_phase_add_up_as_printed() -> None:
    # Rungs 4219.44 → 3981.93 → 3982.56 → 3611.27 all happen in L#/ffn, 1292.1 µs less: 2927.3, 2689.8, 2690.5, 2319.2
    row = next(line for line in _block(_ladder_page(ladder(), 80), "phase, Δ µs") if line.startswith("L#/ffn"))
    values = _numbers(row)
    assert values == [Decimal("-237.5"), Decimal("-371.3"), Decimal("0.7"), Decimal("-608.1")]
    assert sum(values[:-1]) == values[-1]


def test_a_rung_without_a_verdict_prints_no_increment_of_its_own() -> None:
    third = next(line for line in _ladder_page(ladder(), 80) if line.startswith("3  rung_3"))
    assert "no measurable change" in third and not SIGNED.search(third)


def test_a_ladder_that_ends_where_it_began_claims_nothing() -> None:
    lines = _ladder_page(ladder((4000.0, 4200.0, 4001.0)), 80)
    block = _block(lines, "device time a step")
    assert not [line for line in block if line.startswith("rungs without")]
    assert "no measurable change" in block[-1] and not SIGNED.search(block[-1])


def test_a_ladder_names_each_rung_and_what_changed_there() -> None:
    said = _said(_ladder_page(ladder(), 120))
    assert "IMPROVEMENT: first to last of 4 traces: device time 4219.4 → 3611.3 µs a step (−608.1 µs, −14.4 %;" in said
    assert "1→2 gemv_row_t16 took the place of gemv_row_t32" in said
    assert "2→3 no kernel has a measurable change" in said
    assert "3→4 gemv_row (L#/ffn) 2682.6 → 2311.3 µs, faster (−371.3 µs, −13.8 %)" in said


def test_a_long_ladder_loses_no_rung_on_a_narrow_screen() -> None:
    lines = _ladder_page(ladder(rungs=10), 60)
    headings = " ".join(line for line in lines if line.startswith("phase, Δ")).split()
    assert [word for word in headings if "→" in word] == [*(f"{i}→{i + 1}" for i in range(1, 11)), "1→11"]


def test_a_rung_that_cannot_be_compared() -> None:
    found = ladder()
    broken = replace(found, rungs=[replace(not_comparable(), warnings=()), *found.rungs[1:]], whole=not_comparable())
    lines = _ladder_page(broken, 200)
    said = _said(lines)
    second = next(line for line in _block(lines, "device time a step") if line.startswith("2  "))
    assert "not comparable" in second and not SIGNED.search(second)
    assert not SIGNED.search(_block(lines, "device time a step")[-1])
    assert "NOT COMPARABLE: the last of 4 traces with the first The GPUs differ" in said
    assert "1→2 not comparable" in said
    assert "warning: 1→2: The GPUs differ" in said
