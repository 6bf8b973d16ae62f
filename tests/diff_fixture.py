"""Hand-made comparisons: a regression, an inconclusive pair, and what cannot be compared."""

from dataclasses import replace

from tracelab.difference import (
    INCONCLUSIVE,
    NEUTRAL,
    NEW,
    NOT_COMPARABLE,
    REGRESSION,
    REPLACED,
    SAME,
    Change,
    Control,
    Diff,
    KernelChange,
    MetricChange,
    NoiseFloor,
    PhaseChange,
    Shape,
    SideFacts,
)
from tracelab.report import TraceWarning
from tracelab.result import Finding, Value

ONE_STEP = "one step on a side: nothing tells its spread"
HOST_TIMED = "a host-bound step needs two captures a side"


def side(title: str, *, bound: str = "device", gpu: str = "NVIDIA H200", **facts: object) -> SideFacts:
    found = SideFacts(
        paths=(f"runs/{title}",),
        title=title,
        producer="nsys 2025.3.2",
        gpu=gpu,
        sm_count=132,
        pattern="decode_step #",
        source="nvtx",
        steps_used=11,
        bound=bound,
        failed_launches=0,
        workload={"batch": 1, "ctx": 1024},
    )
    return replace(found, **facts)  # type: ignore[arg-type]


def moved(before_us: float, after_us: float, verdict: str = NEUTRAL, remark: str = "", floor: float = 0.01) -> Change:
    """A change of times in µs, its interval 0.2 points to each side."""
    change = after_us / before_us - 1 if before_us else None
    interval = None if change is None else (change - 0.002, change + 0.002)
    return Change(before_us * 1000, after_us * 1000, change, interval, floor, verdict, remark)


def one_sided(us: float, verdict: str) -> Change:
    """A time that only one side has: NEW or GONE."""
    before, after = (None, us * 1000) if verdict == NEW else (us * 1000, None)
    return Change(before, after, None, None, None, verdict)


def phase(
    name: str, time: Change, shares: tuple[float, float], kernels: tuple[float, float], control: bool
) -> PhaseChange:
    return PhaseChange(name, time, *shares, *kernels, control=control)


def shape(grid: str, registers: int, fill: float, block: str = "128") -> Shape:
    return Shape(grid, block, 100, registers, fill)


def kernel(
    names: tuple[str | tuple[str, ...], str | tuple[str, ...]],
    time: Change,
    *,
    pairing: str = SAME,
    calls: tuple[float, float] = (32, 32),
    of: str = "L#/ffn",
    shapes: tuple[tuple[Shape, ...], tuple[Shape, ...]] = ((), ()),
) -> KernelChange:
    before, after = ((name,) if isinstance(name, str) else name for name in names)
    return KernelChange(of, pairing, before, after, *calls, time, *shapes)


def metrics(**pairs: tuple[Value, Value]) -> list[MetricChange]:
    """Metrics by name; times are given in µs."""
    analyzers = {"kernels_per_step": "kernels", "launches_per_step": "kernels"}
    analyzers |= dict.fromkeys(("mbu", "mbu_busy", "floor_ns"), "mbu")
    found = []
    for name, pair in pairs.items():
        unit = "ns" if name.endswith("_ns") else "count" if name.endswith("step") else "ratio"
        before, after = (v * 1000 if unit == "ns" and isinstance(v, int | float) else v for v in pair)
        found.append(MetricChange(analyzers.get(name, "gaps"), name, unit, before, after))
    return found


def regression() -> Diff:
    """One phase got slower: 2689.1 → 2926.4 µs of 3981.9 → 4219.4; attn_gqa and head did not move."""
    tiled = ((shape("448", 64, 1.0),), (shape("224", 96, 1.0),))
    return Diff(
        before=side("llama8b_graph.sqlite"),
        after=side("llama8b_graph_tile16.sqlite"),
        comparable=True,
        reasons=(),
        warnings=(),
        verdict=REGRESSION,
        noise_floor=NoiseFloor(0.002, 0.004, "odd against even steps, 2 controls"),
        controls=(Control("L#/attn_gqa", 0.00012), Control("head", -0.00041)),
        step=moved(4140.2, 4380.1, REGRESSION),
        device_time=moved(3981.9, 4219.4, REGRESSION),
        phases=(
            phase("head", moved(238.0, 237.9), (0.06, 0.056), (5, 5), True),
            phase("L#/ffn", moved(2689.1, 2926.4, REGRESSION), (0.675, 0.694), (96, 96), False),
            phase("L#/attn_gqa", moved(1054.1, 1054.3), (0.265, 0.25), (192, 192), True),
        ),
        kernels=(
            kernel(("gemv_row_t32", "gemv_row_t16"), moved(2620.0, 2857.5, REGRESSION), pairing=REPLACED, shapes=tiled),
            *(kernel((f"small_{i}", f"small_{i}"), moved(50.0 + i, 50.1 + i), of="L#/attn_gqa") for i in range(12)),
        ),
        metrics=_graph_metrics(),
        findings=(
            Finding(
                "kernel-slower",
                "gemv_row_t16 took the place of gemv_row_t32 in L#/ffn and takes 237.5 µs more a step.",
                "Its grid has 224 blocks, 448 before; a thread uses 96 registers, 64 before.",
                237_500,
            ),
        ),
        regressed=("the step", "device time of the step", "L#/ffn"),
    )


def _graph_metrics() -> list[MetricChange]:
    return metrics(
        step_ns=(4140.2, 4380.1),
        busy_ns=(3981.9, 4219.4),
        launch_gap_ns=(0.0, 0.0),
        sync_gap_ns=(0.0, 0.0),
        dependency_gap_ns=(120.1, 121.3),
        between_steps_ns=(38.2, 39.4),
        gap_share=(0.0382, 0.0367),
        launch_api_ns=(310.0, 309.1),
        launches_per_step=(1, 1),
        kernels_per_step=(293, 293),
        mbu=(0.762, 0.720),
        mbu_busy=(0.792, 0.748),
        floor_ns=(3155.0, 3155.0),
    )


def host_bound() -> Diff:
    """The same program twice, host-bound: device time alike, step times far apart and not to be judged."""
    base = regression()
    return replace(
        base,
        before=side("eager_a.sqlite", bound="host"),
        after=side("eager_b.sqlite", bound="host"),
        verdict=INCONCLUSIVE,
        noise_floor=NoiseFloor(0.0008, None, "odd against even steps, 3 controls"),
        step=moved(83_200.0, 54_200.0, INCONCLUSIVE, HOST_TIMED),
        device_time=moved(3982.5, 3984.1),
        phases=tuple(replace(row, time=moved(*us)) for row, us in zip(base.phases, _SAME_US, strict=True)),
        kernels=tuple(replace(row, time=moved(50.0, 50.02)) for row in base.kernels[1:]),
        metrics=metrics(
            step_ns=(83_200.0, 54_200.0),
            busy_ns=(3982.5, 3984.1),
            launch_gap_ns=(78_900.0, 49_980.0),
            sync_gap_ns=(0.0, 0.0),
            dependency_gap_ns=(31.0, 30.2),
            between_steps_ns=(286.5, 205.7),
            gap_share=(0.952, 0.926),
            launch_api_ns=(6797.6, 4424.3),
            launches_per_step=(293, 293),
            kernels_per_step=(293, 293),
            bound=("host", "host"),
        ),
        findings=(),
        regressed=(),
    )


_SAME_US = ((238.0, 237.9), (2689.1, 2690.0), (1054.1, 1054.9))


def not_comparable() -> Diff:
    """Other GPUs and models: nothing was judged."""
    return replace(
        regression(),
        after=side("other.sqlite", gpu="NVIDIA H100 PCIe", producer="nsys 2024.6.1", sm_count=114),
        comparable=False,
        reasons=(
            TraceWarning("other-gpu", "The GPUs differ: NVIDIA H100 PCIe (114 SMs) and NVIDIA H200 (132 SMs)."),
            TraceWarning("other-model", "The workload records name different models: llama-8b and kimi-linear."),
        ),
        verdict=NOT_COMPARABLE,
        findings=(),
        regressed=(),
    )


def forced() -> Diff:
    """The same, compared all the same."""
    return replace(not_comparable(), verdict=REGRESSION, regressed=("L#/ffn",))
