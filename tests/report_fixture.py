"""Hand-made reports: one with the numbers of an H200 capture (10 eager, 10 graph steps), and others that are odd."""

import numpy as np

from tracelab.report import (
    DeviceReport,
    GpuFacts,
    LeftOut,
    OtherGroup,
    Report,
    StepRow,
    StepsFacts,
    TraceFacts,
)
from tracelab.result import Check, Finding, Metric, Result, Row

NVJET = "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_NNT"
SDPA = "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x128_1x4x1_cga1x1x1_kernel0_0"
SPLIT_K = "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>(cublasLt::cublasSplitKParams<T6>)"
SILU = (
    "void at::native::vectorized_elementwise_kernel<(int)8, at::native::<unnamed>::silu_kernel"
    "(at::TensorIteratorBase &)::[lambda() (instance 1)], std::array<char *, 2>>(int, T2, T3)"
)
MUL = (
    "void at::native::vectorized_elementwise_kernel<(int)8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
    "c10::BFloat16, at::native::binary_internal::MulFunctor<float>>, std::array<char *, 3>>(int, T2, T3)"
)
LEAN = "void cudnn::fusion::lean_reduction_kernel<(bool)0, (bool)0, (bool)0>(void *, float *)"
PERIODS_NS = (1299900, 1033500, 1181000, 1040000, 1205000, 1160300, 1100000, 1173900)  # median 1167.1 µs


def kernel_row(name: str, phase: str, calls: float, time_ns: float, share: float) -> Row:
    return {
        "name": name,
        "family": "gemm",
        "phase": phase,
        "calls_per_step": calls,
        "time_ns_per_step": time_ns,
        "share": share,
    }


def grid_row(name: str, phase: str, grid: tuple[str, str, int], fit: tuple[int, float, int], time_ns: float) -> Row:
    """`grid`: grid, block, blocks; `fit`: blocks per SM, waves, idle SMs."""
    fill = 1 - fit[2] / 132
    return {
        "kernel": name,
        "phase": phase,
        "grid": grid[0],
        "block": grid[1],
        "blocks": grid[2],
        "blocks_per_sm": fit[0],
        "waves": fit[1],
        "sm_fill": fill,
        "tail_efficiency": fit[1],
        "occupancy": 0.5,
        "limiter": "registers",
        "time_ns_per_step": time_ns,
        "share": time_ns / 294_700,
        "underfills": fill < 0.9,
        "idle_sms": fit[2],
    }


def sketch_report() -> Report:
    """The eager steps of the capture, every analyzer present, no facts about the model."""
    return Report(
        trace=TraceFacts(
            path="h200_eager_and_graph.sqlite",
            format="nsys-sqlite",
            producer="nsys 2025.3.2",
            kernels=960,
            kernel_sum_ns=5955210,
            recording=None,
            workload=None,
            gpus=[GpuFacts(0, "NVIDIA H200", 132, 4.8e12, "datasheet")],
            warnings=[],
        ),
        capture=None,
        main=DeviceReport(device=0, steps=_sketch_steps(), results=_sketch_results(), findings=_sketch_findings()),
    )


def _sketch_steps() -> StepsFacts:
    rows = [
        StepRow(i + 1, f"decode_step {i + 1}", 4242, 0, 48, 48, period - 71_700, 293_100, 294_700, period)
        for i, period in enumerate(PERIODS_NS)
    ]
    rows.append(StepRow(9, "decode_step 9", 4242, 0, 48, 48, 1_050_000, 293_100, 294_700, None))
    return StepsFacts(
        source="nvtx",
        pattern="decode_step #",
        found=10,
        used=9,
        left_out=[LeftOut(0, "decode_step 0", "warm-up", 1_635_083)],
        others=[OtherGroup("graph_step #", 10, 309_800, 48.0)],
        per_step=rows,
    )


def _sketch_results() -> dict[str, Result]:
    return {
        "kernels": Result(metrics=counts(48, 48), tables={"kernels": _sketch_kernels()}),
        "phases": Result(
            metrics={"attributed_share": Metric(1.0, "share")},
            tables={
                "phases": [
                    phase_row("mlp", 32, 158_100, 159_400, 0.539, "nvtx"),
                    phase_row("attn", 16, 135_000, 135_300, 0.461, "nvtx"),
                ],
                "attribution": [{"method": "nvtx", "kernels_per_step": 48.0, "sum_ns": 294_700, "share": 1.0}],
            },
        ),
        "gaps": Result(metrics=_sketch_gaps(), checks=[Check("span = busy + other + idle", True, 0.0, 0.0, "ns")]),
        "mbu": Result(skipped="The number of parameters is unknown: give --params."),
        "grids": Result(metrics={"underfill_share": Metric(0.077, "share")}, tables={"grids": _sketch_grids()}),
        "launches": Result(
            metrics={"failed_launches": Metric(0, "count"), "launches_without_work": Metric(0, "count")},
            tables={"failed": []},
        ),
        "waterfall": Result(tables={"waterfall": _sketch_waterfall()}),
    }


def phase_row(phase: str, kernels: float, busy_ns: float, sum_ns: float, share: float, attribution: str) -> Row:
    return {
        "phase": phase,
        "kernels_per_step": kernels,
        "busy_ns": busy_ns,
        "sum_ns": sum_ns,
        "share": share,
        "attribution": attribution,
    }


def counts(kernels: float, launches: float) -> dict[str, Metric]:
    return {
        "kernels_per_step": Metric(kernels, "count"),
        "launches_per_step": Metric(launches, "count"),
        "copies_per_step": Metric(0, "count"),
        "distinct_kernels": Metric(6, "count"),
    }


def _sketch_gaps() -> dict[str, Metric]:
    times = {
        "step_ns": 1_167_100,
        "span_ns": 1_088_600,
        "busy_ns": 293_100,
        "other_ns": 0,
        "idle_ns": 795_400,
        "launch_gap_ns": 790_600,
        "sync_gap_ns": 0,
        "dependency_gap_ns": 4_300,
        "profiler_gap_ns": 0,
        "unknown_gap_ns": 0,
        "between_steps_ns": 73_600,
    }
    metrics = {name: Metric(value, "ns") for name, value in times.items()}
    metrics["step_ns"] = Metric(1_167_100, "ns", np.array(PERIODS_NS, dtype=np.float64))
    return {**metrics, "bound": Metric("host", "word"), "gap_share": Metric(0.745, "share")}


def _sketch_waterfall() -> list[Row]:
    rows = {"kernels": 293_040, "launch gaps": 793_880, "dependency gaps": 4_260, "between steps": 69_120}
    return [{"component": name, "ns": ns, "share": ns / 1_160_300} for name, ns in rows.items()]


def _sketch_kernels() -> list[Row]:
    times = [
        (NVJET, "mlp", 12, 123_000),
        (SDPA, "attn", 4, 77_400),
        (NVJET, "attn", 4, 47_000),
        (SPLIT_K, "mlp", 12, 19_200),
        (SILU, "mlp", 4, 7_500),
        (LEAN, "attn", 4, 7_700),
        (MUL, "mlp", 4, 6_900),
        (SPLIT_K, "attn", 4, 6_000),
    ]
    return [kernel_row(name, phase, calls, ns, ns / 294_700) for name, phase, calls, ns in times]


def _sketch_grids() -> list[Row]:
    return [
        grid_row(NVJET, "mlp", ("2·64", "384", 128), (1, 0.97, 4), 123_000),
        grid_row(NVJET, "attn", ("2·64", "384", 128), (1, 0.97, 4), 47_000),
        grid_row(SDPA, "attn", ("8·32", "128", 256), (2, 0.97, 0), 77_400),
        grid_row(SPLIT_K, "mlp", ("128", "512", 128), (4, 0.24, 4), 19_200),
        grid_row(SPLIT_K, "attn", ("128", "512", 128), (4, 0.24, 4), 6_000),
        grid_row(SILU, "mlp", ("4", "128", 4), (12, 0.003, 128), 7_500),
        grid_row(MUL, "mlp", ("4", "128", 4), (16, 0.002, 128), 6_900),
        grid_row(LEAN, "attn", ("32", "256", 32), (8, 0.03, 100), 7_700),
    ]


def _sketch_findings() -> list[Finding]:
    return [
        Finding(
            "launch-bound",
            "The host launches too late: launch gaps are 793.9 of 1160.3 µs.",
            "graph_step # runs the same 48 kernels in 309.8 µs: capture this step in a CUDA graph.",
            793_880,
        ),
        Finding(
            "underfilled-grids",
            "12 kernels a step reach 32 or fewer of 132 SMs: 22.1 µs, 7.5 % of GPU time.",
            "More blocks would pay: vectorized_elementwise_kernel runs 4 blocks.",
            20_900,
        ),
    ]
