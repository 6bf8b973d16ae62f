"""Whether two sides can be compared at all, and what else differs between them."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tracelab.compare.pairing import ANY_FAMILY
from tracelab.compare.side import Capture, Side
from tracelab.report import TraceWarning
from tracelab.units import count, percent

_PAIRED_AT_LEAST = 0.5  # of either side's kernel time
_SHAPE = ("batch", "ctx", "dtype", "tensor_parallel", "tokens_per_step")  # keys of the workload record


def reasons_against(before: Side, after: Side) -> list[TraceWarning]:
    """Why the sides cannot be compared; empty where they can."""
    return [reason for rule in (_steps, _gpu, _graphs, _model, _programs, _pairs) for reason in rule(before, after)]


def differences(before: Side, after: Side) -> list[TraceWarning]:
    """What differs without making the comparison void, each with what it limits."""
    rules = (_record, _shape, _driver, _failed, _sequence, _warnings_of_traces)
    return [warning for rule in rules for warning in rule(before, after)]


def failed_launches(side: Side) -> int:
    """Failed launches of all captures of a side."""
    return sum(_failed_in(capture) for capture in side.captures)


def _failed_in(capture: Capture) -> int:
    metric = capture.main.results["launches"].metrics.get("failed_launches")
    return int(metric.value) if metric is not None and isinstance(metric.value, int | float) else 0


def _captures(before: Side, after: Side) -> Iterator[tuple[str, Capture]]:
    yield from (("before", capture) for capture in before.captures)
    yield from (("after", capture) for capture in after.captures)


def _steps(before: Side, after: Side) -> Iterator[TraceWarning]:
    for where, capture in _captures(before, after):
        if capture.main.steps.used == 0:
            yield TraceWarning("no-steps", f"{capture.title} ({where}) has no steps with GPU work.")
    whole = {capture.main.steps.source == "whole-trace" for _, capture in _captures(before, after)}
    if len(whole) > 1:
        yield TraceWarning(
            "no-steps", "In one trace no steps were found, so it counts as one step; in the other they were."
        )


def _gpu(before: Side, after: Side) -> Iterator[TraceWarning]:
    found = [gpu for _, capture in _captures(before, after) if (gpu := gpu_of(capture)) and gpu[1]]
    names = {f"{name or 'an unnamed GPU'} ({sms} SMs)" for name, sms in found}
    if len(names) > 1:
        yield TraceWarning("other-gpu", f"The GPUs differ: {' and '.join(sorted(names))}.")


def gpu_of(capture: Capture) -> tuple[str, int | None] | None:
    """Name and SM count of the GPU that a capture is reported for."""
    gpu = next((gpu for gpu in capture.report.trace.gpus if gpu.id == capture.main.device), None)
    return None if gpu is None else (gpu.name, gpu.sm_count)


def _graphs(before: Side, after: Side) -> Iterator[TraceWarning]:
    if len({capture.by_kernel for _, capture in _captures(before, after)}) > 1:
        yield TraceWarning(
            "graph-mode",
            "In one trace CUDA graphs were recorded as a whole, so its kernels are not known; capture it with "
            "--cuda-graph-trace=node.",
        )


def _model(before: Side, after: Side) -> Iterator[TraceWarning]:
    names = dict.fromkeys(name for _, c in _captures(before, after) if (name := _model_name(_work(c))))
    if len(names) > 1:
        yield TraceWarning("other-model", f"The workload records name different models: {' and '.join(names)}.")


def _model_name(work: Mapping[str, Any]) -> str:
    """What stands before the first comma of the record's model names it; the rest describes its shape."""
    name = work.get("model") or work.get("name")
    return str(name).partition(",")[0].strip() if name else ""


def _programs(before: Side, after: Side) -> Iterator[TraceWarning]:
    for where, side in (("before", before), ("after", after)):
        for capture in side.captures[1:]:
            if not side.same_program(capture):
                yield TraceWarning(
                    "other-program",
                    f"{capture.title} runs other kernels than {side.first.title}, so it is no second capture of the "
                    f"program {where}.",
                )


def _pairs(before: Side, after: Side) -> Iterator[TraceWarning]:
    paired = [_paired_share(one, other) for one, other in ((before, after), (after, before))]
    if min(paired) < _PAIRED_AT_LEAST:
        yield TraceWarning(
            "other-kernels",
            f"Only {percent(paired[0], 0)} of the kernel time before and {percent(paired[1], 0)} of that after pair by "
            f"phase and kernel family; half of either must. --phases kernels names phases by kernel names on both "
            f"sides.{_because_of_failures(before, after)}",
        )


def _paired_share(side: Side, other: Side) -> float:
    mine, its = side.time_by_family, other.time_by_family
    whole = sum(mine.values())
    shared = sum(ns for key, ns in mine.items() if _has_partner(key, its))
    return shared / whole if whole else 1.0


def _has_partner(key: tuple[str, str], others: Collection[tuple[str, str]]) -> bool:
    """Whether the other side has kernels of that phase and family; one of unknown family may stand for any."""
    phase, family = key
    if family == ANY_FAMILY:
        return any(of == phase for of, _ in others)
    return key in others or (phase, ANY_FAMILY) in others


def _work(capture: Capture) -> Mapping[str, Any]:
    return capture.report.trace.workload or {}


def _record(before: Side, after: Side) -> Iterator[TraceWarning]:
    lacking = [where for where, side in (("before", before), ("after", after)) if not _work(side.first)]
    if len(lacking) == 1:
        yield TraceWarning(
            "no-record",
            f"Only one trace carries a workload record (none {lacking[0]}): whether model, batch and context are the "
            "same cannot be told.",
        )


def _shape(before: Side, after: Side) -> Iterator[TraceWarning]:
    one, other = _shape_of(_work(before.first)), _shape_of(_work(after.first))
    if not one or not other:
        return
    changed = [
        f"{key} {one.get(key, 'unset')} → {other.get(key, 'unset')}"
        for key in dict.fromkeys((*one, *other))
        if one.get(key) != other.get(key)
    ]
    if changed:
        yield TraceWarning(
            "other-workload", f"The workload differs: {', '.join(changed)}. That may be the change that is compared."
        )


def _shape_of(work: Mapping[str, Any]) -> dict[str, Any]:
    variant = work.get("variant")
    shape = {key: work[key] for key in _SHAPE if work.get(key) is not None}
    if isinstance(variant, Mapping):
        shape |= {str(key): value for key, value in variant.items() if str(key) not in shape}
    return shape


def _driver(before: Side, after: Side) -> Iterator[TraceWarning]:
    drivers = dict.fromkeys(capture.driver for _, capture in _captures(before, after) if capture.driver)
    if len(drivers) > 1:
        yield TraceWarning(
            "other-driver", f"The drivers differ ({' and '.join(drivers)}): launch times and clocks may, too."
        )


def _failed(before: Side, after: Side) -> Iterator[TraceWarning]:
    failed = {"before": failed_launches(before), "after": failed_launches(after)}
    lacking = [where for where, count in failed.items() if count]
    if len(lacking) == 1:
        number = failed[lacking[0]]
        yield TraceWarning(
            "failed-launches",
            f"{number} launch{'es' if number > 1 else ''} failed {lacking[0]}: work that did not run takes no time, so "
            "a phase with failed launches is not faster.",
        )


def _sequence(before: Side, after: Side) -> Iterator[TraceWarning]:
    one, other = before.places, after.places
    if (one.phase, one.name) != (other.phase, other.name):
        counts = [count(float(places.calls.sum())) for places in (one, other)]
        told = f"{counts[0]} → {counts[1]} a step" if counts[0] != counts[1] else f"{counts[0]} a step on both sides"
        yield TraceWarning(
            "other-sequence",
            f"The steps run other kernels ({told}): kernels are paired by phase, place and family.",
        )
    for where, side in (("before", before), ("after", after)):
        if not side.places.ordered:
            yield TraceWarning(
                "no-order", f"The steps {where} do not run one sequence of kernels: kernels are paired by name."
            )


def _because_of_failures(before: Side, after: Side) -> str:
    failed = failed_launches(before), failed_launches(after)
    return f" Launches failed ({failed[0]} before, {failed[1]} after), so kernels are missing." if any(failed) else ""


def _warnings_of_traces(before: Side, after: Side) -> Iterator[TraceWarning]:
    seen: dict[tuple[str, str], list[str]] = {}
    for where, capture in _captures(before, after):
        for warning in capture.report.trace.warnings:
            seen.setdefault((warning.code, warning.message), []).append(where)
    for (code, message), places in seen.items():
        where = " and ".join(dict.fromkeys(places))
        yield TraceWarning(code, f"{where.capitalize()}: {message}")
