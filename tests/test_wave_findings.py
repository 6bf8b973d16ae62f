"""The finding `waves`: a grid that fills the GPU and still queues, one block per SM, far from its floor."""

from pathlib import Path

import pytest
from asking import result, view
from tiny_trace import Shape, TinyTrace

from tracelab.options import Facts
from tracelab.result import Finding

# 164 registers × 256 threads: 168 (rounded to 8) × 32 lanes × 8 warps = 43 008 of 65 536 registers, one block per SM
PER_HEAD = Shape(grid=(768, 1, 1), block=(256, 1, 1), registers=164)


def grid_findings(tmp_path: Path, shape: Shape, *, ns: int = 36_000, moved: int = 100) -> list[Finding]:
    """Of two steps with one kernel of `ns` each that must move `moved` bytes at 1 byte per ns."""
    trace = TinyTrace().workload(bytes_per_step=moved, phases={"attn": {"bytes": moved}})
    for i in range(2):
        t = i * 200_000
        trace.range(f"step {i}", t, t + 100).range("attn", t, t + 90)
        trace.launch(t, "k", t + 10, t + 10 + ns, shape=shape)
    return list(result("grids", view(trace.save(tmp_path), Facts(bandwidth_bytes_per_s=1e9))).findings)


def test_six_waves_of_one_block_per_sm_are_named_with_what_limits_them(tmp_path: Path) -> None:
    # 768 blocks ÷ (132 SMs × 1) = 5.8 waves; 36 000 ns ÷ a floor of 100 ns = 360 times
    (found,) = grid_findings(tmp_path, PER_HEAD)
    assert found.code == "waves"
    assert found.title == (
        "k runs 768 blocks in 5.8 waves, one block per SM (164 registers a thread): 36.0 µs, 100.0 % of GPU time."
    )
    assert found.evidence.startswith("attn takes 360× its floor. More blocks would only queue")
    assert found.saving_ns == 36_000 - 100


@pytest.mark.parametrize(
    ("shape", "moved"),
    [
        (Shape(grid=(128, 1, 1), block=(256, 1, 1), registers=164), 100),  # one wave, 4 SMs idle
        (Shape(grid=(768, 1, 1), block=(256, 1, 1), registers=80), 100),  # three blocks per SM
        (PER_HEAD, 24_001),  # just under 1.5 times its floor
    ],
    ids=["one wave", "three blocks per SM", "near its floor"],
)
def test_good_kernels_are_not_flagged(tmp_path: Path, shape: Shape, moved: int) -> None:
    assert grid_findings(tmp_path, shape, moved=moved) == []


def test_shared_memory_can_be_what_limits(tmp_path: Path) -> None:
    shape = Shape(grid=(768, 1, 1), block=(256, 1, 1), registers=32, shared=150_000)
    (found,) = grid_findings(tmp_path, shape)
    assert "(150.0 kB of shared memory)" in found.title


def test_a_serial_walk_is_told_from_a_kernel_that_does_little(tmp_path: Path) -> None:
    # 96 blocks on 132 SMs, 60 000 ns a call: at or above the 50 µs from which it is a walk
    few = Shape(grid=(96, 1, 1), block=(256, 1, 1), registers=164)
    (walk,) = grid_findings(tmp_path, few, ns=60_000)
    assert walk.code == "starved-grid"
    assert "600× its floor: every block walks its part alone for up to 60.0 µs" in walk.evidence
    (little,) = grid_findings(tmp_path, few, ns=4_000)
    assert "has next to nothing to move" in little.evidence


def test_a_kernel_bound_by_flops_may_run_one_block_per_sm(tmp_path: Path) -> None:
    # 989e3 FLOP take 1 ns: 12 000 ns of FLOPs against 100 ns of bytes; 36 000 ns are three times that floor
    trace = TinyTrace().workload(bytes_per_step=100, phases={"attn": {"bytes": 100, "flops": 989e3 * 12_000}})
    for i in range(2):
        t = i * 200_000
        trace.range(f"step {i}", t, t + 100).range("attn", t, t + 90)
        trace.launch(t, "k", t + 10, t + 36_010, shape=PER_HEAD)
    assert list(result("grids", view(trace.save(tmp_path), Facts(bandwidth_bytes_per_s=1e9))).findings) == []
