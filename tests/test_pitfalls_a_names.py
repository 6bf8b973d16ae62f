"""Pitfalls of range names: ranges of a framework around and inside the user's, and names that stand anywhere."""

from pathlib import Path
from typing import Any

import pytest
from asking import ask, column, result, view
from called import called
from tiny_trace import NVTX, Thread, TinyTrace

from tracelab.errors import UsageError

WORKER = Thread(pid=100, tid=101)
PHASES = ("norm", "attn", "mlp", "head")
BY_USER = dict.fromkeys(PHASES, 625)
_OPS = 10_000


def framework(outer: str = "Torch-Compiled Region: 0/0", inner: str = "aten::op") -> TinyTrace:
    """4 steps of 4 phases, each phase inside `outer` and around 625 ranges `inner`_k with a kernel: 10 000 in all."""
    trace = TinyTrace()
    per_phase = _OPS // (4 * len(PHASES))
    for i in range(4):
        start = i * 10_000_000
        trace.range(f"step {i}", start, start + 9_000_000)
        for p, name in enumerate(PHASES):
            t = start + p * 2_000_000
            trace.range(outer, t, t + 1_900_000).range(name, t + 10, t + 1_800_000)
            for k in range(per_phase):
                at = t + 100 + k * 1000
                trace.range(f"{inner}_{k}, op_id = {k}", at, at + 500).launch(at + 10, "k", at + 100, at + 600)
    return trace


def kernels_by_phase(path: Path, **selection: Any) -> dict[object, object]:
    return column(result("phases", view(path, **selection)), "phases", "phase", "kernels_per_step")


def test_a18_operators_of_the_framework_bury_no_phase(tmp_path: Path) -> None:
    """10 000 aten:: ranges inside 4 phases, compiled regions around them: the phases are the user's four."""
    assert kernels_by_phase(framework().save(tmp_path)) == BY_USER


def test_a18_other_ranges_are_excluded_by_name(tmp_path: Path) -> None:
    """The same with names that nobody knows: buried, until --exclude; --depth cuts what lies inside only."""
    path = framework("engine loop", "myengine.op").save(tmp_path)
    buried = kernels_by_phase(path)
    assert "engine loop/attn/myengine.op_#, op_id = #" in buried
    assert set(kernels_by_phase(path, depth=1)) == {"engine loop"}
    assert set(kernels_by_phase(path, depth=2)) == {f"engine loop/{name}" for name in PHASES}
    assert kernels_by_phase(path, exclude="^(engine loop|myengine)") == BY_USER
    page = called("phases", path, "--exclude", "engine").out
    assert "attn" in page and "engine" not in page


def test_a18_phases_are_chosen_by_prefix(tmp_path: Path) -> None:
    """Everything excluded that neither is a step nor begins with `a`: one phase is left, the rest has none."""
    found = kernels_by_phase(framework("engine", "op").save(tmp_path), exclude="^(?!step|a)")
    assert found == {"attn": 625, "(no phase)": 1875}


def test_a18_excluded_ranges_are_no_steps(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(4):
        t = i * 1000
        trace.range(f"engine tick {i}", t, t + 900).range(f"decode {i}", t + 10, t + 800)
        trace.launch(t + 20, "k", t + 30, t + 60)
    path = trace.save(tmp_path)
    assert view(path).group.pattern == "engine tick #"
    assert view(path, exclude="engine").group.pattern == "decode #"
    with pytest.raises(UsageError, match="--exclude '\\(' is not a regular expression"):
        ask(path, exclude="(")


def test_a18_operators_on_the_autograd_thread_leave_its_work_to_the_step(tmp_path: Path) -> None:
    """The backward thread has ranges of its own, but only the framework's: its kernels belong to `bwd`."""
    trace = TinyTrace()
    for i in range(3):
        t = i * 1000
        trace.range(f"train {i}", t, t + 900).range("fwd", t, t + 100).launch(t + 10, "f", t + 20, t + 120)
        trace.range("bwd", t + 110, t + 800)
        trace.range("autograd::engine::evaluate_function: MmBackward0", t + 190, t + 400, on=WORKER)
        trace.launch(t + 200, "b", t + 300, t + 400, on=WORKER)
    assert kernels_by_phase(trace.save(tmp_path)) == {"fwd": 1, "bwd": 1}


def test_a18_operators_stand_in_the_inclusive_list_under_their_own_names(tmp_path: Path) -> None:
    path = TinyTrace().range("mlp", 0, 100).range("aten::mm", 10, 90).launch(50, "k", 60, 70).save(tmp_path)
    rows = result("phases", view(path), inclusive=True)
    assert column(rows, "ranges", "range", "kernels") == {"mlp": 1, "aten::mm": 1}


def named(texts: str) -> TinyTrace:
    """Steps with three phases of one kernel each, named by text, by textId (both: as `texts` says) or by nothing."""
    trace = TinyTrace()
    for i in range(2):
        t = i * 1000
        trace.range(f"step {i}", t, t + 900, registered=texts == "textId")
        for k, name in enumerate(("attn", "mlp", None)):
            at = t + 100 + 200 * k
            registered = {"text": False, "textId": name is not None, "both": k == 1}[texts]
            trace.range(name, at, at + 100, registered=registered).launch(at + 10, "k", at + 20, at + 60)
    return trace


@pytest.mark.parametrize(("texts", "absent"), [("text", "textId"), ("textId", "text"), ("both", None)])
def test_a19_names_by_text_by_text_id_or_by_neither(tmp_path: Path, texts: str, absent: str | None) -> None:
    """The table without textId, the table without text, both columns: an empty name is still a range."""
    trace = named(texts)
    path = (trace.without(f"{NVTX}.{absent}") if absent else trace).save(tmp_path)
    assert view(path).group.pattern == "step #"
    assert kernels_by_phase(path) == {"attn": 1, "mlp": 1, "(unnamed)": 1}


def test_a19_control_without_either_column_nothing_has_a_name(tmp_path: Path) -> None:
    path = named("text").without(f"{NVTX}.text", f"{NVTX}.textId").save(tmp_path)
    assert "attn" not in kernels_by_phase(path)
