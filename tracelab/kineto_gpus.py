"""GPUs of a PyTorch profiler trace, from the `deviceProperties` that Kineto writes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tracelab.trace import Gpu

_IMPLAUSIBLE = 1 << 50  # above any size in bytes


def gpu_of(ordinal: int, metadata: Mapping[str, Any]) -> Gpu:
    """The GPU of a device ordinal; only its number where the file does not describe it."""
    declared = metadata.get("deviceProperties")
    for entry in declared if isinstance(declared, list) else ():
        if isinstance(entry, dict) and entry.get("id") == ordinal:
            return _described(ordinal, entry)
    return Gpu(id=ordinal, name="unknown GPU")


def describes_gpus(metadata: Mapping[str, Any]) -> bool:
    """Whether the file describes any GPU."""
    return bool(metadata.get("deviceProperties"))


def _described(ordinal: int, entry: Mapping[str, Any]) -> Gpu:
    warp, threads = _known(entry, "warpSize"), _known(entry, "maxThreadsPerMultiprocessor")
    name = str(entry.get("name") or "unknown GPU")
    gpu = Gpu(
        id=ordinal,
        name=name,
        sm_count=_known(entry, "numSms"),
        memory_bytes=_known(entry, "totalGlobalMem"),
        compute_major=_known(entry, "computeMajor"),
        compute_minor=_known(entry, "computeMinor") or 0,
        registers_per_sm=_known(entry, "regsPerMultiprocessor"),
        registers_per_block=_known(entry, "regsPerBlock"),
        shared_bytes_per_sm=_known(entry, "sharedMemPerMultiprocessor")
        or _known(entry, "maxSharedMemoryPerMultiProcessor"),
        warps_per_sm=threads // warp if threads and warp else None,
        threads_per_warp=warp,
    )
    return gpu if gpu.is_nvidia else replace(gpu, compute_major=None, compute_minor=None)


def _known(entry: Mapping[str, Any], key: str) -> int | None:
    """A positive number of plausible size, else None."""
    value = entry.get(key)
    return value if type(value) is int and 0 < value < _IMPLAUSIBLE else None
