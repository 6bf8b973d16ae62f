"""What is said of a PyTorch profiler trace: its steps and phases, and what such a trace cannot tell."""

from pathlib import Path

import pytest
from asking import metric, result, row
from kineto_fixture import NEW, OLD, ROCM, Dialect, TinyKineto

from tracelab.analysis import Analysis, attribute, report, view_of
from tracelab.errors import NoGpuWorkError
from tracelab.kineto_load import load_kineto
from tracelab.options import Facts, Selection
from tracelab.registry import leaves, load
from tracelab.trace import ABSENT
from tracelab.view import View

STEP = 1_000_000  # ns between two steps
NO_CODES = "The trace does not say what its calls returned, so failed launches cannot be told."


def decode(dialect: Dialect = NEW, steps: int = 5) -> TinyKineto:
    """Steps of 1 ms: an operator around the annotation `attn`, another inside `mlp`; one kernel of 30 µs in each."""
    trace = TinyKineto(dialect)
    for i in range(steps):
        at = STEP + i * STEP
        trace.annotation(f"ProfilerStep#{i + 3}", at, 900_000)
        trace.op("aten::sdpa", at + 10_000, 200_000).annotation("attn", at + 20_000, 150_000)
        trace.launch(at + 30_000, "flash", at + 50_000, 30_000)
        trace.annotation("mlp", at + 400_000, 150_000).op("aten::mm", at + 410_000, 100_000)
        trace.launch(at + 430_000, "gemm", at + 450_000, 30_000)
    return trace


def ask(trace: TinyKineto, tmp_path: Path) -> Analysis:
    return attribute(load_kineto(trace.save(tmp_path)), Facts(), Selection(skip_steps=0))


def view(trace: TinyKineto, tmp_path: Path, device: int = 0) -> View:
    return view_of(ask(trace, tmp_path), device)


@pytest.mark.parametrize("dialect", [NEW, OLD, ROCM])
def test_profiler_steps_are_the_steps(tmp_path: Path, dialect: Dialect) -> None:
    seen = view(decode(dialect), tmp_path)
    assert (seen.group.source, seen.group.names[0], seen.steps_used) == ("nvtx", "ProfilerStep#3", 5)
    assert seen.step_time_ns == STEP
    assert seen.busy_ns.tolist() == [60_000] * 5


def test_operators_bury_no_phase(tmp_path: Path) -> None:
    # Pitfall A18: attn lies inside an operator, an operator inside mlp; the phases are the user's all the same.
    seen = view(decode(), tmp_path)
    phases = result("phases", seen).tables["phases"]
    assert {(r["phase"], r["kernels_per_step"], r["busy_ns"]) for r in phases} == {
        ("attn", 1, 30_000),
        ("mlp", 1, 30_000),
    }
    assert {seen.trace.domains[code] for code in seen.trace.ranges.domain} == {"", "torch"}


def test_a_replay_is_one_launch_a_step(tmp_path: Path) -> None:
    # Pitfalls A3, A5, C8: 24 kernels and 7 copies of one cudaGraphLaunch: its time counts once.
    trace = TinyKineto()
    for i in range(4):
        at = STEP + i * STEP
        trace.annotation(f"decode {i}", at, 500_000).call(at + 1_000, "cudaGraphLaunch", dur=50_000)
        for k in range(24):
            trace.kernel(f"k{k}", at + 60_000 + k * 10_000, 9_000, node=(3, 3 << 32 | k))
        for k in range(7):
            trace.copy(at + 300_000 + k * 10_000, 9_000)
    seen = view(trace, tmp_path)
    kernels = result("kernels", seen)
    assert metric(kernels, "kernels_per_step") == 24
    assert metric(kernels, "launches_per_step") == 1
    assert metric(kernels, "copies_per_step") == 7
    assert metric(result("gaps", seen), "launch_api_ns") == 50_000
    assert seen.busy_ns.tolist() == [31 * 9_000] * 4


def test_two_devices_are_two_views(tmp_path: Path) -> None:
    trace = decode()
    for i in range(5):
        trace.launch(STEP + i * STEP + 600_000, "peer", STEP + i * STEP + 700_000, 10_000, device=1)
    views = [view_of(ask(trace, tmp_path), device) for device in (0, 1)]
    assert [seen.busy_ns.tolist() for seen in views] == [[60_000] * 5, [10_000] * 5]


def test_failed_launches_cannot_be_told(tmp_path: Path) -> None:
    seen = view(decode(), tmp_path)
    answer = result("launches", seen)
    assert answer.skipped == NO_CODES
    assert "failed_launches" not in answer.metrics
    assert row(answer, "calls", api="cudaLaunchKernel")["calls_per_step"] == 2


@pytest.mark.parametrize("format", ["terminal", "markdown"])
def test_the_page_says_that_it_cannot_be_told(tmp_path: Path, format: str) -> None:
    text = load(leaves("reports")[format]).render(
        report(ask(decode(), tmp_path)), full_names=False, width=None, color=False
    )
    assert text.count("failed launches cannot be told") == 1
    assert "0 failed launches" not in text


def test_grids_of_a_gpu_whose_kernels_tell_no_registers(tmp_path: Path) -> None:
    answer = result("grids", view(decode(ROCM), tmp_path))
    assert answer.skipped == ("The trace does not say how many registers its kernels use, so occupancy cannot be told.")
    assert answer.tables == {}


def test_grids_leave_out_only_the_kernels_that_tell_no_registers(tmp_path: Path) -> None:
    trace = decode()
    del trace.events[4]["args"]["registers per thread"]  # the first flash kernel
    seen = view(trace, tmp_path)
    assert (seen.trace.ops.shapes.registers == ABSENT)[seen.trace.ops.shapes.code].sum() == 1
    table = {r["kernel"]: r for r in result("grids", seen).tables["grids"]}
    assert table["gemm"]["calls_per_step"] == 1
    assert table["flash"]["calls_per_step"] == 4 / 5
    assert (table["gemm"]["grid"], table["gemm"]["block"], table["gemm"]["blocks_per_sm"]) == ("132", "128", 16)


def test_a_host_only_profile(tmp_path: Path) -> None:
    with pytest.raises(NoGpuWorkError, match=r"recorded only the host; ask it for ProfilerActivity\.CUDA"):
        ask(TinyKineto().op("aten::mm", 0, 1_000), tmp_path)


def test_launches_without_gpu_rows(tmp_path: Path) -> None:
    # Pitfall C2: 100 launch rows, no kernel.
    trace = TinyKineto()
    for i in range(100):
        trace.call(i * 10_000)
    with pytest.raises(NoGpuWorkError, match="made 100 launch calls, yet the profiler recorded no GPU activity"):
        ask(trace, tmp_path)


def test_calls_that_launch_nothing(tmp_path: Path) -> None:
    with pytest.raises(NoGpuWorkError, match="launched no kernel while the profiler was active"):
        ask(TinyKineto().call(0, "cudaMalloc"), tmp_path)


def test_work_without_times(tmp_path: Path) -> None:
    with pytest.raises(NoGpuWorkError, match="none of its GPU work has a usable time"):
        ask(TinyKineto().call(0).kernel("k", 10_000, -5), tmp_path)


def test_a_file_cut_before_its_first_kernel(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    text = decode().text()
    path.write_text(text[: text.index('"flash"')])
    with pytest.raises(NoGpuWorkError, match="ends before its closing bracket"):
        attribute(load_kineto(path), Facts(), Selection())
