"""Whether two sides can be compared at all: every reason against it, every warning, and a control for each."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compare_fixture import Kernel, capture, loaded, one, program, sequence, slower, with_steps
from tiny_trace import US

from tracelab.compare.comparable import differences, failed_launches, reasons_against
from tracelab.compare.compare import compare
from tracelab.compare.options import DiffOptions
from tracelab.compare.side import Side
from tracelab.difference import INCONCLUSIVE, NEUTRAL, NOT_COMPARABLE, REGRESSION
from tracelab.report import GpuFacts, TraceWarning

STEP = [*sequence("attn", "attention"), *sequence("mlp", "gemm_a", "silu")]
PLAIN = one(STEP)
RECORD = {"model": "llama, 32 layers", "batch": 1, "ctx": 1024}


def _reasons(before: Side, after: Side) -> dict[str, str]:
    """Codes and sentences; the same codes whichever side is first."""
    found = {reason.code: reason.message for reason in reasons_against(before, after)}
    assert found.keys() == {reason.code for reason in reasons_against(after, before)}
    return found


def _warned(before: Side, after: Side) -> dict[str, str]:
    return {warning.code: warning.message for warning in differences(before, after)}


def _recorded(**changes: Any) -> Side:
    return one(STEP, workload={**RECORD, **changes})


def _on(*gpus: GpuFacts) -> Side:
    return one(STEP, gpus=list(gpus))


@pytest.mark.parametrize(
    "same", [PLAIN, _recorded(), one(STEP, cuda_graphs="graph"), one(STEP, failed={"mlp": 3}), _on(), one(STEP, [1.0])]
)
def test_a_trace_can_be_compared_with_itself(same: Side) -> None:
    assert reasons_against(same, same) == []
    assert differences(same, same) == []
    assert compare(same, same, DiffOptions()).verdict == NEUTRAL


def test_a_side_without_steps_is_a_reason_and_makes_up_no_number() -> None:
    empty = Side((with_steps(capture([], []), used=0),))
    assert _reasons(empty, PLAIN)["no-steps"] == "a capture (before) has no steps with GPU work."
    assert "no-steps" not in _reasons(PLAIN, PLAIN)
    diff = compare(empty, PLAIN, DiffOptions())
    assert (diff.verdict, diff.device_time.verdict, diff.device_time.before_ns) == (NOT_COMPARABLE, INCONCLUSIVE, None)


def test_a_device_without_steps_has_no_numbers(tmp_path: Path) -> None:
    """The second GPU runs one kernel after the loop, in no step."""
    trace = program(STEP).gpu(id=1, name="NVIDIA H200", smCount=132, cuDevice=1, computeMajor=9)
    path = trace.launch(9_000 * US, "z", 9_001 * US, 9_002 * US, device=1).save(tmp_path)
    side = loaded(path, device=1)
    diff = compare(side, side, DiffOptions())
    assert (diff.verdict, {reason.code for reason in diff.reasons}) == (NOT_COMPARABLE, {"no-steps"})
    assert (diff.step.change, diff.device_time.change) == (None, None)


def test_a_whole_trace_is_no_step() -> None:
    whole = Side((with_steps(capture(STEP), used=1, source="whole-trace"),))
    assert set(_reasons(whole, PLAIN)) == {"no-steps"}
    assert _reasons(whole, whole) == {}


def test_another_gpu_is_a_reason() -> None:
    h200, h100 = GpuFacts(0, "NVIDIA H200", 132, None, None), GpuFacts(0, "NVIDIA H100", 132, None, None)
    part = GpuFacts(0, "NVIDIA H200", 66, None, None)  # a MIG slice
    assert _reasons(_on(h200), _on(h100)) == {
        "other-gpu": "The GPUs differ: NVIDIA H100 (132 SMs) and NVIDIA H200 (132 SMs)."
    }
    assert set(_reasons(_on(h200), _on(part))) == {"other-gpu"}
    second = GpuFacts(1, "NVIDIA H100", 132, None, None)  # idle beside it
    assert _reasons(_on(h200), _on(h200, second)) == {}


def test_graphs_recorded_as_a_whole_are_a_reason() -> None:
    assert set(_reasons(PLAIN, one(STEP, cuda_graphs="graph"))) == {"graph-mode"}
    assert _reasons(PLAIN, one(STEP, cuda_graphs="node")) == {}


def test_another_model_is_a_reason() -> None:
    assert _reasons(_recorded(), _recorded(model="kimi, 27 layers")) == {
        "other-model": "The workload records name different models: llama and kimi."
    }
    assert _reasons(_recorded(), _recorded(model="llama, 16 layers")) == {}
    assert set(_reasons(one(STEP, workload={"name": "a"}), one(STEP, workload={"name": "b"}))) == {"other-model"}
    assert _reasons(_recorded(), PLAIN) == {}  # without a record nothing is known


def test_captures_of_other_programs_are_no_side() -> None:
    """The second has one place less: its times stay out of the rows of the first."""
    mixed = Side((capture(STEP), capture(STEP[:2])))
    found = _reasons(mixed, PLAIN)
    assert set(found) == {"other-program"}
    assert found["other-program"].endswith("so it is no second capture of the program before.")
    assert _reasons(Side((capture(STEP), capture(slower(STEP, 1.5)))), PLAIN) == {}
    diff = compare(mixed, PLAIN, DiffOptions())
    assert (diff.verdict, [row.time.change for row in diff.kernels]) == (NOT_COMPARABLE, [0.0] * 3)


@pytest.mark.parametrize(
    ("mlp_ns", "alike"),
    [(100_000.0, True), (50_000.0, True), (101_000.0, False)],  # half, two thirds and 49.8 % of the time is attn's
)
def test_half_of_the_time_of_both_sides_must_pair(mlp_ns: float, alike: bool) -> None:
    before = one([Kernel("attn", "attention"), Kernel("mlp", "gemm_a", mlp_ns)])
    after = one([Kernel("attn", "attention"), Kernel("ffn", "gemm_a", mlp_ns)])
    assert set(_reasons(before, after)) == (set() if alike else {"other-kernels"})


def test_half_of_either_side_counts() -> None:
    """A tenth of the time before, all of it after: the rest of the program is missing."""
    rest = Kernel("mlp", "gemm_a", 900_000)
    found = _reasons(one([Kernel("attn", "attention"), rest]), one([Kernel("attn", "attention")]))
    assert found == {
        "other-kernels": "Only 10 % of the kernel time before and 100 % of that after pair by phase and kernel family; "
        "half of either must. --phases kernels names phases by kernel names on both sides."
    }


def test_a_gemv_that_became_a_gemm_pairs() -> None:
    """Another batch size: all the time is that of products, with one row and then with several."""
    assert _reasons(one([Kernel("mlp", "gemv_row")]), one([Kernel("mlp", "gemm_a")])) == {}
    assert set(_reasons(one([Kernel("mlp", "gemv_row")]), one([Kernel("mlp", "silu")]))) == {"other-kernels"}


def test_what_is_forced_is_compared_and_stays_incomparable() -> None:
    h100 = GpuFacts(0, "NVIDIA H100", 132, None, None)
    after = one(slower(STEP, 2.0, "gemm_a"), gpus=[h100])
    told, forced = compare(PLAIN, after, DiffOptions()), compare(PLAIN, after, DiffOptions(force=True))
    assert (told.verdict, told.comparable, told.regressed) == (NOT_COMPARABLE, False, ())
    assert (forced.verdict, forced.comparable) == (REGRESSION, False)
    assert "mlp" in forced.regressed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch": 64}, "batch 1 → 64"),
        ({"ctx": 4096}, "ctx 1024 → 4096"),
        ({"variant": {"heads": 12}}, "heads unset → 12"),
        ({"dtype": "fp8", "batch": 2}, "batch 1 → 2, dtype unset → fp8"),
    ],
)
def test_another_shape_of_the_work_is_told(changes: dict[str, Any], said: str) -> None:
    found = _warned(_recorded(), _recorded(**changes))
    assert found == {"other-workload": f"The workload differs: {said}. That may be the change that is compared."}


def test_a_record_on_one_side_only_is_told() -> None:
    assert set(_warned(PLAIN, _recorded())) == set(_warned(_recorded(), PLAIN)) == {"no-record"}
    assert "none before" in _warned(PLAIN, _recorded())["no-record"]
    assert "none after" in _warned(_recorded(), PLAIN)["no-record"]
    assert _warned(_recorded(), _recorded()) == _warned(PLAIN, PLAIN) == {}


def _driven(driver: str | None) -> Side:
    return Side((replace(PLAIN.first, driver=driver),))


def test_another_driver_is_told() -> None:
    assert "570.1 and 580.2" in _warned(_driven("570.1"), _driven("580.2"))["other-driver"]
    assert _warned(_driven("570.1"), _driven(None)) == {}


def test_failed_launches_on_one_side_are_told() -> None:
    failing = one(STEP, failed={"mlp": 2, "attn": 1})
    assert failed_launches(Side(failing.captures * 2)) == 6
    assert _warned(PLAIN, failing)["failed-launches"].startswith("3 launches failed after: work that did not run takes")
    assert _warned(one(STEP, failed={"mlp": 1}), PLAIN)["failed-launches"].startswith("1 launch failed before:")
    assert _warned(failing, failing) == {}


def test_another_sequence_is_told_with_its_length() -> None:
    found = _warned(PLAIN, one([*STEP, Kernel("mlp", "silu")]))
    assert found == {
        "other-sequence": "The steps run other kernels (3 → 4 a step): kernels are paired by phase, place and family."
    }


def test_steps_without_one_sequence_are_told() -> None:
    loose = one(STEP, ordered=False)
    assert _warned(PLAIN, loose) == {
        "no-order": "The steps after do not run one sequence of kernels: kernels are paired by name."
    }


def test_warnings_of_the_traces_are_told_once_with_their_side() -> None:
    warning = TraceWarning("clock", "3 rows begin before their launch.")
    doubtful = one(STEP, warnings=[warning])
    assert _warned(PLAIN, doubtful) == {"clock": f"After: {warning.message}"}
    assert _warned(doubtful, doubtful) == {"clock": f"Before and after: {warning.message}"}
