"""A report held against a budget: every kind of limit on real and tiny traces, what cannot be told, several GPUs.

Numbers of the recordings are those of `tracelab report --format json` on them.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from asking import ask
from tiny_programs import eager
from tiny_trace import GRAPH_LAUNCH, TinyTrace

from tracelab.analysis import report
from tracelab.budget_check import check_budget
from tracelab.budget_result import BudgetLine
from tracelab.budgets import read_budget
from tracelab.errors import UsageError
from tracelab.report import DeviceReport, Report, StepsFacts, TraceFacts
from tracelab.result import Metric, Result
from tracelab.samples import FOLDER, default_sample

EAGER, GRAPH, FAIL = "llama8b_eager_b1", "llama8b_graph_b1", "llama8b_fail"
KIMI, UNSPLIT = "kimi_graph", "kimi_mla_unsplit"


@cache
def recorded(name: str) -> Report:
    return report(ask(FOLDER / f"{name}_h200.sqlite", skip_steps=1))


def default() -> Report:
    assert default_sample().path.name == f"{EAGER}_h200.sqlite"
    return recorded(EAGER)


def unneeded() -> NoReturn:
    raise AssertionError("the trace has every metric that the budget names")


def held(tmp_path: Path, seen: Report, text: str) -> Sequence[BudgetLine]:
    path = tmp_path / "budgets.toml"
    path.write_text(text, encoding="utf-8")
    return check_budget(seen, read_budget(path), default).lines


def limit(tmp_path: Path, seen: Report, text: str) -> BudgetLine:
    """The one line of a budget of one limit below [limits]."""
    (line,) = held(tmp_path, seen, f"[limits]\n{text}\n")
    return line


# Each limit that is met to the last unit, and the same one unit tighter.
EXACT = [
    (EAGER, "kernels_per_step = { max = 293 }", "kernels_per_step = { max = 292 }"),
    (EAGER, "kernels_per_step = { min = 293 }", "kernels_per_step = { min = 294 }"),
    (EAGER, "step_ns = { max = 17704766 }", "step_ns = { max = 17704765 }"),
    (EAGER, 'gaps.busy_ns = { max = "3981.338 us" }', 'gaps.busy_ns = { max = "3981.337 us" }'),
    (EAGER, "launch_gap_share = { max = 0.7734672192941862 }", "launch_gap_share = { max = 0.7734672192941861 }"),
    (EAGER, 'mbu = { min = "17.820304358950856 %" }', 'mbu = { min = "17.820304358950859 %" }'),
    (EAGER, "bytes_per_step = { max = 15144206336 }", "bytes_per_step = { max = 15144206335 }"),
    (GRAPH, "launches_per_step = { max = 1 }", "launches_per_step = { max = 0 }"),
    (GRAPH, 'bound = { is = "device" }', 'bound = { is = "host" }'),
    (FAIL, "failed_launches = { max = 6 }", "failed_launches = { max = 5 }"),
    (EAGER, "failed_launches = { max = 0 }", "failed_launches = { max = -1 }"),
]


@pytest.mark.parametrize(("name", "met", "beyond"), EXACT)
def test_a_limit_that_is_just_met_is_kept_and_a_unit_less_is_not(
    tmp_path: Path, name: str, met: str, beyond: str
) -> None:
    assert limit(tmp_path, recorded(name), met).ok
    assert not limit(tmp_path, recorded(name), beyond).ok


def test_a_line_says_what_was_demanded_and_what_was_measured(tmp_path: Path) -> None:
    assert limit(tmp_path, recorded(EAGER), 'launch_gap_share = { max = "20 %" }  # host') == BudgetLine(
        line=2, text='launch_gap_share = { max = "20 %" }', name="gaps.launch_gap_share", bound="max", limit=0.2,
        measured=0.7734672192941862, unit="ratio", ok=False,
    )  # fmt: skip


def test_max_and_min_together_are_two_lines(tmp_path: Path) -> None:
    lines = held(tmp_path, recorded(EAGER), "[limits]\nkernels_per_step = { min = 294, max = 300 }\n")
    assert [(line.bound, line.limit, line.ok) for line in lines] == [("min", 294, False), ("max", 300, True)]


def test_limits_of_a_phase(tmp_path: Path) -> None:
    text = (
        '[phases."L#/ffn"]\nbusy_ns = { max = 2688878, min = 2688879 }\nkernels_per_step = { max = 96 }\n'
        'mbu = { min = "87 %" }\nattribution = { is = "nvtx" }\n'
    )
    lines = held(tmp_path, recorded(EAGER), text)
    assert [(line.line, line.name, line.measured, line.unit, line.ok) for line in lines] == [
        (2, "phases.busy_ns of L#/ffn", 2688878, "ns", True),
        (2, "phases.busy_ns of L#/ffn", 2688878, "ns", False),
        (3, "phases.kernels_per_step of L#/ffn", 96.0, "per step", True),
        (4, "mbu.mbu of L#/ffn", pytest.approx(0.87354814), "ratio", True),
        (5, "phases.attribution of L#/ffn", "nvtx", "", True),
    ]


def test_a_phase_that_is_not_there_falls_short_and_the_others_are_named(tmp_path: Path) -> None:
    (line,) = held(tmp_path, recorded(EAGER), "[phases.attn]\nbusy_ns = { max = 1 }\n")
    assert (line.ok, line.measured) == (False, None)
    assert line.remark == "this trace has no phase attn; it has L#/ffn, L#/attn_gqa, head"


def test_kernels_that_must_run(tmp_path: Path) -> None:
    text = '[kernels]\nmust_run = [\n  "mla_(few|many)",\n]\n'
    (line,) = held(tmp_path, recorded(KIMI), text)
    assert (line.line, line.name, line.bound, line.measured, line.ok, line.remark) == (
        3, "must run mla_(few|many)", "must run", 3.0, True, "",
    )  # fmt: skip
    (line,) = held(tmp_path, recorded(UNSPLIT), text)
    assert (line.measured, line.ok) == (0.0, False)
    assert line.remark == (
        "what ran: mla_batched, masked_kernel, gemv_row, fused, route_kernel, expand_kernel and 9 more"
    )


def test_kernels_that_must_not_run(tmp_path: Path) -> None:
    kept, broken = held(tmp_path, recorded(UNSPLIT), '[kernels]\nmust_not_run = ["mla_few",\n"mla_(b|m)"]\n')
    assert (kept.bound, kept.limit, kept.measured, kept.ok, kept.remark) == ("max", 0, 0.0, True, "")
    # mla_batched and mla_merge, 3 calls a step each
    assert (broken.line, broken.measured, broken.ok) == (3, 6.0, False)
    assert broken.remark == "it ran as mla_batched, mla_merge"


def test_names_are_searched_in_full_and_shown_in_short(tmp_path: Path) -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int, T2)"
    path = TinyTrace().launch(0, name, 10, 20).launch(30, name + "\x1b[2J", 40, 50).save(tmp_path)
    text = r"[kernels]" "\n" r"must_run = ['^void at::.*\(int, T2\)$', 'silu']"
    found, missing = held(tmp_path, report(ask(path)), text)
    assert (found.measured, found.ok) == (1.0, True)
    assert missing.remark.startswith("what ran: vectorized_elementwise_kernel<add>")
    assert missing.remark.isprintable()


REFUSED = {
    "[limits]\nkernel_per_step = { max = 1 }": "2: there is no metric 'kernel_per_step'; near it: kernels_per_step",
    "[limits]\nzzz = { max = 1 }": "2: there is no metric 'zzz'; there are attributed_share, between_steps_late_ns",
    "[limits]\nmbu.step_ns = { max = 1 }": "2: there is no metric 'mbu.step_ns'; near it: ",
    "[phases.head]\nbuzy_ns = { max = 1 }": "2: there is no column of a phase 'buzy_ns'; near it: busy_ns",
    "[phases.head]\nphase = { is = 'head' }": "2: there is no column of a phase 'phase'",
    "[limits]\nbound = { max = 1 }": "2: gaps.bound is a word; write { is",
    "[limits]\n\nstep_ns = { is = 'long' }": "3: gaps.step_ns is a number; write { max",
    "[limits]\nkernels_per_step = { max = '3 %' }": "2: kernels.kernels_per_step is no percentage",
    "[limits]\nmbu = { max = '3 ms' }": "2: mbu.mbu is no time",
    "[phases.head]\nshare = { max = '3 ms' }": "2: phases.share is no time",
}


@pytest.mark.parametrize("text", REFUSED)
def test_names_and_bounds_that_make_no_sense_are_usage_errors(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        held(tmp_path, recorded(GRAPH), text)
    assert f"budgets.toml:{REFUSED[text]}" in str(caught.value)


def test_the_example_is_asked_for_missing_names_only(tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text("[limits]\nmbu = { min = 0.1 }\n[phases.head]\nmbu = { min = 0.1 }\n")
    assert len(check_budget(recorded(EAGER), read_budget(path), unneeded).lines) == 2
    with pytest.raises(AssertionError):
        check_budget(report(ask(eager().save(tmp_path))), read_budget(path), unneeded)


def whole_graphs(tmp_path: Path) -> Report:
    trace = TinyTrace()
    for i in range(4):
        t = i * 1000
        trace.range(f"step {i}", t, t + 100).call(t, t + 5, GRAPH_LAUNCH).graph_trace(t + 10, t + 310)
    return report(ask(trace.save(tmp_path)))


def test_what_a_trace_cannot_tell_is_not_kept_and_says_why(tmp_path: Path) -> None:
    seen = report(ask(eager().save(tmp_path)))  # no record of its model: no floor
    skipped = seen.main.results["mbu"].skipped
    step, phase, kept = held(
        tmp_path,
        seen,
        "[limits]\nmbu = { max = 0.9 }\n[phases.attn]\nmbu = { max = 0.9 }\nkernels_per_step = { max = 1 }\n",
    )
    assert skipped is not None and skipped.startswith("Floor unknown")
    assert (step.ok, step.measured, step.remark) == (False, None, skipped)
    assert (phase.ok, phase.measured, phase.remark) == (False, None, skipped)
    assert (kept.ok, kept.measured) == (True, 1.0)


def test_kernels_of_graphs_that_were_traced_as_a_whole_cannot_be_told(tmp_path: Path) -> None:
    text = (
        "[limits]\nkernels_per_step = { max = 99 }\ndistinct_kernels = { max = 99 }\nlaunches_per_step = { max = 1 }\n"
        '[phases."(no phase)"]\nkernels_per_step = { max = 99 }\nbusy_ns = { max = 300 }\n'
        '[kernels]\nmust_run = ["CUDA_graph"]\nmust_not_run = ["serial"]\n'
    )
    *lines, must, must_not = held(tmp_path, whole_graphs(tmp_path), text)
    assert [(line.ok, line.measured) for line in lines] == [
        (False, None), (False, None), (True, 1), (False, None), (True, 300),
    ]  # fmt: skip
    for line in (lines[0], lines[1], lines[3], must, must_not):
        assert (line.ok, line.measured) == (False, None)
        assert "traced as a whole" in line.remark


def test_work_that_left_no_rows_cannot_be_told(tmp_path: Path) -> None:
    # Each step launches a kernel and a graph replay, and the replay left no GPU rows.
    trace = TinyTrace()
    for i in range(4):
        t = i * 1000
        trace.range(f"step {i}", t, t + 400).launch(t + 10, "gemm", t + 20, t + 120).call(
            t + 130, t + 140, GRAPH_LAUNCH
        )
    seen = report(ask(trace.launch(5000, "last", 5010, 5020).save(tmp_path)))
    text = (
        "[limits]\nkernels_per_step = { max = 99 }\nstep_ns = { max = 1000 }\ngap_share = { max = 1 }\n"
        'failed_launches = { max = 0 }\n[kernels]\nmust_not_run = ["serial"]\n'
    )
    kernels, step, gaps, failed, must_not = held(tmp_path, seen, text)
    assert (step.ok, failed.ok) == (True, True)
    for line in (kernels, gaps, must_not):
        assert (line.ok, line.measured) == (False, None)
        assert "incomplete" in line.remark


def made(*devices: dict[str, Result]) -> Report:
    """A report by hand, one device for each of the results."""
    steps = StepsFacts("nvtx", "step #", 1, 1, (), (), ())
    reports = [DeviceReport(number, steps, results, ()) for number, results in enumerate(devices)]
    return Report(TraceFacts("t", "f", None, 0, 0, None, None, (), ()), None, reports[0], reports[1:] and reports)


def metrics(**values: Any) -> Result:
    return Result(metrics={name: Metric(value, "ratio") for name, value in values.items()})


def test_every_device_must_keep_a_limit_and_the_worst_is_named(tmp_path: Path) -> None:
    seen = made(*({"new": metrics(load=load, same=0.5)} for load in (0.2, 0.9, 0.4)))
    lines = held(tmp_path, seen, "[limits]\nload = { max = 0.9, min = 0.3 }\nsame = { max = 0.5 }\n")
    assert [(line.measured, line.ok, line.remark) for line in lines] == [
        (0.9, True, "device 1"),
        (0.2, False, "device 0"),
        (0.5, True, ""),
    ]


def test_a_device_that_cannot_tell_is_the_worst(tmp_path: Path) -> None:
    seen = made({"new": metrics(load=0.2)}, {"new": Result(skipped="No step.")}, {"new": metrics(load=float("nan"))})
    line = limit(tmp_path, seen, "load = { max = 1 }")
    assert (line.ok, line.measured, line.remark) == (False, None, "device 1: No step.")
    line = limit(tmp_path, made({"new": metrics(load=float("nan"))}), "load = { max = 1 }")
    assert (line.ok, line.measured, line.remark) == (False, None, "this trace cannot tell it")


def test_a_kernel_must_run_on_every_device(tmp_path: Path) -> None:
    runs, idles = (
        {"kernels": Result(tables={"kernels": [{"name": name, "calls_per_step": 2.0}]})} for name in ("mla", "gemm")
    )
    (line,) = held(tmp_path, made(runs, idles), '[kernels]\nmust_run = ["mla"]\n')
    assert (line.ok, line.measured, line.remark) == (False, 0.0, "device 1: what ran: gemm")
    (line,) = held(tmp_path, made(runs, runs), '[kernels]\nmust_run = ["mla"]\n')
    assert (line.ok, line.measured, line.remark) == (True, 2.0, "")


def test_a_name_of_two_analyzers_must_say_which(tmp_path: Path) -> None:
    seen = made({"one": metrics(load=0.2), "two": metrics(load=0.3)})
    with pytest.raises(UsageError, match=r"several analyzers; write one of one\.load, two\.load"):
        limit(tmp_path, seen, "load = { max = 1 }")
    assert limit(tmp_path, seen, "two.load = { max = 0.3 }").measured == 0.3
