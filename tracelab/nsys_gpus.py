"""GPUs of an nsys export, and which physical GPU each row of GPU work ran on."""

import json
import re
from typing import Any

import numpy as np

from tracelab import nsys_tables as tables
from tracelab.arrays import group_ids
from tracelab.nsys_ops import RawOps
from tracelab.nsys_raw import Identities
from tracelab.table_source import NULL, TableSource
from tracelab.trace import I32, Gpu

Notes = tuple[tuple[str, str], ...]

_GUESSED = (
    "device-mapping",
    "The trace does not say which GPU each CUDA ordinal is; matched by its order. With CUDA_VISIBLE_DEVICES set, work "
    "may have run on another GPU than the page says.",
)

# nsys 2021 and older: bandwidth in kB/s (reference: the export's own schema), hence the factor.
_OLD_GPUS = tables.TableSpec(
    "TARGET_INFO_CUDA_GPU",
    ("id", "numMultiprocessors", "globalMemoryBandwidth", "computeCapabilityMajor", "computeCapabilityMinor"),
    ("name",),
)
_BYTES_PER_KB = 1000
_SM_COUNT = re.compile(r"[1-9][0-9]{0,4}")
_IMPLAUSIBLE = 1 << 50  # above any memory size in bytes and any bandwidth in bytes/s


def read_gpus(source: TableSource) -> tuple[list[tuple[Gpu, int | None]], Notes]:
    """Each GPU with its CUDA ordinal (None where the file lacks it); display adapters without SMs are left out."""
    present = source.table_names()
    for reader, table in ((_gpu_info, tables.GPU_INFO.name), (_old_gpus, _OLD_GPUS.name), (_gpu_json, "")):
        if not table or table in present:
            gpus = reader(source)
            if gpus:
                return gpus, ()
    return [], (("no-gpu-info", "The trace does not describe its GPU; give --gpu NAME for limits and bandwidth."),)


def read_driver(source: TableSource) -> str | None:
    """Version of the GPU driver as the trace writes it (`580.159.04`), None where the trace does not say.

    Of several machines in one trace it is the first one's.
    """
    return next((value for name, value in _system_properties(source) if name == "NvDriverVersion" and value), None)


def device_map(
    source: TableSource, gpus: list[tuple[Gpu, int | None]], raw: RawOps, identities: Identities
) -> tuple[tuple[Gpu, ...], I32, Notes]:
    """The GPUs that did work, the row of each place of `raw` among them, and notes: where the mapping had to be
    guessed, and on rows that no GPU ran.

    deviceId is the CUDA ordinal inside its process, not the id of the GPU table.
    """
    pid, ordinal = raw.places.distinct["globalPid"], raw.places.distinct["deviceId"]
    pairs, rows = group_ids([pid, ordinal])
    declared = _declared(source)
    found, guessed = [], False
    for row in rows:
        key = (int(pid[row]) >> 24 & 0xFFFFFF, int(ordinal[row]))
        gpu, sure = _resolve(key, declared, gpus)
        found.append(gpu)
        guessed |= not sure
    devices = tuple(sorted(set(found), key=lambda gpu: gpu.id))
    codes = np.array([devices.index(gpu) for gpu in found], np.int32)
    doubtful = guessed and (len(gpus) > 1 or len(identities.processes) > 1)
    notes = (_GUESSED,) if doubtful else ()
    return devices, codes[pairs] if len(codes) else np.zeros(0, np.int32), (*notes, *_host_rows(raw.host_rows))


def _host_rows(rows: int) -> Notes:
    if not rows:
        return ()
    return (("host-work", f"{rows} rows name no device: nodes of a CUDA graph that the host runs. No GPU ran them."),)


def _declared(source: TableSource) -> dict[tuple[int, int], int]:
    raw = source.ints(tables.CUDA_DEVICE)
    return dict(zip(zip(raw["pid"].tolist(), raw["cudaId"].tolist(), strict=True), raw["gpuId"].tolist(), strict=True))


def _resolve(
    key: tuple[int, int], declared: dict[tuple[int, int], int], gpus: list[tuple[Gpu, int | None]]
) -> tuple[Gpu, bool]:
    by_id = {gpu.id: gpu for gpu, _ in gpus}
    if key in declared and declared[key] in by_id:
        return by_id[declared[key]], True
    ordinals = [cuda for _, cuda in gpus]
    if len(set(ordinals)) == len(gpus):
        for gpu, cuda in gpus:
            if cuda == key[1]:
                return gpu, len(gpus) == 1
    return by_id.get(key[1], Gpu(id=max(key[1], 0), name="unknown GPU")), len(gpus) == 1


def _gpu_info(source: TableSource) -> list[tuple[Gpu, int | None]]:
    raw = source.ints(tables.GPU_INFO)
    names = source.texts(tables.GPU_INFO, "name")
    rows = range(len(names))
    return [
        (_gpu(names[row] or "", {key: _known(column[row]) for key, column in raw.items()}), _known_or_zero(raw, row))
        for row in rows
        if _known(raw["smCount"][row])
    ]


def _gpu(name: str, facts: dict[str, int | None]) -> Gpu:
    return Gpu(
        id=facts["id"] or 0,
        name=name,
        sm_count=facts["smCount"],
        memory_bytes=facts["totalMemory"],
        bandwidth_bytes_per_s=facts["memoryBandwidth"],
        compute_major=facts["computeMajor"],
        compute_minor=facts["computeMinor"] or 0,
        registers_per_sm=facts["maxRegistersPerSm"],
        registers_per_block=facts["maxRegistersPerBlock"],
        shared_bytes_per_sm=facts["maxShmemPerSm"],
        warps_per_sm=facts["maxWarpsPerSm"],
        blocks_per_sm=facts["maxBlocksPerSm"],
        threads_per_warp=facts["threadsPerWarp"],
    )


def _old_gpus(source: TableSource) -> list[tuple[Gpu, int | None]]:
    raw, names = source.ints(_OLD_GPUS), source.texts(_OLD_GPUS, "name")
    return [
        (
            Gpu(
                id=_known(raw["id"][row]) or 0,
                name=name or "",
                sm_count=_known(raw["numMultiprocessors"][row]),
                bandwidth_bytes_per_s=(_known(raw["globalMemoryBandwidth"][row]) or 0) * _BYTES_PER_KB or None,
                compute_major=_known(raw["computeCapabilityMajor"][row]),
                compute_minor=_known(raw["computeCapabilityMinor"][row]) or 0,
            ),
            None,
        )
        for row, name in enumerate(names)
    ]


def _gpu_json(source: TableSource) -> list[tuple[Gpu, int | None]]:
    """Second fallback: the same facts as JSON among the system's properties."""
    found = [value for name, value in _system_properties(source) if name == "GpuInfo" and value]
    try:
        entries = json.loads(found[0]) if found else []
    except (ValueError, RecursionError):
        return []
    return [_from_json(i, entry) for i, entry in enumerate(entries if isinstance(entries, list) else [])]


def _system_properties(source: TableSource) -> list[tuple[str | None, str | None]]:
    names = source.texts(tables.SYSTEM_ENV, "name")
    return list(zip(names, source.texts(tables.SYSTEM_ENV, "value"), strict=True))


def _from_json(index: int, entry: Any) -> tuple[Gpu, int | None]:
    facts = entry if isinstance(entry, dict) else {}
    sm_count = str(facts.get("smCount") or facts.get("numMultiprocessors"))
    return Gpu(index, str(facts.get("name", "")), int(sm_count) if _SM_COUNT.fullmatch(sm_count) else None), None


def _known(value: np.int64 | int) -> int | None:
    """A positive number of plausible size, else None: missing, 0 (unknown in old exports) or damaged."""
    return int(value) if 0 < value < _IMPLAUSIBLE else None


def _known_or_zero(raw: dict[str, np.ndarray[Any, np.dtype[np.int64]]], row: int) -> int | None:
    ordinal = int(raw["cuDevice"][row])
    return None if ordinal == NULL else ordinal
