"""The words of the page: what a pipe gets, what is said of a trace without steps, and counts with their nouns."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from report_fixture import counts, grid_row, kernel_row, phase_row, sketch_report
from report_fixture_odd import odd_report

from tracelab.report import GpuFacts, LeftOut, Report
from tracelab.reports import terminal
from tracelab.result import Finding, Metric, Result, Row


def _page(report: Report, width: int | None = 80) -> list[str]:
    return terminal.render(report, full_names=False, width=width, color=False).splitlines()


def _text(report: Report, width: int | None = 80) -> str:
    return " ".join(" ".join(_page(report, width)).split())


def _alone(report: Report, analyzer: str) -> list[str]:
    return terminal.render_result(report, analyzer, full_names=False, width=80, color=False).splitlines()


def _with_results(report: Report, **results: Result) -> Report:
    return replace(report, main=replace(report.main, results={**report.main.results, **results}))


def _with_findings(findings: Sequence[Finding]) -> Report:
    report = sketch_report()
    return replace(report, main=replace(report.main, findings=findings))


def _with_left_out(*left_out: LeftOut) -> Report:
    report = sketch_report()
    return replace(report, main=replace(report.main, steps=replace(report.main.steps, left_out=left_out)))


def test_a_pipe_gets_every_row_and_every_finding() -> None:
    lines = _page(odd_report(), None)
    text = "\n".join(lines)
    assert len([line for line in lines if re.match(r"k\d+ ", line)]) == 20
    assert len([line for line in lines if line.startswith("layers/block #/part")]) == 12
    assert all(f"Finding {i} in" in text for i in range(7))
    assert re.search(r"… \d+ more", text) is None


def test_a_pipe_gets_every_kind_of_failure() -> None:
    failed = [{"phase": f"p{i}", "step": i, "api": "cuLaunchKernel", "code": 1, "error": "e"} for i in range(7)]
    launches = Result(metrics={"failed_launches": Metric(7, "count")}, tables={"failed": failed})
    report = _with_results(sketch_report(), launches=launches)
    assert "step 6, phase p6: cuLaunchKernel" in _text(report, None)
    assert "… 2 more kinds with --format json" in _text(report)
    six = replace(launches, tables={"failed": failed[:6]})
    assert "… 1 more kind with --format json" in _text(_with_results(sketch_report(), launches=six))


def test_savings_are_said_to_overlap_where_there_are_two() -> None:
    said = "Savings are upper bounds and overlap; they do not add up."
    assert said in _text(sketch_report())
    both = sketch_report().main.findings
    assert said not in _text(_with_findings([both[0], replace(both[1], saving_ns=None)]))


def test_a_trace_without_steps_has_no_step_in_its_words() -> None:
    report = odd_report()
    waterfall = Result(tables={"waterfall": [{"component": "kernels", "ns": 200_000_000, "share": 1.0}]})
    text = _text(_with_results(report, waterfall=waterfall, phases=Result(tables={"phases": [_no_phase()]})))
    assert "Saves at most 10.00 ms." in text
    assert "where it goes in whole trace ms share" in text
    assert "phases: none found kernel" in text
    assert not re.search(r"a step|of step|of the step|these steps", text)


def test_an_analyzer_of_a_trace_without_steps_says_nothing_per_step() -> None:
    lines = _alone(odd_report(), "kernels")
    assert "per step" not in "\n".join(lines)
    assert next(line for line in lines if line.startswith("name ")).split()[-4:] == ["calls", "time", "µs", "share"]
    assert "per step" in "\n".join(_alone(sketch_report(), "kernels"))


def _no_phase() -> Row:
    return phase_row("(no phase)", 1, 1000, 1000, 1.0, "none")


@pytest.mark.parametrize(
    ("bound", "said"), [("host", "steps/s under nsys"), ("mixed", "steps/s under nsys"), ("device", "steps/s")]
)
def test_a_rate_that_nsys_slows_says_so(bound: str, said: str) -> None:
    gaps = sketch_report().main.results["gaps"]
    metrics = {**gaps.metrics, "bound": Metric(bound, "word")}
    lines = _page(_with_results(sketch_report(), gaps=replace(gaps, metrics=metrics)), 120)
    assert next(line for line in lines if "steps/s" in line).endswith(f"856.8 {said}")


def test_a_tiny_mbu_is_not_none() -> None:
    phases = [{"phase": "mlp", "mbu": 0.00004}, {"phase": "attn", "mbu": 0.0}]
    metrics = {"floor_ns": Metric(10, "ns"), "mbu": Metric(0.00001, "share"), "mbu_busy": Metric(0.0006, "share")}
    report = _with_results(sketch_report(), mbu=Result(metrics=metrics, tables={"phases": phases}))
    lines = _page(report)
    assert any("MBU <0.1 % of the step, 0.1 % while busy" in line for line in lines)
    assert next(line for line in lines if line.startswith("mlp ")).endswith("<0.1 %")
    assert next(line for line in lines if line.startswith("attn ")).endswith(" 0.0 %")
    assert ["mbu", "<0.1", "%"] in [line.split() for line in _alone(report, "mbu")]


@pytest.mark.parametrize("source", ["datasheet of B200", "option", "trace"])
def test_where_the_bandwidth_comes_from(source: str) -> None:
    report = sketch_report()
    gpus = [GpuFacts(0, "NVIDIA H200", 132, 8e12, source)]
    assert _page(replace(report, trace=replace(report.trace, gpus=gpus)))[0].startswith(
        f"NVIDIA H200 · 132 SMs · 8.00 TB/s ({source})"
    )


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ((49, 49, 49), "steps 1–3 left out: deviates (49 kernels, most have 48)"),
        ((1, 1, 1), "steps 1–3 left out: deviates (1 kernel, most have 48)"),
        ((49, 50, 49), "steps 1–3 left out: deviates (other kernels)"),
        ((48, 48, 48), "steps 1–3 left out: deviates (other kernels)"),
        ((0,), "step 1 left out: deviates (0 kernels, most have 48; window 2.0 µs, median 1088.6)"),
    ],
)
def test_what_makes_a_step_deviate(kernels: tuple[int, ...], said: str) -> None:
    out = [LeftOut(i, f"decode_step {i}", "deviates", 2_000, kernels=k) for i, k in enumerate(kernels, 1)]
    assert said in _text(_with_left_out(*out))


def test_a_single_table_needs_no_heading_above_its_own() -> None:
    result = Result(tables={"ranges": [{"range": "mlp", "kernels": 1}]})
    lines = _alone(_with_results(sketch_report(), phases=result), "phases")
    assert "phases" not in lines
    assert lines[lines.index("ranges") - 1] == ""
    assert "phases, device 0" in _alone(_with_results(odd_report(), phases=result), "phases")


def test_one_is_singular() -> None:
    report = odd_report()
    launches = Result(metrics={"failed_launches": Metric(1, "count"), "launches_without_work": Metric(1, "count")})
    steps = replace(report.main.steps, outside_kernels=1)
    report = replace(report, main=replace(report.main, steps=steps))
    text = _text(_with_results(report, launches=launches, kernels=Result(metrics=counts(1, 1))))
    assert "1 kernel · 1 launch " in text
    assert "1 failed launch. 1 launch left no GPU work." in text
    assert "of GPU time, 1 kernel " in text


def test_idle_sms_stay_on_a_narrow_screen() -> None:
    name = "a_kernel_whose_name_takes_all_the_room_there_is_and_more"
    kernels = [kernel_row(f"{name}_{i}", "decode/attention", 1000, 9000.0, 0.1) for i in range(10)]
    grids = [
        grid_row(f"{name}_{i}", "decode/attention", ("1024·16·64", "32·16·2", 9), (1, 0.5, 131), 9000.0)
        for i in range(10)
    ]
    tables = {"kernels": Result(tables={"kernels": kernels}), "grids": Result(tables={"grids": grids})}
    head = next(line for line in _page(_with_results(sketch_report(), **tables)) if line.startswith("kernel "))
    assert head.endswith("idle SMs")
    assert head.split()[:3] == ["kernel", "phase", "calls"]


def test_a_long_page_keeps_five_kernels_and_gives_up_findings() -> None:
    report = odd_report()
    said = "a long sentence of evidence that has to be broken into several lines of the page. " * 2
    findings = [Finding(f"f{i}", f"Finding {i}", said, 1_000) for i in range(7)]
    lines = _page(replace(report, main=replace(report.main, findings=findings)))
    assert len([line for line in lines if re.match(r"k\d+ ", line)]) == 5
    assert "   … 5 more with --format json" in lines


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_kernel_names_and_phase_paths_fit_the_screen(width: int) -> None:
    name, path = "x" * 300, "/".join(["FusionKernelRuntime::runKernelWithInput"] * 8)
    report = _with_results(
        _with_findings([Finding("f", f"{name} reaches 1 of 132 SMs.", f"See {path}.", None)]),
        phases=Result(tables={"phases": [phase_row(path, 1, 1000, 1000, 1.0, "nvtx")]}),
        kernels=Result(tables={"kernels": [kernel_row(name, path, 1, 1000.0, 1.0)]}),
    )
    lines = _page(report, width)
    assert max(map(len, lines)) <= width
    assert "".join(line.strip() for line in lines).count("x") >= 300
