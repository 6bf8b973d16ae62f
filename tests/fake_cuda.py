"""A CUDA runtime of Python: what a guard sees of it, with the behaviour that was measured on an H200."""

import threading

from tracelab.kernels._guard import Hooks

INVALID, FAULT = 1, 700  # cudaErrorInvalidValue, cudaErrorIllegalAddress


class FakeCuda:
    """The error slot of each thread, and a context that a fault kills; `log` has NVTX ranges, polls and waits."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self.log: list[str] = []
        self.faulted = False
        self.is_capturing = False

    def launch(self, code: int = 0) -> int:
        """A launch that returns at once; an error also goes into the slot, success leaves the slot alone."""
        if code:
            self.slots[threading.get_ident()] = code
        return code

    def launch_faulty(self) -> int:
        """A kernel that is accepted and faults on the GPU: nothing shows before the next synchronise."""
        self.faulted = True
        return 0

    def last_error(self) -> int:
        self.log.append("poll")
        return self.slots.pop(threading.get_ident(), 0)

    def synchronize(self) -> int:
        self.log.append("synchronize")
        return self.launch(FAULT) if self.faulted else 0

    def torch_op(self) -> None:
        """Launches something right, then checks the slot as torch does."""
        if self.slots.pop(threading.get_ident(), 0):
            raise RuntimeError("CUDA error: invalid argument\nsecond line")

    def hooks(self) -> Hooks:
        push = lambda name: self.log.append(f"+{name}")  # noqa: E731
        return Hooks(self.last_error, self.synchronize, lambda: self.is_capturing, push, lambda: self.log.append("-"))
