"""The page: its content lines, alignment, sums as printed, and that nothing in a trace can break it."""

import re
from dataclasses import replace
from decimal import Decimal

import pytest
from report_fixture import NVJET, SDPA, grid_row, kernel_row, sketch_report
from report_fixture_odd import REPORTS, odd_report, skipped_report

from tracelab.report import LeftOut, Report
from tracelab.reports import terminal
from tracelab.result import Metric, Result

WIDTHS = (60, 80, 120, 200)


def _page(report: Report, width: int | None = 80, *, full_names: bool = False, color: bool = False) -> list[str]:
    return terminal.render(report, full_names=full_names, width=width, color=color).splitlines()


def _block(lines: list[str], start: str) -> list[str]:
    """The lines from the one that begins so to the next blank one."""
    first = next(i for i, line in enumerate(lines) if line.startswith(start))
    return lines[first : lines.index("", first)] if "" in lines[first:] else lines[first:]


def _column(block: list[str], pattern: str) -> list[Decimal]:
    return [Decimal(found.group(1)) for line in block if (found := re.search(pattern, line))]


def _with_results(**results: Result) -> Report:
    report = sketch_report()
    return replace(report, main=replace(report.main, results={**report.main.results, **results}))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider_than_the_screen(name: str, width: int) -> None:
    lines = _page(REPORTS[name](), width)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_the_sketch_fits_a_screen_and_says_it_all(width: int) -> None:
    lines = _page(sketch_report(), width)
    text = " ".join(" ".join(lines).split())
    assert len(lines) <= 45
    for said in (
        "NVIDIA H200 · 132 SMs · 4.80 TB/s (datasheet)",
        "nsys 2025.3.2",
        "decode_step #: 10 found, 9 used; step 0 left out: warm-up (window 1635.1 µs, median 1088.6)",
        "also here: graph_step # ×10, 309.8 µs",
        "1167.1 µs a step (median; 1033.5–1299.9) 48 kernels · 48 launches host-bound 856.8 steps/s under nsys",
        "where it goes in decode_step 6",
        "launch gaps 793.9 68.4 % ██████████████████████",
        "floor unknown: The number of parameters is unknown: give --params.",
        "mlp 32 158.1 53.9 %",
        "1 The host launches too late",
        "Saves at most 793.9 µs a step.",
        "Savings are upper bounds and overlap; they do not add up.",
        "0 failed launches.",
    ):
        assert said in text


def test_columns_add_up_as_printed() -> None:
    lines = _page(sketch_report(), 120)
    goes = _column(_block(lines, "where it goes"), r"(\d+\.\d)  +\d+\.\d %")
    assert sum(goes[:-1]) == goes[-1] == Decimal("1160.3")
    for start in ("where it goes", "phase", "kernel "):
        shares = _column(_block(lines, start), r"(\d+\.\d) %")
        assert sum(shares) in (100, 200)  # the waterfall prints its total too


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("start", ["where it goes", "phase", "kernel "])
def test_numbers_stand_under_each_other(start: str, width: int) -> None:
    block = _block(_page(sketch_report(), width), start)
    ends = [[m.end() for m in re.finditer(r"\d\.\d(?= |$)", line)][:1] for line in block[1:] if "unknown" not in line]
    assert len(ends) > 1
    assert all(end == ends[0] for end in ends)


def test_one_row_per_kernel_with_its_phases_and_grid() -> None:
    block = _block(_page(sketch_report(), 120), "kernel ")
    assert block[0].split() == (
        ["kernel", "phase", "calls", "µs", "share", "grid", "×", "block", "blocks/SM", "waves", "idle", "SMs"]
    )
    nvjet = next(line for line in block if line.startswith("nvjet"))
    assert nvjet.split()[1:] == ["both", "16", "170.0", "57.7", "%", "2·64", "×", "384", "1", "0.97", "4"]
    assert len([line for line in block if "splitKreduce" in line]) == 1


def test_a_narrow_screen_drops_columns_never_digits() -> None:
    block = _block(_page(sketch_report(), 80), "kernel ")
    assert "blocks/SM" not in block[0] and "waves" not in block[0]
    assert "grid × block" in block[0] and "idle SMs" in block[0]
    assert any("170.0" in line and "57.7 %" in line for line in block)


def test_a_pipe_gets_whole_lines_and_full_names_on_request() -> None:
    lines = _page(sketch_report(), None)
    assert any("capture this step in a CUDA graph. Saves at most" in line for line in lines)
    assert any(line.startswith(NVJET) for line in lines)
    assert "…" not in "".join(lines)
    assert any(line.endswith(SDPA) for line in _page(sketch_report(), 80, full_names=True))


def test_many_kernels_end_in_a_line_that_keeps_the_sum() -> None:
    kernels = [kernel_row(f"k{i}", "mlp", 1, 1000.0 + i, 0.05) for i in range(20)]
    lines = _page(_with_results(kernels=Result(tables={"kernels": kernels}), grids=Result()), 80)
    block = _block(lines, "kernel ")
    assert len(block) == 10
    assert block[-1].startswith("… 12 more")
    assert sum(_column(block, r"(\d+\.\d) %")) == 100


def test_kernels_in_three_phases_and_grids_unknown() -> None:
    kernels = [kernel_row("k", phase, 1, 1000.0, 0.3) for phase in ("a", "b", "c")]
    grids = [grid_row("k", "a", ("1", "32", 1), (0, float("nan"), 131), 1000.0)]
    report = _with_results(kernels=Result(tables={"kernels": kernels}), grids=Result(tables={"grids": grids}))
    row = _block(_page(report, 120), "kernel ")[1]
    assert (
        row.split() == ["k", "3", "phases", "3", "3.0", "100.0", "%", "1", "×", "32", "0", "–", "131"] or "90.0" in row
    )


def test_the_odd_report() -> None:
    lines = _page(odd_report(), 80)
    text = " ".join(" ".join(lines).split())
    for said in (
        "no steps found: the whole trace counts as one; steps 1–3, 7 left out: deviates (9 kernels, most have 41960); "
        "step 9 left out: truncated",
        "200.00 ms in all 41960 kernels · 40 launches bound unknown",
        "0 (this page) 1 41960 200.00 120.00 unknown",
        "floor 3350.0 µs (16.06 GB) MBU 1.7 % in all, 2.8 % while busy",
        "phase (aligned with an eager step)",
        "attributed: by alignment 84.0 %, none 16.0 %",
        "12 failed launches. 3 launches left no GPU work.",
        "steps 0–5, phase attn_bad: cuLaunchKernel returned 1 cudaErrorInvalidValue, ×12",
        "no grids: The limits of this GPU are unknown: give --gpu NAME.",
        "outside the steps: 3456.0 µs of GPU time, 77 kernels",
        "warning: GPU time is incomplete: 3430 graph launches have no GPU rows [trimmed].",
        "captured with nsys 2025.3.2 (nsys); the program ended with code 3",
    ):
        assert said in text
    notice = "RECORDING: recorded on an NVIDIA H200 with nsys 2025.3.2; nothing ran on this machine"
    assert text.startswith(notice) and text.endswith(notice)
    assert len(lines) <= 55


def test_nothing_skipped_is_said_twice() -> None:
    text = "\n".join(_page(skipped_report(), 120))
    assert text.count("This trace holds no GPU work.") == 1
    assert "failed launches" not in text  # unknown is not zero


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("full_names", [False, True])
def test_names_reach_no_terminal_raw(full_names: bool, color: bool) -> None:
    page = terminal.render(odd_report(), full_names=full_names, width=None, color=color)
    colors = re.compile(r"\x1b\[[\d;]*m")
    assert (colors.search(page) is not None) == color
    assert "\\x1b[31m" in page and "[bold red]kernel[/]" in page
    assert re.search(r"[^\n\x20-\x7e\u00a0-\uffff]", colors.sub("", page)) is None


def test_colour_changes_no_text() -> None:
    plain = terminal.render(sketch_report(), full_names=False, width=80, color=False)
    colored = terminal.render(sketch_report(), full_names=False, width=80, color=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain


@pytest.mark.parametrize("analyzer", sorted(sketch_report().main.results))
def test_any_analyzer_may_be_missing_or_skipped(analyzer: str) -> None:
    report = sketch_report()
    without = {name: result for name, result in report.main.results.items() if name != analyzer}
    assert _page(replace(report, main=replace(report.main, results=without)))
    text = " ".join(" ".join(_page(_with_results(**{analyzer: Result(skipped="Cannot tell why.")}))).split())
    assert text.count("Cannot tell why.") == 1


def test_tokens_where_the_batch_is_known() -> None:
    report = sketch_report()
    known = replace(report, trace=replace(report.trace, workload={"batch": 64}))
    assert any("54837 tokens/s under nsys" in line for line in _page(known))
    kernel = {"batch": 64, "variant": {"variant": "split", "calls_per_step": 3}}  # one kernel makes no tokens
    alone = replace(report, trace=replace(report.trace, workload=kernel))
    assert any("856.8 steps/s under nsys" in line for line in _page(alone))


def test_slow_steps_are_named_and_counted() -> None:
    report = sketch_report()
    steps = report.main.steps
    rows = [replace(steps.per_step[0], period_ns=5_000_000), *steps.per_step[1:]]
    slow = replace(report, main=replace(report.main, steps=replace(steps, per_step=rows, left_out=[])))
    assert any("slow but counted: decode_step 1 5000.0 µs" in line for line in _page(slow, 120))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nvtx", "decode_step #: 10 found"),
        ("graph-launch", "decode_step # (by graph launch): 10 found"),
        ("period", "decode_step # (by the repeating sequence of kernels): 10 found"),
        ("none", "no steps found"),
    ],
)
def test_how_the_steps_were_found(source: str, said: str) -> None:
    report = sketch_report()
    steps = replace(report.main.steps, source=source, left_out=[LeftOut(0, "s", "warm-up", 0)])
    assert any(line.startswith(said) for line in _page(replace(report, main=replace(report.main, steps=steps)), 120))


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"floor_kind": Metric("flops", "word"), "flops_per_step": Metric(2e12, "flop")}, "compute: 2.00 TFLOP"),
        ({"bytes_per_step": Metric(16e9, "bytes")}, "(16.00 GB at 4.80 TB/s, datasheet)"),
        ({}, "(at 4.80 TB/s, datasheet)"),
    ],
)
def test_what_binds_the_floor(metrics: dict[str, Metric], said: str) -> None:
    report = _with_results(mbu=Result(metrics={"floor_ns": Metric(3_350_000, "ns"), **metrics}))
    assert any(said in line for line in _page(report, 120))


@pytest.mark.parametrize("width", [80, 120, None])
@pytest.mark.parametrize("analyzer", sorted(sketch_report().main.results))
@pytest.mark.parametrize("name", REPORTS)
def test_each_analyzer_alone(name: str, analyzer: str, width: int | None) -> None:
    report = REPORTS[name]()
    page = terminal.render_result(report, analyzer, full_names=False, width=width, color=False)
    assert analyzer in page
    assert "\x1b" not in page
    assert width is None or max(map(len, page.splitlines())) <= width


def test_a_long_phase_path_is_named_by_its_innermost_range() -> None:
    kernels = [kernel_row("k", "decode/layers/attention", 1, 1000.0, 1.0)]
    lines = _page(_with_results(kernels=Result(tables={"kernels": kernels})), 80)
    assert _block(lines, "kernel ")[1].split()[1] == "attention"


def test_an_analyzer_not_yet_written() -> None:
    result = Result(
        metrics={"idle_share": Metric(0.5, "share"), "moved_bytes": Metric(16e9, "bytes"), "word": Metric(None, "")},
        tables={"odd_rows": [{"layer": "a", "wait_ns": 20_000_000, "share": 0.5, "ok": True}, {"layer": "b"}]},
    )
    page = terminal.render_result(_with_results(new=result), "new", full_names=False, width=80, color=False)
    rows = [line.split() for line in page.splitlines()]
    assert ["idle", "share", "50.0", "%"] in rows
    assert ["moved", "bytes", "16.00", "GB"] in rows
    assert ["layer", "wait", "ms", "share", "ok"] in rows
    assert ["a", "20.00", "50.0", "%", "yes"] in rows
    assert ["b", "–", "–", "–"] in rows


def test_an_analyzer_alone_adds_up_too() -> None:
    page = terminal.render_result(sketch_report(), "waterfall", full_names=False, width=80, color=False)
    block = _block(page.splitlines(), "component")
    assert sum(_column(block, r"(\d+\.\d)  ")) == Decimal("1160.3")
    assert sum(_column(block, r"(\d+\.\d) %")) == 100


@pytest.mark.parametrize("width", range(40, 80))
def test_a_number_stays_with_its_unit(width: int) -> None:
    lines = [line.strip() for line in _page(sketch_report(), width)]
    assert not [line for line in lines if re.match(r"(µs|ms|%)( |\.|$)", line)]
