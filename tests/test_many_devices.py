"""Many processes, devices, contexts and streams: identities never mix, each device answers for itself."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import NO_FACTS, ask, document, metric, result, view
from rank_programs import RANKS, STEP_NS, two_gpus, two_ranks
from tiny_schema import H200
from tiny_trace import KERNEL, LAUNCH, Thread, TinyTrace

from tracelab.analysis import report, view_of
from tracelab.load import load_trace
from tracelab.registry import leaves, load
from tracelab.step_samples import step_samples

L4: dict[str, Any] = {
    **H200, "id": 1, "name": "NVIDIA L4", "smCount": 58, "totalMemory": 23580639232, "memoryBandwidth": 300096000000,
    "maxShmemPerSm": 102400, "maxWarpsPerSm": 48, "maxBlocksPerSm": 24, "computeMajor": 8, "computeMinor": 9,
    "cuDevice": 1,
}  # fmt: skip


def page(path: Path, width: int | None = 80, **selection: Any) -> list[str]:
    analysis = ask(path, NO_FACTS, **selection)
    text: str = load(leaves("reports")["terminal"]).render(report(analysis), full_names=False, width=width, color=False)
    return text.splitlines()


def devices_block(lines: list[str]) -> list[list[str]]:
    """The cells of the devices table, heading first; empty where the page has none."""
    at = [i for i, line in enumerate(lines) if line.startswith("device ")]
    return [re.split(r" {2,}", line) for line in lines[at[0] : lines.index("", at[0])]] if at else []


def steps_on(trace: TinyTrace, on: Thread, steps: int = 3, **where: Any) -> TinyTrace:
    """Steps of 2000 ns with one kernel of 100 ns, launched at T+20, running T+100 … T+200."""
    for i in range(steps):
        t = i * STEP_NS
        trace.range(f"step {i}", t, t + 60, on=on).launch(t + 20, "k", t + 100, t + 200, on=on, **where)
    return trace


# The page


def test_every_device_has_a_row(tmp_path: Path) -> None:
    """Rank 1 is busy 100 … 700 and 800 … 1200: 1000 of 2000; rank 0 from 100 to 1200. Rank 0 has more GPU time."""
    lines = page(two_ranks().save(tmp_path))
    assert devices_block(lines) == [
        ["device", "process", "steps", "kernels", "step µs", "busy µs", "exposed µs", "bound"],
        ["0 (this page)", "100", "3", "3", "2.0", "1.1", "0.5", "host"],
        ["1", "200", "3", "3", "2.0", "1.0", "0.2", "host"],
    ]
    assert max(map(len, lines)) <= 80


def test_one_device_has_no_table_and_no_others(tmp_path: Path) -> None:
    path = two_ranks().save(tmp_path)
    assert devices_block(page(path, device=1)) == []
    said = document(path, device=1)
    assert (said["device"], "devices" in said) == (1, False)
    assert said["results"]["gaps"]["metrics"]["busy_ns"]["value"] == 1000
    assert [d["device"] for d in document(path)["devices"]] == [0, 1]


def test_unequal_gpus_are_named_and_have_limits_of_their_own(tmp_path: Path) -> None:
    trace = steps_on(steps_on(TinyTrace().gpu(**L4), RANKS[0]), RANKS[1], device=1)
    analysis = ask(trace.save(tmp_path))
    machines = [view_of(analysis, device).machine for device in (0, 1)]
    assert [(m.sm_count, m.bandwidth_bytes_per_s) for m in machines] == [(132, 4.8e12), (58, 300e9)]
    reached = [
        result("grids", view_of(analysis, device)).tables["grids"][0]["sm_fill"] for device in (0, 1)
    ]  # fmt: skip
    assert reached == [1.0, 1.0]  # 132 blocks
    waves = [result("grids", view_of(analysis, device)).tables["grids"][0]["waves"] for device in (0, 1)]
    # 128 threads, 32 registers: 2048 / 128 = 16 blocks fit an SM of the H200, 1536 / 128 = 12 one of the L4.
    assert waves == pytest.approx([132 / (132 * 16), 132 / (58 * 12)])
    assert [row[1] for row in devices_block(page(tmp_path / "tiny.sqlite"))] == ["GPU", "H200", "L4"]


@pytest.mark.parametrize(("width", "left_out"), [(60, 3), (80, 1), (120, 0), (None, 0)])
def test_the_table_fits(tmp_path: Path, width: int | None, left_out: int) -> None:
    """Unequal GPUs, communication and a failure at once: columns go before cells are cut, the failure never goes."""
    trace = failing(two_ranks(), step=1).sql("UPDATE TARGET_INFO_GPU SET name = 'NVIDIA L4' WHERE id = 1")
    lines = page(trace.save(tmp_path), width)
    every = ["device", "GPU", "process", "steps", "kernels", "step µs", "busy µs", "exposed µs", "bound", "failed"]
    heading, *rows = devices_block(lines)
    assert heading == [title for title in every if title in heading]
    assert len(heading) == len(every) - left_out
    assert [row[-1] for row in rows] == ["0", "1"]
    assert max(map(len, lines)) <= (width or 1000)


# Which GPU


def masked(*devices: tuple[int, int], ordinals: tuple[int, ...] = (0, 1, 2, 3)) -> TinyTrace:
    """Four GPUs with the given cuDevice; two processes that each see one GPU, as ordinal 0. `devices` are the
    declared (GPU, process)."""
    trace = TinyTrace(gpu=None)
    for number, ordinal in enumerate(ordinals):
        trace.gpu(**{**H200, "id": number, "cuDevice": ordinal, "smCount": 100 + number})
    for gpu, pid in devices:
        trace.cuda_device(gpu, 0, pid=pid)
    return steps_on(steps_on(trace, RANKS[0]), RANKS[1])


def test_masked_ordinals_are_the_declared_gpus(tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES=2 and 3: both processes say device 0."""
    said = document(masked((2, 100), (3, 200)).save(tmp_path))
    assert [d["device"] for d in said["devices"]] == [2, 3]
    assert {gpu["id"]: gpu["sm_count"] for gpu in said["trace"]["gpus"]} == {2: 102, 3: 103}
    assert "device-mapping" not in {w["code"] for w in said["trace"]["warnings"]}


@pytest.mark.parametrize(("ordinals", "gpu"), [((3, 2, 1, 0), 3), ((0, 0, 0, 0), 0)])
def test_masked_ordinals_that_nobody_declared_are_a_warning(
    tmp_path: Path, ordinals: tuple[int, ...], gpu: int
) -> None:
    """By cuDevice, else by id: both processes seem to share one GPU, which need not be so, and the page says it."""
    said = document(masked(ordinals=ordinals).save(tmp_path))
    assert [g["id"] for g in said["trace"]["gpus"]] == [gpu]
    (warning,) = [w["message"] for w in said["trace"]["warnings"] if w["code"] == "device-mapping"]
    assert "CUDA_VISIBLE_DEVICES" in warning


@pytest.mark.parametrize("ordinal", [-1, 2**31 - 1, 2**32 - 1])
def test_rows_of_no_device_keep_no_gpu_busy(tmp_path: Path, ordinal: int) -> None:
    """A node of a graph that the host runs has -1 or INT_MAX for a device, read as signed or unsigned."""
    trace = steps_on(TinyTrace(), RANKS[0]).call(30, 35).kernel("host node", 300, 900, device=ordinal)
    path = trace.save(tmp_path)
    loaded = load_trace(path)
    assert (len(loaded.ops), len(loaded.devices)) == (3, 1)
    assert [(code, text[:21]) for code, text in loaded.notes] == [("host-work", "1 rows name no device")]
    assert metric(result("gaps", view(path)), "busy_ns") == 100


def test_work_without_any_device_column_is_kept(tmp_path: Path) -> None:
    path = steps_on(TinyTrace(), RANKS[0]).without(f"{KERNEL}.deviceId").save(tmp_path)
    assert (len(load_trace(path).ops), load_trace(path).notes) == (3, ())


# Processes, contexts, streams


def test_two_processes_with_equal_ids_on_one_gpu(tmp_path: Path) -> None:
    """Same correlation ids, context and stream; the second process runs its kernel 150 … 250 after the step began."""
    trace = steps_on(TinyTrace(), RANKS[0])
    for i in range(3):
        t = i * STEP_NS
        trace.range(f"step {i}", t, t + 60, on=RANKS[1]).launch(t + 20, "k", t + 150, t + 250, on=RANKS[1])
    seen = view(trace.save(tmp_path))
    assert len(set(seen.trace.ops.correlation.tolist())) == 3  # of six kernels
    assert seen.table.kernels.tolist() == [1] * 6
    assert seen.table.process.tolist() == [0, 0, 0, 1, 1, 1]
    assert seen.busy_ns.tolist() == [100] * 6
    assert seen.timeline.covered(np.array([0]), np.array([STEP_NS])).tolist() == [150]  # 100 … 250, once


def test_hundreds_of_streams(tmp_path: Path) -> None:
    """300 streams a step, each with a kernel of 1000 ns that starts 10 after the one before: busy 299 · 10 + 1000."""
    trace = TinyTrace()
    for i in range(3):
        t = i * 100_000
        trace.range(f"step {i}", t, t + 3000)
        for k in range(300):
            at = t + 4000 + 10 * k
            trace.launch(t + 10 * k, f"k{k % 3}", at, at + 1000, stream=100 + k)
    seen = view(trace.save(tmp_path))
    assert (seen.busy_ns.tolist(), seen.table.sum_ns.tolist()) == ([3990] * 3, [300_000] * 3)
    assert seen.idle_by_class.sum() == 0
    assert step_samples(seen).places.behind_ns.sum(axis=1).tolist() == [300_000] * 3


def two_contexts() -> TinyTrace:
    """One process with two contexts on one GPU, each with a stream 7: their kernels overlap T+150 … T+200."""
    trace = steps_on(TinyTrace(), RANKS[0])
    for i in range(3):
        trace.launch(i * STEP_NS + 40, "other", i * STEP_NS + 150, i * STEP_NS + 250)
    return trace.sql(
        f"UPDATE {KERNEL} SET contextId = 2 WHERE demangledName = (SELECT id FROM StringIds WHERE value = 'other')"
    )


def test_streams_of_two_contexts_are_two_streams(tmp_path: Path) -> None:
    """A kernel counts from the end of the one before it on its own stream: both of these run 100 ns."""
    seen = view(two_contexts().save(tmp_path))
    assert sorted(set(seen.trace.ops.stream.tolist())) == [7, 1 << 32 | 7]
    assert step_samples(seen).places.behind_ns.tolist() == [[100, 100]] * 3
    assert seen.busy_ns.tolist() == [150] * 3


def test_control_stream_ids_alone_would_mix_the_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelab.nsys_ops._stream_codes", lambda _process, _device, _context, stream: stream)
    seen = view(two_contexts().save(tmp_path))
    assert step_samples(seen).places.behind_ns.tolist() == [[100, 50]] * 3


def test_one_context_per_device_or_process_changes_no_stream_id(tmp_path: Path) -> None:
    trace = two_ranks().sql(f"UPDATE {KERNEL} SET contextId = 5 WHERE deviceId = 1")
    assert set(load_trace(trace.save(tmp_path)).ops.stream.tolist()) == {7, 20}


# A launch that fails on one rank


def failing(trace: TinyTrace, step: int) -> TinyTrace:
    """A launch in `mlp` of rank 1 returns an error."""
    at = step * STEP_NS + 50
    return trace.call(at, at + 5, LAUNCH, code=9, on=RANKS[1])


@pytest.mark.parametrize("device", [0, 1])
def test_a_failure_is_told_at_its_phase_and_rank(tmp_path: Path, device: int) -> None:
    said = document(failing(two_ranks(6), step=4).save(tmp_path), device=device)
    first = said["findings"][0]
    assert first["code"] == "failed-launch"
    assert first["title"] == (
        "1 × cudaLaunchKernel failed in mlp of step 4 on device 1 (process 200): cudaErrorInvalidConfiguration (9)."
    )
    assert "AllReduce" not in first["evidence"]  # the other rank's collective took as long as ever
    (row,) = said["results"]["launches"]["tables"]["failed"]
    assert (row["phase"], row["step"], row["process"], row["device"]) == ("mlp", "step 4", 200, 1)


def slow_rank_0(ends: int) -> TinyTrace:
    """Six steps; in step 4 rank 0's all-reduce runs from T+400 to T+400+`ends` in place of 600."""
    trace = failing(two_ranks(6), step=4)
    at = 4 * STEP_NS + 400
    return trace.sql(f"UPDATE {KERNEL} SET end = {at + ends} WHERE start = {at} AND deviceId = 0")


def test_ranks_that_wait_in_the_collective_are_told_as_measured(tmp_path: Path) -> None:
    said = document(slow_rank_0(1500).save(tmp_path))
    assert said["findings"][0]["evidence"] == (
        "The kernel did not run and its output holds old data; the program went on. "
        "The other ranks wait in AllReduce: 1.5 µs on device 0 in that step, where 0.6 µs are usual."
    )


def test_control_a_collective_that_is_only_somewhat_longer_is_no_wait(tmp_path: Path) -> None:
    assert "wait" not in document(slow_rank_0(1199).save(tmp_path))["findings"][0]["evidence"]
    assert "wait" in document(slow_rank_0(1200).save(tmp_path))["findings"][0]["evidence"]


def test_what_is_usual_comes_from_the_other_steps(tmp_path: Path) -> None:
    """Half of the steps fail, and the other rank waits in each of them: 1500 against 600."""
    trace = two_ranks(6)
    for step in (1, 3, 5):
        at = step * STEP_NS + 400
        failing(trace, step).sql(f"UPDATE {KERNEL} SET end = {at + 1500} WHERE start = {at} AND deviceId = 0")
    assert "0.6 µs are usual" in document(trace.save(tmp_path))["findings"][0]["evidence"]


def test_the_failing_rank_is_no_other_rank(tmp_path: Path) -> None:
    """Rank 1 itself is 3 times as long in the collective: it does not wait for itself."""
    at = 4 * STEP_NS
    trace = failing(two_ranks(6), step=4)
    trace.sql(f"UPDATE {KERNEL} SET end = {at + 1400} WHERE start = {at + 800} AND deviceId = 1")
    assert "wait" not in document(trace.save(tmp_path))["findings"][0]["evidence"]


def test_a_process_without_gpu_work_has_no_device(tmp_path: Path) -> None:
    trace = two_ranks().call(2050, 2055, LAUNCH, code=9, on=Thread(300, 300))
    said = document(trace.save(tmp_path))
    assert said["findings"][0]["title"].startswith("1 × cudaLaunchKernel failed in (no phase) in process 300:")
    assert said["results"]["launches"]["tables"]["failed"][0]["device"] is None


def test_threads_of_one_process_that_drive_a_device_each(tmp_path: Path) -> None:
    """The failing thread gives work to device 1 only, its process to both."""
    worker = Thread(100, 101)
    trace = steps_on(steps_on(two_gpus().cuda_device(1, 1), RANKS[0]), worker, device=1)
    trace.call(2050, 2055, LAUNCH, code=9, on=worker).call(2050, 2055, LAUNCH, code=9, on=Thread(100, 102))
    rows = result("launches", view(trace.save(tmp_path))).tables["failed"]
    assert sorted((row["device"] is None, row["device"]) for row in rows) == [(False, 1), (True, None)]


def test_one_process_on_one_device_is_not_named(tmp_path: Path) -> None:
    trace = steps_on(TinyTrace(), RANKS[0]).call(50, 55, LAUNCH, code=9)
    (finding,) = result("launches", view(trace.save(tmp_path))).findings
    assert finding.title == "1 × cudaLaunchKernel failed in (no phase): cudaErrorInvalidConfiguration (9)."


def test_many_ranks_that_fail_alike_are_one_finding(tmp_path: Path) -> None:
    trace = failing(two_ranks(), step=1).call(2050, 2055, LAUNCH, code=9, on=RANKS[0])
    first = document(trace.save(tmp_path))["findings"][0]
    assert first["title"].startswith(
        "2 × cudaLaunchKernel failed in mlp of step 1 on devices 0, 1 (processes 100, 200):"
    )
