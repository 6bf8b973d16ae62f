"""From a PyTorch profiler file to the trace model: launches, graphs, clocks and what is not known."""

import dataclasses
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kineto_fixture import NEW, OLD, PID, ROCM, Dialect, TinyKineto, load, names_of, program

from tracelab.errors import InputError
from tracelab.kineto_load import load_kineto
from tracelab.trace import ABSENT, KERNEL, MEMCPY, TORCH_DOMAIN, Trace


def plain(trace: Trace) -> dict[str, Any]:
    """The trace as nested lists, without its path."""
    found = dataclasses.asdict(dataclasses.replace(trace, path=""))
    found["ops"] |= {"read_shapes": None, "shapes": dataclasses.asdict(trace.ops.shapes)}
    return {key: _listed(value) for key, value in found.items()}


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("dialect", [NEW, OLD, ROCM])
def test_the_same_program_in_every_dialect(tmp_path: Path, dialect: Dialect) -> None:
    found = load(program(dialect), tmp_path)
    assert (found.format, found.producer) == ("kineto", "PyTorch profiler")
    assert found.ops.kind.tolist() == [KERNEL, KERNEL, MEMCPY]
    assert found.ops.start.tolist() == [20_000, 50_000, 80_000]  # from the first event, the annotation at 100 µs
    assert found.ops.duration_ns.tolist() == [10_000, 9_000, 4_000]
    assert found.ops.bytes.tolist() == [0, 0, 4096]
    assert found.calls.start[found.ops.call].tolist() == [5_000, 45_000, 65_000]
    assert found.calls.thread.tolist() == [0, 0, 0]
    assert names_of(found, found.ranges.name) == ["attn", "mlp", "aten::mm"]
    assert [found.domains[code] for code in found.ranges.domain] == ["", "", TORCH_DOMAIN]
    assert (found.processes, found.threads) == ((PID << 24,), (PID << 24 | PID,))
    assert found.pid(0) == PID
    assert found.notes == ()


def test_compressed_or_not_and_whatever_its_name(tmp_path: Path) -> None:
    text = program().text().encode()
    (tmp_path / "a.sqlite").write_bytes(text)
    (tmp_path / "b").write_bytes(gzip.compress(text))
    assert plain(load_kineto(tmp_path / "a.sqlite")) == plain(load_kineto(tmp_path / "b"))


@pytest.mark.parametrize("seed", range(8))
def test_shuffled_events_give_the_same_trace(tmp_path: Path, seed: int) -> None:
    trace = program().launch(200_000, "k1", 250_000, 5_000, node=(2, 7), stream=9).memset(250_000, 5_000)
    trace.launch(210_000, "k0", 250_000, 5_000, tid=77).annotation("attn", 100_000, 40_000, tid=77)
    assert plain(load(trace.shuffled(seed), tmp_path)) == plain(load(trace, tmp_path))


# times (pitfall B9)


def test_a_kernel_of_200_ns_keeps_them(tmp_path: Path) -> None:
    # From 100.7 to 100.9 µs: a reader that rounds to µs makes it end before it starts.
    found = load(TinyKineto().call(100_000, dur=500).kernel("k", 100_700, 200), tmp_path)
    assert (found.ops.start.tolist(), found.ops.end.tolist()) == ([700], [900])


def test_nanoseconds_since_1970_are_exact(tmp_path: Path) -> None:
    base = 1_790_857_026_000_000_123  # µs of this size step by 250 ns in a double
    trace = TinyKineto().call(base, dur=501).kernel("k", base + 1_001, 203).kernel("l", base + 1_204, 1)
    found = load(trace, tmp_path)
    assert found.ops.start.tolist() == [1_001, 1_204]
    assert found.ops.end.tolist() == [1_204, 1_205]
    assert found.calls.end.tolist() == [501]


def test_a_lone_zero_beside_times_since_1970_is_damage(tmp_path: Path) -> None:
    base = 1_790_857_026_000_000_000
    trace = TinyKineto().launch(base, "k", base + 9_000, 100).launch(base + 20_000, "k", base + 29_000, 100)
    found = load(trace.kernel("lost", 0, 5), tmp_path)
    assert found.ops.start.tolist() == [9_000, 29_000]
    assert found.loss.untimed == 1


@pytest.mark.parametrize("us", ["1e400", "-9223372036854775808", "NaN", "Infinity", "null", '"soon"'])
def test_absurd_times_are_left_out_and_counted(tmp_path: Path, us: str) -> None:
    text = program().text().replace('"ts": 150.000', f'"ts": {us}')
    path = tmp_path / "absurd.json"
    path.write_text(text)
    found = load_kineto(path)
    assert (len(found.ops), found.loss.untimed) == (2, 1)
    assert found.ops.start.tolist() == [20_000, 80_000]


def test_work_that_ends_before_it_starts_is_counted(tmp_path: Path) -> None:
    found = load(program().kernel("k", 300_000, -5_000), tmp_path)
    assert (len(found.ops), found.loss.inverted, found.loss.untimed) == (3, 1, 0)


# launches


def test_a_graph_replay_is_one_launch_of_all_its_work(tmp_path: Path) -> None:
    # Pitfall A3: 24 kernels and 7 copies share the correlation id of one cudaGraphLaunch.
    trace = TinyKineto().call(0, "cudaGraphLaunch", dur=50_000)
    for i in range(24):
        trace.kernel(f"k{i}", 60_000 + i * 10_000, 9_000, node=(3, 3 << 32 | i))
    for i in range(7):
        trace.copy(400_000 + i * 10_000, 9_000)
    found = load(trace, tmp_path)
    assert len(found.ops) == 31
    assert found.ops.call.tolist() == [0] * 31
    assert found.ops.graph_node[:24].tolist() == [3 << 32 | i for i in range(24)]
    assert (found.ops.graph_node >= 0).all()  # the file tells no node of the copies, but what launched them


@pytest.mark.parametrize(
    ("node", "expected"),
    [((3, 3 << 32 | 5), 3 << 32 | 5), ((3, 5), 3 << 32 | 5), ((3, 0), 3 << 32), ((0, 0), ABSENT), (None, ABSENT)],
)
def test_nodes_of_graphs(tmp_path: Path, node: tuple[int, int] | None, expected: int) -> None:
    found = load(TinyKineto().launch(0, "k", 10_000, 100, node=node), tmp_path)
    assert found.ops.graph_node.tolist() == [expected]


@pytest.mark.parametrize("api", ["hipGraphLaunch", "cuGraphLaunch", "cudaGraphLaunch_v10000"])
def test_any_graph_launch_marks_its_work(tmp_path: Path, api: str) -> None:
    found = load(TinyKineto().launch(0, "k", 10_000, 100, api=api), tmp_path)
    assert found.ops.graph_node.tolist() == [0]
    assert names_of(found, found.calls.name) == [api.removesuffix("_v10000")]


def test_a_driver_call_inside_a_runtime_call_is_the_same_launch(tmp_path: Path) -> None:
    trace = TinyKineto().call(0, "cudaLaunchKernel", correlation=5)
    trace.call(1_000, "cuLaunchKernel", driver=True, correlation=5, dur=2_000).kernel("k", 9_000, 100)
    trace.launch(20_000, "triton", 30_000, 100, api="cuLaunchKernelEx", pid=PID)
    found = load(trace, tmp_path)
    assert names_of(found, found.calls.name) == ["cudaLaunchKernel", "cuLaunchKernelEx"]
    assert found.ops.call.tolist() == [0, 1]
    assert (found.events.calls, found.events.dropped_calls) == (3, 1) if found.events else False


def test_work_without_a_launch_is_linked_to_none(tmp_path: Path) -> None:
    args = {"device": 0, "stream": 7}
    trace = program().event("kernel", "lone", 300_000, 100, args=args).kernel("other", 310_000, 100, correlation=999)
    found = load(trace, tmp_path)
    assert found.ops.call[-2:].tolist() == [ABSENT, ABSENT]
    assert (found.ops.call[:-2] >= 0).all()


def test_return_codes_are_not_known(tmp_path: Path) -> None:
    assert not load(program(), tmp_path).returns_known
    assert not load(TinyKineto().kernel("k", 0, 100), tmp_path).returns_known  # recorded without the host's side


# the rest of the file


def test_versions(tmp_path: Path) -> None:
    trace = program()
    trace.metadata |= {"cuda_driver_version": 12040, "torch_version": "2.9.1"}
    found = load(trace, tmp_path)
    assert (found.driver, found.producer) == ("CUDA 12.4", "PyTorch profiler (torch 2.9.1)")
    assert load(TinyKineto(metadata={"cuda_driver_version": "new"}), tmp_path).driver is None


def test_a_bare_array_has_no_producer(tmp_path: Path) -> None:
    trace, path = program(), tmp_path / "array.json"
    path.write_text(f"[{','.join(map(trace.event_text, trace.events))}]")
    found = load_kineto(path)
    assert (found.producer, len(found.ops)) == (None, 3)
    assert [code for code, _ in found.notes] == ["no-gpu-info"]


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda text: text[: text.index('"k2"')], "truncated-file", "before its closing bracket (1 event lost, "),
        (lambda text: text[: text.rindex("]")], "truncated-file", "closing bracket; what came after"),
        (lambda text: text.replace('"name": "k2",', '"name": "k2"'), "damaged-file", "(1 event lost, "),
        (
            lambda text: text.replace('"args": {"device"', '"args": [1], "x": {"device"'),
            "damaged-file",
            "(3 events lost)",
        ),
        (lambda text: text.replace("k2", "k\udcff2"), "damaged-file", "(1 character not valid UTF-8)"),
    ],
)
def test_what_was_lost_is_told(tmp_path: Path, change: Any, code: str, said: str) -> None:
    path = tmp_path / "damaged.json"
    path.write_bytes(change(program().text()).encode("utf-8", "surrogateescape"))
    found = load_kineto(path)
    assert [note[0] for note in found.notes] == [code]
    assert said in found.notes[0][1]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", "ends before its first event"),
        ("{}", 'it has no "traceEvents"'),
        ('{"schemaVersion": 1, "tr', "ends before"),
    ],
)
def test_files_without_events_are_refused(tmp_path: Path, data: str, said: str) -> None:
    path = tmp_path / "none.json"
    path.write_text(data)
    with pytest.raises(InputError, match=said):
        load_kineto(path)


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_kineto(tmp_path / "missing.json")


def test_an_empty_array_is_an_empty_trace(tmp_path: Path) -> None:
    found = load(TinyKineto(), tmp_path)
    assert (len(found.ops), len(found.calls), found.processes, found.notes) == (0, 0, (0,), ())
