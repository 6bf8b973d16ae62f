"""The demo of the guard, without a GPU of its own: the step, the phases with and without a guard, window and report."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from tracelab.kernels._guard import Hooks, LaunchFailure
from tracelab.kernels._guard_kernel import DEFAULT_SHARED_BYTES, OUTPUT_TOLERANCE, shared_bytes


@dataclass(frozen=True)
class Blame:
    """A phase in which torch raised, and what it said."""

    phase: str
    layer: int | None
    step: int | None
    message: str

    def __str__(self) -> str:
        step = "" if self.step is None else f" of step {self.step}"
        return f"{self.phase if self.layer is None else f'L{self.layer}/{self.phase}'}{step}: {self.message}"


@dataclass(frozen=True)
class DemoOutcome:
    """What the demo saw.

    failed_launches  launch calls that returned an error, which the program itself ignores
    failures         what the guard reported; blamed is where torch raised, without a guard
    capture_error    what torch said where the capture of the graph failed; no step ran then
    stale            the failing layer's output is what the warm-up left; error is its relative L2 error against the
                     right one in float64
    """

    variant: str
    ctx: int
    failed_launches: int
    failures: tuple[LaunchFailure, ...]
    blamed: tuple[Blame, ...]
    drained: LaunchFailure | None
    capture_error: str | None
    stale: bool
    error: float


class Phases(Protocol):
    """Who stands at the borders of the phases: the guard, or nobody."""

    step: int | None

    def phase(self, name: str, layer: int | None = None) -> AbstractContextManager[object]: ...

    def replayed(self) -> None: ...


class Unguarded:
    """The same ranges without a poll. Whatever raises in one is noted and ends that phase only."""

    def __init__(self, hooks: Hooks) -> None:
        self.step: int | None = None
        self.blamed: list[Blame] = []
        self._hooks = hooks

    def phase(self, name: str, layer: int | None = None) -> "_Noting":
        """The range `name`, with a layer inside a range of its own."""
        return _Noting(self, self._hooks, name, layer)

    def replayed(self) -> None:
        """Nobody looks."""


@dataclass(frozen=True)
class _Noting:
    owner: Unguarded
    hooks: Hooks
    name: str
    layer: int | None

    def __enter__(self) -> None:
        for name in self._ranges():
            self.hooks.push(name)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        for _name in self._ranges():
            self.hooks.pop()
        if not isinstance(error, RuntimeError):
            return False
        message = str(error).splitlines()[0]
        self.owner.blamed.append(Blame(self.name, self.layer, self.owner.step, message))
        return True

    def _ranges(self) -> list[str]:
        return [self.name] if self.layer is None else [f"L{self.layer}", self.name]


class DecodeStep:
    """The step: per layer an unchecked launch in `attn_mla` and torch ops in `ffn`.

    `attend` starts a layer's attention and returns the launch's code, which is only counted here.
    """

    def __init__(self, attend: Sequence[Callable[[], int]], ffn: Callable[[int], object], phases: Phases) -> None:
        self._attend, self._ffn, self._phases = attend, ffn, phases
        self.failed_launches = 0

    def __call__(self) -> None:
        for layer, attend in enumerate(self._attend):
            with self._phases.phase("attn_mla", layer):
                self.failed_launches += attend() != 0
            with self._phases.phase("ffn", layer):
                self._ffn(layer)


def run_window(step: Callable[[], None], phases: Phases, steps: int, graph: bool) -> str | None:
    """Run the steps between cudaProfilerStart and Stop; returns what torch said if the capture failed."""
    import torch

    from tracelab.kernels._gpu_window import Range

    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    run, error = _captured(step) if graph else (step, None)
    for index in range(steps if run is not None else 0):
        phases.step = index
        with Range(f"decode_step {index}"):
            run()
            if graph:
                phases.replayed()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    return error


def _captured(step: Callable[[], None]) -> tuple[Any, str | None]:
    """The replay of the captured step and None, or None and what torch said."""
    import torch

    from tracelab.kernels._gpu_window import Range

    graph = torch.cuda.CUDAGraph()
    try:
        # The outer context brings the stream back: torch leaves its capture stream current when a capture fails.
        with torch.cuda.stream(torch.cuda.current_stream()), Range("capture"), torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        return None, str(error).splitlines()[0]
    return graph.replay, None


def report(outcome: DemoOutcome, layer: int) -> list[str]:
    """What happened, as lines."""
    bytes_asked = shared_bytes(outcome.ctx)
    lines = [f"{outcome.variant}, ctx {outcome.ctx}: L{layer}/attn_mla asks for {bytes_asked} bytes of shared memory; "
             f"a launch gets {DEFAULT_SHARED_BYTES}."]  # fmt: skip
    if outcome.drained is not None:
        lines.append(f"There before the first phase: {outcome.drained.name} ({outcome.drained.code}).")
    found: tuple[object, ...] = outcome.failures
    said = f"{_count_of(outcome.failed_launches, 'launch', 'launches')} failed"
    if outcome.variant == "unguarded":
        found = outcome.blamed
        said += f"; torch raised {_count_of(len(found), 'time', 'times')}, in phases whose own launches are right"
    else:
        said += f"; the guard reported {len(found)}"
    lines += [said + (":" if found else "."), *(f"  {item}" for item in found)]
    if outcome.capture_error is not None:
        lines.append(f"The capture failed, so nothing was replayed: {outcome.capture_error}")
    if outcome.stale:
        lines.append(f"Layer {layer}'s output still holds the data of the warm-up: the kernel never ran.")
    else:
        lines.append(f"Layer {layer}'s output is new; relative error {outcome.error:.1e} against float64.")
    return lines


def surprises(outcome: DemoOutcome, layer: int) -> list[str]:
    """What happened otherwise than this file describes."""
    fails = shared_bytes(outcome.ctx) > DEFAULT_SHARED_BYTES
    wrong = []
    if fails != (outcome.failed_launches > 0):
        wrong.append(f"{outcome.failed_launches} launches failed")
    if outcome.stale != fails:
        wrong.append("the output is old" if outcome.stale else "the output is new")
    if not fails and not outcome.error < OUTPUT_TOLERANCE:
        wrong.append(f"the output's error is {outcome.error:.1e}")
    found: Sequence[LaunchFailure | Blame] = outcome.failures or outcome.blamed
    seen = [(item.phase, item.layer) for item in found]
    if outcome.capture_error is not None:
        seen = seen[:1]  # what follows in a broken capture fails because of the first
    want = ("ffn" if outcome.variant == "unguarded" else "attn_mla", layer)
    if seen != [want] * (outcome.failed_launches if outcome.capture_error is None else 1):
        wrong.append(f"reported are {', '.join(map(str, found)) or 'none'}")
    return wrong


def _count_of(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
