"""What the user may say about a trace: which part of it to look at, and facts that no trace holds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """Facts about model and machine that override the workload record and the datasheet.

    `params` and `active_params` count parameters; `kv_bytes` and `flops` are per step; `bandwidth_bytes_per_s` is the
    memory bandwidth β; `gpu` names a GPU of the datasheet table.
    """

    params: float | None = None
    active_params: float | None = None
    dtype: str | None = None
    kv_bytes: float | None = None
    flops: float | None = None
    bandwidth_bytes_per_s: float | None = None
    gpu: str | None = None


@dataclass(frozen=True)
class Selection:
    """Which steps, device and time to analyse, and how phases are named. `window_ns` is half-open.

    `steps` and `exclude` are regular expressions for NVTX range names: those that are steps, those that count for
    nothing.
    """

    steps: str | None = None
    skip_steps: int = 1
    device: int | None = None
    window_ns: tuple[int, int] | None = None
    phases: str = "auto"
    depth: int | None = None
    exclude: str | None = None


PHASE_MODES = ("auto", "nvtx", "graph", "kernels")
