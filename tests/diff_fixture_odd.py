"""Comparisons in which everything is odd, a ladder of traces, and a budget check."""

from collections.abc import Callable
from dataclasses import replace

from diff_fixture import (
    ONE_STEP,
    forced,
    host_bound,
    kernel,
    metrics,
    moved,
    not_comparable,
    one_sided,
    phase,
    regression,
    shape,
    side,
)

from tracelab.budget_result import BudgetCheck, BudgetLine
from tracelab.difference import (
    COUNT_CHANGED,
    FUSED,
    GONE,
    IMPROVEMENT,
    INCONCLUSIVE,
    NEUTRAL,
    NEW,
    REGRESSION,
    REPLACED,
    SPLIT,
    Change,
    Control,
    Diff,
    Ladder,
    NoiseFloor,
)
from tracelab.report import TraceWarning
from tracelab.result import Finding, Value

HOSTILE = "evil|name`<script>alert(1)</script>\x1b[31m\n| a | b |\n# *head* [x](http://e.vil) @you ![i](u) $a$ &amp; \\"
LONG = "void ns::" + "deeply::" * 40 + "gemm_kernel<(int)64, (int)8, float>(T1 *, T2)"
EVIL_PHASE = "L#/|<b>ffn</b>`\x1b[2J"


def odd_kernels() -> Diff:
    """Every way in which kernels can pair, in phases that came, went and could not be judged."""
    two = ((shape("12", 168, 0.09),), (shape("8·16", 168, 0.97), shape("32", 40, 0.24)))
    rows = (
        kernel(
            ("mla_unsplit", ("mla_split", "mla_merge")), moved(10162.0, 93.2, IMPROVEMENT), pairing=SPLIT, shapes=two
        ),
        kernel((("norm", "rope", "append"), "norm_rope_append"), moved(31.5, 12.2, IMPROVEMENT), pairing=FUSED),
        kernel(((), "memset_state"), one_sided(18.4, NEW), pairing=NEW, calls=(0, 16)),
        kernel(("cast_bf16", ()), one_sided(9.6, GONE), pairing=GONE, calls=(32, 0)),
        kernel(("gemv", "gemv"), moved(1200.0, 1800.0, COUNT_CHANGED), calls=(32, 48)),
        kernel(("router", "router"), moved(14.0, 19.0, INCONCLUSIVE, ONE_STEP), calls=(16, 16)),
        kernel(("topk", "topk"), moved(7.0, 7.01), calls=(16, 16)),
    )
    phases = (
        phase("L#/attn_mla", moved(10193.5, 105.4, IMPROVEMENT), (0.893, 0.052), (128, 64), False),
        phase("L#/ffn", moved(1200.0, 1800.0, COUNT_CHANGED), (0.105, 0.894), (32, 48), False),
        phase("L#/state", one_sided(18.4, NEW), (0.0, 0.009), (0, 16), False),
        phase("L#/cast", one_sided(9.6, GONE), (0.001, 0.0), (32, 0), False),
        phase("L#/router", moved(14.0, 19.0, INCONCLUSIVE, ONE_STEP), (0.001, 0.045), (16, 16), False),
    )
    return replace(
        regression(),
        verdict=IMPROVEMENT,
        step=moved(12_400.0, 2100.0, IMPROVEMENT),
        device_time=moved(11_424.1, 1950.0, IMPROVEMENT),
        phases=phases,
        kernels=rows,
        controls=(),
        noise_floor=NoiseFloor(None, None, ""),
        metrics=metrics(launches_per_step=(224, 160), kernels_per_step=(224, 160), mbu=(0.0004, 0.31)),
        findings=(),
        regressed=(),
        warnings=(TraceWarning("workload", "ctx differs: 131072 before, 32768 after."),),
        before=side("before.sqlite", failed_launches=0),
        after=side("after.sqlite", failed_launches=3, bound="mixed"),
    )


def hostile() -> Diff:
    """Names that try to break a terminal, a table or a web page, and very long ones."""
    base = regression()
    rows = (
        kernel((HOSTILE, HOSTILE + "2"), moved(500.0, 620.0, REGRESSION), pairing=REPLACED, of=EVIL_PHASE),
        kernel((LONG, (LONG + "a", LONG + "b")), moved(300.0, 200.0, IMPROVEMENT), pairing=SPLIT),
        kernel(("1. x", "- y"), moved(30.0, 20.0, IMPROVEMENT), pairing=REPLACED),
    )
    return replace(
        base,
        before=side(HOSTILE, pattern=HOSTILE),
        after=side(LONG, gpu=HOSTILE, producer=HOSTILE),
        phases=(*base.phases, phase(EVIL_PHASE, moved(500.0, 620.0, REGRESSION), (0.1, 0.12), (1, 1), False)),
        kernels=rows,
        controls=(Control(EVIL_PHASE, 0.3),),
        noise_floor=NoiseFloor(0.01, 0.02, HOSTILE),
        step=moved(4140.2, 4180.0, INCONCLUSIVE, HOSTILE),
        warnings=(TraceWarning("x", HOSTILE),),
        findings=(Finding("x", HOSTILE, LONG, 5),),
        regressed=(EVIL_PHASE, HOSTILE),
    )


def bare() -> Diff:
    """Almost nothing is known: no phases, kernels, metrics or floors."""
    unknown = Change(None, None, None, None, None, INCONCLUSIVE, ONE_STEP)
    return replace(
        regression(),
        before=side("a.sqlite", source="whole-trace", steps_used=1, bound="unknown", gpu="", sm_count=None),
        verdict=INCONCLUSIVE,
        noise_floor=NoiseFloor(None, None, ""),
        controls=(),
        step=unknown,
        device_time=unknown,
        phases=(),
        kernels=(),
        metrics=(),
        findings=(),
        regressed=(),
    )


DIFFS: dict[str, Callable[[], Diff]] = {
    "regression": regression,
    "host-bound": host_bound,
    "not-comparable": not_comparable,
    "forced": forced,
    "odd-kernels": odd_kernels,
    "hostile": hostile,
    "bare": bare,
}


def ladder(times_us: tuple[float, ...] = (4219.44, 3981.93, 3982.56, 3611.27), rungs: int | None = None) -> Ladder:
    """Device times a step in µs; a rung of less than 1 % has no measurable change. All of it happens in L#/ffn."""
    times = times_us if rungs is None else tuple(4000.0 - 97.3 * i for i in range(rungs + 1))
    found = [_rung(i, i + 1, times) for i in range(len(times) - 1)]
    return Ladder(found, _rung(0, len(times) - 1, times))


def _rung(first: int, last: int, times_us: tuple[float, ...]) -> Diff:
    before, after = times_us[first], times_us[last]
    verdict = NEUTRAL if abs(after / before - 1) < 0.01 else REGRESSION if after > before else IMPROVEMENT
    base = regression()
    return replace(
        base,
        before=side(f"rung_{first + 1}.sqlite"),
        after=side(f"rung_{last + 1}.sqlite"),
        verdict=verdict,
        device_time=moved(before, after, verdict),
        step=moved(before + 158.3, after + 161.1, verdict),
        phases=(
            phase("L#/ffn", moved(before - 1292.1, after - 1292.1, verdict), (0.7, 0.7), (96, 96), False),
            phase("L#/attn_gqa", moved(1054.1, 1054.3), (0.24, 0.24), (192, 192), True),
        ),
        kernels=(kernel(("gemv_row", "gemv_row"), moved(before - 1300, after - 1300, verdict)),),
        findings=base.findings if first == 0 and last == 1 else (),
        regressed=("L#/ffn",) if verdict == REGRESSION else (),
    )


def check(*, failing: bool = True) -> BudgetCheck:
    """Seven limits, two or none of which fell short."""
    lines = [
        _limit(3, "kernels.kernels_per_step", ("max", 300, 293), "count"),
        _limit(4, "gaps.gap_share", ("max", 0.2, 0.2004), "ratio", ok=False),
        _limit(5, "gaps.step_ns", ("max", 18_000_000, 17_700_400), "ns"),
        _limit(6, "phases.busy_ns of L#/ffn", ("max", 3_000_000, 2_689_100), "ns"),
        _limit(7, "mbu.mbu", ("min", 0.5, None), "ratio", ok=False, remark="The floor is unknown: give --params."),
        _limit(8, "gaps.bound", ("is", "host", "host"), ""),
        _limit(9, "must run mla_split", ("must run", 1, 12), "count"),
    ]
    kept = [line for line in lines if line.ok]
    return BudgetCheck("llama8b.sqlite", "recorded on an H200", "budgets.toml", lines if failing else kept)


def _limit(
    line: int, name: str, values: tuple[str, Value, Value], unit: str, *, ok: bool = True, remark: str = ""
) -> BudgetLine:
    """`values`: the bound, its limit and what was measured."""
    bound, limit, measured = values
    text = f"{name.rpartition('.')[2]} = {{ {bound} = {limit} }}"
    return BudgetLine(line, text, name, bound, limit, measured, unit, ok, remark)


LADDERS: dict[str, Callable[[], Ladder]] = {
    "four": ladder,
    "eleven": lambda: ladder(rungs=10),
    "hostile": lambda: Ladder([hostile(), hostile()], hostile()),
}
