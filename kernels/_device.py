"""What the kernels ask of the GPU: how many multiprocessors it has, and the facts that a datasheet is found by."""

import functools

import torch

from tracelab.kernels._split_plan import SMS


@functools.cache
def sm_count(device: torch.device) -> int:
    """SMs of the device; those of the H200 where there is no GPU."""
    return SMS if device.type == "cpu" else int(torch.cuda.get_device_properties(device).multi_processor_count)


def gpu_facts() -> dict[str, object]:
    """Name, SMs and memory in bytes of torch's first GPU."""
    facts = torch.cuda.get_device_properties(0)
    return {"name": facts.name, "sm_count": facts.multi_processor_count, "memory_bytes": facts.total_memory}
