"""Checks on a GPU: how failing launches behave, whom torch and Triton blame, and what the guard reports and costs."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from tracelab.errors import TracelabError
from tracelab.kernels._guard import Guard, Hooks, UncheckedLaunch, torch_hooks
from tracelab.kernels._guard_kernel import OUTPUT_TOLERANCE, MlaDecode, shared_bytes
from tracelab.kernels._kernel import relative_l2

FITS_CTX, FAILS_CTX = 11712, 11713  # 4·(11712 + 576) bytes are 48 KiB exactly
MAX_SHARED_BYTES = 232448  # dynamic shared memory a block may opt in to on sm_90 (CUDA C++ programming guide)
INVALID_VALUE = 1  # cudaErrorInvalidValue
POLL_LIMIT_NS = 300.0  # the bar of a poll; the kernel reference measured 240
POLLS, POLL_ROUNDS = 10_000, 21
LATER_LAUNCHES = 50
# The guarded steps: phases, layers and steps, with one failure in the middle of each.
PHASES, LAYERS, STEPS = ("attn_mla", "moe", "ffn"), 4, 3
FAILING = ("moe", 2, 1)


@dataclass(frozen=True)
class CheckLine:
    """One check: what it is, whether it holds, what was seen, and what must be seen."""

    name: str
    ok: bool
    measured: str
    limit: str


@triton.jit
def add_one(x: tl.tensor, BLOCK: tl.constexpr) -> None:  # noqa: N803
    """x += 1 for BLOCK elements."""
    at = x + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) + 1.0)


def run_check(device: torch.device) -> list[CheckLine]:
    """All checks, in order; each leaves the error slot empty. `device` is torch's current GPU."""
    with torch.cuda.device(device):
        return list(_checks())


def _checks() -> Iterator[CheckLine]:
    hooks = torch_hooks()
    if hooks is None:
        raise TracelabError("the checks need a GPU")
    attention, fail = MlaDecode(layers=2, capacity=FAILS_CTX), UncheckedLaunch()
    hooks.last_error()
    for check in (
        _edge,
        _survives,
        _impossible_launches,
        _shared_limit,
        _other_thread,
        _torch_blames,
        _triton_is_blind,
    ):
        yield from check(attention, fail, hooks.last_error)
    for guarded in (_guard_reports, _clean_run, _without_poll):
        yield guarded(fail, hooks)
    yield poll_cost(hooks.last_error)


Poll = Callable[[], int]


def _edge(attention: MlaDecode, _: UncheckedLaunch, poll: Poll) -> Iterator[CheckLine]:
    """At 11712 tokens the kernel runs, one more and it does not, and the output keeps the old data."""
    output = attention.mixed[0]
    output.fill_(float("nan"))
    codes = attention.launch(0, FITS_CTX)(), poll()
    error = relative_l2(output, attention.reference(0, FITS_CTX))
    yield _equal(f"launch at ctx {FITS_CTX}, {shared_bytes(FITS_CTX)} B of shared memory: code, poll", codes, (0, 0))
    yield CheckLine("its output's relative error", error < OUTPUT_TOLERANCE, f"{error:.1e}", f"< {OUTPUT_TOLERANCE:g}")
    old = output.clone()
    attention.query[0].neg_()  # a kernel that ran would write something else
    codes = attention.launch(0, FAILS_CTX)(), poll()
    poll_again = poll()
    yield _equal(f"launch at ctx {FAILS_CTX}: code, poll", codes, (INVALID_VALUE, INVALID_VALUE))
    yield _equal("the poll after it", poll_again, 0)
    torch.cuda.synchronize()
    yield _equal("the output keeps the old data, bit for bit", bool(torch.equal(output, old)), True)
    moved = relative_l2(old, attention.reference(0, FAILS_CTX))
    yield CheckLine("which are not what should be there: relative error", moved > 1e-2, f"{moved:.1e}", "> 0.01")


def _survives(attention: MlaDecode, fail: UncheckedLaunch, poll: Poll) -> Iterator[CheckLine]:
    fine = attention.empty_launch()
    fail()
    codes = [fine() for _ in range(LATER_LAUNCHES)]
    attention.cudart.synchronize()
    yield _equal(f"the error after {LATER_LAUNCHES} launches that ran, and after reading it",
                 (max(codes), poll(), poll()), (0, INVALID_VALUE, 0))  # fmt: skip


def _impossible_launches(attention: MlaDecode, _: UncheckedLaunch, poll: Poll) -> Iterator[CheckLine]:
    for what, shape in {"a block of 2048 threads": {"threads": 2048}, "a grid of 0 blocks": {"blocks": 0},
                        "512 KiB of shared memory": {"shared": 512 * 1024}}.items():  # fmt: skip
        yield _equal(f"{what}: code, poll", (attention.empty_launch(**shape)(), poll()), (INVALID_VALUE, INVALID_VALUE))


def _shared_limit(attention: MlaDecode, _: UncheckedLaunch, poll: Poll) -> Iterator[CheckLine]:
    """Asked of a kernel of its own: the opt-in would let every later launch of it succeed."""
    kernel = attention.module.kernel("nothing_opted_in")
    for asked, want in ((MAX_SHARED_BYTES, 0), (MAX_SHARED_BYTES + 1, INVALID_VALUE)):
        codes = attention.cudart.allow_shared(kernel, asked), poll()
        yield _equal(f"cudaFuncSetAttribute to {asked} B: code, poll", codes, (want, want))


def _other_thread(_: MlaDecode, fail: UncheckedLaunch, poll: Poll) -> Iterator[CheckLine]:
    seen: list[int] = []

    def work() -> None:
        fail()
        seen.append(poll())

    other = threading.Thread(target=work)
    other.start()
    other.join()
    yield _equal("a launch fails on another thread: poll there, here", (*seen, poll()), (INVALID_VALUE, 0))


def _torch_blames(_: MlaDecode, fail: UncheckedLaunch, poll: Poll) -> Iterator[CheckLine]:
    x = torch.ones(32, device="cuda")
    fail()
    said = "nothing raised"
    try:
        x.mul_(2.0)
    except RuntimeError as error:
        said = str(error).splitlines()[0]
    yield CheckLine("without a guard the next torch op raises for it", "invalid argument" in said, said,
                    "CUDA error: invalid argument")  # fmt: skip
    yield _equal("and has read the slot: poll", poll(), 0)


def _triton_is_blind(_: MlaDecode, fail: UncheckedLaunch, poll: Poll) -> Iterator[CheckLine]:
    x = torch.zeros(32, device="cuda")
    add_one[(1,)](x, BLOCK=32, num_warps=1)  # compiled and loaded before the error
    fail()
    said = "nothing raised"
    try:
        add_one[(1,)](x, BLOCK=32, num_warps=1)
    except RuntimeError as error:
        said = str(error).splitlines()[0]
    left = poll()
    yield _equal("a Triton op after it neither sees nor clears it: raised, poll, result",
                 (said, left, float(x[0])), ("nothing raised", INVALID_VALUE, 2.0))  # fmt: skip


def _steps(guard: Guard, fail: Callable[[], None] | None) -> None:
    """STEPS guarded steps of torch-free phases; `fail` is called last in the phase FAILING."""
    for step in range(STEPS):
        guard.step = step
        for layer in range(LAYERS):
            for name in PHASES:
                with guard.phase(name, layer):
                    if fail is not None and (name, layer, step) == FAILING:
                        fail()


def _guard_reports(fail: UncheckedLaunch, hooks: Hooks) -> CheckLine:
    guard = Guard("collect", hooks=hooks)
    _steps(guard, fail)
    found = [(f.phase, f.layer, f.step, f.code) for f in guard.failures]
    return _equal("the guard reports that phase, layer, step and code, and none of its neighbours", found,
                  [(*FAILING, INVALID_VALUE)])  # fmt: skip


def _clean_run(_: UncheckedLaunch, hooks: Hooks) -> CheckLine:
    guard = Guard("collect", hooks=hooks)
    _steps(guard, None)
    return _equal("control: failures reported of a clean run", len(guard.failures), 0)


def _without_poll(fail: UncheckedLaunch, hooks: Hooks) -> CheckLine:
    guard = Guard("collect", hooks=replace(hooks, last_error=lambda: 0))
    _steps(guard, fail)
    seen = len(guard.failures), hooks.last_error()
    return _equal(
        "control: with the polls removed, failures reported, error left in the slot", seen, (0, INVALID_VALUE)
    )


def poll_cost(poll: Poll) -> CheckLine:
    """Host time of one poll: the median over rounds of the mean of many, less the loop around them."""
    rounds = [_mean_ns(poll) for _ in range(POLL_ROUNDS)]
    ns = statistics.median(rounds)
    spread = f"{min(rounds):.0f}–{max(rounds):.0f}"
    return CheckLine(
        "one poll costs the host", ns <= POLL_LIMIT_NS, f"{ns:.0f} ns ({spread})", f"≤ {POLL_LIMIT_NS:.0f} ns"
    )


def _mean_ns(poll: Poll) -> float:
    begin = time.perf_counter_ns()
    for _ in range(POLLS):
        poll()
    middle = time.perf_counter_ns()
    for _ in range(POLLS):
        pass
    return (2 * middle - begin - time.perf_counter_ns()) / POLLS


def _equal(name: str, measured: object, wanted: object) -> CheckLine:
    return CheckLine(name, measured == wanted, _text(measured), _text(wanted))


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
