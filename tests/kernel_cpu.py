"""Imports a bundled kernel for Triton's interpreter, on a CPU; a skip where torch or Triton is missing."""

import importlib
import importlib.util
import os
import sys
from typing import Any

import pytest


def torch_or_skip() -> Any:
    """Torch, or a skip without it; a failure instead where the environment promises it."""
    return _package_or_skip("torch")


def kernel_on_cpu(stem: str) -> tuple[Any, Any]:
    """Torch and the module `tracelab.kernels.STEM`, whose Triton kernels run in the interpreter.

    Triton reads TRITON_INTERPRET while a kernel is decorated, so it is set before the first import.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    torch = _package_or_skip("torch")
    _package_or_skip("triton")
    module = importlib.import_module(f"tracelab.kernels.{stem}")
    assert sys.modules["tracelab.kernels._kernel"].INTERPRETED, (
        "Triton was imported before the interpreter was asked for"
    )
    return torch, module


class Deferred:
    """A module that is imported when something of it is first asked for, so that collecting tests needs no torch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for marks of its own while it collects
            raise AttributeError(name)
        if self._name == "torch":
            return getattr(kernel_on_cpu("_kernel")[0], name)
        return getattr(kernel_on_cpu(self._name)[1], name)


def _package_or_skip(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        if os.environ.get("TRACELAB_REQUIRE_TORCH"):
            pytest.fail(f"TRACELAB_REQUIRE_TORCH is set but {name} is not installed")
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(name)
