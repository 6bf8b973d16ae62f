"""Loading an nsys export: identities, joins, names, absent tables and columns, odd rows."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from asking import document, view
from tiny_programs import eager, replays
from tiny_trace import KERNEL, LAUNCH, MAIN, MEMCPY, NODES, NVTX, RUNTIME, STRINGS, Thread, TinyTrace

from tracelab import nsys_ops
from tracelab.load import load_trace
from tracelab.trace import ABSENT, PUSH_POP, START_END, Calls, Ops, Trace

OTHER = Thread(pid=200, tid=200)
HIGH = Thread(pid=300, tid=301, hw=0x81)  # its ids are negative in SQLite


def loaded(trace: TinyTrace, folder: Path) -> Trace:
    return load_trace(trace.save(folder))


def range_names(trace: Trace) -> list[str]:
    return [trace.names[int(code)] for code in trace.ranges.name]


def op_names(trace: Trace) -> list[str]:
    return [trace.names[int(code)] for code in trace.ops.name]


def same_ids() -> TinyTrace:
    """Two processes count correlation ids from 101: 10 ns kernels in one, 1000 ns in the other."""
    trace = TinyTrace()
    for i in range(3):
        for on, ns in ((MAIN, 10), (OTHER, 1000)):
            t = 5000 * i + on.pid
            trace.range(f"of {on.pid}", t, t + 50, on=on).launch(t, f"k{ns}", t + 60, t + 60 + ns, on=on)
    return trace


def gpu_ns_of(trace: Trace, pid: int) -> int:
    """GPU time credited to the calls of a process."""
    mine = [trace.pid(int(code)) == pid for code in trace.calls.process[trace.ops.call]]
    return int(trace.ops.duration_ns[mine].sum())


def test_pitfall_a2_identity_is_process_and_correlation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = loaded(same_ids(), tmp_path)
    assert set(trace.ops.correlation.tolist()) == {101, 102, 103}
    assert (gpu_ns_of(trace, 100), gpu_ns_of(trace, 200)) == (30, 3000)

    def by_id_alone(ops: Ops, calls: Calls) -> Ops:
        one_process = dataclasses.replace(ops, process=np.zeros_like(ops.process))
        linked = nsys_ops.link_calls(one_process, dataclasses.replace(calls, process=np.zeros_like(calls.process)))
        return dataclasses.replace(ops, call=linked.call)

    monkeypatch.setattr("tracelab.nsys_load.link_calls", by_id_alone)
    assert gpu_ns_of(loaded(same_ids(), tmp_path), 100) == 3030


def test_ids_are_unsigned(tmp_path: Path) -> None:
    trace = loaded(TinyTrace().launch(0, "a", 10, 20).launch(5, "b", 30, 40, on=HIGH), tmp_path)
    assert HIGH.global_tid < 0
    assert trace.threads == (1 << 48 | 100 << 24 | 100, 0x81 << 56 | 1 << 48 | 300 << 24 | 301)
    assert [trace.pid(code) for code in range(2)] == [100, 300]
    assert (trace.ops.call >= 0).all()


@pytest.mark.parametrize(("of_call", "of_kernel"), [(-1, 0xFFFFFFFF), (0xFFFFFFFF, -1), (-5, -5)])
def test_correlation_ids_are_unsigned_32_bit(tmp_path: Path, of_call: int, of_kernel: int) -> None:
    trace = TinyTrace().call(0, 5, correlation=of_call).kernel("k", 10, 20, correlation=of_kernel)
    assert loaded(trace, tmp_path).ops.call.tolist() == [0]


def test_class_67_repeats_a_call(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "a", 10, 20)
    trace.call(0, 5, "cudaLaunchKernel", event_class=67, correlation=101).call(50, 55, code=1)
    trace.call(50, 55, "cudaLaunchKernel", event_class=67, correlation=102)
    found = loaded(trace, tmp_path)
    assert len(found.calls) == 2
    assert len(found.ops) == 1
    assert found.calls.return_value.tolist() == [0, 1]


def test_without_the_class_column_every_row_counts(tmp_path: Path) -> None:
    found = loaded(eager().without(f"{RUNTIME}.eventClass"), tmp_path)
    assert len(found.calls) == 9
    assert (found.ops.call >= 0).all()


@pytest.mark.parametrize("absent", [NVTX, RUNTIME, "TARGET_INFO_GPU", "ANALYSIS_DETAILS", "META_DATA_EXPORT"])
def test_absent_tables_are_empty(tmp_path: Path, absent: str) -> None:
    path = eager().without(absent).save(tmp_path)
    assert document(path)["trace"]["kernels"] == 9
    assert len(load_trace(path).ops) == 9


ENV = "TARGET_INFO_SYSTEM_ENV"


def with_driver() -> TinyTrace:
    """A trace that names its driver, among other properties of the system."""
    trace = eager().row(ENV, name="CudaDriverVersion", value="13000").row(ENV, name=None, value=None)
    return trace.row(ENV, name="NvDriverVersion", value="580.159.04").row(ENV, name="NvDriverVersion", value="470.1")


def test_the_driver_is_read(tmp_path: Path) -> None:
    assert loaded(with_driver(), tmp_path).driver == "580.159.04"


@pytest.mark.parametrize("absent", [ENV, f"{ENV}.name", f"{ENV}.value"])
def test_a_driver_that_is_not_told_is_none(tmp_path: Path, absent: str) -> None:
    assert loaded(with_driver().without(absent), tmp_path).driver is None
    row = with_driver().sql(f"DELETE FROM {ENV} WHERE name = 'NvDriverVersion'")
    assert loaded(row, tmp_path / "row.sqlite").driver is None


def test_the_driver_is_no_part_of_the_document(tmp_path: Path) -> None:
    plain = document(eager().save(tmp_path))
    assert document(with_driver().save(tmp_path)) == plain


@pytest.mark.parametrize(
    "absent",
    [
        f"{KERNEL}.shortName", f"{KERNEL}.demangledName", f"{KERNEL}.graphNodeId", f"{KERNEL}.registersPerThread",
        f"{KERNEL}.gridX", f"{KERNEL}.deviceId", f"{KERNEL}.streamId", f"{RUNTIME}.returnValue", f"{NVTX}.textId",
        f"{NVTX}.domainId", f"{NVTX}.endGlobalTid", "TARGET_INFO_GPU.cuDevice", "TARGET_INFO_GPU.memoryBandwidth",
        f"{KERNEL}.globalPid", f"{RUNTIME}.globalTid", f"{KERNEL}.correlationId", f"{NVTX}.text",
        f"{NVTX}.globalTid", f"{RUNTIME}.nameId", f"{STRINGS}.value",
    ],
)  # fmt: skip
def test_absent_columns_are_null(tmp_path: Path, absent: str) -> None:
    said = document(eager().without(absent).save(tmp_path))
    assert said["trace"]["kernels"] == 9
    assert said["trace"]["kernel_sum_ns"] == 900


def test_empty_tables_are_absent_tables(tmp_path: Path) -> None:
    path = eager().sql(f"DELETE FROM {NVTX}").save(tmp_path)
    assert document(path) == document(eager().without(NVTX).save(tmp_path / "other.sqlite"))


def test_foreign_tables_and_columns_change_nothing(tmp_path: Path) -> None:
    said = document(eager().save(tmp_path))
    trace = (
        eager().sql(f"ALTER TABLE {KERNEL} ADD COLUMN kernel_name TEXT").sql("CREATE TABLE EXTRAP_PATHS (id INTEGER)")
    )
    trace.sql(f"CREATE INDEX i ON {KERNEL} (start)")
    assert document(trace.save(tmp_path)) == said


def test_pitfall_a19_names_by_text_by_id_or_not_at_all(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "k", 10, 20)
    trace.range("plain", 0, 9).range("registered", 1, 8, registered=True).range(None, 2, 7)
    found = loaded(trace, tmp_path)
    assert range_names(found) == ["plain", "registered", ""]
    assert range_names(loaded(trace.without(f"{NVTX}.textId"), tmp_path)) == ["plain", "", ""]


def test_text_ids_only(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "k", 10, 20).range("registered", 1, 8, registered=True).without(f"{NVTX}.text")
    assert range_names(loaded(trace, tmp_path)) == ["registered"]


def test_an_id_without_a_string_is_no_name(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "k", 10, 20).sql(f"UPDATE {KERNEL} SET demangledName = 999")
    assert op_names(loaded(trace, tmp_path)) == [""]


def test_versions_are_no_part_of_a_runtime_name(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "k", 10, 20, api="cudaLaunchKernel_v7000")
    trace.launch(20, "k", 30, 40, api="cudaLaunchKernelExC_v11060_ptsz").launch(
        40, "k", 50, 60, api="cuGetProcAddress_v2"
    )
    found = loaded(trace, tmp_path)
    names = [found.names[int(code)] for code in found.calls.name]
    assert names == ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuGetProcAddress_v2"]


def test_domains_have_names_per_process(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "k", 10, 20).domain(3, "NCCL").domain(3, "TensorRT", on=OTHER)
    trace.range("a", 0, 9, domain=3).range("b", 0, 9, domain=3, on=OTHER).range("c", 0, 9).range("d", 0, 9, domain=4)
    found = loaded(trace, tmp_path)
    domains = {name: found.domains[int(d)] for name, d in zip(range_names(found), found.ranges.domain, strict=True)}
    assert domains == {"a": "NCCL", "b": "TensorRT", "c": "", "d": "domain 4"}


def test_kinds_of_ranges_and_what_is_none(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "k", 10, 20)
    for kind in (59, 60, 70, 71, 34, 33, 39, 75, 76, 97):
        trace.range(f"kind {kind}", kind, kind + 10, kind=kind)
    found = loaded(trace, tmp_path)
    assert range_names(found) == ["kind 59", "kind 60", "kind 70", "kind 71"]
    assert found.ranges.kind.tolist() == [PUSH_POP, START_END, PUSH_POP, START_END]


def test_pitfall_a20_open_and_inverted_ranges(tmp_path: Path) -> None:
    trace = TinyTrace().launch(0, "k", 10, 500).duration(900)
    trace.range("open", 0, None).range("at the end", 1, 900).range("inverted", 50, 49).range("closed", 2, 300)
    found = loaded(trace, tmp_path)
    assert range_names(found) == ["open", "at the end", "closed"]
    assert found.ranges.open.tolist() == [True, True, False]
    assert found.ranges.end.tolist() == [500, 900, 300]
    assert [code for code, _ in found.notes] == ["inverted-ranges"]


def test_untimed_and_inverted_work_is_counted_and_left_out(tmp_path: Path) -> None:
    trace = eager().kernel("untimed", 0, 0).kernel("inverted", 90, 80).copy(0, 0)
    path = trace.save(tmp_path)
    said = document(path)
    assert (load_trace(path).loss.untimed, load_trace(path).loss.inverted) == (2, 1)
    assert said["trace"]["kernels"] == 9
    assert {w["code"] for w in said["trace"]["warnings"]} == {"untimed-work", "inverted-work"}


def test_negative_times_are_legal(tmp_path: Path) -> None:
    found = loaded(TinyTrace().launch(-2000, "k", -1990, -1890).range("r", -2001, -1000), tmp_path)
    assert found.ops.duration_ns.tolist() == [100]
    assert found.ranges.open.tolist() == [False]


def test_work_without_a_launch_row_stays(tmp_path: Path) -> None:
    path = eager().kernel("orphan", 5000, 5100, correlation=9999).save(tmp_path)
    assert int((load_trace(path).ops.call == ABSENT).sum()) == 1
    said = document(path)
    assert said["trace"]["kernels"] == 10
    assert "no-launch-row" in {w["code"] for w in said["trace"]["warnings"]}


def test_node_events_under_their_old_name(tmp_path: Path) -> None:
    new = replays().node(-90, 1 << 32).node(-80, 2 << 32, 1 << 32)
    renamed = replays().node(-90, 1 << 32).node(-80, 2 << 32, 1 << 32)
    renamed.sql(f"ALTER TABLE {NODES} RENAME TO CUDA_GRAPH_EVENTS")
    first, second = (loaded(trace, tmp_path).graph_nodes for trace in (new, renamed))
    assert first.node.tolist() == second.node.tolist() == [1 << 32, 2 << 32]
    assert second.origin.tolist() == [ABSENT, 1 << 32]


def test_graph_node_0_of_old_exports_is_none(tmp_path: Path) -> None:
    assert loaded(TinyTrace().launch(0, "k", 10, 20, node=0), tmp_path).ops.graph_node.tolist() == [ABSENT]


def test_copies_are_named_by_direction(tmp_path: Path) -> None:
    trace = (
        TinyTrace().call(0, 1, LAUNCH).copy(10, 20, kind=1).copy(20, 30, kind=8).copy(30, 40, kind=99).memset(40, 50)
    )
    found = loaded(trace.without(f"{MEMCPY}.copyCount"), tmp_path)
    assert op_names(found) == ["memcpy HtoD", "memcpy DtoD", "memcpy", "memset"]


def test_garbage_text_in_integer_columns(tmp_path: Path) -> None:
    trace = eager().sql(f"UPDATE {KERNEL} SET registersPerThread = 'many', gridX = x'00ff' WHERE start < 1000")
    said = document(trace.save(tmp_path))
    assert said["trace"]["kernel_sum_ns"] == 900


def test_the_producer_is_named_from_either_table(tmp_path: Path) -> None:
    assert loaded(eager(), tmp_path).producer == "nsys 2025.3.2"
    old = eager().row("EXPORT_META_DATA", name="EXPORT_PRODUCT_VERSION", value="2022.4.2.1").without("META_DATA_EXPORT")
    assert loaded(old, tmp_path).producer == "nsys 2022.4.2"
    assert loaded(eager().without("META_DATA_EXPORT"), tmp_path).producer is None


def test_the_step_numbers_of_a_trace_of_three_processes(tmp_path: Path) -> None:
    trace = eager()
    for on in (OTHER, HIGH):
        eager(trace=trace, on=on)
    seen = view(trace.save(tmp_path))
    assert seen.table.kernels.tolist() == [3] * 9
    assert [seen.trace.pid(int(p)) for p in seen.table.process] == [100] * 3 + [200] * 3 + [300] * 3


def test_calls_and_overheads_that_end_before_they_start_take_no_time(tmp_path: Path) -> None:
    trace = TinyTrace().call(50, 40).kernel("k", 60, 70).overhead(90, 80).overhead(91, 91).overhead(92, 95)
    found = loaded(trace, tmp_path)
    assert (found.calls.end - found.calls.start).tolist() == [0]
    assert found.overheads.start.tolist() == [92]


def test_times_beyond_any_capture_are_damage(tmp_path: Path) -> None:
    # A call that ends at 2^62 ns counts from its start only; one that starts there, or a range, is left out.
    trace = TinyTrace().launch(5, "k", 20, 30).call(40, 1 << 62, "cudaFree").call(1 << 62, (1 << 62) + 5, "cudaFree")
    trace.range("broken", 0, 1 << 62).range("whole", 0, 10)
    loaded = load_trace(trace.save(tmp_path))
    assert loaded.calls.end.max() == 40
    assert len(loaded.calls) == 2
    assert [loaded.names[code] for code in loaded.ranges.name] == ["whole"]


def test_limits_of_a_gpu_that_cannot_be_are_unknown(tmp_path: Path) -> None:
    path = (
        TinyTrace().launch(5, "k", 20, 30).sql("UPDATE TARGET_INFO_GPU SET maxShmemPerSm = -5, maxWarpsPerSm = 1 << 60")
    )
    (gpu,) = load_trace(path.save(tmp_path)).devices
    assert (gpu.shared_bytes_per_sm, gpu.warps_per_sm, gpu.sm_count) == (None, None, 132)
