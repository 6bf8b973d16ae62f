"""Where steps that nobody marked begin and end."""

from pathlib import Path

from asking import document, view
from tiny_trace import SYNC, TinyTrace


def loop(*, waits: bool) -> TinyTrace:
    """Ten periods of 100 ns: kernels a, b, c, a copy of the result, a wait; 5000 ns later a copy of 9000 ns."""
    trace = TinyTrace()
    for i in range(10):
        t = i * 100
        for k, name in enumerate("abc"):
            trace.launch(t + 10 * k, name, t + 10 * k + 5, t + 10 * k + 15, api_ns=4)
        trace.call(t + 30, t + 34, "cudaMemcpyAsync_v3020").copy(t + 36, t + 40)
        if waits:
            trace.call(t + 41, t + 60, SYNC)
    trace.call(6000, 6005, "cudaMemcpyAsync_v3020").copy(6010, 15010)
    return trace.call(15000, 15020, SYNC)


def test_the_last_step_ends_with_its_own_work(tmp_path: Path) -> None:
    seen = view(loop(waits=True).save(tmp_path))
    assert (seen.group.source, len(seen.table)) == ("period", 10)
    assert seen.table.copies.tolist() == [1] * 10  # each has the copy of its result
    assert seen.table.span_ns.max() < 200  # the copy 5000 ns later is nobody's
    steps = document(tmp_path / "tiny.sqlite")["steps"]
    assert (steps["outside_ns"], steps["outside_kernels"]) == (9000, 0)


def test_without_waits_the_last_step_ends_after_twice_the_usual_time(tmp_path: Path) -> None:
    seen = view(loop(waits=False).save(tmp_path))
    assert len(seen.table) == 10
    assert seen.table.copies.tolist() == [1] * 10
    assert seen.table.span_ns.max() < 200


def test_work_after_a_graph_loop_is_no_step(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(8):
        t = i * 100
        trace.replay(t, [(name, node, t + 10 * node, t + 10 * node + 9) for node, name in enumerate("abc", 1)])
        trace.call(t + 50, t + 60, SYNC)
    trace.launch(9000, "late", 9010, 9110)
    seen = view(trace.save(tmp_path))
    assert (seen.group.source, len(seen.table)) == ("graph-launch", 8)
    assert seen.table.kernels.tolist() == [3] * 8
