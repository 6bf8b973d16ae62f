"""What can be trusted of a PyTorch profiler trace: it holds no return codes, and may lack the host's side."""

import os
from pathlib import Path

import pytest
from asking import result
from kineto_fixture import H200, MI250, Dialect, TinyKineto, load
from trust_asking import check, codes, judged

from tracelab.analysis import attribute, device_views, report
from tracelab.errors import InputError
from tracelab.load import load_trace
from tracelab.options import Facts, Selection
from tracelab.trace_warnings import trace_warnings

US = 1_000


def gpu_only() -> TinyKineto:
    """Four kernels without a call, as activities=[CUDA] alone records them."""
    trace = TinyKineto()
    for i in range(4):
        trace.kernel("k", i * 100 * US, 10 * US, correlation=i + 1)
    return trace


def test_a_trace_of_the_gpu_alone_never_says_that_no_launch_failed(tmp_path: Path) -> None:
    analysis = attribute(load(gpu_only(), tmp_path), Facts(), Selection())
    views = device_views(analysis)
    launches = result("launches", views[0])
    assert launches.skipped is not None
    assert "failed_launches" not in launches.metrics
    assert report(analysis, views=views).main.results["launches"].skipped == launches.skipped
    trust = judged(gpu_only().save(tmp_path))
    assert check(trust, "no-return-codes").refuses == ("launches",)
    assert check(trust, "no-api-calls").advice.startswith("Record with activities=")
    assert not {"failed launches", "return codes", "NVTX counts"} & set(trust.fine)


def test_launches_without_work_are_not_said_to_have_returned_0(tmp_path: Path) -> None:
    trace = TinyKineto().launch(0, "k", 10 * US, 5 * US).call(20 * US).launch(40 * US, "k", 50 * US, 5 * US)
    found = check(judged(trace.save(tmp_path)), "launches-without-work")
    assert "returned 0" not in found.seen
    assert found.seen.endswith("they failed, or rows are missing.")


@pytest.mark.parametrize(("gpu", "advice"), [(H200, "Give --gpu NAME."), (MI250, "")])
def test_a_name_is_asked_for_only_where_it_helps(tmp_path: Path, gpu: dict[str, object], advice: str) -> None:
    # Without the SMs' facts the H200 of this trace is known by no limit; an AMD GPU has none that are known here.
    bare = {key: gpu[key] for key in ("id", "warpSize")} | {"name": "AMD Instinct" if advice == "" else "some GPU"}
    trace = TinyKineto(Dialect(gpu=bare)).launch(0, "k", 10 * US, 5 * US)
    assert check(judged(trace.save(tmp_path)), "no-gpu-info").advice == advice


def test_processes_that_cannot_be_told_apart_are_said_once(tmp_path: Path) -> None:
    trace = TinyKineto()
    for pid in (10, 20):  # both count their launch as 5, so the kernel may be of either
        trace.call(pid * US, correlation=5, pid=pid, tid=pid)
    trace.kernel("both", 50 * US, 10 * US)
    loaded = load(trace, tmp_path)
    assert [code for code, _ in trace_warnings(loaded, ())] == ["several-processes"]
    assert "process-without-work" not in codes(judged(trace.save(tmp_path)))


def test_without_a_note_the_silent_process_is_still_named(tmp_path: Path) -> None:
    trace = TinyKineto().launch(0, "k", 10 * US, 5 * US).call(20 * US, pid=20, tid=20)
    assert "process-without-work" in [code for code, _ in trace_warnings(load(trace, tmp_path), ())]


def test_a_pipe_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="no regular file; save it to one first"):
        load_trace(pipe)
