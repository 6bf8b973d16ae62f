"""Launch-guarded phases: an NVTX range, and at its end one look at the thread's CUDA error slot.

Two kinds of error (measured on an H200, CUDA 13.0):
- A launch that cannot start (too much shared memory, too many threads, an empty grid) returns its code at once. The
  kernel does not run, its output keeps the old data, and nobody hears of it until the next call that reads the slot:
  the next torch op raises for a launch that is not its own. The guard reads the slot at the end of each phase and so
  names the phase.
- A fault on the GPU (an illegal access) leaves every poll at 0 until the host synchronises. The code is then that of
  the synchronise, and the context stays dead although the slot reads 0 again. The guard names its phase only with
  `sync=True`, a debug mode that waits for the GPU after each phase.
"""

import importlib.util
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import get_ident
from typing import Literal

from tracelab.errors import CheckFailedError, UsageError
from tracelab.failures import error_name, judge
from tracelab.kernels._cudart import Cudart, Launch, Module, compile_cubin, gpu_architecture, torch_cudart

Policy = Literal["raise", "collect"]

_FAIL_AT = re.compile(r"([A-Za-z_][\w-]*)@(\d+)")
# More dynamic shared memory than any GPU has: sm_90 allows 232448 bytes (CUDA C++ programming guide, table of compute
# capabilities). Seen on an H200: the launch returns cudaErrorInvalidValue.
OVERSIZED_BYTES = 512 * 1024
_EMPTY_KERNEL = 'extern "C" __global__ void nothing() {}'


@dataclass(frozen=True)
class LaunchFailure:
    """An error and the phase it was found in; `layer` and `step` are None where there is none.

    `exact` is False for a fault that was noticed only when something else had synchronised: it happened in that phase
    or before.
    """

    phase: str
    layer: int | None
    step: int | None
    code: int
    name: str
    exact: bool = True

    @property
    def path(self) -> str:
        """The phase as a trace shows it, such as `L5/attn_mla`."""
        return self.phase if self.layer is None else f"L{self.layer}/{self.phase}"

    @property
    def fault(self) -> bool:
        """Whether the GPU faulted, after which the context is dead; else a launch never started."""
        return _is_fault(self.code)

    def __str__(self) -> str:
        step = "" if self.step is None else f" of step {self.step}"
        return f"{'' if self.exact else 'at or before '}{self.path}{step}: {self.name} ({self.code})"


class LaunchFailedError(CheckFailedError):
    """A guarded phase ended with an error."""

    def __init__(self, failure: LaunchFailure) -> None:
        self.failure = failure
        after = (
            "The CUDA context is dead; nothing computed since is to be trusted."
            if failure.fault
            else "The kernel did not run and its output holds old data."
        )
        super().__init__(f"{failure}. {after}")


@dataclass(frozen=True)
class Hooks:
    """What a guard calls: the error slot of this thread, the wait for the GPU, and NVTX."""

    last_error: Callable[[], int]
    synchronize: Callable[[], int]
    capturing: Callable[[], bool]
    push: Callable[[str], object]
    pop: Callable[[], object]


def torch_hooks() -> Hooks | None:
    """Those of torch's own CUDA runtime; None without torch or a GPU, where cudaGetLastError only returns errors."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    cudart, nvtx = torch_cudart(), torch.cuda.nvtx
    capturing = torch.cuda.is_current_stream_capturing
    return Hooks(cudart.last_error, cudart.synchronize, capturing, nvtx.range_push, nvtx.range_pop)


class Guard:
    """Phases of a decode step, each with a poll at its end.

    policy   "raise" a LaunchFailedError at the end of the phase, or only "collect"; `failures` has them either way
    sync     also wait for the GPU at the end of each phase, so that a fault is placed; not while a graph is captured
    step     number of the current step, for the report; the program sets the attribute
    drained  an error that was there before the first phase: something else's, so it is reported here alone
    dead     the fault after which nothing is to be trusted; with "raise" every later phase raises it again

    All phases run on one host thread, that of their launches: the slot belongs to the thread. Without a GPU a guard
    does nothing. A capture into a CUDA graph is polled phase by phase; call `replayed` after each replay, which runs no
    phase. What fails between two phases is blamed on the second. An error that another call reads within the phase
    (a torch op after the launch raises for it) is no longer there at its end.
    """

    def __init__(
        self, policy: Policy = "raise", sync: bool = False, step: int | None = None, hooks: Hooks | None = None
    ) -> None:
        if policy not in ("raise", "collect"):
            raise ValueError(f'policy is "raise" or "collect", not {policy!r}')
        self.step = step
        self.failures: list[LaunchFailure] = []
        self.drained: LaunchFailure | None = None
        self.dead: LaunchFailure | None = None
        self._raises = policy == "raise"
        self._sync = self._slow = sync
        self._thread: int | None = None
        self._phases: dict[tuple[str, int | None], _Phase] = {}
        self._hooks = hooks if hooks is not None else torch_hooks()

    @property
    def active(self) -> bool:
        """Whether there is a GPU to watch."""
        return self._hooks is not None

    @property
    def clean(self) -> bool:
        """Whether no phase has failed so far; never again after a fault."""
        return not self.failures and self.dead is None

    def phase(self, name: str, layer: int | None = None) -> AbstractContextManager[None]:
        """The NVTX range `name`, with a layer inside a range `L{layer}`, and a poll at its end.

        With the policy "raise" its end raises LaunchFailedError if something failed, but never in place of an exception
        that is already on its way. Raises RuntimeError on another thread than the first phase's.
        """
        key = (name, layer)
        found = self._phases.get(key)
        if found is None:
            if self._hooks is None:
                return nullcontext()
            found = self._phases[key] = _Phase(self, self._hooks, name, layer)
        return found

    def start(self) -> None:
        """Bind to this thread and drain its slot; else the first phase does it."""
        if self._hooks is None:
            return
        self._bind()
        code = self._hooks.last_error()
        if code:
            self.drained = LaunchFailure("before the first phase", None, None, code, error_name(code))
            self._bury(self.drained)

    def replayed(self, name: str = "replay") -> None:
        """Poll after the replay of a CUDA graph, which passes no phase; raises as the end of a phase does."""
        if self._hooks is not None:
            self._bind()
            self._look(name, None, self._hooks.last_error(), raises=self._raises)

    def _bind(self) -> None:
        if self._thread is None:
            self._thread = get_ident()
        elif self._thread != get_ident():
            raise RuntimeError("the guard belongs to another thread: an error slot is seen only by its own thread")

    def _look(self, name: str, layer: int | None, code: int, *, raises: bool) -> None:
        """Note what the poll's `code` and, in debug mode, a synchronise say; raise it if asked to."""
        assert self._hooks is not None
        known = len(self.failures)
        if code and self.dead is None:
            self._note(name, layer, code)
        if self._sync and self.dead is None and not self._hooks.capturing():
            code = self._hooks.synchronize()
            if code:
                self._hooks.last_error()  # the same error once more
                self._note(name, layer, code)
        failure = self.failures[-1] if len(self.failures) > known else self.dead
        if raises and failure is not None:
            raise LaunchFailedError(failure)

    def _note(self, name: str, layer: int | None, code: int) -> None:
        exact = self._sync or not _is_fault(code)
        failure = LaunchFailure(name, layer, self.step, code, error_name(code), exact)
        self.failures.append(failure)
        self._bury(failure)

    def _bury(self, failure: LaunchFailure) -> None:
        if failure.fault:
            self.dead = failure
            self._slow = True


class _Phase:
    """One phase of a guard, entered as often as wanted. Slots and no call that can be saved: a step has hundreds."""

    __slots__ = ("_guard", "_layer", "_name", "_poll", "_pop", "_push", "_range")

    def __init__(self, guard: Guard, hooks: Hooks, name: str, layer: int | None) -> None:
        self._guard = guard
        self._name, self._layer = name, layer
        self._range = None if layer is None else f"L{layer}"
        self._poll, self._push, self._pop = hooks.last_error, hooks.push, hooks.pop

    def __enter__(self) -> None:
        guard = self._guard
        if guard._thread != get_ident():
            guard.start()
        if self._range is not None:
            self._push(self._range)
        self._push(self._name)

    def __exit__(self, kind: object, *_: object) -> None:
        guard = self._guard
        try:
            code = self._poll()
            if code or guard._slow:
                guard._look(self._name, self._layer, code, raises=guard._raises and kind is None)
        finally:
            self._pop()
            if self._range is not None:
                self._pop()


class UncheckedLaunch:
    """A launch that fails on purpose and whose code nobody reads: calling it leaves an error in the thread's slot.

    Call it last in a phase: a torch op after it raises for it. Compile and load happen here, not in the call. Raises
    CaptureUnavailableError without NVRTC or with a CUDA runtime older than 12.8.
    """

    def __init__(self, cudart: Cudart | None = None, image: bytes | None = None) -> None:
        runtime = cudart or torch_cudart()
        module = Module(runtime, image if image is not None else compile_cubin(_EMPTY_KERNEL, gpu_architecture()))
        kernel = module.kernel("nothing")
        self._launch = Launch(runtime, module, kernel, blocks=1, threads=32, shared_bytes=OVERSIZED_BYTES)

    def __call__(self) -> None:
        self._launch()


def parse_fail(text: str) -> tuple[str, int]:
    """Phase and layer of `--fail phase@layer`; raises UsageError for anything else."""
    found = _FAIL_AT.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not of the form phase@layer, such as attn_mla@5.")
    return found[1], int(found[2])


def _is_fault(code: int) -> bool:
    return judge("", code) == "fatal"
