"""The analyzer `mbu`: the floor and the distance from it, with a bandwidth of 1 byte per ns."""

from pathlib import Path

import pytest
from asking import metric, result, row, view
from tiny_programs import eager
from tiny_trace import TinyTrace

from tracelab.options import Facts

GB_PER_S = 1e9  # 1 byte per ns


def test_floor_of_a_dense_model(tmp_path: Path) -> None:
    # 40 parameters of bf16 and 20 bytes of KV: 100 bytes, so 100 ns of a step of 1000 and 290 busy.
    facts = Facts(params=40, kv_bytes=20, bandwidth_bytes_per_s=GB_PER_S)
    answer = result("mbu", view(eager().save(tmp_path), facts))
    assert metric(answer, "bytes_per_step") == 100
    assert (metric(answer, "floor_ns"), metric(answer, "floor_kind")) == (100, "bytes")
    assert metric(answer, "mbu") == pytest.approx(0.1)
    assert metric(answer, "mbu_busy") == pytest.approx(100 / 290)
    assert answer.checks[0].ok


def test_active_parameters_and_type_change_the_bytes(tmp_path: Path) -> None:
    facts = Facts(params=400, active_params=40, dtype="fp8", bandwidth_bytes_per_s=GB_PER_S)
    assert metric(result("mbu", view(eager().save(tmp_path), facts)), "bytes_per_step") == 40


def test_flops_bind_where_they_take_longer(tmp_path: Path) -> None:
    # H200 datasheet: 989 TFLOP/s in bf16, so 989e3 FLOP take 1 ns; 300 ns against 100 ns of bytes.
    facts = Facts(params=50, flops=989e3 * 300, bandwidth_bytes_per_s=GB_PER_S)
    answer = result("mbu", view(eager().save(tmp_path), facts))
    assert (metric(answer, "floor_ns"), metric(answer, "floor_kind")) == (300, "flops")
    assert metric(answer, "mbu") == pytest.approx(0.1)  # MBU stays bytes / (time x bandwidth)


def test_a_phase_bound_by_flops_is_judged_by_the_peak(tmp_path: Path) -> None:
    # 989e3 FLOP take 1 ns: 70 ns of FLOPs in 100 ns of attention are 70 % of the peak, whatever its MBU; 40 are not
    def found(flops_ns: int) -> list[str]:
        trace = eager().workload(bytes_per_step=6, phases={"attn": {"bytes": 6, "flops": 989e3 * flops_ns}})
        answer = result("mbu", view(trace.save(tmp_path), Facts(bandwidth_bytes_per_s=GB_PER_S)))
        return [finding.evidence for finding in answer.findings]

    assert found(70) == []
    assert found(40) == ["It must compute for that long; it reaches 40 % of the peak."]


def recorded() -> TinyTrace:
    phases = {"attn": {"bytes": 50}, "mlp": {"bytes": 19}}
    return eager().workload(params=1000, dtype="bf16", bytes_per_step=69, phases=phases)


def test_the_workload_record_needs_no_flags(tmp_path: Path) -> None:
    answer = result("mbu", view(recorded().save(tmp_path), Facts(bandwidth_bytes_per_s=GB_PER_S)))
    assert metric(answer, "bytes_per_step") == 69
    attn, mlp = row(answer, "phases", phase="attn"), row(answer, "phases", phase="mlp")
    assert (attn["floor_ns"], attn["busy_ns"], attn["mbu"]) == (50, 100, pytest.approx(0.5))
    assert (mlp["floor_ns"], mlp["busy_ns"], mlp["mbu"]) == (19, 190, pytest.approx(0.1))


def test_options_override_the_record(tmp_path: Path) -> None:
    facts = Facts(params=10, bandwidth_bytes_per_s=GB_PER_S)
    assert metric(result("mbu", view(recorded().save(tmp_path), facts)), "bytes_per_step") == 20


def test_mbu_above_one_is_said_and_never_clamped(tmp_path: Path) -> None:
    facts = Facts(params=1000, bandwidth_bytes_per_s=GB_PER_S)
    answer = result("mbu", view(eager().save(tmp_path), facts))
    assert metric(answer, "mbu") == pytest.approx(2.0)  # 2000 bytes in 1000 ns
    assert not answer.checks[0].ok


def test_without_a_record_the_floor_is_unknown_with_a_reason(tmp_path: Path) -> None:
    answer = result("mbu", view(eager().save(tmp_path)))
    assert answer.skipped is not None
    assert "--params" in answer.skipped
    assert "floor_ns" not in answer.metrics


def test_without_a_bandwidth_the_floor_is_unknown(tmp_path: Path) -> None:
    answer = result("mbu", view(eager(trace=TinyTrace(gpu=None)).save(tmp_path), Facts(params=10)))
    assert answer.skipped is not None
    assert "--bandwidth" in answer.skipped
    assert metric(answer, "bytes_per_step") == 20


def test_pitfall_b3_the_denominator_is_the_union(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, facts = eager().save(tmp_path), Facts(params=145, bandwidth_bytes_per_s=GB_PER_S)
    assert metric(result("mbu", view(path, facts)), "mbu_busy") == pytest.approx(1.0)  # 290 bytes in 290 ns
    monkeypatch.setattr("tracelab.step_table.new_coverage", lambda _, start, end: end - start)
    assert metric(result("mbu", view(path, facts)), "mbu_busy") == pytest.approx(290 / 300)


def test_a_phase_of_the_record_is_no_beginning_of_a_name(tmp_path: Path) -> None:
    trace = eager().workload(bytes_per_step=10, phases={"att": {"bytes": 5}, "mlp": {"bytes": 5}})
    answer = result("mbu", view(trace.save(tmp_path), Facts(bandwidth_bytes_per_s=GB_PER_S)))
    assert [r["phase"] for r in answer.tables["phases"]] == ["mlp"]
