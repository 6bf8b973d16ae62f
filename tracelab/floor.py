"""The floor of a step: the bytes it must move over the memory bandwidth, or its FLOPs over the peak.

For a dense model at a small batch that is 2P/β (bf16 weights, read once per step) plus the KV cache. Source of the
definition of MBU: the Databricks post on LLM inference performance (weights + KV) / time per token / peak bandwidth.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tracelab.errors import UsageError
from tracelab.gpu_facts import Machine
from tracelab.options import Facts

NS_PER_S = 1e9
LONGEST_FLOOR_NS = 1 << 52  # 52 days, longer than any capture: bytes, FLOPs or bandwidth are wrong
BYTES_PER_PARAM = {
    "fp32": 4.0, "float32": 4.0, "bf16": 2.0, "bfloat16": 2.0, "fp16": 2.0, "float16": 2.0, "fp8": 1.0, "int8": 1.0,
    "e4m3": 1.0, "e5m2": 1.0, "float8": 1.0, "fp4": 0.5, "int4": 0.5, "mxfp4": 0.53125, "nvfp4": 0.5625,
}  # fmt: skip  # mxfp4: 4 bits and one scale byte per 32; nvfp4: per 16
_IMPLAUSIBLE = 1e30  # bytes, FLOPs or parameters of one step


@dataclass(frozen=True)
class Floor:
    """What one step must do at least. `why_not` says in one sentence why the floor is unknown (then ns is None)."""

    bytes: float | None
    flops: float | None
    ns: int | None
    kind: str | None
    why_not: str | None = None
    phases: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)  # bytes, FLOPs


def step_floor(machine: Machine, facts: Facts, record: Mapping[str, Any] | None) -> Floor:
    """The floor of one step on `machine`; options override the workload record."""
    work = record or {}
    total_bytes, flops = _bytes(facts, work), _number(facts.flops, work.get("flops_per_step"))
    recorded = total_bytes is not None and total_bytes == _number(work.get("bytes_per_step"))
    phases = _phases(work) if recorded else {}  # an option changed the total: the phases' parts no longer fit it
    if total_bytes is None and flops is None:
        lacks = "the workload record gives no bytes and no FLOPs" if work else "the trace carries no workload record"
        why = f"{lacks}; give --params (and --kv-bytes) for the floor"
        return Floor(None, None, None, None, why, phases)
    if machine.bandwidth_bytes_per_s is None:
        why = "the GPU's memory bandwidth is unknown; give --bandwidth or --gpu"
        return Floor(total_bytes, flops, None, None, why, phases)
    ns, kind = floor_ns(machine, _text(facts.dtype, work.get("dtype")), total_bytes, flops)
    if ns > LONGEST_FLOOR_NS:
        why = "the bytes or FLOPs of a step would take this GPU longer than any capture; correct the workload record"
        return Floor(total_bytes, flops, None, None, why)
    return Floor(total_bytes, flops, ns, kind, None, phases)


def floor_ns(machine: Machine, dtype: str | None, total_bytes: float | None, flops: float | None) -> tuple[int, str]:
    """The larger of bytes/β and FLOPs/π in whole ns, and which of them binds."""
    by_bytes = (total_bytes or 0.0) / (machine.bandwidth_bytes_per_s or float("inf")) * NS_PER_S
    peak = machine.flops_per_s(dtype)
    by_flops = flops / peak * NS_PER_S if flops and peak else 0.0
    return (round(by_flops), "flops") if by_flops > by_bytes else (round(by_bytes), "bytes")


def _bytes(facts: Facts, work: Mapping[str, Any]) -> float | None:
    """Weights and the rest (the KV cache): what an option does not tell is as the record says.

    Raises UsageError for an option that cannot be applied, since the record does not tell weights from the rest.
    """
    recorded, before = _number(work.get("bytes_per_step")), _weights(Facts(), work)
    weights = _weights(facts, work)
    if weights is None:
        if facts.dtype or facts.kv_bytes:
            raise UsageError("--dtype and --kv-bytes need the number of parameters; give --params too.")
        return recorded
    if recorded is None or before is None:
        return weights + (facts.kv_bytes or 0.0)
    if (weights, facts.kv_bytes) == (before, None):
        return recorded
    # A record may count parameters that no step reads (the embedding table): its weights are then at most its bytes.
    read = min(before, recorded)
    rest = facts.kv_bytes if facts.kv_bytes is not None else recorded - read
    told = facts.params is not None or facts.active_params is not None
    return (weights if told else weights * (read / before)) + rest


def _weights(facts: Facts, work: Mapping[str, Any]) -> float | None:
    """Bytes of the weights that one GPU reads per step."""
    count = _active_params(facts, work)
    if count is None:
        return None
    per_param = BYTES_PER_PARAM.get((_text(facts.dtype, work.get("dtype")) or "bf16").lower(), 2.0)
    return count * per_param / (_number(work.get("tensor_parallel")) or 1.0)


def _active_params(facts: Facts, work: Mapping[str, Any]) -> float | None:
    """Parameters read per step; `--params` alone keeps the record's share of active ones."""
    total, active = _number(work.get("params")), _number(work.get("active_params"))
    if facts.active_params is not None or facts.params is None:
        return _number(facts.active_params, active, total)
    return facts.params * (active / total) if total and active else facts.params


def _phases(work: Mapping[str, Any]) -> dict[str, tuple[float | None, float | None]]:
    declared = work.get("phases")
    if not isinstance(declared, Mapping):
        return {}
    return {
        str(name): (_number(part.get("bytes")), _number(part.get("flops")))
        for name, part in declared.items()
        if isinstance(part, Mapping)
    }


def _number(*candidates: Any) -> float | None:
    """The first that is a positive number of plausible size."""
    for value in candidates:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _IMPLAUSIBLE:
            return float(value)
    return None


def _text(*candidates: Any) -> str | None:
    return next((value for value in candidates if isinstance(value, str) and value), None)
