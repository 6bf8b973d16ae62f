"""Emits the workload record: one NVTX mark that tells a trace which model it holds and what a step must move."""

import json
from collections.abc import Mapping

DOMAIN = "tracelab"


def encode(record: Mapping[str, object]) -> str:
    """The record as the compact JSON that the mark carries."""
    return json.dumps(record, separators=(",", ":"))


def emit(record: Mapping[str, object]) -> None:
    """Put `record` into the trace. Call once per process, inside the captured range: earlier marks are not kept.

    NVTX domains need the `nvtx` package, since torch reaches only the default domain; without it the mark goes there,
    and readers know it by its `tracelab.workload` key.
    """
    try:
        import nvtx
    except ImportError:
        _mark_in_default_domain(encode(record))
    else:
        nvtx.mark(message=encode(record), domain=DOMAIN)


def _mark_in_default_domain(message: str) -> None:
    import torch

    torch.cuda.nvtx.mark(message)
