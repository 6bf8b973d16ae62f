"""guard: where failures are reported, policies, threads, faults, captures, on a fake error slot; options of the demo.

No test here launches on a GPU; `tracelab.kernels.guard.run_check` does, and checks what the fake takes for granted.
"""

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_cuda import FAULT, INVALID, FakeCuda
from kernel_cpu import torch_or_skip

from tracelab.errors import CheckFailedError
from tracelab.kernels import guard
from tracelab.kernels._guard import Guard, LaunchFailedError, LaunchFailure, Policy
from tracelab.registry import literal

PHASES, LAYERS, STEPS = ("attn_mla", "moe", "ffn"), 3, 2
PLACES = list(itertools.product(PHASES, range(LAYERS), range(STEPS)))
Place = tuple[str, int, int]


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda()


def watcher(cuda: FakeCuda, policy: Policy = "collect", *, sync: bool = False) -> Guard:
    return Guard(policy, sync=sync, hooks=cuda.hooks())


def run_steps(guarded: Guard, at: Place | None, fail: Callable[[], object]) -> None:
    """STEPS steps of LAYERS layers; `fail` is called in the phase of the place `at`, right launches in all others."""
    for step in range(STEPS):
        guarded.step = step
        for layer in range(LAYERS):
            for name in PHASES:
                with guarded.phase(name, layer=layer):
                    if (name, layer, step) == at:
                        fail()


def places(guarded: Guard) -> list[tuple[str, int | None, int | None]]:
    return [(failure.phase, failure.layer, failure.step) for failure in guarded.failures]


@pytest.mark.parametrize("at", PLACES, ids=str)
def test_a_failed_launch_is_reported_where_it_happened_and_nowhere_else(cuda: FakeCuda, at: Place) -> None:
    guarded = watcher(cuda)
    run_steps(guarded, at, lambda: cuda.launch(INVALID))
    assert guarded.failures == [LaunchFailure(*at, INVALID, "cudaErrorInvalidValue")]
    assert not guarded.clean


def test_the_error_outlives_launches_that_ran_after_it_in_its_phase(cuda: FakeCuda) -> None:
    guarded = watcher(cuda)
    run_steps(guarded, PLACES[4], lambda: [cuda.launch(INVALID), cuda.launch(), cuda.launch()])
    assert places(guarded) == [PLACES[4]]


def test_control_a_clean_run_reports_nothing(cuda: FakeCuda) -> None:
    guarded = watcher(cuda, "raise")
    run_steps(guarded, PLACES[0], cuda.launch)
    assert guarded.clean and guarded.failures == [] and guarded.drained is None


def test_control_without_its_poll_a_failure_is_not_reported_at_its_phase(cuda: FakeCuda) -> None:
    """The second phase of layer 1 does not look: the third gets the blame."""
    hooks = cuda.hooks()
    blind = replace(hooks, last_error=lambda: 0 if cuda.log[-2:] == ["+L1", "+moe"] else cuda.last_error())
    guarded = Guard("collect", hooks=blind)
    run_steps(guarded, ("moe", 1, 0), lambda: cuda.launch(INVALID))
    assert places(guarded) == [("ffn", 1, 0)]


def test_control_without_any_poll_the_error_stays_in_the_slot(cuda: FakeCuda) -> None:
    guarded = Guard("collect", hooks=replace(cuda.hooks(), last_error=lambda: 0))
    run_steps(guarded, PLACES[3], lambda: cuda.launch(INVALID))
    assert guarded.failures == []
    assert cuda.last_error() == INVALID


def test_ranges_lie_around_the_launch_and_the_poll_and_one_poll_is_all(cuda: FakeCuda) -> None:
    guarded = watcher(cuda)
    guarded.start()
    cuda.log.clear()
    with guarded.phase("attn_mla", layer=5):
        cuda.log.append("launch")
    with guarded.phase("head"):
        cuda.log.append("launch")
    layered = ["+L5", "+attn_mla", "launch", "poll", "-", "-"]
    assert cuda.log == [*layered, "+head", "launch", "poll", "-"]


def test_what_was_there_before_the_first_phase_is_drained_and_reported_apart(cuda: FakeCuda) -> None:
    cuda.launch(INVALID)
    guarded = watcher(cuda, "raise")
    run_steps(guarded, None, cuda.launch)
    assert guarded.failures == [] and guarded.clean
    assert guarded.drained is not None and guarded.drained.code == INVALID


def test_control_without_the_drain_the_first_phase_is_blamed(cuda: FakeCuda) -> None:
    cuda.launch(INVALID)
    guarded = watcher(cuda)
    guarded._thread = threading.get_ident()  # as if it had been drained
    run_steps(guarded, None, cuda.launch)
    assert places(guarded) == [("attn_mla", 0, 0)]


def test_raise_ends_the_phase_with_the_error_and_closes_its_ranges(cuda: FakeCuda) -> None:
    guarded = watcher(cuda, "raise")
    guarded.step = 3
    with pytest.raises(LaunchFailedError) as caught, guarded.phase("attn_mla", layer=5):
        cuda.launch(INVALID)
    said = "L5/attn_mla of step 3: cudaErrorInvalidValue (1). The kernel did not run and its output holds old data."
    assert str(caught.value) == said
    assert caught.value.failure == guarded.failures[0]
    assert caught.value.exit_code == CheckFailedError.exit_code == 3
    assert cuda.log[-2:] == ["-", "-"]
    with guarded.phase("ffn", layer=5):  # nothing is left of it
        cuda.launch()


def test_an_exception_on_its_way_is_not_replaced_but_the_failure_is_noted(cuda: FakeCuda) -> None:
    guarded = watcher(cuda, "raise")
    with pytest.raises(KeyError), guarded.phase("attn_mla", layer=5):
        cuda.launch(INVALID)
        raise KeyError
    assert places(guarded) == [("attn_mla", 5, None)]
    assert cuda.log[-2:] == ["-", "-"]


def test_the_guard_belongs_to_one_thread(cuda: FakeCuda) -> None:
    guarded = watcher(cuda)
    guarded.start()
    raised: list[BaseException] = []

    def elsewhere() -> None:
        cuda.launch(INVALID)
        uses: list[Callable[[], object]] = [guarded.phase("ffn").__enter__, guarded.replayed, guarded.start]
        for use in uses:
            with pytest.raises(RuntimeError, match="another thread") as caught:
                use()
            raised.append(caught.value)

    other = threading.Thread(target=elsewhere)
    other.start()
    other.join()
    assert len(raised) == 3
    run_steps(guarded, None, cuda.launch)
    assert guarded.clean, "an error on another thread is in another slot"


def test_an_unknown_policy_is_refused(cuda: FakeCuda) -> None:
    with pytest.raises(ValueError, match="policy"):
        Guard("ignore", hooks=cuda.hooks())  # type: ignore[arg-type]


def test_with_sync_a_fault_is_named_and_the_guard_never_reports_clean_again(cuda: FakeCuda) -> None:
    guarded = watcher(cuda, sync=True)
    run_steps(guarded, ("moe", 1, 0), cuda.launch_faulty)
    (failure,) = guarded.failures
    assert failure == LaunchFailure("moe", 1, 0, FAULT, "cudaErrorIllegalAddress", exact=True)
    assert guarded.dead is failure and not guarded.clean
    assert cuda.last_error() == 0, "the slot reads 0 while the context is dead"
    waits = cuda.log.count("synchronize")
    run_steps(guarded, None, cuda.launch)
    assert not guarded.clean and guarded.failures == [failure]
    assert cuda.log.count("synchronize") == waits, "nobody waits for a dead context"


def test_after_a_fault_every_later_phase_raises_it_again(cuda: FakeCuda) -> None:
    guarded = watcher(cuda, "raise", sync=True)
    said = r"^moe: cudaErrorIllegalAddress \(700\)\. The CUDA context is dead"
    for name in ("moe", "ffn", "head"):
        with pytest.raises(LaunchFailedError, match=said), guarded.phase(name):
            cuda.launch_faulty()
    with pytest.raises(LaunchFailedError, match=r"^moe"):
        guarded.replayed()


def test_without_sync_a_fault_shows_only_when_something_else_synchronises(cuda: FakeCuda) -> None:
    """Polls read 0 until then, so the phase is only an upper bound, and says so."""
    guarded = watcher(cuda)
    run_steps(guarded, PLACES[0], cuda.launch_faulty)
    assert guarded.clean
    with guarded.phase("head"):
        cuda.synchronize()
    (failure,) = guarded.failures
    assert (failure.phase, failure.exact, guarded.dead) == ("head", False, failure)
    assert str(failure).startswith("at or before head of step 1: cudaErrorIllegalAddress")


def test_a_fault_found_by_the_drain_is_no_clean_start(cuda: FakeCuda) -> None:
    cuda.launch(FAULT)
    guarded = watcher(cuda, "raise")
    guarded.start()
    assert not guarded.clean
    with pytest.raises(LaunchFailedError, match="before the first phase"), guarded.phase("ffn"):
        pass


def test_with_sync_a_launch_failure_and_a_fault_in_one_phase_are_two(cuda: FakeCuda) -> None:
    guarded = watcher(cuda, sync=True)
    with guarded.phase("ffn", 0):
        cuda.launch_faulty()
        cuda.launch(INVALID)
    assert [failure.code for failure in guarded.failures] == [INVALID, FAULT]


@pytest.mark.parametrize("sync", [False, True])
def test_a_capture_is_polled_by_phase_and_never_synchronised(cuda: FakeCuda, sync: bool) -> None:
    guarded = watcher(cuda, sync=sync)
    cuda.is_capturing = True
    run_steps(guarded, PLACES[7], lambda: cuda.launch(INVALID))
    assert places(guarded) == [PLACES[7]]
    assert "synchronize" not in cuda.log
    assert cuda.log.count("poll") == len(PLACES) + 1  # the drain


def test_a_replay_has_one_poll_after_it_and_passes_no_phase(cuda: FakeCuda) -> None:
    guarded = watcher(cuda)
    run_steps(guarded, None, cuda.launch)
    cuda.log.clear()
    guarded.step = 9
    guarded.replayed()
    assert cuda.log == ["poll"] and guarded.clean
    cuda.launch(INVALID)
    guarded.replayed()
    assert guarded.failures == [LaunchFailure("replay", None, 9, INVALID, "cudaErrorInvalidValue")]


def test_a_replay_before_any_phase_is_not_drained_away(cuda: FakeCuda) -> None:
    guarded = watcher(cuda, "raise")
    cuda.launch(INVALID)
    with pytest.raises(LaunchFailedError, match=r"^replay: "):
        guarded.replayed()


def test_with_sync_a_replay_is_waited_for(cuda: FakeCuda) -> None:
    guarded = watcher(cuda, sync=True)
    cuda.launch_faulty()
    guarded.replayed()
    assert [failure.code for failure in guarded.failures] == [FAULT]


def test_without_a_gpu_the_guard_does_nothing() -> None:
    torch = torch_or_skip()
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    guarded = Guard("raise", sync=True)
    assert not guarded.active
    guarded.start()
    run_steps(guarded, None, lambda: None)
    guarded.replayed()
    assert guarded.clean and guarded.drained is None


def test_defaults_and_variants_are_literals_and_the_demo_fails_by_default() -> None:
    path = Path(guard.__file__)
    assert literal(path, "DEFAULTS") == guard.DEFAULTS
    assert literal(path, "VARIANTS") == guard.VARIANTS
    assert next(iter(guard.VARIANTS)) == guard.DEFAULTS["variant"] == "guarded"
    assert set(guard._HELP) | {"variant", "graph"} == set(guard.DEFAULTS)


@pytest.mark.parametrize(
    "argv",
    [["--ctx", "0"], ["--steps", "x"], ["--variant", "nope"], ["--fail-layer", "8"],
     ["--layers", "5", "--fail-layer", "5"]],
)  # fmt: skip
def test_bad_options_are_one_sentence_and_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert guard.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1 and argv[-2] in captured.err


@pytest.mark.parametrize("argv", [[], ["--run"]])
def test_without_torch_or_gpu_is_one_sentence_and_exit_5(argv: list[str]) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tracelab.kernels.guard", *argv]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (5, "")
    assert len(done.stderr.splitlines()) == 1
