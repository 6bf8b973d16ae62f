"""Processes, threads and devices of a PyTorch profiler file, and the ranges and overheads on them."""

from pathlib import Path

from kineto_fixture import H200, MI250, PID, ROCM, Dialect, TinyKineto, load, names_of, program

from tracelab.trace import ABSENT, Trace


def test_two_devices(tmp_path: Path) -> None:
    trace = TinyKineto(metadata={"deviceProperties": [H200, {**H200, "id": 1, "name": "NVIDIA H100", "numSms": 114}]})
    trace.launch(0, "a", 10_000, 100).launch(20_000, "b", 30_000, 100, device=1).launch(
        40_000, "c", 50_000, 100, device=2
    )
    found = load(trace, tmp_path)
    assert [(gpu.id, gpu.name, gpu.sm_count) for gpu in found.devices] == [
        (0, "NVIDIA H200", 132), (1, "NVIDIA H100", 114), (2, "unknown GPU", None)
    ]  # fmt: skip
    assert found.ops.device.tolist() == [0, 1, 2]


def test_limits_of_the_gpu(tmp_path: Path) -> None:
    (gpu,) = load(program(), tmp_path).devices
    assert (gpu.compute_major, gpu.compute_minor, gpu.warps_per_sm, gpu.threads_per_warp) == (9, 0, 64, 32)
    assert (gpu.registers_per_sm, gpu.shared_bytes_per_sm, gpu.memory_bytes) == (65536, 233472, 150110011392)


def test_an_amd_gpu_has_no_compute_capability_of_nvidia(tmp_path: Path) -> None:
    (gpu,) = load(program(ROCM), tmp_path).devices
    assert MI250["computeMajor"] == H200["computeMajor"]
    assert (gpu.compute_major, gpu.sm_count, gpu.shared_bytes_per_sm, gpu.threads_per_warp) == (None, 110, 65536, 64)


def test_a_file_that_does_not_describe_its_gpu(tmp_path: Path) -> None:
    found = load(program(Dialect(gpu=None)), tmp_path)
    assert [code for code, _ in found.notes] == ["no-gpu-info"]
    assert found.devices[0].name == "unknown GPU"


def test_registers_are_unknown_where_the_file_has_none(tmp_path: Path) -> None:
    assert _registers(load(program(ROCM), tmp_path)) == [ABSENT, ABSENT, 0]
    assert _registers(load(program(), tmp_path)) == [32, 32, 0]


def _registers(trace: Trace) -> list[int]:
    return [int(n) for n in trace.ops.shapes.registers[trace.ops.shapes.code]]


def test_processes_that_count_alike_are_never_mixed(tmp_path: Path) -> None:
    # Pitfall A2 for merged ranks: correlation 5 was launched by both processes, 6 by the second alone.
    trace = TinyKineto()
    for pid in (10, 20):
        trace.call(pid * 1_000, correlation=5, pid=pid, tid=pid)
    trace.kernel("both", 50_000, 100).call(60_000, correlation=6, pid=20, tid=20).kernel("one", 70_000, 100)
    found = load(trace, tmp_path)
    assert found.processes == (10 << 24, 20 << 24)
    assert found.ops.call.tolist() == [ABSENT, 2]
    assert found.ops.process.tolist() == [1, 1]
    assert [code for code, _ in found.notes] == ["several-processes"]


def test_threads_of_a_process_keep_apart(tmp_path: Path) -> None:
    trace = (
        TinyKineto().launch(0, "a", 10_000, 100).launch(1_000, "b", 20_000, 100, tid=9).annotation("mlp", 0, 9, tid=9)
    )
    found = load(trace, tmp_path)
    assert found.threads == (PID << 24 | 9, PID << 24 | PID)
    assert found.calls.thread.tolist() == [1, 0]
    assert found.ranges.thread.tolist() == [0]
    assert found.thread_process.tolist() == [0, 0]


def test_overheads_belong_to_the_only_thread(tmp_path: Path) -> None:
    # Kineto writes process -1, thread 0 for them.
    found = load(program(), tmp_path)
    assert (found.overheads.start.tolist(), found.overheads.end.tolist()) == ([90_000], [92_000])
    assert (found.overheads.thread.tolist(), found.overheads.process.tolist()) == ([0], [0])
    several = load(program().call(0, tid=9), tmp_path)
    assert several.overheads.thread.tolist()[0] not in several.calls.thread.tolist()
    assert several.overheads.process.tolist() == [0]


def test_ranges_that_never_end_last_until_the_last_event(tmp_path: Path) -> None:
    found = load(program().event("user_annotation", "open", 101_000, ph="B"), tmp_path)
    at = names_of(found, found.ranges.name).index("open")
    assert (int(found.ranges.end[at]), found.ranges.open.tolist().count(True)) == (84_000, 1)


def test_inverted_ranges_are_left_out_and_told(tmp_path: Path) -> None:
    found = load(program().annotation("wrong", 150_000, -1_000), tmp_path)
    assert "wrong" not in names_of(found, found.ranges.name)
    assert [code for code, _ in found.notes] == ["inverted-ranges"]
