"""Steps, phases, gaps, grids and failures of the own H200 captures, as their manifest and an independent count say."""

import pytest
from asking import ask, column, document, metric, result, row, view
from corpus import CORPUS, IN_CORPUS

from tracelab.analysis import view_of
from tracelab.failures import is_launch
from tracelab.options import Facts
from tracelab.trace import KERNEL

pytestmark = IN_CORPUS

BASE = CORPUS / "h200_eager_and_graph.sqlite"
FAILED = CORPUS / "h200_failed_launches.sqlite"
TRAIN = CORPUS / "h200_autograd_threads.sqlite"


def test_step_sums_of_all_ten_steps() -> None:
    eager, graph = (view(BASE, steps=name) for name in ("decode_step", "graph_step"))
    for seen, total, busy, idle in ((eager, 2952644, 2935460, 8255311), (graph, 3002566, 2996583, 65075)):
        assert seen.table.kernels.tolist() == [48] * 10
        assert int(seen.table.sum_ns.sum()) == total
        assert int(seen.busy_ns.sum()) == busy
        assert int(seen.idle_by_class.sum()) == idle
    assert (eager.table.busy_ns[0], eager.table.span_ns[0]) == (295485, 1635083)
    assert (graph.table.busy_ns[0], graph.table.span_ns[0]) == (300730, 306972)
    assert set(eager.table.launches.tolist()) == {48}
    assert set(graph.table.launches.tolist()) == {1}


def within_100_ns(answer: object, expected_us: float) -> bool:
    return isinstance(answer, int) and abs(answer / 1000 - expected_us) <= 0.05 + 1e-9


@pytest.mark.parametrize(
    ("steps", "medians_us"),
    [
        ("decode_step", {"span_ns": 1088.6, "step_ns": 1167.1, "busy_ns": 293.1, "launch_gap_ns": 790.6}),
        ("graph_step", {"span_ns": 305.9, "step_ns": 309.8, "busy_ns": 299.3, "launch_gap_ns": 0.0,
                        "dependency_gap_ns": 6.4}),
    ],
)  # fmt: skip
def test_medians_without_step_0(steps: str, medians_us: dict[str, float]) -> None:
    answer = result("gaps", view(BASE, steps=steps, skip_steps=1))
    for name, expected in medians_us.items():
        assert within_100_ns(metric(answer, name), expected), (name, metric(answer, name))


def test_both_groups_are_found_and_one_is_the_page() -> None:
    steps = document(BASE, skip_steps=1)["steps"]
    assert (steps["source"], steps["pattern"], steps["found"], steps["used"]) == ("nvtx", "graph_step #", 10, 9)
    assert [(o["pattern"], o["found"], o["kernels_per_step"]) for o in steps["others"]] == [("decode_step #", 10, 48.0)]
    assert steps["left_out"] == [
        {"index": 0, "name": "graph_step 0", "reason": "warm-up", "span_ns": 306972, "kernels": 48}
    ]


def test_phases_of_both_kinds_of_step_with_their_method() -> None:
    for steps, method in (("decode_step", "nvtx"), ("graph_step", "aligned")):
        answer = result("phases", view(BASE, steps=steps, skip_steps=1))
        assert column(answer, "phases", "phase", "kernels_per_step") == {"mlp": 32, "attn": 16}
        assert set(column(answer, "phases", "phase", "attribution").values()) == {method}
        assert column(answer, "attribution", "method", "share") == {method: 1.0}
        assert metric(answer, "attributed_share") == 1.0


def test_phase_times_stay_in_the_seen_ranges() -> None:
    # Union busy by an independent count: attn 134–136 µs eager, 136–138 replayed; mlp 157–159 and 161–164.
    bounds: dict[str, dict[str, tuple[float, float]]] = {
        "decode_step": {"attn": (134, 137), "mlp": (157, 159)},
        "graph_step": {"attn": (135.9, 138.3), "mlp": (160.8, 164)},
    }
    for steps, phases in bounds.items():
        answer = result("phases", view(BASE, steps=steps, skip_steps=1))
        for phase, (low, high) in phases.items():
            times = row(answer, "phases", phase=phase)
            assert low * 1000 <= times["min_ns"] <= times["max_ns"] <= high * 1000


def test_starved_grids_of_the_whole_trace_and_of_each_group() -> None:
    # 4-block and 32-block grids: 457549 of 5955210 ns over both groups (7.7 %). Without each group's step 0: 7.4 % of
    # the decode steps, 7.9 % of the graph steps.
    answers = {s: result("grids", view(BASE, steps=s, skip_steps=1)) for s in ("decode_step", "graph_step")}
    assert round(metric(answers["decode_step"], "underfill_share"), 3) == 0.074
    assert round(metric(answers["graph_step"], "underfill_share"), 3) == 0.079
    everything = [result("grids", view(BASE, steps=s)) for s in ("decode_step", "graph_step")]
    sums = (2952644, 3002566)
    whole = sum(metric(a, "underfill_share") * ns for a, ns in zip(everything, sums, strict=True))
    assert round(whole) == 457549
    assert round(whole / sum(sums), 3) == 0.077
    for answer in answers.values():
        assert {r["blocks"] for r in answer.tables["grids"] if r["underfills"]} == {4, 32}


def test_128_blocks_are_4_short_and_not_flagged() -> None:
    rows = result("grids", view(BASE, steps="decode_step", skip_steps=1)).tables["grids"]
    of_128 = [r for r in rows if r["blocks"] == 128]
    assert len(of_128) == 4
    assert {(r["idle_sms"], r["underfills"]) for r in of_128} == {(4, False)}
    assert {(r["idle_sms"], r["underfills"]) for r in rows if r["blocks"] == 256} == {(0, False)}


def test_the_host_binds_the_eager_steps_only() -> None:
    assert metric(result("gaps", view(BASE, steps="decode_step", skip_steps=1)), "bound") == "host"
    assert metric(result("gaps", view(BASE, steps="graph_step", skip_steps=1)), "bound") == "device"


@pytest.mark.parametrize("skip_steps", [0, 1, 3, 6, 99])
def test_failed_launches_whatever_is_left_out(skip_steps: int) -> None:
    seen = view(FAILED, skip_steps=skip_steps)
    answer = result("launches", seen)
    assert metric(answer, "failed_launches") == 12
    assert metric(answer, "launches_without_work") == 0
    rows = answer.tables["failed"]
    assert {(r["phase"], r["api"], r["error"]) for r in rows} == {
        ("attn_bad", "cuLaunchKernel", "cudaErrorInvalidValue")
    }
    assert {r["step"]: r["count"] for r in rows} == {f"step {i}": 2 for i in range(6)}
    assert seen.table.kernels.tolist() == [5] * 6


def test_kernels_of_the_failing_steps() -> None:
    answer = result("phases", view(FAILED))
    assert column(answer, "phases", "phase", "kernels_per_step") == {"norm": 2, "attn_bad": 1, "mlp": 2}
    trace = ask(FAILED).trace
    names = [trace.names[int(code)] for code in trace.calls.name]
    assert sum(map(is_launch, names)) == 42


def test_backward_kernels_across_threads() -> None:
    analysis = ask(TRAIN)
    seen = view_of(analysis, 0)
    assert seen.table.kernels.tolist() == [54] * 8
    answer = result("phases", seen)
    crossed = row(answer, "attribution", method="cross-thread")
    assert crossed["kernels_per_step"] * 8 == 248
    trace, phases = analysis.trace, analysis.phases
    rows = (phases.op_method == 4) & (trace.ops.kind == KERNEL)
    assert int(rows.sum()) == 248
    assert {phases.names[code] for code in phases.op_phase[rows]} == {"bwd"}
    assert int(trace.ops.duration_ns[rows].sum()) == 2038386
    assert row(answer, "phases", phase="bwd")["attribution"] == "cross-thread"


def test_the_page_of_the_base_capture_has_a_floor_only_with_facts() -> None:
    assert result("mbu", view(BASE)).skipped is not None
    assert metric(result("mbu", view(BASE, Facts(params=1e6))), "bytes_per_step") == 2e6
