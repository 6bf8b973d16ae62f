"""Comparisons and budget checks as nested dictionaries for JSON: whole ns, null for what a side lacks."""

import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from tracelab.budget_result import BudgetCheck
from tracelab.difference import (
    LADDER_SCHEMA,
    SCHEMA,
    Change,
    Diff,
    KernelChange,
    Ladder,
    MetricChange,
    PhaseChange,
    Shape,
    SideFacts,
)

CHECK_SCHEMA = "tracelab.check/1"


def diff_document(diff: Diff) -> dict[str, Any]:
    """One comparison, of schema `tracelab.diff/1`."""
    return {
        "schema": SCHEMA,
        "comparable": diff.comparable,
        "reasons": [asdict(reason) for reason in diff.reasons],
        "verdict": diff.verdict,
        "noise_floor": asdict(diff.noise_floor),
        "controls": [asdict(control) for control in diff.controls],
        "step": _step(diff.step),
        "phases": [_phase(row) for row in diff.phases],
        "kernels": [_kernel(row) for row in diff.kernels],
        "before": _side(diff.before),
        "after": _side(diff.after),
        "warnings": [asdict(warning) for warning in diff.warnings],
        "device_time": _step(diff.device_time),
        "metrics": _metrics(diff.metrics),
        "findings": [asdict(finding) for finding in diff.findings],
        "regressed": list(diff.regressed),
        "notes": list(diff.notes),
    }


def ladder_document(ladder: Ladder) -> dict[str, Any]:
    """Several comparisons in a row, of schema `tracelab.ladder/1`."""
    rungs = [diff_document(rung) for rung in ladder.rungs]
    return {"schema": LADDER_SCHEMA, "rungs": rungs, "whole": diff_document(ladder.whole)}


def check_document(check: BudgetCheck) -> dict[str, Any]:
    """A budget check, of schema `tracelab.check/1`."""
    return {
        "schema": CHECK_SCHEMA,
        "ok": not check.failed,
        "trace": check.trace,
        "recording": check.recording,
        "budget": check.budget,
        "lines": [asdict(line) for line in check.lines],
    }


def _side(side: SideFacts) -> dict[str, Any]:
    return {field.name: getattr(side, field.name) for field in fields(side)}


def _step(change: Change) -> dict[str, Any]:
    return {"before_ns": _ns(change.before_ns), "after_ns": _ns(change.after_ns), **_judged(change)}


def _phase(row: PhaseChange) -> dict[str, Any]:
    return {
        "phase": row.phase,
        **_times(row.time),
        "share_before": row.share_before,
        "share_after": row.share_after,
        "kernels_before": row.kernels_before,
        "kernels_after": row.kernels_after,
        "control": row.control,
    }


def _kernel(row: KernelChange) -> dict[str, Any]:
    return {
        "name": " + ".join(row.after or row.before),
        "phase": row.phase,
        "pairing": row.pairing,
        "names_before": list(row.before),
        "names_after": list(row.after),
        "calls_before": row.calls_before,
        "calls_after": row.calls_after,
        **_times(row.time),
        "per_call_before_ns": _ns(row.per_call_before_ns),
        "per_call_after_ns": _ns(row.per_call_after_ns),
        **_shapes("before", row.shapes_before),
        **_shapes("after", row.shapes_after),
    }


def _times(change: Change) -> dict[str, Any]:
    before, after = _ns(change.before_ns), _ns(change.after_ns)
    return {
        "before_ns": before,
        "after_ns": after,
        "delta_ns": (after or 0) - (before or 0),  # of the rounded times, so that they add up
        **_judged(change),
    }


def _judged(change: Change) -> dict[str, Any]:
    return {
        "change": change.change,
        "interval": change.interval,
        "floor": change.floor,
        "verdict": change.verdict,
        "remark": change.remark,
    }


def _shapes(side: str, shapes: Sequence[Shape]) -> dict[str, Any]:
    """The launch shape of one side; where it has several kernels only `grid` can say it in one, `shapes` has each."""
    only = shapes[0] if len(shapes) == 1 else None
    return {
        f"grid_{side}": " + ".join(shape.grid for shape in shapes) or None,
        f"block_{side}": only and only.block,
        f"blocks_{side}": only and only.blocks,
        f"registers_{side}": only and only.registers,
        f"sm_fill_{side}": only and only.sm_fill,
        f"shapes_{side}": [asdict(shape) for shape in shapes],
    }


def _metrics(metrics: Sequence[MetricChange]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for metric in metrics:
        row = {"before": metric.before, "after": metric.after, "unit": metric.unit}
        found.setdefault(metric.analyzer, {})[metric.name] = row
    return found


def _ns(time_ns: float | None) -> int | None:
    return None if time_ns is None or not math.isfinite(time_ns) else round(time_ns)
