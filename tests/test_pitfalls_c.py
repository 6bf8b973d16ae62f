"""Capture and format: what is missing is named with its likely cause, and metadata is read in every place."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from asking import ask, document, metric, result, view
from called import called
from tiny_programs import eager
from tiny_schema import META, OLD_META
from tiny_trace import GRAPH_LAUNCH, KERNEL, RUNTIME, STRINGS, Thread, TinyTrace

from tracelab.load import load_trace

NONE = "No CUDA events collected. Does the process use CUDA?"
NOT_STARTED = "CUDA profiling might have not been started correctly."
RANKS = tuple(Thread(pid=100 + i, tid=100 + i) for i in range(8))


def ranks(*, calls: int = 4, api: str = "cudaLaunchKernel_v7000") -> TinyTrace:
    """Eight processes with `calls` launch calls each; only the first one's kernels are there."""
    trace = TinyTrace()
    for i in range(calls):
        t = i * 1000
        trace.range(f"step {i}", t, t + 500, on=RANKS[0]).launch(t + 5, "k", t + 20, t + 420, on=RANKS[0])
        for on in RANKS[1:]:
            trace.call(t + 5, t + 10, api, on=on)
    return trace


def diagnosed(trace: TinyTrace) -> TinyTrace:
    for on in RANKS[1:]:
        trace.diagnostic(NONE, on=on)
    return trace.diagnostic(NOT_STARTED, on=RANKS[1])


def test_c1_ranks_without_kernels_are_named_with_what_nsys_says_and_the_cause(tmp_path: Path) -> None:
    """Kernels of 1 of 8 processes: the other 7 by pid, 28 calls, both messages quoted, a forked worker as the cause."""
    path = diagnosed(ranks()).save(tmp_path)
    answer = called("report", path)
    assert answer.code == 0
    (warning,) = [w["message"] for w in document(path)["trace"]["warnings"] if w["code"] == "process-without-work"]
    assert warning in answer.out
    assert warning.startswith(
        "7 processes (pid 101, 102, 103, 104, 105, 106, 107) made 28 launch calls, and none of their GPU work is in "
        f"the trace (nsys says: “{NONE}” ×7; “{NOT_STARTED}”); "
    )
    assert "forked without exec" in warning
    assert "cudaProfilerApi" in warning


def test_c1_control_ranks_that_all_have_kernels_are_no_warning(tmp_path: Path) -> None:
    trace = TinyTrace().diagnostic(NONE, on=Thread(pid=900, tid=900))
    for on in RANKS:
        eager(on=on, trace=trace)
    assert "process-without-work" not in {w["code"] for w in document(trace.save(tmp_path))["trace"]["warnings"]}


def test_c1_helpers_that_only_ask_for_devices_are_no_ranks(tmp_path: Path) -> None:
    trace = eager()
    for on in RANKS[1:]:
        trace.call(5, 10, "cudaGetDeviceCount_v3020", on=on)
    assert "process-without-work" not in {w["code"] for w in document(trace.save(tmp_path))["trace"]["warnings"]}


def test_c1_graphs_are_the_cause_where_only_graphs_were_launched(tmp_path: Path) -> None:
    path = ranks(api=GRAPH_LAUNCH).save(tmp_path)
    (warning,) = [w["message"] for w in document(path)["trace"]["warnings"] if w["code"] == "process-without-work"]
    assert warning.endswith("capture with --cuda-graph-trace=node.")
    assert "forked" not in warning


@pytest.mark.parametrize("how", ["absent", "empty"])
def test_c1_without_any_kernel_every_process_is_named(tmp_path: Path, how: str) -> None:
    """The same without a kernel table, and with an empty one: 8 processes, 32 calls; one sentence, exit code 1."""
    trace = diagnosed(ranks())
    path = (trace.without(KERNEL) if how == "absent" else trace.sql(f"DELETE FROM {KERNEL}")).save(tmp_path)
    answer = called("report", path)
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (1, "", 1)
    assert "the program made 32 launch calls, yet no GPU activity was recorded" in answer.err
    assert "the calls are of pid 100, 101, 102, 103, 104, 105, 106, 107;" in answer.err
    assert f"nsys says: “{NONE}” ×7; “{NOT_STARTED}”;" in answer.err
    assert "forked without exec" in answer.err
    page = called("doctor", path).out
    assert page.startswith("This trace cannot be trusted") and "pid 100, 101" in page


def test_c1_words_of_the_program_are_never_quoted(tmp_path: Path) -> None:
    trace = ranks().diagnostic("CUDA injection of /home/alice/secret.so failed", 3)
    said = called("report", trace.save(tmp_path)).out
    assert "alice" not in said
    assert "(nsys says: a message of the profiler (withheld))" in said


def only_launches() -> TinyTrace:
    trace = TinyTrace()
    for i in range(100):
        trace.call(i * 10, i * 10 + 5)
    return trace


@pytest.mark.parametrize("how", ["absent", "empty"])
@pytest.mark.parametrize("command", ["report", "kernels", "gaps", "launches"])
def test_c2_launches_without_kernels_are_never_an_empty_report(tmp_path: Path, how: str, command: str) -> None:
    trace = only_launches() if how == "absent" else only_launches().kernel("k", 1, 2).sql(f"DELETE FROM {KERNEL}")
    answer = called(command, trace.save(tmp_path))
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (1, "", 1)
    assert "the trace holds no kernels: the program made 100 launch calls" in answer.err


def test_c2_a_diff_against_such_a_trace_is_not_comparable(tmp_path: Path) -> None:
    lost, whole = only_launches().save(tmp_path / "a.sqlite"), eager().save(tmp_path / "b.sqlite")
    answer = called("diff", lost, whole)
    assert answer.code == 4
    assert "100 launch calls" in answer.err


def test_c3_the_activity_table_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the file, no nsys, no report beside it, and the two tables that hold kernels and names. Without calls and
    ranges the trace is one step: 3 kernels of 100 ns of each name."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    trace = eager()
    for table in (RUNTIME, "NVTX_EVENTS", "ANALYSIS_DETAILS", META, "TARGET_INFO_GPU"):
        trace.without(table)
    answer = called("kernels", trace.save(tmp_path), "--format", "json", "--skip-steps", 0)
    rows = json.loads(answer.out)["results"]["kernels"]["tables"]["kernels"]
    assert {r["name"]: r["time_ns_per_step"] for r in rows} == {"attention": 300, "gemm": 300, "silu": 300}
    assert json.loads(answer.out)["trace"]["kernels"] == 9


def with_schema(table: str | None, product: str, schema: str | None) -> TinyTrace:
    """`eager` whose versions stand in `table` (None: nowhere)."""
    trace = eager()
    trace.row(META, name="EXPORT_SCHEMA_VERSION", value=schema) if table == META and schema else None
    if table == OLD_META:
        trace.row(OLD_META, name="EXPORT_PRODUCT_VERSION", value=product)
        if schema:
            trace.row(OLD_META, name="EXPORT_SCHEMA_VERSION", value=schema)
    return trace if table == META else trace.without(META)


def schema_warnings(path: Path) -> list[str]:
    return [w["message"] for w in document(path)["trace"]["warnings"] if w["code"] == "schema"]


@pytest.mark.parametrize(
    ("table", "product", "producer"),
    [(META, "2025.3.2.367", "nsys 2025.3.2"), (OLD_META, "2022.1.1.61", "nsys 2022.1.1"), (None, "", None)],
)
@pytest.mark.parametrize("schema", ["2.9.1", "3.25.0", "not a version", "", None])
def test_c4_the_version_is_read_from_either_table_or_from_none(
    tmp_path: Path, table: str | None, product: str, producer: str | None, schema: str | None
) -> None:
    path = with_schema(table, product, schema).save(tmp_path)
    assert load_trace(path).producer == producer
    assert schema_warnings(path) == []


@pytest.mark.parametrize("table", [META, OLD_META])
def test_c4_an_unknown_major_version_warns_and_the_columns_decide(tmp_path: Path, table: str) -> None:
    plain = document(with_schema(table, "2025.3.2.367", "3.20.3").save(tmp_path))
    path = with_schema(table, "2025.3.2.367", "99.0.0").save(tmp_path)
    (warning,) = schema_warnings(path)
    assert warning.startswith("The export says schema 99.0.0, which is newer than 3")
    assert warning in called("report", path).out
    said = document(path)
    said["trace"]["warnings"] = [w for w in said["trace"]["warnings"] if w["code"] != "schema"]
    assert said == plain


def test_c6_ids_do_where_streams_have_no_names(tmp_path: Path) -> None:
    """Streams 7 and 13 without rows 97–99; with such rows nothing else is said."""
    trace, named = TinyTrace(), TinyTrace()
    for made in (trace, named):
        for i in range(3):
            t = 1000 * i
            made.range(f"step {i}", t, t + 90).launch(t, "k", t + 10, t + 60)
            made.launch(t + 5, "k", t + 30, t + 90, stream=13)
    for kind in (97, 98, 99):
        named.range(f"name of {kind}", 0, None, kind=kind)
    first, second = trace.save(tmp_path / "a.sqlite"), named.save(tmp_path / "b.sqlite")
    assert set(load_trace(first).ops.stream.tolist()) == {7, 13}
    assert document(first) == document(second)
    assert view(first).busy_ns.tolist() == [80] * 3  # 10 … 90


def test_c7_missing_replays_leave_no_idle_verdict_on_the_page(tmp_path: Path) -> None:
    """100 graph launches, rows for 18: GPU time incomplete, no gap share, no bound, no waterfall."""
    trace = TinyTrace()
    for i in range(100):
        t = i * 1000
        trace.call(t, t + 10, GRAPH_LAUNCH)
        if i % 6 == 0 or i == 99:
            trace.kernel("k", t + 20, t + 500, node=2 << 32)
    path = trace.save(tmp_path)
    page = called("report", path).out
    assert "GPU time is incomplete: 82 CUDA graph replays left no GPU rows, so idle time cannot be told." in page
    assert not any(verdict in page for verdict in ("host-bound", "device-bound", "partly host-bound", "between steps"))
    results = document(path)["results"]
    assert results["gaps"]["skipped"] and results["waterfall"]["skipped"]
    assert set(results["gaps"]["metrics"]) & {"gap_share", "idle_ns", "launch_gap_ns"} == set()


def test_c8_all_kernels_of_a_replay_and_its_one_launch(tmp_path: Path) -> None:
    """10 launches and a replay of 48 in each of three steps: n_k 58, n_launch 11, on the page and in JSON."""
    trace = TinyTrace()
    for step in range(3):
        t = step * 10_000
        trace.range(f"step {step}", t, t + 2000)
        for i in range(10):
            trace.launch(t + i * 20, "gemm", t + 30 + i * 20, t + 40 + i * 20)
        trace.replay(t + 500, [("gemm", t + 600 + i * 10, t + 605 + i * 10, 2 << 32 | i) for i in range(48)])
    path = trace.save(tmp_path)
    answer = result("kernels", view(path))
    assert (metric(answer, "kernels_per_step"), metric(answer, "launches_per_step")) == (58, 11)
    assert "58 kernels · 11 launches" in called("report", path).out


@pytest.mark.parametrize("command", ["report", "kernels", "doctor", "diff"])
def test_c13_a_mistyped_path_leaves_no_file_and_ends_with_code_1(tmp_path: Path, command: str) -> None:
    path = tmp_path / "mistyped.sqlite"
    answer = called(command, *([path, path] if command == "diff" else [path]))
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.strip() == f"tracelab: {path}: no such file."
    assert list(tmp_path.iterdir()) == []


def test_c13_control_the_sqlite_library_would_leave_one(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mistyped.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE t (x)")
    assert [p.name for p in tmp_path.iterdir()] == ["mistyped.sqlite"]
    assert ask(eager().save(tmp_path / "right.sqlite")).trace.names
    assert STRINGS == "StringIds"
