"""One device's bandwidth, peak FLOP/s and SM limits: from options, datasheet and trace, in that order."""

from dataclasses import dataclass

from tracelab.gpus import GpuSpec, by_option, datasheet
from tracelab.occupancy import SmLimits
from tracelab.options import Facts
from tracelab.trace import Gpu

_FP8 = ("fp8", "e4m3", "e5m2", "float8", "int8")


@dataclass(frozen=True)
class Machine:
    """`bandwidth_source` is `option`, `datasheet`, `datasheet of NAME` (by --gpu), `trace` or None; FLOP/s are dense.
    `limits` None: unknown."""

    name: str
    sm_count: int | None
    bandwidth_bytes_per_s: float | None
    bandwidth_source: str | None
    spec: GpuSpec | None
    limits: SmLimits | None

    def flops_per_s(self, dtype: str | None) -> float | None:
        """Dense peak for `dtype` (bf16 unless it is an 8-bit type); None where no datasheet is known."""
        if self.spec is None:
            return None
        return self.spec.fp8_flops_per_s if (dtype or "").lower() in _FP8 else self.spec.bf16_flops_per_s


def machine(gpu: Gpu, facts: Facts) -> Machine:
    """What is known of `gpu`. Raises UsageError for a `--gpu` that no datasheet has."""
    spec = by_option(facts.gpu) if facts.gpu else datasheet(gpu.name, gpu.memory_bytes, gpu.sm_count)
    sm_count = gpu.sm_count or (spec.sm_count if spec else None)
    bandwidth, source = _bandwidth(gpu, facts, spec)
    if source == "datasheet" and spec is not None and spec != datasheet(gpu.name, gpu.memory_bytes, gpu.sm_count):
        source = f"datasheet of {spec.name}"
    capability = (gpu.compute_major, gpu.compute_minor or 0)
    major, minor = capability if gpu.compute_major else spec.compute_capability if spec else (None, None)
    limits = SmLimits.with_defaults(
        major,
        minor,
        sm_count=sm_count,
        registers_per_sm=gpu.registers_per_sm,
        registers_per_block=gpu.registers_per_block,
        warps_per_sm=gpu.warps_per_sm,
        blocks_per_sm=gpu.blocks_per_sm,
        shared_per_sm=gpu.shared_bytes_per_sm,
        threads_per_warp=gpu.threads_per_warp,
    )
    name = spec.name if facts.gpu and spec and not gpu.sm_count else gpu.name
    return Machine(name, sm_count, bandwidth, source, spec, limits)


def _bandwidth(gpu: Gpu, facts: Facts, spec: GpuSpec | None) -> tuple[float | None, str | None]:
    if facts.bandwidth_bytes_per_s:
        return facts.bandwidth_bytes_per_s, "option"
    if spec is not None:
        return spec.bandwidth_bytes_per_s, "datasheet"
    if gpu.bandwidth_bytes_per_s:
        return float(gpu.bandwidth_bytes_per_s), "trace"
    return None, None
