"""Correlation and attribution at the size and with the numbers of the list of pitfalls, as commands print them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from asking import assert_plausible, column, document, metric, result, row, view
from called import called
from tiny_programs import eager
from tiny_trace import GRAPH_LAUNCH, KERNEL, MS, NVTX, RUNTIME, STRINGS, US, Thread, TinyTrace

ROOT = Path(__file__).parents[1]
WORKER = Thread(pid=100, tid=101)


def told(analyzer: str, path: Path, *words: object) -> dict[str, Any]:
    """One analyzer's answer as its command prints it in JSON, with every step used."""
    answer = called(analyzer, path, "--format", "json", "--skip-steps", 0, *words)
    assert (answer.code, answer.err) == (0, "")
    found: dict[str, Any] = json.loads(answer.out)["results"][analyzer]
    return found


def test_a2_each_process_gets_the_time_of_its_own_kernels(tmp_path: Path) -> None:
    """Ids 100 … 199 in both: 100 × 10 µs and 100 × 1000 µs. A join on the id alone would give both 101 ms."""
    trace = TinyTrace()
    for on, name, ns in ((Thread(), "small", 10 * US), (Thread(pid=200, tid=200), "large", 1000 * US)):
        for k in range(100):
            t = k * 2 * MS + on.pid
            trace.range(name, t, t + 50, on=on).call(t + 10, t + 15, on=on, correlation=100 + k)
            trace.kernel("k", t + 1000, t + 1000 + ns, on=on)
    path = trace.save(tmp_path)
    rows = told("phases", path, "--inclusive")["tables"]["ranges"]
    assert {r["range"]: (r["kernels"], r["sum_ns"]) for r in rows} == {"small": (100, MS), "large": (100, 100 * MS)}
    assert document(path)["trace"]["kernel_sum_ns"] == 101 * MS


def test_a4_a_graph_heavy_decode_lists_its_kernels(tmp_path: Path) -> None:
    """40 replays of 1049 kernels of 10 ns, of 7 names in turn: 1049 = 149 × 7 + 6, so one name runs 149 times."""
    trace = TinyTrace()
    for i in range(40):
        t = i * 100_000
        ops = [(f"k{k % 7}", t + 100 + 20 * k, t + 110 + 20 * k, 2 << 32 | k) for k in range(1049)]
        trace.range(f"step {i}", t, t + 60).range("decode", t, t + 50).replay(t + 1, ops)
    path = trace.save(tmp_path)
    said = document(path)
    assert (said["trace"]["kernels"], said["trace"]["cuda_graphs"]) == (41_960, "node")
    rows = said["results"]["kernels"]["tables"]["kernels"]
    assert {r["name"]: r["calls_per_step"] for r in rows} == {f"k{k}": 150 if k < 6 else 149 for k in range(7)}
    assert {r["phase"] for r in rows} == {"decode"}
    assert said["results"]["kernels"]["metrics"]["launches_per_step"]["value"] == 1
    assert "graphs by node" in called("report", path).out


def test_a8_replays_of_whole_graphs_fill_the_gpu(tmp_path: Path) -> None:
    """2866 replays of 18 ms back to back and 5 kernels before them: nothing is idle, no kernel count is claimed."""
    trace = TinyTrace().graph_mode("Graph")
    for k in range(5):
        trace.launch(k, "setup", 100 + k * 100, 200 + k * 100)
    for i in range(2866):
        trace.call(10 + i, 11 + i, GRAPH_LAUNCH).graph_trace(600 + i * 18 * MS, 600 + (i + 1) * 18 * MS)
    path = trace.save(tmp_path)
    said = document(path)
    gaps = said["results"]["gaps"]["metrics"]
    assert (said["steps"]["source"], said["steps"]["found"]) == ("graph-launch", 2866)
    assert (gaps["busy_ns"]["value"], gaps["gap_share"]["value"], gaps["idle_ns"]["value"]) == (18 * MS, 0.0, 0)
    assert "kernels_per_step" not in said["results"]["kernels"]["metrics"]
    assert said["results"]["grids"]["skipped"] or not said["results"]["grids"]["tables"].get("grids")
    (warning,) = [w["message"] for w in said["trace"]["warnings"] if w["code"] == "graph-level"]
    assert warning.startswith("2866 CUDA graph replays were traced as a whole, so the kernels inside them are not")


def test_a9_the_share_of_idle_time_is_of_the_union(tmp_path: Path) -> None:
    """24 kernels of 10 µs, gaps of 1 µs: busy 240, span 263, idle 23 µs, 8.7 %."""
    ops = [("k", 11 * US * k, 11 * US * k + 10 * US, 2 << 32 | k) for k in range(24)]
    path = TinyTrace().range("step 0", -100, 5).replay(-50, ops).save(tmp_path)
    metrics = told("gaps", path, "--steps", "step")["metrics"]
    found = [metrics[name]["value"] for name in ("busy_ns", "span_ns", "idle_ns")]
    assert found == [240 * US, 263 * US, 23 * US]
    assert metrics["gap_share"]["value"] == pytest.approx(23 / 263)


def test_a10_no_number_turns_negative_without_launch_rows(tmp_path: Path) -> None:
    """2 kernels without an API row, then 10 with: each of the 12 counts, and none is queued before its launch."""
    trace = TinyTrace()
    for k in range(2):
        trace.kernel("early", k * 100, k * 100 + 50, correlation=90_000 + k)
    for k in range(10):
        trace.launch(500 + 100 * k, "k", 520 + 100 * k, 560 + 100 * k)
    path = trace.save(tmp_path)
    said = document(path)
    assert_plausible(said)
    assert said["trace"]["kernels"] == 12
    calls = said["results"]["launches"]["tables"]["calls"]
    assert sum(r["calls_per_step"] for r in calls) == 10
    assert "2 rows of GPU work have no launching call" in called("report", path).out


def test_a11_inclusive_and_exclusive_are_both_printed(tmp_path: Path) -> None:
    """A { B { B { one kernel } } }: inclusive A 1, B 1, exclusive 1 in the inner B."""
    trace = TinyTrace()
    for i in range(2):
        t = 100 * i
        trace.range(f"step {i}", t, t + 90).range("A", t + 1, t + 80)
        trace.range("B", t + 2, t + 70).range("B", t + 3, t + 60).launch(t + 10, "k", t + 20, t + 30)
    path = trace.save(tmp_path)
    inclusive = {r["range"]: r["kernels"] for r in told("phases", path, "--inclusive")["tables"]["ranges"]}
    assert inclusive == {"A": 2, "B": 2, "step 0": 1, "step 1": 1}  # over both steps
    exclusive = {r["phase"]: r["kernels_per_step"] for r in told("phases", path)["tables"]["phases"]}
    assert exclusive == {"A/B/B": 1}


# Blocks of 20 nested ranges, 10 000 on each of 5 threads: 1 000 000 ranges. Four launches in the innermost of each
# block: 200 000 kernels. Written by SQLite, which is faster than a row at a time.
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
_THREAD = f"({Thread().global_pid} | (100 + i % 5))"
_RANGES = f"""INSERT INTO {NVTX} (start, end, eventType, globalTid, text, domainId) {_NUMBERS.format(last=999_999)}
    SELECT i / 100 * 1000 + i / 5 % 20, i / 100 * 1000 + 900 - i / 5 % 20, 59, {_THREAD},
    'level', 0 FROM n"""
_CALLS = f"""INSERT INTO {RUNTIME} (start, end, eventClass, globalTid, correlationId, nameId, returnValue)
    {_NUMBERS.format(last=199_999)} SELECT i / 20 * 1000 + 100 + i / 5 % 4 * 10, i / 20 * 1000 + 105 + i / 5 % 4 * 10,
    0, {_THREAD}, i + 1000, (SELECT id FROM {STRINGS} WHERE value = 'cudaLaunchKernel_v7000'), 0 FROM n"""
_KERNELS = f"""INSERT INTO {KERNEL} (start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName)
    {_NUMBERS.format(last=199_999)} SELECT i * 50 + 200, i * 50 + 230, 0, 1, 7, i + 1000, {Thread().global_pid},
    (SELECT id FROM {STRINGS} WHERE value = 'k') FROM n"""
_ASK = """
import json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from tracelab.analysis import attribute, view_of
from tracelab.inclusive import range_totals
from tracelab.load import load_trace
from tracelab.options import Facts, Selection
trace = load_trace(Path(sys.argv[1]))
phases = attribute(trace, Facts(), Selection()).phases
found = {}
for code in phases.op_phase.tolist():
    found[phases.names[code]] = found.get(phases.names[code], 0) + 1
totals = [[r["range"], r["ranges"], r["kernels"], r["sum_ns"]] for r in range_totals(trace)]
print(json.dumps([len(trace.ranges), found, totals]))
"""


def test_a12_a_million_nested_ranges_in_little_memory(tmp_path: Path) -> None:
    """Each kernel is 20 ranges deep, and once in the inclusive list, where the outermost 50 000 of 1 000 000 count. A
    join over containment makes 20 rows a kernel, or tries 200 000 ranges for each; it ends at 4 GB or ten minutes."""
    trace = TinyTrace().range("level", -10, -9).launch(-10, "k", -9, -8)  # one row of each table, and the strings
    path = trace.sql(_RANGES).sql(_CALLS).sql(_KERNELS).sql(f"DELETE FROM {NVTX} WHERE start < 0").save(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _ASK, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    ranges, phases, totals = json.loads(done.stdout)
    assert ranges == 1_000_000
    assert phases == {"/".join(["level"] * 20): 200_000, "(no phase)": 1}
    assert totals == [["level", 50_000, 200_000, 6_000_000], ["(no range)", 0, 1, 1]]


def test_a13_busy_and_span_are_both_printed(tmp_path: Path) -> None:
    """Two kernels of 1 ms that start 9 ms apart, so 8 ms between them: busy 2 ms, span 10 ms."""
    trace = TinyTrace().range("attn", 0, 100).launch(10, "k", MS, 2 * MS).launch(20, "k", 10 * MS, 11 * MS)
    metrics = told("gaps", trace.save(tmp_path), "--steps", "attn")["metrics"]
    assert (metrics["busy_ns"]["value"], metrics["span_ns"]["value"]) == (2 * MS, 10 * MS)


def test_a16_two_threads_and_two_devices_are_two_rows(tmp_path: Path) -> None:
    """One process, the same range at the same time on both threads: 50 ns on device 0, 80 ns on device 1."""
    trace = TinyTrace().gpu(id=1, name="NVIDIA H200", smCount=132, cuDevice=1)
    for i in range(2):
        for device, on in enumerate((Thread(), WORKER)):
            t = 1000 * i
            trace.range(f"step {i}", t, t + 100, on=on).range("mlp", t, t + 90, on=on)
            trace.launch(t, "k", t + 10, t + 60 + 30 * device, on=on, device=device)
    said = document(trace.save(tmp_path))
    phases = [
        (d["device"], r["phase"], r["busy_ns"])
        for d in said["devices"]
        for r in d["results"]["phases"]["tables"]["phases"]
    ]
    assert phases == [(0, "mlp", 50), (1, "mlp", 80)]


def test_a17_short_names_are_an_option(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(2):
        t = 1000 * i
        trace.range(f"step {i}", t, t + 90).launch(t, "void cutlass::Kernel<sm90_gemm>(Params)", t + 10, t + 20)
        trace.launch(t + 5, "void cutlass::Kernel<sm90_conv>(Params)", t + 30, t + 60)
    path = trace.sql(f"UPDATE {KERNEL} SET shortName = {trace.string('Kernel')}").save(tmp_path)
    whole, short = (told("kernels", path, *words)["tables"]["kernels"] for words in ((), ("--short-names",)))
    assert [(r["name"][14:30], r["time_ns_per_step"]) for r in whole] == [
        ("Kernel<sm90_conv", 30), ("Kernel<sm90_gemm", 10)
    ]  # fmt: skip
    assert [(r["name"], r["calls_per_step"], r["time_ns_per_step"], r["share"]) for r in short] == [
        ("Kernel", 2, 40, 1.0)
    ]


def test_a20_work_in_a_range_that_never_ended_is_attributed(tmp_path: Path) -> None:
    """`decode` has no end: until the end of the capture. One other range ends 1 ns before it starts."""
    path = eager().range("decode", -10, None).range("inverted", 10, 9).save(tmp_path)
    ranges = {r["range"]: r["kernels"] for r in told("phases", path, "--inclusive")["tables"]["ranges"]}
    assert ranges["decode"] == 9
    assert "inverted" not in ranges
    said = {w["code"]: w["message"] for w in document(path)["trace"]["warnings"]}
    assert said["open-ranges"].startswith("1 NVTX range")
    assert said["inverted-ranges"].startswith("1 NVTX range")


def test_a21_the_share_of_the_other_thread_is_printed(tmp_path: Path) -> None:
    """10 launches on the thread of `train_step`, 14 on another inside its time: step total 24, 14 of 24 marked."""
    trace = TinyTrace()
    for i in range(3):
        t = 10_000 * i
        trace.range(f"train_step {i}", t, t + 9_000).range("fwd", t, t + 1_040).range("bwd", t + 1_045, t + 8_000)
        for k in range(24):
            at = t + 100 * k + 50
            trace.launch(at, f"k{k}", at + 10, at + 60, on=Thread() if k < 10 else WORKER)
    path = trace.save(tmp_path)
    assert view(path).table.kernels.tolist() == [24] * 3
    answer = result("phases", view(path))
    assert column(answer, "phases", "phase", "kernels_per_step") == {"bwd": 14, "fwd": 10}
    assert column(answer, "phases", "phase", "attribution") == {"bwd": "cross-thread", "fwd": "nvtx"}
    assert row(answer, "attribution", method="cross-thread")["share"] == pytest.approx(14 / 24)
    assert metric(answer, "attributed_share") == 1.0
    page = called("report", path, "--skip-steps", 0).out
    assert "58.3 %" in page and "cross-thread" in page  # 14 / 24
