"""The analyzer `kernels`: counts, launches and shares of hand-made steps."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from asking import column, metric, result, row, view
from tiny_programs import eager
from tiny_trace import TinyTrace

from tracelab import nsys_ops
from tracelab.trace import Calls, Ops


def test_counts_and_shares_of_a_step(tmp_path: Path) -> None:
    answer = result("kernels", view(eager().save(tmp_path)))
    assert metric(answer, "kernels_per_step") == 3
    assert metric(answer, "launches_per_step") == 3
    assert metric(answer, "copies_per_step") == 0
    assert metric(answer, "distinct_kernels") == 3
    assert column(answer, "kernels", "name", "share") == pytest.approx(
        dict.fromkeys(("attention", "gemm", "silu"), 1 / 3)
    )
    assert column(answer, "kernels", "name", "time_ns_per_step") == {"attention": 100, "gemm": 100, "silu": 100}
    assert column(answer, "kernels", "name", "phase") == {"attention": "attn", "gemm": "mlp", "silu": "mlp"}


def eager_and_replay() -> TinyTrace:
    """One step: 10 launches of one kernel, then one replay of 48."""
    trace = TinyTrace().range("step 0", 0, 2000)
    for i in range(10):
        trace.launch(i * 20, "gemm", 30 + i * 20, 40 + i * 20)
    return trace.replay(500, [("gemm", 600 + i * 10, 605 + i * 10, 2 << 32 | i) for i in range(48)])


def test_pitfall_c8_a_replay_is_one_launch_and_all_its_kernels(tmp_path: Path) -> None:
    answer = result("kernels", view(eager_and_replay().save(tmp_path), steps="step"))
    assert metric(answer, "kernels_per_step") == 58  # 10 + 48
    assert metric(answer, "launches_per_step") == 11  # 10 + 1


def test_one_kernel_per_call_would_lose_47(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = nsys_ops.link_calls

    def one_per_call(ops: Ops, calls: Calls) -> Ops:
        linked = right(ops, calls)
        kept = np.sort(np.unique(linked.call, return_index=True)[1])
        columns = {f.name: getattr(linked, f.name) for f in dataclasses.fields(linked)}
        return Ops(**{name: value if callable(value) else value[kept] for name, value in columns.items()})

    monkeypatch.setattr("tracelab.nsys_load.link_calls", one_per_call)
    answer = result("kernels", view(eager_and_replay().save(tmp_path), steps="step"))
    assert metric(answer, "kernels_per_step") == 11


def test_copies_and_memsets_are_counted_apart(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(2):
        t = i * 1000
        trace.range(f"step {i}", t, t + 100).launch(t, "gemm", t + 10, t + 50)
        trace.call(t + 20, t + 30, "cudaMemcpyAsync_v3020").copy(t + 60, t + 70)
        trace.call(t + 40, t + 50, "cudaMemsetAsync_v3020").memset(t + 80, t + 90)
    answer = result("kernels", view(trace.save(tmp_path)))
    assert metric(answer, "kernels_per_step") == 1
    assert metric(answer, "launches_per_step") == 1
    assert metric(answer, "copies_per_step") == 2


def test_a_graph_traced_as_a_whole_stands_in_for_its_kernels(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(3):
        t = i * 1000
        trace.range(f"step {i}", t, t + 100).call(t, t + 5, "cudaGraphLaunch_v10000").graph_trace(t + 10, t + 310)
    answer = result("kernels", view(trace.save(tmp_path)))
    assert "kernels_per_step" not in answer.metrics  # nobody knows how many kernels the graph ran
    assert metric(answer, "launches_per_step") == 1
    assert row(answer, "kernels", name="CUDA_graph_2")["time_ns_per_step"] == 300


def test_families_add_up_and_the_unmatched_share_is_said(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(2):
        t = i * 1000
        trace.range(f"step {i}", t, t + 100)
        trace.launch(t, "cutlass_80_tensorop_gemm", t + 10, t + 310).launch(t + 20, "zzyzx", t + 310, t + 410)
    answer = result("kernels", view(trace.save(tmp_path)))
    assert column(answer, "families", "family", "share") == pytest.approx({"gemm": 0.75, "other": 0.25})
    assert metric(answer, "unmatched_share") == pytest.approx(0.25)  # 100 of 400 ns


def test_pitfall_a17_kernels_are_told_apart_by_their_full_name(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "Kernel<A>", 10, 20).launch(5, "Kernel<B>", 30, 50)
    short = trace.string("Kernel")
    path = trace.sql(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = {short}").save(tmp_path)
    answer = result("kernels", view(path))
    assert column(answer, "kernels", "name", "time_ns_per_step") == {"Kernel<A>": 10, "Kernel<B>": 20}


def test_one_step_always_stays(tmp_path: Path) -> None:
    answer = result("kernels", view(eager().save(tmp_path), skip_steps=99))
    assert answer.skipped is None
    assert metric(answer, "kernels_per_step") == 3
