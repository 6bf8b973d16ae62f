"""What `tracelab run` learned about a kernel: each variant's error and time, and the figures that follow from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracelab.gpus import GpuSpec, datasheet

NS_PER_S = 1e9


@dataclass(frozen=True)
class VariantRun:
    """One variant: relative L2 error against float64, and time of one call in ns (None where nothing was timed).

    `spread` is the A/A spread: by how much two measurements of the same thing differ.
    """

    variant: str
    error: float
    tolerance: float
    bytes: int
    flops: int
    executed_flops: int
    kernels: int
    remark: str
    ns: float | None
    spread: float | None

    @property
    def ok(self) -> bool:
        """Whether the result is right within the tolerance."""
        return self.error <= self.tolerance

    @property
    def bytes_per_s(self) -> float | None:
        """Useful bytes over time."""
        return None if self.ns is None else self.bytes / self.ns * NS_PER_S

    @property
    def flops_per_s(self) -> float | None:
        """Useful FLOPs over time."""
        return None if self.ns is None else self.flops / self.ns * NS_PER_S


@dataclass(frozen=True)
class KernelCheck:
    """A check of a kernel's own: what was seen and what must be seen, as text."""

    name: str
    ok: bool
    measured: str
    limit: str


@dataclass(frozen=True)
class KernelTable:
    """A further table of a kernel's own, its cells as text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


@dataclass(frozen=True)
class KernelRun:
    """A run of one kernel; `gpu_name` is None where its kernels ran in Triton's interpreter."""

    kernel: str
    dtype: str
    options: Mapping[str, Any]
    gpu_name: str | None
    gpu: GpuSpec | None
    variants: tuple[VariantRun, ...]
    tables: tuple[KernelTable, ...] = ()
    checks: tuple[KernelCheck, ...] = ()

    @property
    def wrong(self) -> tuple[VariantRun, ...]:
        """Variants whose result is wrong."""
        return tuple(v for v in self.variants if not v.ok)

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of what did not pass: variants and checks."""
        return (*(v.variant for v in self.wrong), *(c.name for c in self.checks if not c.ok))

    def floor_ns(self, run: VariantRun) -> float | None:
        """The larger of useful bytes/β and useful FLOPs/π in ns; None for an unknown GPU."""
        if self.gpu is None:
            return None
        by_flops = run.flops / self.gpu.bf16_flops_per_s if self.gpu.bf16_flops_per_s else 0.0
        return max(run.bytes / self.gpu.bandwidth_bytes_per_s, by_flops) * NS_PER_S

    def mbu(self, run: VariantRun) -> float | None:
        """Useful bytes ÷ (time × β)."""
        if self.gpu is None or run.bytes_per_s is None:
            return None
        return run.bytes_per_s / self.gpu.bandwidth_bytes_per_s


def kernel_run(lines: Sequence[Mapping[str, Any]]) -> KernelRun:
    """From the JSON lines that a kernel wrote: the first about the run, then variants, tables and checks of its own."""
    head, *rest = lines
    device = head["gpu"]
    spec = datasheet(device["name"], device["memory_bytes"], device["sm_count"]) if device else None
    return KernelRun(
        kernel=head["kernel"],
        dtype=head["dtype"],
        options=head["options"],
        gpu_name=device["name"] if device else None,
        gpu=spec,
        variants=tuple(_variant(line) for line in rest if "variant" in line),
        tables=tuple(_table(line["table"]) for line in rest if "table" in line),
        checks=tuple(_check(line) for line in rest if "check" in line),
    )


def _table(said: Mapping[str, Any]) -> KernelTable:
    cells = tuple(tuple(str(cell) for cell in row) for row in said["rows"])
    return KernelTable(said["title"], tuple(said["columns"]), cells, said["note"])


def _variant(row: Mapping[str, Any]) -> VariantRun:
    return VariantRun(
        variant=row["variant"],
        error=row["error"],
        tolerance=row["tolerance"],
        bytes=row["bytes"],
        flops=row["flops"],
        executed_flops=row["executed_flops"],
        kernels=row["kernels"],
        remark=row["remark"],
        ns=row.get("ns"),
        spread=row.get("spread"),
    )


def _check(line: Mapping[str, Any]) -> KernelCheck:
    return KernelCheck(line["check"], line["ok"], str(line["measured"]), str(line["limit"]))
