"""Launches that failed or left no GPU work, and their cost."""

import numpy as np

from tracelab.failed_calls import failed_calls
from tracelab.launch_state import launches_without_work
from tracelab.module_loads import module_load_finding
from tracelab.result import Finding, Metric, Result, Row
from tracelab.view import View


def analyze(view: View) -> Result:
    """Failed calls by phase, step, process and error, whatever steps are used. A call that returned 0 never failed."""
    failed = failed_calls(view)
    launches = sum(row["count"] for row in failed if row["launch"])
    silent = launches_without_work(view.trace)
    metrics = {
        "failed_launches": Metric(launches, "launches"),
        "launches_without_work": Metric(len(silent), "launches"),
    }
    found = [_finding(row) for row in _merged(failed)]
    loading = module_load_finding(view)
    return Result(
        metrics=metrics,
        tables={"failed": failed, "calls": _calls(view)},
        findings=[*found, loading] if loading else found,
    )


def _merged(failed: list[Row]) -> list[Row]:
    """Failures at one phase with one error, over all steps."""
    merged: dict[tuple[str, str, str, str], dict[str, int]] = {}
    for row in failed:
        if row["severity"] in ("error", "fatal"):
            key = (row["phase"], row["api"], row["error"], row["severity"])
            tally = merged.setdefault(key, {"count": 0, "steps": 0, "code": row["code"]})
            tally["count"] += row["count"]
            tally["steps"] += 1
    return [
        {"phase": phase, "api": api, "error": error, "severity": severity, **tally}
        for (phase, api, error, severity), tally in sorted(merged.items(), key=lambda item: -item[1]["count"])
    ]


def _finding(row: Row) -> Finding:
    what = f"{row['count']} × {row['api']} failed in {row['phase']}: {row['error']} ({row['code']})."
    if row["severity"] == "fatal":
        return Finding("fatal-error", what, "GPU work after it is not to be trusted; look at the kernels before it.")
    return Finding("failed-launch", what, "The kernel did not run and its output holds old data; the program went on.")


def _calls(view: View) -> list[Row]:
    """Launching calls of the used steps by API: how many, and the host time they took."""
    _, calls = view.launching_calls
    names = view.trace.calls.name[calls]
    rows = []
    for code in np.unique(names):
        mine = calls[names == code]
        host_ns = view.trace.calls.end[mine] - view.trace.calls.start[mine]
        rows.append(
            {
                "api": view.trace.names[int(code)],
                "calls_per_step": view.per_step(len(mine)),
                "host_ns_per_step": round(view.per_step(int(host_ns.sum()))),
                "median_ns": round(float(np.median(host_ns))),
            }
        )
    return sorted(rows, key=lambda row: -row["host_ns_per_step"])
