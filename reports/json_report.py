"""The whole analysis, or a comparison, as JSON for scripts; every key carries its unit."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tracelab.budget_result import BudgetCheck
from tracelab.difference import Diff, Ladder
from tracelab.report import SCHEMA, DeviceReport, Report, StepsFacts, TraceFacts
from tracelab.reports._diff_json import check_document, diff_document, ladder_document
from tracelab.reports._trust_json import trust_document
from tracelab.trust_result import Trust

# From a file's name or a program's text: halves of characters, which no UTF-8 has, and what a terminal or an editor
# obeys or hides instead of showing it (C1 controls, zero-width characters, changes of direction).
_ESCAPED = re.compile("[\ud800-\udfff\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def render(report: Report, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001 - one signature
    """The report as one JSON document of schema `tracelab.report/1`; names are always whole."""
    return _text(document(report))


def render_result(report: Report, analyzer: str, *, full_names: bool, width: int | None, color: bool) -> str:
    """The same document with one analyzer's results and findings alone, so that scripts find them in one place."""
    alone = replace(
        report,
        main=_only(report.main, analyzer),
        devices=tuple(_only(device, analyzer) for device in report.devices),
    )
    return render(alone, full_names=full_names, width=width, color=color)


def render_diff(diff: Diff, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001
    """A comparison as one document of schema `tracelab.diff/1`."""
    return _text(diff_document(diff))


def render_ladder(ladder: Ladder, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001
    """Several comparisons as one document of schema `tracelab.ladder/1`."""
    return _text(ladder_document(ladder))


def render_check(check: BudgetCheck, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001
    """A budget check as one document of schema `tracelab.check/1`."""
    return _text(check_document(check))


def render_trust(trust: Trust, *, full_names: bool, width: int | None, color: bool) -> str:  # noqa: ARG001
    """Whether a trace can be trusted, as one document of schema `tracelab.trust/1`."""
    return _text(trust_document(trust))


def document(report: Report) -> dict[str, Any]:
    """The report as nested dictionaries, as they stand (numpy numbers, NaN)."""
    main = report.main
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "trace": _trace(report.trace),
        "capture": None if report.capture is None else asdict(report.capture),
        "device": main.device,
        "steps": _steps(main.steps),
        **_device(main),
    }
    if report.devices:
        result["devices"] = [{"device": device.device, **_device(device)} for device in report.devices]
    return result


def _text(content: Mapping[str, Any]) -> str:
    text = json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _only(device: DeviceReport, analyzer: str) -> DeviceReport:
    results = {name: result for name, result in device.results.items() if name == analyzer}
    return replace(device, results=results, findings=[f for result in results.values() for f in result.findings])


def _trace(trace: TraceFacts) -> dict[str, Any]:
    facts = {
        name: getattr(trace, name)
        for name in ("path", "format", "producer", "kernels", "kernel_sum_ns", "cuda_graphs", "recording", "workload")
    }
    return {
        **facts,
        "gpus": [asdict(gpu) for gpu in trace.gpus],
        "warnings": [asdict(warning) for warning in trace.warnings],
    }


def _steps(steps: StepsFacts) -> dict[str, Any]:
    return {
        "source": steps.source,
        "pattern": steps.pattern,
        "found": steps.found,
        "used": steps.used,
        "left_out": [asdict(step) for step in steps.left_out],
        "others": [asdict(group) for group in steps.others],
        "per_step": [asdict(step) for step in steps.per_step],
        "outside_ns": steps.outside_ns,
        "outside_kernels": steps.outside_kernels,
    }


def _device(device: DeviceReport) -> dict[str, Any]:
    return {
        "results": {name: result.to_json() for name, result in device.results.items()},
        "findings": [asdict(finding) for finding in device.findings],
    }


def _plain(value: Any) -> Any:
    """The value in the types JSON knows; what is not a number (NaN, infinite) is null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
