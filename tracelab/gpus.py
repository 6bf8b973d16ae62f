"""What datasheets say about a GPU: bandwidth, multiprocessors, peak FLOP/s, and the limits of one multiprocessor.

The figures stand in `gpus.toml`, each with its source. A trace's own bandwidth field is computed from clock and bus
width and can exceed the datasheet, so the datasheet goes first wherever name, memory and SM count all match.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tracelab.errors import UsageError

_TABLE = Path(__file__).with_name("gpus.toml")
# A driver reports a little less than the nominal size: 139.8 of 141 GiB on an H200, 14.7 of 16 on a T4 (traces).
_REPORTED_OF_NOMINAL_MEMORY = (0.88, 1.02)
_BRANDS = re.compile(r"^(nvidia|geforce|tesla)-")


@dataclass(frozen=True)
class GpuSpec:
    """One GPU by its datasheet: bandwidth in bytes/s, dense FLOP/s; None where no source gives the figure.

    `sm_count` is None where cards of one name differ (GB200).
    """

    name: str
    bandwidth_bytes_per_s: float
    sm_count: int | None
    bf16_flops_per_s: float | None
    fp8_flops_per_s: float | None
    compute_capability: tuple[int, int]
    source: str


@dataclass(frozen=True)
class SmDefaults:
    """What one multiprocessor of a compute capability holds, for traces that do not say."""

    warps: int
    blocks: int
    shared_bytes: int


@dataclass(frozen=True)
class _Entry:
    spec: GpuSpec
    pattern: re.Pattern[str]
    memory_gib: Sequence[float]
    sm_counts: Sequence[int]
    keys: tuple[str, ...]

    def fits(self, name: str, total_memory_bytes: int | None, sm_count: int | None) -> bool:
        return (
            self.pattern.search(name) is not None
            and (not sm_count or not self.sm_counts or sm_count in self.sm_counts)
            and (not total_memory_bytes or not self.memory_gib or self._memory_fits(total_memory_bytes))
        )

    def _memory_fits(self, total_memory_bytes: int) -> bool:
        low, high = _REPORTED_OF_NOMINAL_MEMORY
        return any(low <= total_memory_bytes / (size * 2**30) <= high for size in self.memory_gib)


def datasheet(name: str, total_memory_bytes: int | None = None, sm_count: int | None = None) -> GpuSpec | None:
    """The datasheet of the GPU that a trace names; None if no entry, or more than one, fits.

    A part of a card (MIG) or a cut card shows by its SM count or memory and gets None; unknown or 0 is not compared.
    """
    fitting = [e.spec for e in _entries() if e.fits(name, total_memory_bytes, sm_count)]
    return fitting[0] if len(fitting) == 1 else None


def by_option(name: str) -> GpuSpec:
    """The GPU meant by `--gpu NAME`: its name in any case, or a beginning that only one GPU has.

    Raises UsageError, naming the known GPUs, if none or more than one is meant.
    """
    key = _key(name)
    entries = _entries()
    exact = [e.spec for e in entries if key in e.keys]
    found = exact or [e.spec for e in entries if any(k.startswith(f"{key}-") for k in e.keys)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"--gpu {name!r} could be any of {', '.join(s.name for s in found)}; give one of them.")
    raise UsageError(f"--gpu {name!r} is not known; known are {', '.join(known_names())}.")


def known_names() -> list[str]:
    """Every name that `--gpu` takes, in the order of the table."""
    return [entry.spec.name for entry in _entries()]


def sm_defaults(compute_major: int, compute_minor: int) -> SmDefaults | None:
    """Limits of one multiprocessor of this compute capability; None if not in the table."""
    for row in _table()["sm"]:
        if row["compute_capability"] == [compute_major, compute_minor]:
            return SmDefaults(warps=row["warps"], blocks=row["blocks"], shared_bytes=row["shared_kib"] * 1024)
    return None


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


@cache
def _entries() -> tuple[_Entry, ...]:
    return tuple(_entry(row) for row in _table()["gpu"])


def _entry(row: dict[str, Any]) -> _Entry:
    sm_counts = row["sm_counts"]
    major, minor = row["compute_capability"]
    spec = GpuSpec(
        name=row["name"],
        bandwidth_bytes_per_s=row["bandwidth_bytes_per_s"],
        sm_count=sm_counts[0] if len(sm_counts) == 1 else None,
        bf16_flops_per_s=row.get("bf16_flops_per_s"),
        fp8_flops_per_s=row.get("fp8_flops_per_s"),
        compute_capability=(major, minor),
        source=row["source"],
    )
    keys = (_key(spec.name), *row.get("aliases", ()))
    return _Entry(spec, re.compile(row["pattern"], re.IGNORECASE), row.get("memory_gib", ()), sm_counts, keys)


def _key(name: str) -> str:
    key = re.sub(r"[\s_]+", "-", name.strip().lower())
    while (shorter := _BRANDS.sub("", key)) != key:
        key = shorter
    return key
