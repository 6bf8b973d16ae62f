"""What the hybrid workloads share: from the options of a run to its record and its step."""

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelab.errors import UsageError
from tracelab.kernels._guard import Guard, UncheckedLaunch
from tracelab.kernels._hybrid_shape import HybridConfig, memory_bytes, record
from tracelab.kernels._step_main import Options, Plan

if TYPE_CHECKING:
    from tracelab.kernels._gpu_window import Step


def hybrid_plan(asked: HybridConfig, options: Options) -> Plan:
    """The record counts the sequences asked for, the step also those that pad a graph.

    Raises UsageError for more layers than the model has.
    """
    if asked.layers > asked.model_layers:
        raise UsageError(f"--layers {asked.layers}: the whole model has {asked.model_layers} layers.")
    config = replace(asked, batch=options.rows)

    def build(guard: Guard) -> "Step":
        import torch

        from tracelab.kernels._hybrid_model import HybridStep

        fault = options.fail
        return HybridStep(
            config,
            torch.device("cuda"),
            torch.bfloat16,
            guard.phase,
            live=asked.batch,
            starve=options.starve,
            fault=None if fault is None else (fault.phase, fault.layer),
            failing=UncheckedLaunch() if fault is not None else None,
        ).step

    phases = [config.layer_phases(layer) for layer in range(config.layers)]
    return Plan(phases, memory_bytes(config), record(asked), build)
