"""Times to the nanosecond, and events of every dialect as rows."""

import pytest
from kineto_fixture import NEW, OLD, ROCM, Dialect, TinyKineto

from tracelab.kineto_rows import FRAMEWORK, USER, RawTables, read_rows, to_ns
from tracelab.table_source import NULL
from tracelab.trace import KERNEL, MEMCPY, MEMSET


@pytest.mark.parametrize(
    ("us", "ns"),
    [
        (7, 7_000),
        ("7", 7_000),
        ("100.7", 100_700),
        ("100.700", 100_700),
        ("0.2", 200),
        ("-0.200", -200),
        ("-0.005", -5),
        ("5165093417557.342", 5165093417557342),
        ("1790857026000123.457", 1790857026000123457),  # a double has 250 ns between two values here
        ("0.20000000000000284", 200),  # a tool wrote 100.9 − 100.7 anew from doubles
        ("1.5e3", 1_500_000),
        ("1e-999999999", 0),
        ("0.0005", 0),
        ("0.0015", 2),
    ],
)
def test_times_keep_every_nanosecond(us: object, ns: int) -> None:
    assert to_ns(us) == ns


@pytest.mark.parametrize(
    "us",
    [None, True, [], "", "abc", "NaN", "Infinity", "-Infinity", "1e400", "1e999999999", -(1 << 63), 1 << 80, "9" * 5000,
     "9" * 5000 + ".123", "1e.005", "1." + "a" * 3],
)  # fmt: skip
def test_what_is_no_time(us: object) -> None:
    assert to_ns(us) == NULL


def rows_of(trace: TinyKineto) -> RawTables:
    """The rows of the events as the reader hands them over: fractions as text."""
    read = ({k: str(v / 1000) if k in ("ts", "dur") else v for k, v in event.items()} for event in trace.events)
    return read_rows(read)


@pytest.mark.parametrize("dialect", [NEW, OLD, ROCM])
def test_every_dialect_gives_the_same_kinds_of_rows(dialect: Dialect) -> None:
    trace = TinyKineto(dialect).launch(1_000, "k", 20_000, 5_000).copy(30_000, 1_000, size=64)
    trace.memset(40_000, 1_000, size=32).call(500, "cuCtxGetCurrent", driver=True).annotation("mlp", 0, 9_000)
    found = rows_of(trace.op("aten::mm", 500, 6_000).overhead(50_000, 1_000))
    assert found.ops["kind"].tolist() == [KERNEL, MEMCPY, MEMSET]
    assert found.ops["dur"].tolist() == [5_000, 1_000, 1_000]
    assert found.ops["bytes"].tolist() == [0, 64, 32]
    assert found.calls["driver"].tolist() == [0, 1]
    assert found.ranges["domain"].tolist() == [USER, FRAMEWORK]
    assert len(found.overheads["start"]) == 1
    assert found.unusable == 0


def test_other_categories_and_phases_are_passed_over() -> None:
    trace = TinyKineto().event("gpu_user_annotation", "mlp", 0, 9_000, pid=0, tid=7)
    trace.event("python_function", "run", 0, 9_000).event("cuda_sync", "Stream Sync", 0, 100_000, pid=0, tid=7)
    trace.event("ac2g", "ac2g", 0, ph="s").event(None, "process_name", 0, ph="M").event("kernel", "k", 0, ph="i")
    found = rows_of(trace.event("Trace", "PyTorch Profiler (0)", 0, 9_000, pid="Spans", tid="PyTorch Profiler"))
    assert [len(table["start"]) for table in (found.ops, found.calls, found.ranges, found.overheads)] == [0, 0, 0, 0]


def test_steps_among_the_operators_are_the_users() -> None:
    found = rows_of(TinyKineto(OLD).op("ProfilerStep#4", 0, 9_000).op("aten::mm", 0, 900))
    assert found.ranges["domain"].tolist() == [USER, FRAMEWORK]


def test_events_that_begin_and_end_are_nested_by_thread() -> None:
    # outer 0–10 µs holds inner 2–5 µs; thread 9 has a range of its own between them, and one that never ends.
    trace = TinyKineto().event("user_annotation", "outer", 0, ph="B").event("user_annotation", "inner", 2_000, ph="B")
    trace.event("user_annotation", "other", 3_000, ph="B", tid=9).event(None, "", 5_000, ph="E")
    trace.event(None, "", 7_000, ph="E", tid=9).event(None, "", 10_000, ph="E")
    found = rows_of(trace.event("user_annotation", "open", 20_000, ph="B", tid=9).event(None, "", 1, ph="E", tid=77))
    names = {code: name for name, code in found.names.items()}
    ranges = dict(zip([names[code] for code in found.ranges["name"]], found.ranges["dur"].tolist(), strict=True))
    assert ranges == {"inner": 3_000, "other": 4_000, "outer": 10_000, "open": NULL}
    assert found.unusable == 1  # the end of thread 77 ends nothing


def test_odd_values_are_read_as_far_as_they_are_numbers() -> None:
    odd = {"device": "1", "stream": "7.0", "correlation": "12", "grid": [1, 2], "block": [32, "2", 1 << 70],
           "registers per thread": None, "shared memory": [], "graph node id": 1 << 64}  # fmt: skip
    found = rows_of(TinyKineto().event("kernel", "k", 0, 5_000, args=odd))
    row = {name: int(column[0]) for name, column in found.ops.items()}
    assert (row["device"], row["stream"], row["correlation"]) == (1, 7, 12)
    assert (row["grid_x"], row["block_x"], row["block_y"], row["block_z"]) == (NULL, 32, 2, NULL)
    assert (row["registers"], row["shared"], row["node"]) == (NULL, NULL, NULL)


def test_without_arguments_process_and_thread_are_device_and_stream() -> None:
    found = rows_of(TinyKineto().event("Kernel", "k", 0, 5_000, pid=1, tid="stream 13"))
    assert (found.ops["device"].tolist(), found.ops["stream"].tolist()) == ([1], [13])


@pytest.mark.parametrize(
    "event",
    [
        {"cat": "kernel", "args": [1]},
        {"cat": "cuda_runtime", "pid": []},
        {"cat": ["kernel"]},
        {"ph": "B", "cat": "user_annotation", "tid": {}},
    ],
)
def test_what_only_looks_like_an_event_is_counted(event: dict[str, object]) -> None:
    assert read_rows([{"ts": 1, "dur": 1, **event}]).unusable == 1


def test_names_can_always_be_written_and_have_a_bound() -> None:
    found = rows_of(TinyKineto().event("kernel", "\ud800k", 0, 1).event("kernel", "x" * 100_000, 0, 1))
    assert sorted(map(len, found.names)) == [2, 65536]
    assert all(name.encode() for name in found.names)
    assert list(read_rows([{"cat": "kernel", "name": ["k"]}]).names) == ["['k']"]
