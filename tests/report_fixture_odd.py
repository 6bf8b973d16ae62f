"""Reports in which everything is odd: unknown GPU, failures, a recording, three devices, or all analyzers skipped."""

from collections.abc import Callable

from report_fixture import counts, kernel_row, phase_row, sketch_report

from tracelab.report import (
    CaptureFacts,
    DeviceReport,
    GpuFacts,
    LeftOut,
    Report,
    StepRow,
    StepsFacts,
    TraceFacts,
    TraceWarning,
)
from tracelab.result import Finding, Metric, Result, Row

EVIL = "evil\x1b[31m[bold red]kernel[/]\n"


def odd_report(skipped: bool = False) -> Report:
    """No steps of one's own making, unknown GPU and floor, failures, a recording, three devices; or all skipped."""
    sentence = "This trace holds no GPU work."
    results = {name: Result(skipped=sentence) for name in sketch_report().main.results} if skipped else _odd_results()
    others = [
        DeviceReport(id_, _odd_steps(), {"gaps": _odd_gaps(id_), "kernels": Result(metrics=counts(10.5, 1))}, [])
        for id_ in (1, 2)
    ]
    return Report(
        trace=TraceFacts(
            path="odd.sqlite",
            format="nsys-sqlite",
            producer=None,
            kernels=0 if skipped else 41_960,
            kernel_sum_ns=0 if skipped else 123_456_789,
            recording="recorded on an NVIDIA H200 with nsys 2025.3.2; nothing ran on this machine",
            workload={"batch": 64, "tokens_per_step": 64},
            gpus=[] if skipped else [GpuFacts(i, "\x1b[1mUnknown", None, None, None) for i in range(3)],
            warnings=[
                TraceWarning("no-gpu-info", "The trace does not describe its GPU; give --gpu NAME for its limits."),
                TraceWarning("incomplete", "GPU time is incomplete: 3430 graph launches have no GPU rows [trimmed]."),
            ],
        ),
        capture=CaptureFacts(3, "nsys", "2025.3.2"),
        main=DeviceReport(0, _no_steps() if skipped else _odd_steps(), results, () if skipped else _many_findings()),
        devices=() if skipped else others,
    )


def _no_steps() -> StepsFacts:
    return StepsFacts("none", "", 0, 0, [], [], [])


def _odd_steps() -> StepsFacts:
    row = StepRow(0, "whole trace", 1, 0, 41_960, 40, 200_000_000, 120_000_000, 123_000_000, None)
    left_out = [LeftOut(i, f"s {i}", "deviates", 300_000_000, kernels=9) for i in (1, 2, 3, 7)]
    left_out.append(LeftOut(9, "s 9", "truncated", 100_000_000))
    return StepsFacts("whole-trace", "", 6, 1, left_out, [], [row], outside_ns=3_456_000, outside_kernels=77)


def _odd_gaps(device: int) -> Result:
    metrics = {
        "step_ns": Metric(200_000_000 + device, "ns"),
        "busy_ns": Metric(120_000_000, "ns"),
        "bound": Metric("unknown", "word"),
    }
    return Result(metrics=metrics)


def _odd_results() -> dict[str, Result]:
    kernels = [
        kernel_row(f"void k{i}<{i}>(int)", f"layers/block #/part{i % 3}", 1000 + i / 2, 9_000_000.0 - i, 0.045)
        for i in range(20)
    ]
    kernels.append(kernel_row(EVIL, "(no phase)", 1, 6_000_000.0, 0.1))
    phases = [phase_row(f"layers/block #/part{i}", 10.5, 8e6, 8e6, 0.07, "aligned") for i in range(12)]
    phases.append(phase_row("(no phase)", 3, 19.2e6, 20e6, 0.16, "none"))
    return {
        "kernels": Result(metrics=counts(41_960, 40), tables={"kernels": kernels}),
        "phases": Result(
            metrics={"attributed_share": Metric(0.84, "share")},
            tables={
                "phases": phases,
                "attribution": [
                    {"method": "aligned", "kernels_per_step": 41_000.0, "sum_ns": 103_000_000, "share": 0.84},
                    {"method": "none", "kernels_per_step": 960.0, "sum_ns": 20_000_000, "share": 0.16},
                ],
            },
        ),
        "gaps": _odd_gaps(0),
        "mbu": Result(metrics=_floor(), tables={"phases": []}),
        "grids": Result(skipped="The limits of this GPU are unknown: give --gpu NAME."),
        "launches": Result(
            metrics={"failed_launches": Metric(12, "count"), "launches_without_work": Metric(3, "count")},
            tables={"failed": _failed()},
        ),
    }


def _floor() -> dict[str, Metric]:
    return {
        "bytes_per_step": Metric(16.06e9, "bytes"),
        "floor_ns": Metric(3_350_000, "ns"),
        "floor_kind": Metric("bytes", "word"),
        "mbu": Metric(0.0168, "share"),
        "mbu_busy": Metric(0.0279, "share"),
    }


def _failed() -> list[Row]:
    return [
        {
            "phase": "attn_bad",
            "step": step,
            "process": 1,
            "api": "cuLaunchKernel",
            "code": 1,
            "error": "cudaErrorInvalidValue",
            "severity": "error",
            "count": 2,
        }
        for step in range(6)
    ]


def _many_findings() -> list[Finding]:
    long = "a long sentence of evidence that goes on and on so that it has to be broken into several lines of the page"
    return [Finding(f"f{i}", f"Finding {i} in {EVIL!r}", long, None if i % 2 else 10_000_000) for i in range(7)]


def skipped_report() -> Report:
    """Every analyzer skipped with a sentence."""
    return odd_report(skipped=True)


def empty_report() -> Report:
    """No analyzer at all."""
    report = sketch_report()
    main = DeviceReport(0, report.main.steps, {}, [])
    return Report(report.trace, None, main)


REPORTS: dict[str, Callable[[], Report]] = {
    "sketch": sketch_report,
    "odd": odd_report,
    "skipped": skipped_report,
    "empty": empty_report,
}
