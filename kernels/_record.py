"""Emits the workload record: one NVTX mark that tells a trace which model it holds and what a step must move."""

import json
from collections.abc import Mapping
from typing import Any

DOMAIN = "tracelab"


def encode(record: Mapping[str, object]) -> str:
    """The record as the compact JSON that the mark carries."""
    return json.dumps(record, separators=(",", ":"))


def emit(record: Mapping[str, object]) -> None:
    """Put `record` into the trace. Call once per process, inside the captured range: earlier marks are not kept.

    NVTX domains need the `nvtx` package, since torch reaches only the default domain. Without it, or where the profiler
    says the domain is off (nvtx 0.2.12 and newer ask, and nsys 2022.4 knows no answer), the mark goes to the default
    domain; readers know it by its `tracelab.workload` key.
    """
    text = encode(record)
    if not _mark_in_domain(text):
        _mark_in_default_domain(text)


def _mark_in_domain(text: str) -> bool:
    """Emit in our domain; False if that cannot be done."""
    try:
        import nvtx
    except ImportError:
        return False
    if _domain_is_off(nvtx):
        return False
    nvtx.mark(message=text, domain=DOMAIN)
    return True


def _domain_is_off(nvtx: Any) -> bool:
    """Whether nvtx hands out a dummy, whose methods return None; versions without `get_domain` have no dummy."""
    get_domain = getattr(nvtx, "get_domain", None)
    return get_domain is not None and get_domain(DOMAIN).get_event_attributes(message=DOMAIN) is None


def _mark_in_default_domain(text: str) -> None:
    import torch

    torch.cuda.nvtx.mark(text)
