"""One decode step of the Llama-8B shape in plain torch, eager or as a CUDA graph.

Run as `python -m tracelab.kernels.llama8b`. Warm-up comes first; then, between cudaProfilerStart and Stop, the workload
record, with `--graph` the capture of the graph (NVTX range `capture`), and the steps (`decode_step N`, phases `norm`,
`attn`, `ffn`, `head`). Steps are issued back to back with no host synchronisation: the argmax stays on the GPU, as in
engines that run ahead of it.

Exit codes: 2 for options that make no sense or do not fit the GPU's memory, 5 without torch or a GPU.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from typing import NoReturn

from tracelab.errors import CaptureUnavailableError, TracelabError, UsageError
from tracelab.kernels._llama_shape import LlamaConfig, memory_bytes, record

DEFAULTS = {"batch": 1, "ctx": 1024, "layers": 32, "steps": 12, "graph": False, "events": False}

_HELP = {
    "batch": "sequences decoded together",
    "ctx": "tokens each sequence attends to",
    "layers": "transformer layers",
    "steps": "decode steps in the profiled window",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the workload; returns the exit code, after one sentence on stderr if it is not 0."""
    try:
        options = _parse(argv)
        config = LlamaConfig(batch=options.batch, ctx=options.ctx, layers=options.layers)
        _require_gpu(config)
        _decode(config, options)
    except TracelabError as error:
        print(f"llama8b: {error}", file=sys.stderr)
        return error.exit_code
    return 0


class _Parser(argparse.ArgumentParser):
    """argparse, but a wrong option is one sentence instead of the usage text."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see --help.")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    parser = _Parser(prog="llama8b", description=__doc__.splitlines()[0], allow_abbrev=False)
    for name, text in _HELP.items():
        parser.add_argument(f"--{name}", type=_count, default=DEFAULTS[name], help=f"{text} (default %(default)s)")
    parser.add_argument("--graph", action="store_true", help="capture the step in a CUDA graph and replay it")
    parser.add_argument("--events", action="store_true", help="afterwards print the step time by CUDA events, as JSON")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return value


def _require_gpu(config: LlamaConfig) -> None:
    """Raise unless torch, a GPU and its free memory allow this configuration."""
    if importlib.util.find_spec("torch") is None:
        raise CaptureUnavailableError("torch is not installed in this Python; install the extra [gpu].")
    import torch

    if not torch.cuda.is_available():
        raise CaptureUnavailableError("torch finds no CUDA GPU; this workload needs one.")
    free_bytes, _ = torch.cuda.mem_get_info()
    if memory_bytes(config) > free_bytes:
        raise UsageError(
            f"weights and KV cache need {memory_bytes(config) / 1e9:.1f} GB but the GPU has {free_bytes / 1e9:.1f} GB "
            "free; lower --batch, --ctx or --layers."
        )


def _decode(config: LlamaConfig, options: argparse.Namespace) -> None:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from tracelab.kernels._gpu_window import Range, event_times, profiled_window
    from tracelab.kernels._llama_model import LlamaStep

    torch.manual_seed(0)
    variant = {"graph": options.graph, "layers": options.layers}
    # Flash first: it splits the cache over the SMs, where a block per KV head would fill 8 of them. Never the math
    # backend: it writes the scores to memory.
    backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    with torch.inference_mode(), sdpa_kernel(backends, set_priority=True):
        model = LlamaStep(config, torch.device("cuda"), torch.bfloat16, Range)
        workload = record(config, variant)
        step = profiled_window(model.step, steps=options.steps, graph=options.graph, record=workload)
        if options.events:
            variant |= {"batch": options.batch, "ctx": options.ctx}
            print(json.dumps({"tracelab.events": 1, "name": "llama8b", "variant": variant, **event_times(step)}))


if __name__ == "__main__":
    sys.exit(main())
