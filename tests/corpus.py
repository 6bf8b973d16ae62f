"""Where the recorded corpus is, and what its manifest states of the kernels in it."""

import os
from pathlib import Path

import pytest

CORPUS = Path(os.environ.get("TRACELAB_CORPUS") or os.devnull)
IN_CORPUS = pytest.mark.skipif(not CORPUS.is_dir(), reason="TRACELAB_CORPUS names no folder")

# kernels, sum, union, span, joined; all ns
KERNELS = {
    "h200_eager_and_graph.sqlite": (960, 5955210, 5932043, 15279936, 960),
    "h200_failed_launches.sqlite": (30, 80032, 80032, 58502858, 30),
    "h200_autograd_threads.sqlite": (432, 5219074, 5219074, 21048913, 432),
    "t4_power_iteration.sqlite": (3689, 1131742684, 1131742684, 1790607861, 3689),
    "rtx4060ti_llama_steps.sqlite": (1536, 18597775, 18597775, 678885106, 1536),
    "v100_null_names.sqlite": (1002, 1425652, 1425652, 342247581, 1002),
    "gtx1060_con_kernel.sqlite": (9, 271711594, 253052669, 256008454, 7),
    "rtx6000_oldest_schema.sqlite": (12, 8544420, 8544420, 14587755, 12),
    "a100_saxpy_mpi.sqlite": (5, 88573480, 88573480, 1040574391, 5),
    "rtx3090_trt.parquetdir": (36, 6415244, 6415244, 6457677, 36),
    "rtx3090_trt.arrowdir": (36, 6415244, 6415244, 6457677, 36),
}
