"""The analyzer `grids` on an H200 (132 SMs): worked occupancies, fill, and what is and is not flagged."""

from pathlib import Path

import pytest
from asking import document, metric, result, row, view
from tiny_schema import H200
from tiny_trace import Shape, TinyTrace

from tracelab.options import Facts

GEMM = Shape(grid=(2, 64, 1), block=(384, 1, 1), registers=168, shared=164292)
SDPA = Shape(grid=(8, 32, 1), block=(128, 1, 1), registers=183, shared=86336)
LEAN = Shape(grid=(32, 1, 1), block=(256, 1, 1), registers=32, shared=4160)
FEW = Shape(grid=(4, 1, 1), block=(128, 1, 1), registers=40)


def shapes(gpu: dict[str, object] | None = H200) -> TinyTrace:
    """Two steps of four kernels of 400, 300, 200 and 100 ns."""
    trace = TinyTrace(gpu=gpu)
    for i in range(2):
        t = i * 2000
        trace.range(f"step {i}", t, t + 100)
        at = t + 10
        for name, shape, ns in (("gemm", GEMM, 400), ("sdpa", SDPA, 300), ("lean", LEAN, 200), ("few", FEW, 100)):
            trace.launch(t, name, at, at + ns, shape=shape)
            at += ns
    return trace


def test_occupancy_waves_and_fill(tmp_path: Path) -> None:
    answer = result("grids", view(shapes().save(tmp_path)))
    # gemm: 164292 + 1024 rounded up to 128 is 165376, one block in 233472; 128 blocks / (1 x 132) = 0.970 waves.
    gemm = row(answer, "grids", kernel="gemm")
    assert (gemm["grid"], gemm["block"], gemm["blocks"], gemm["blocks_per_sm"]) == ("2·64", "384", 128, 1)
    assert (gemm["waves"], gemm["sm_fill"]) == pytest.approx((128 / 132, 128 / 132))
    assert (gemm["occupancy"], gemm["limiter"]) == (12 / 64, "registers shared-memory")
    # sdpa: 87424 bytes, two blocks; registers 183 x 32 = 5856 -> 5888, 2 warps a quarter, 8 warps, 2 blocks.
    sdpa = row(answer, "grids", kernel="sdpa")
    assert (sdpa["blocks_per_sm"], sdpa["sm_fill"], sdpa["limiter"]) == (2, 1.0, "registers shared-memory")
    assert sdpa["waves"] == pytest.approx(256 / 264)
    # few: 40 registers x 32 = 1280, 12 warps a quarter, 48 warps, 12 blocks of 4 warps.
    few = row(answer, "grids", kernel="few")
    assert (few["blocks_per_sm"], few["occupancy"], few["limiter"]) == (12, 0.75, "registers")


def test_128_blocks_leave_4_sms_idle_and_are_not_flagged(tmp_path: Path) -> None:
    answer = result("grids", view(shapes().save(tmp_path)))
    gemm = row(answer, "grids", kernel="gemm")
    assert (gemm["idle_sms"], gemm["underfills"]) == (4, False)
    assert row(answer, "grids", kernel="lean")["idle_sms"] == 100


def test_underfill_is_weighted_by_time(tmp_path: Path) -> None:
    answer = result("grids", view(shapes().save(tmp_path)))
    assert metric(answer, "underfill_share") == pytest.approx(0.3)  # lean 200 and few 100 of 1000 ns
    # Saving: 200 x (1 - 32/132) = 151.5 for lean, 100 x (1 - 4/132) = 97.0 for few.
    assert sum(finding.saving_ns or 0 for finding in answer.findings) == 152 + 97


def test_a_limit_of_90_percent_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shapes().save(tmp_path)
    monkeypatch.setattr("tracelab.occupancy._UNDERFILL", 1.0)  # "any idle SM" would flag the 128-block GEMM
    assert metric(result("grids", view(path)), "underfill_share") == pytest.approx(0.7)


def test_the_drivers_reserve_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """115712 + 1024 fit twice into 233472; 1 KB more does not, and without the reserve it still would."""
    tight = Shape(registers=32, shared=115712 + 1024)
    path = TinyTrace().launch(0, "k", 10, 20, shape=tight).launch(1, "l", 30, 40).save(tmp_path)
    assert row(result("grids", view(path)), "grids", kernel="k")["blocks_per_sm"] == 1
    monkeypatch.setattr("tracelab.occupancy._SHARED_RESERVE_BYTES", 0)
    assert row(result("grids", view(path)), "grids", kernel="k")["blocks_per_sm"] == 2


def test_grids_that_follow_the_context_are_one_row_with_their_range(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(3):
        t = i * 1000
        trace.range(f"step {i}", t, t + 100)
        trace.launch(t, "attn", t + 10, t + 110, shape=Shape(grid=(32 + 2 * max(i - 1, 0), 1, 1)))
    answer = result("grids", view(trace.save(tmp_path)))
    assert row(answer, "grids", kernel="attn")["grid"] == "32 (32–34)"


def test_the_starved_phase_is_told_from_the_bandwidth_bound(tmp_path: Path) -> None:
    def codes(moved: int) -> list[str]:
        trace = TinyTrace().workload(bytes_per_step=moved, phases={"attn": {"bytes": moved}})
        for i in range(2):
            trace.range(f"step {i}", i * 1000, i * 1000 + 100).range("attn", i * 1000, i * 1000 + 90)
            trace.launch(i * 1000, "k", i * 1000 + 10, i * 1000 + 110, shape=LEAN)
        answer = result("grids", view(trace.save(tmp_path), Facts(bandwidth_bytes_per_s=1e9)))
        return [finding.code for finding in answer.findings]

    assert codes(10) == ["starved-grid"]  # 10 bytes in 100 ns at 1 byte per ns: MBU 0.1, below 0.3
    assert codes(80) == ["underfilled-grid"]  # MBU 0.8


def test_unknown_limits_are_said(tmp_path: Path) -> None:
    path = shapes(None).save(tmp_path)
    answer = result("grids", view(path))
    assert answer.skipped is not None
    assert "--gpu" in answer.skipped
    assert result("grids", view(path, Facts(gpu="H200"))).skipped is None


def test_a_kernel_is_flagged_for_what_most_of_its_time_does(tmp_path: Path) -> None:
    """300 ns on a full grid and 100 ns on 4 blocks: the row is not flagged, though a quarter of the time is."""
    trace = TinyTrace()
    for i in range(2):
        t = i * 1000
        trace.range(f"step {i}", t, t + 100).launch(t, "k", t + 10, t + 310)
        trace.launch(t + 5, "k", t + 310, t + 410, shape=Shape(grid=(4, 1, 1)))
    answer = result("grids", view(trace.save(tmp_path)))
    assert row(answer, "grids", kernel="k")["underfills"] is False
    assert metric(answer, "underfill_share") == pytest.approx(0.25)


def test_a_finding_speaks_only_of_the_launches_that_underfill(tmp_path: Path) -> None:
    # One kernel with grids of 32, 88 and 256 blocks, 100 ns each: only the first two underfill 132 SMs.
    trace = TinyTrace()
    for i in range(2):
        trace.range(f"step {i}", i * 2000, i * 2000 + 100)
        for k, blocks in enumerate((32, 88, 256)):
            t = i * 2000 + 10 * k
            trace.launch(t, "gemm", t + 200 + 100 * k, t + 300 + 100 * k, shape=Shape(grid=(blocks, 1, 1)))
    (finding,) = result("grids", view(trace.save(tmp_path))).findings
    assert finding.title.startswith("gemm reaches 32–88 of 132 SMs (32–88 blocks): 0.2 µs, 66.7 % of GPU time.")
    assert finding.saving_ns == 109  # 100 x (1 - 32/132) + 100 x (1 - 88/132) = 75.8 + 33.3


def test_a_gpu_named_by_hand_stands_in_for_one_that_the_trace_lacks(tmp_path: Path) -> None:
    path = shapes(gpu=None).save(tmp_path)
    assert "--gpu NAME" in (result("grids", view(path)).skipped or "")
    told = document(path, Facts(gpu="H200"))
    assert told["results"]["grids"]["metrics"]["underfill_share"]["value"] == pytest.approx(0.3)
    assert "no-gpu-info" in [warning["code"] for warning in document(path)["trace"]["warnings"]]
    assert "no-gpu-info" not in [warning["code"] for warning in told["trace"]["warnings"]]


def test_a_kernel_that_waits_beside_another_is_charged_only_for_its_time_alone(tmp_path: Path) -> None:
    # `merge` (4 of 132 SMs) is launched early and waits: 0–1000 ns beside `split`, then 100 ns alone.
    # 100 × (1 − 4/132) = 97 ns; charged for all 1100 it would be 1067.
    trace = TinyTrace()
    for i in range(2):
        t = i * 5000
        trace.range(f"step {i}", t, t + 100)
        trace.launch(t, "split", t + 10, t + 1010).launch(t + 5, "merge", t + 10, t + 1110, shape=FEW, stream=9)
    (finding,) = result("grids", view(trace.save(tmp_path))).findings
    assert finding.title == "1 kernel a step reaches 4 or fewer of 132 SMs: 0.1 µs, 4.8 % of GPU time."
    assert finding.saving_ns == 97
