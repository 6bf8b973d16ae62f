"""Launches every configuration of the MLA tile sweep under NVTX, to compare a trace's registers with the compiler's.

Usage, on a GPU: tracelab profile --capture-range -- python3 tests/gpu/mla_sweep.py
Each step runs each configuration once, in a phase of its own: `form_a` is the sweep's first, `form_b` its second, …
(letters, since tracelab reads names with other digits as one).
"""

import string
from typing import Any

import torch

from tracelab.kernels import mla
from tracelab.kernels._gpu_window import Range, profiled_window
from tracelab.kernels._mla_steps import steps_of

HEADS, CTX, STEPS = 96, 8192, 3


def main() -> None:
    """Warm up, then three steps in the profiled window."""
    device = torch.device("cuda")
    options: dict[str, Any] = {**mla.DEFAULTS, "heads": HEADS, "ctx": CTX}
    shape = mla.shape_of(options)
    forms = [
        (f"form_{letter}", steps_of(shape, config, device, torch.bfloat16, 1).attend)
        for letter, (config, _) in zip(string.ascii_lowercase, mla.sweep(), strict=False)
    ]

    def step() -> None:
        for name, attend in forms:
            with Range(name):
                attend(0)

    record = {"tracelab.workload": 1, "name": "mla_sweep", "ctx": CTX, "batch": 1}
    with torch.inference_mode():
        profiled_window(step, steps=STEPS, graph=False, record=record)


if __name__ == "__main__":
    main()
