"""Launches that failed or left no GPU work, and their cost."""

import numpy as np

from tracelab.failed_calls import failed_calls, rank_of, waiting_ranks
from tracelab.launch_state import launches_without_work
from tracelab.module_loads import module_load_finding
from tracelab.result import Finding, Metric, Result, Row
from tracelab.view import View

_UNTOLD = "The trace does not say what its calls returned, so failed launches cannot be told."


def analyze(view: View) -> Result:
    """Failed calls by phase, step, process and error, whatever steps are used. A call that returned 0 never failed.

    Where the trace has no return codes, only what can be said without them.
    """
    without_work = Metric(len(launches_without_work(view.trace)), "launches")
    loading = module_load_finding(view)
    others = [loading] if loading else []
    if not view.trace.returns_known:
        metrics = {"launches_without_work": without_work}
        return Result(skipped=_UNTOLD, metrics=metrics, tables={"calls": _calls(view)}, findings=others)
    failed = failed_calls(view)
    launches = sum(row["count"] for row in failed if row["launch"])
    return Result(
        metrics={"failed_launches": Metric(launches, "launches"), "launches_without_work": without_work},
        tables={"failed": failed, "calls": _calls(view)},
        findings=[*(_finding(view, rows) for rows in _merged(failed)), *others],
    )


def _merged(failed: list[Row]) -> list[list[Row]]:
    """Failures at one phase with one error, over all steps and ranks; the most frequent first."""
    merged: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in failed:
        if row["severity"] in ("error", "fatal"):
            merged.setdefault((row["phase"], row["api"], row["error"], row["severity"]), []).append(row)
    return [rows for _, rows in sorted(merged.items(), key=lambda item: (-_count(item[1]), item[0]))]


def _count(rows: list[Row]) -> int:
    return sum(row["count"] for row in rows)


def _finding(view: View, rows: list[Row]) -> Finding:
    row, rank = rows[0], rank_of(view, rows)
    what = f"{_count(rows)} × {row['api']} failed in {row['phase']}{rank}: {row['error']} ({row['code']})."
    waits = waiting_ranks(view, rows) if rank else ""
    if row["severity"] == "fatal":
        said = "GPU work after it is not to be trusted; look at the kernels before it."
        return Finding("fatal-error", what, f"{said} {waits}".strip())
    said = "The kernel did not run and its output holds old data; the program went on."
    return Finding("failed-launch", what, f"{said} {waits}".strip())


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
