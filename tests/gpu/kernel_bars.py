"""Measures the bundled kernels on a GPU against the bars and contrasts of the design, and prints the README's table.

Usage, from the repository root: python3 tests/gpu/kernel_bars.py [--out FILE.json] [--only TEXT]
Every figure comes from a variant that was checked against float64 in the same process. Exit code 3 if a check or a bar
is not met.
"""

import argparse
import gc
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tracelab.kernels import mla
from tracelab.kernels._bench import copies_for, time_launches
from tracelab.kernels._kernel_main import run_lines

BETA, PI = 4.8e12, 989e12  # H200: bytes/s and dense bf16 FLOP/s (NVIDIA data sheet)
Row = Mapping[str, Any]
# The bars of mla are for its first launch alone; its contrasts compare whole variants, as everywhere.
MLA_SPLIT, MLA_MERGE = "batched_split: split", "batched_split: merge+W_UV"


@dataclass(frozen=True)
class Shape:
    """One kernel at one shape, and which of its variants are measured there."""

    kernel: str
    options: Mapping[str, int | str]
    variants: tuple[str, ...]

    @property
    def title(self) -> str:
        """Short and unique."""
        return " ".join([self.kernel, *(f"{name}={value}" for name, value in self.options.items())])


@dataclass(frozen=True)
class Bar:
    """A limit on one variant at one shape: `value(row)` must be at least (or, with `most`, at most) `limit`.

    `stretch` is what one may hope for: it is reported, and missing it fails nothing.
    """

    shape: str
    variant: str
    metric: str
    limit: float
    most: bool = False
    stretch: float | None = None


@dataclass(frozen=True)
class Contrast:
    """How many times slower `slow` must be than `good`, at least."""

    shape: str
    slow: str
    good: str
    limit: float


METRICS: Mapping[str, Callable[[Row], float]] = {
    "µs": lambda row: row["ns"] / 1e3,
    "MBU %": lambda row: row["bytes"] / row["ns"] * 1e9 / BETA * 100,
    "TFLOP/s": lambda row: row["flops"] / row["ns"] / 1e3,
}
SHAPES = (
    Shape("attention", {"length": 4096}, ("flash", "naive", "sdpa", "flash_serial")),
    Shape("attention", {"length": 16384}, ("flash", "naive", "sdpa")),
    Shape("attention", {"length": 16384, "causal": 1}, ("flash", "sdpa")),
    Shape("split_kv", {"ctx": 1024}, ("split", "sdpa")),
    Shape("split_kv", {"ctx": 8192}, ("split", "serial", "sdpa")),
    Shape("split_kv", {"ctx": 32768}, ("split", "serial", "per_head", "fixed_cap", "paged", "sdpa")),
    Shape("split_kv", {"ctx": 131072}, ("split", "serial", "per_head", "fixed_cap", "paged", "sdpa")),
    Shape("mla", {"ctx": 131072, "heads": 12},
          ("batched_split", "per_head_serial", "per_head_split", "batched_unsplit")),
    Shape("mla", {"ctx": 131072, "heads": 16}, ("batched_split",)),
    Shape("mla", {"ctx": 131072, "heads": 96},
          ("batched_split", "per_head_serial", "per_head_split", "batched_unsplit", "bh32_maxnreg")),
    Shape("mla", {"ctx": 32768, "heads": 96}, ("batched_split",)),
    Shape("grouped_gemm", {"rows": 8}, ("masked", "contiguous", "dynamic", "bm64", "bm128", "loop", "bmm")),
    Shape("grouped_gemm", {"rows": 8, "n": 7168, "k": 2048}, ("masked", "loop", "bmm")),
    Shape("grouped_gemm", {"rows": 512, "capacity": 512}, ("bm128", "contiguous", "bmm")),
    Shape("kda", {"batch": 32, "heads": 96}, ("fused", "unfused", "eager", "warps8", "bv32")),
    Shape("kda", {"batch": 1, "heads": 96}, ("fused", "unfused", "eager")),
    Shape("kda", {"batch": 1, "heads": 12}, ("fused", "bv128", "unfused")),
)  # fmt: skip
BARS = (
    Bar("split_kv ctx=8192", "split", "µs", 13.6, most=True),
    Bar("split_kv ctx=32768", "split", "MBU %", 77),
    Bar("split_kv ctx=131072", "split", "MBU %", 90),
    Bar("mla ctx=131072 heads=12", MLA_SPLIT, "MBU %", 80),
    Bar("mla ctx=131072 heads=96", MLA_SPLIT, "TFLOP/s", 192, stretch=300),
    Bar("mla ctx=32768 heads=96", MLA_SPLIT, "TFLOP/s", 155, stretch=220),
    # 85 % of the 436 MB that the design counts, conv weights once a row; of the 417 MB that must move it is 81 %.
    Bar("kda batch=32 heads=96", "fused", "µs", 107, most=True),
    Bar("kda batch=1 heads=96", "fused", "µs", 7.9, most=True),
    Bar("kda batch=1 heads=12", "fused", "µs", 4.1, most=True),
    Bar("grouped_gemm rows=8", "masked", "MBU %", 92),
    Bar("grouped_gemm rows=8 n=7168 k=2048", "masked", "MBU %", 90),
)
# flash: 600 TFLOP/s, or 0.9 of torch's own kernel in the same run
EITHER = (("attention length=4096", 600.0), ("attention length=16384", 600.0))
SDPA_SHARE = 0.9
CONTRASTS = (
    Contrast("attention length=4096", "naive", "flash", 2.5),
    Contrast("attention length=16384", "naive", "flash", 2.5),
    Contrast("split_kv ctx=32768", "serial", "split", 5),
    Contrast("split_kv ctx=131072", "serial", "split", 5),
    Contrast("mla ctx=131072 heads=96", "per_head_serial", "per_head_split", 1.15),
    Contrast("mla ctx=131072 heads=12", "per_head_serial", "per_head_split", 4),
    Contrast("mla ctx=131072 heads=96", "per_head_split", "batched_split", 50),
    Contrast("mla ctx=131072 heads=12", "per_head_split", "batched_split", 50),
    Contrast("mla ctx=131072 heads=96", "batched_unsplit", "batched_split", 20),
    Contrast("mla ctx=131072 heads=12", "batched_unsplit", "batched_split", 20),
    Contrast("grouped_gemm rows=8", "loop", "masked", 1.25),
    Contrast("grouped_gemm rows=8", "bm128", "masked", 1.08),
    Contrast("kda batch=32 heads=96", "warps8", "fused", 1.3),
    Contrast("kda batch=32 heads=96", "bv32", "fused", 1.15),
    Contrast("kda batch=1 heads=12", "bv128", "fused", 1.08),
    Contrast("kda batch=1 heads=96", "unfused", "fused", 1.15),
    Contrast("kda batch=1 heads=96", "eager", "fused", 3),
)


def measured(only: str) -> Iterator[tuple[str, Row]]:
    """Shape title and the measured row of each variant; a failing variant ends only itself."""
    for shape in SHAPES:
        if only not in shape.title:
            continue
        module = importlib.import_module(f"tracelab.kernels.{shape.kernel}")
        for variant in shape.variants:
            if variant not in module.VARIANTS:
                print(f"{shape.title} {variant}: no such variant", flush=True)
                continue
            try:
                with torch.inference_mode():
                    *_, row = run_lines(module, {**shape.options, "variant": variant})
                    split = shape.kernel == "mla" and variant == "batched_split"
                    found: list[Row] = [row, *mla_parts(shape, row)] if split else [row]
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
                found = [{"variant": variant, "ok": False, "error": float("inf"), "failure": failure}]
            gc.collect()
            torch.cuda.empty_cache()
            for each in found:
                print(_line(shape.title, each), flush=True)
                yield shape.title, each


def mla_parts(shape: Shape, whole: Row) -> list[Row]:
    """The two launches of `batched_split` timed apart; that it is right was checked on the whole.

    The split reads query and cache: 131 072 rows of 1152 B are 151 MB, to which 12 heads add 14 KB. W_UV and both
    results are the merge's. Partial results count for neither, as scratch does in no variant. FLOPs likewise.
    """
    options: dict[str, Any] = {**mla.DEFAULTS, **shape.options}
    sizes = mla.shape_of(options)
    rows = sizes.batch * sizes.heads
    split_bytes = 2 * sizes.width * (rows + sizes.batch * sizes.ctx)  # bf16
    split_flops = 2 * rows * sizes.ctx * (sizes.width + sizes.latent)
    copies = copies_for(whole["bytes"])
    launches = mla.parts(options, torch.device("cuda"), copies)
    launches["sum"](0)  # the merge has something finite to merge
    found: list[Row] = []
    for name, part, size, flops in (
        (MLA_SPLIT, "split", split_bytes, split_flops),
        (MLA_MERGE, "merge", whole["bytes"] - split_bytes, whole["flops"] - split_flops),
    ):
        timing = time_launches(launches[part], copies)
        found.append({**whole, "variant": name, "bytes": size, "flops": flops, "executed_flops": None, "kernels": 1,
                      "ns": timing.ns, "spread": timing.spread, "copies": copies, "calls": timing.calls,
                      "replays": timing.replays})  # fmt: skip
    return found


def _line(title: str, row: Row) -> str:
    if "ns" not in row:
        return f"{title:40} {row['variant']:25} FAILED {row.get('failure', '')[:160]}"
    figures = "  ".join(f"{METRICS[name](row):9.2f} {name}" for name in METRICS)
    good = "ok" if row["ok"] else "WRONG"
    return (
        f"{title:40} {row['variant']:25} {good} {row['error']:.1e}  {figures}  A/A {row['spread']:.2%}  {row['remark']}"
    )


def verdicts(rows: Mapping[tuple[str, str], Row]) -> Iterator[dict[str, Any]]:
    """Each check, bar and contrast with what was measured."""
    for (shape, variant), row in rows.items():
        yield {
            "what": f"{shape} {variant} check",
            "measured": row["error"],
            "limit": row.get("tolerance"),
            "ok": row["ok"],
        }
    for bar in BARS:
        row = rows.get((bar.shape, bar.variant), {})
        if "ns" in row:
            value = METRICS[bar.metric](row)
            ok = value <= bar.limit if bar.most else value >= bar.limit
            sign = "≤" if bar.most else "≥"
            yield {
                "what": f"{bar.shape} {bar.variant} {bar.metric} {sign}",
                "measured": value,
                "limit": bar.limit,
                "stretch": bar.stretch,
                "ok": ok,
            }
    for shape, limit in EITHER:
        flash, sdpa = rows.get((shape, "flash"), {}), rows.get((shape, "sdpa"), {})
        if "ns" in flash and "ns" in sdpa:
            value = METRICS["TFLOP/s"](flash)
            least = min(limit, SDPA_SHARE * METRICS["TFLOP/s"](sdpa))
            yield {"what": f"{shape} flash TFLOP/s ≥", "measured": value, "limit": least, "ok": value >= least}
    for contrast in CONTRASTS:
        slow, good = rows.get((contrast.shape, contrast.slow), {}), rows.get((contrast.shape, contrast.good), {})
        if "ns" in slow and "ns" in good:
            ratio = slow["ns"] / good["ns"]
            yield {"what": f"{contrast.shape} {contrast.slow} / {contrast.good} ≥", "measured": ratio,
                   "limit": contrast.limit, "ok": ratio >= contrast.limit}  # fmt: skip


def main() -> int:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    torch.manual_seed(0)
    rows = {(title, row["variant"]): row for title, row in measured(asked.only)}
    results = list(verdicts(rows))
    print()
    for result in results:
        if not result["what"].endswith(" check") or not result["ok"]:
            limit = f"{result['limit']:.4g}" if result["limit"] is not None else "–"
            stretch = f" (stretch {result['stretch']:.4g})" if result.get("stretch") else ""
            print(f"{'met ' if result['ok'] else 'MISS'} {result['what']} {limit}{stretch}: {result['measured']:.4g}")
    if asked.out:
        table = [{"shape": title, **row} for (title, _), row in rows.items()]
        asked.out.write_text(json.dumps({"rows": table, "verdicts": results}, indent=1), encoding="utf-8")
    return 0 if all(result["ok"] for result in results) else 3


if __name__ == "__main__":
    sys.exit(main())
