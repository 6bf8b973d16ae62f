"""How `tracelab run` prints what it learned: the page, and the same as JSON."""

import dataclasses
import json
import math

from tracelab.kernel_run import KernelRun, VariantRun
from tracelab.units import TimeUnit, bandwidth, data, number, percent, time, work

_UNKNOWN = "–"
_TWO_DECIMALS_BELOW_NS = 10_000


def as_json(run: KernelRun) -> str:
    """One document; times in ns, shares as fractions."""
    document = {
        "schema": "tracelab.run/1",
        "kernel": run.kernel,
        "dtype": run.dtype,
        "options": dict(run.options),
        "gpu": run.gpu_name,
        "variants": [_json_variant(run, variant) for variant in run.variants],
        "checks": [dataclasses.asdict(check) for check in run.checks],
        "tables": [dataclasses.asdict(table) for table in run.tables],
    }
    return json.dumps(document, indent=1)


def _json_variant(run: KernelRun, variant: VariantRun) -> dict[str, object]:
    return {
        "variant": variant.variant,
        "check": {
            "name": "relative L2 error against float64",
            "ok": variant.ok,
            "measured": variant.error if math.isfinite(variant.error) else None,
            "limit": variant.tolerance,
        },
        "time_ns": variant.ns,
        "spread": variant.spread,
        "bytes": variant.bytes,
        "flops": variant.flops,
        "executed_flops": variant.executed_flops,
        "floor_ns": run.floor_ns(variant),
        "mbu": run.mbu(variant),
        "flops_per_s": variant.flops_per_s,
        "kernels": variant.kernels,
        "remark": variant.remark,
    }


def as_page(run: KernelRun) -> str:
    """Kernel, shape and floor, then one row a variant, and what the columns mean."""
    where = run.gpu_name or "Triton's interpreter on the CPU, at a small odd shape"
    shape = ", ".join(f"{name} {value}" for name, value in run.options.items())
    lines = [f"{run.kernel} · {where} · {run.dtype}", *([shape] if shape else [])]
    if run.variants:
        lines += [*_floor_line(run), "", *_table(run), "", _how_timed(run)]
    lines += [f"WRONG: {v.variant}: error {_error(v)} against float64, limit {v.tolerance:g}." for v in run.wrong]
    if run.checks:
        lines += ["", *_checks(run)]
    for table in run.tables:
        lines += ["", table.title, *_aligned([list(table.columns), *(list(row) for row in table.rows)])]
        lines += [table.note] if table.note else []
    return "\n".join(lines)


def _how_timed(run: KernelRun) -> str:
    if run.gpu_name is None:
        return "Not timed: this machine has no GPU. The check ran the same kernels in the interpreter."
    return "A/A: by how much two measurements of the same thing differ. A ratio inside it is no difference."


def _checks(run: KernelRun) -> list[str]:
    """One line a check: whether it holds, what it is, what was seen, and what must be seen."""
    width = max(len(check.name) for check in run.checks)
    return [
        f"{'ok   ' if check.ok else 'WRONG'}  {check.name:<{width}}  {check.measured}"
        + (f"  (must be: {check.limit})" if not check.ok else "")
        for check in run.checks
    ]


def _floor_line(run: KernelRun) -> list[str]:
    first = run.variants[0]
    said = f"{data(first.bytes)} and {work(first.flops)} a call"
    floor_ns = run.floor_ns(first)
    if floor_ns is None or run.gpu is None:
        return [said]
    by_bytes = first.bytes / run.gpu.bandwidth_bytes_per_s * 1e9
    binds = "memory" if by_bytes >= floor_ns else "FLOPs"
    return [f"{said}; floor {time(floor_ns)} ({binds}; {bandwidth(run.gpu.bandwidth_bytes_per_s)}, datasheet)"]


def _table(run: KernelRun) -> list[str]:
    # Always µs: a starved variant of 48 ms must not round its good twin of 142 µs away.
    shortest_ns = min((v.ns for v in run.variants if v.ns), default=0.0)
    unit = TimeUnit("µs", 1_000, 2 if shortest_ns < _TWO_DECIMALS_BELOW_NS else 1)
    heads = ["variant", "relL2", "check", unit.symbol, "A/A", "of floor", "MBU", "TFLOP/s", "× best", "kernels", ""]
    rows = [heads, *(_row(run, variant, unit) for variant in run.variants)]
    if run.gpu_name is None:
        rows = [[*row[:3], *row[9:]] for row in rows]
    return _aligned(rows)


def _aligned(rows: list[list[str]]) -> list[str]:
    """Columns side by side: the first and last to the left, numbers between them to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(_cell(text, widths[i], left=i in (0, len(row) - 1)) for i, text in enumerate(row)).rstrip()
            for row in rows]  # fmt: skip


def _cell(text: str, width: int, *, left: bool) -> str:
    return text.ljust(width) if left else text.rjust(width)


def _row(run: KernelRun, variant: VariantRun, unit: TimeUnit) -> list[str]:
    ns, spread, flops = variant.ns, variant.spread, variant.flops_per_s
    floor_ns, mbu = run.floor_ns(variant), run.mbu(variant)
    best = min((v.ns for v in run.variants if v.ns), default=None)
    return [
        variant.variant,
        _error(variant),
        "ok" if variant.ok else "WRONG",
        _UNKNOWN if ns is None else number(ns, unit),
        _UNKNOWN if spread is None else percent(spread),
        _UNKNOWN if ns is None or floor_ns is None else percent(floor_ns / ns),
        _UNKNOWN if mbu is None else percent(mbu),
        _UNKNOWN if flops is None else f"{flops / 1e12:.1f}",
        _UNKNOWN if ns is None or best is None else f"{ns / best:.2f}",
        str(variant.kernels),
        variant.remark,
    ]


def _error(variant: VariantRun) -> str:
    return f"{variant.error:.1e}" if math.isfinite(variant.error) else "not finite"
