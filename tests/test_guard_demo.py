"""The guard's demo: whom its step blames with and without a guard, what it prints, and when it is surprised."""

from typing import Any

import pytest
from fake_cuda import INVALID, FakeCuda

from tracelab.kernels import _guard_kernel
from tracelab.kernels._guard import Guard, LaunchFailure
from tracelab.kernels._guard_demo import Blame, DecodeStep, DemoOutcome, Unguarded, report, surprises


def demo_step(cuda: FakeCuda, phases: Any, *, code: int) -> DecodeStep:
    """Four layers of which layer 2 launches with `code`."""
    attend = [lambda code=code if layer == 2 else 0: cuda.launch(code) for layer in range(4)]
    return DecodeStep(attend, lambda _: cuda.torch_op(), phases)


def outcome(variant: str, ctx: int, **changed: Any) -> DemoOutcome:
    facts: dict[str, Any] = {
        "variant": variant, "ctx": ctx, "failed_launches": 0, "failures": (), "blamed": (), "drained": None,
        "capture_error": None, "stale": False, "error": 1e-6,
    }  # fmt: skip
    return DemoOutcome(**{**facts, **changed})


def test_guarded_step_names_the_launch_and_torch_never_raises() -> None:
    cuda = FakeCuda()
    guarded = Guard("collect", hooks=cuda.hooks())
    step = demo_step(cuda, guarded, code=INVALID)
    step()
    assert [(f.phase, f.layer) for f in guarded.failures] == [("attn_mla", 2)]
    assert step.failed_launches == 1


def test_unguarded_step_gets_torchs_error_in_the_phase_after_it() -> None:
    cuda = FakeCuda()
    unguarded = Unguarded(cuda.hooks())
    unguarded.step = 4
    step = demo_step(cuda, unguarded, code=INVALID)
    step()
    assert unguarded.blamed == [Blame("ffn", 2, 4, "CUDA error: invalid argument")]
    assert step.failed_launches == 1
    ranges = [
        entry for layer in range(4) for name in ("attn_mla", "ffn") for entry in (f"+L{layer}", f"+{name}", *"--")
    ]
    assert cuda.log == ranges


def test_unguarded_ranges_let_other_exceptions_through() -> None:
    cuda = FakeCuda()
    with pytest.raises(KeyError), Unguarded(cuda.hooks()).phase("ffn"):
        raise KeyError
    assert cuda.log == ["+ffn", "-"]


FAILED = tuple(LaunchFailure("attn_mla", 5, step, INVALID, "cudaErrorInvalidValue") for step in range(2))
BLAMED = tuple(Blame("ffn", 5, step, "CUDA error: invalid argument") for step in range(2))
OLD = {"failed_launches": 2, "stale": True, "error": 1.4}


def test_report_names_phase_layer_step_and_the_old_data() -> None:
    lines = report(outcome("guarded", 11713, failures=FAILED, **OLD), 5)
    assert lines == [
        "guarded, ctx 11713: L5/attn_mla asks for 49156 bytes of shared memory; a launch gets 49152.",
        "2 launches failed; the guard reported 2:",
        "  L5/attn_mla of step 0: cudaErrorInvalidValue (1)",
        "  L5/attn_mla of step 1: cudaErrorInvalidValue (1)",
        "Layer 5's output still holds the data of the warm-up: the kernel never ran.",
    ]


def test_report_of_a_launch_that_fits_and_of_the_wrong_blame() -> None:
    assert report(outcome("sync", 11712), 5)[1:] == [
        "0 launches failed; the guard reported 0.",
        "Layer 5's output is new; relative error 1.0e-06 against float64.",
    ]
    lines = report(outcome("unguarded", 11713, blamed=BLAMED, **OLD), 5)
    assert lines[1] == "2 launches failed; torch raised 2 times, in phases whose own launches are right:"
    assert lines[2] == "  L5/ffn of step 0: CUDA error: invalid argument"
    drained = LaunchFailure("before the first phase", None, None, 2, "cudaErrorMemoryAllocation")
    extra = report(outcome("guarded", 1, drained=drained, capture_error="CUDA error: x"), 5)
    assert extra[1] == "There before the first phase: cudaErrorMemoryAllocation (2)."
    assert extra[3] == "The capture failed, so nothing was replayed: CUDA error: x"


BROKEN_CAPTURE = {"capture_error": "CUDA error: operation failed", "failed_launches": 3, "stale": True}


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (outcome("guarded", 11713, failures=FAILED, **OLD), []),
        (outcome("unguarded", 11713, blamed=BLAMED, **OLD), []),
        (outcome("sync", 11712), []),
        (outcome("guarded", 11713, failures=FAILED, **BROKEN_CAPTURE), []),
        (outcome("guarded", 11713, failures=FAILED[:1], **OLD), ["reported are"]),
        (outcome("guarded", 11713, **OLD), ["reported are none"]),
        (outcome("unguarded", 11713, **OLD), ["reported are none"]),
        (outcome("guarded", 11712, failures=FAILED), ["reported are"]),
        (outcome("guarded", 11712, failures=FAILED, **OLD),
         ["2 launches failed", "the output is old", "the output's error is 1.4"]),
        (outcome("guarded", 11713), ["0 launches failed", "the output is new"]),
        (outcome("guarded", 11712, error=float("inf")), ["the output's error is inf"]),
        (outcome("guarded", 11713, failures=(LaunchFailure("ffn", 5, 0, 1, "x"),) * 2, **OLD), ["reported are L5/ffn"]),
    ],
)  # fmt: skip
def test_surprises_are_what_does_not_fit_the_context(seen: DemoOutcome, wrong: list[str]) -> None:
    found = surprises(seen, 5)
    assert len(found) == len(wrong)
    assert all(text.startswith(start) for text, start in zip(found, wrong, strict=True)), found


def test_shared_memory_is_48_kib_exactly_at_11712_tokens() -> None:
    # 4·(11712 + 576) = 4·12288 = 49 152 = 48·1024
    assert _guard_kernel.shared_bytes(11712) == _guard_kernel.DEFAULT_SHARED_BYTES == 49_152
    assert _guard_kernel.shared_bytes(11713) == 49_156
