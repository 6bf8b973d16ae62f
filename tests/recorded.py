"""Captures of the same program in separate processes on one H200, kept compressed in `tests/captures`."""

import lzma
import tempfile
from functools import cache
from pathlib import Path

from tracelab.compare.load import load_capture
from tracelab.compare.side import Capture
from tracelab.options import Facts, Selection

_PACKED = Path(__file__).parent / "captures"
_UNPACKED = tempfile.TemporaryDirectory(prefix="tracelab-captures-")  # lives as long as the test run

# What was run (`tracelab profile …`, nsys 2025.3.2, torch 2.11) and how many captures of it there are.
PROGRAMS = {
    "llama_eager": 4,  # llama8b
    "llama_graph": 3,  # llama8b --graph
    "llama64_eager": 2,  # llama8b --batch 64
    "kimi_eager": 2,  # kimi-linear-mini
    "kimi_graph": 2,  # kimi-linear-mini --graph
    "k3_96": 2,  # k3-rank --steps 8 --graph
    "grouped": 2,  # grouped-gemm --steps 8 --graph
    "split32k": 2,  # split-kv --steps 8 --graph
    "mla_perhead": 2,  # mla --variant per_head_split --steps 8 --graph
}
HOST_BOUND = ("llama_eager", "llama64_eager", "kimi_eager")  # the others are device-bound


@cache
def capture_file(program: str, number: int) -> Path:
    """The export of one capture (numbers from 1)."""
    name = f"{program}_{number}.sqlite"
    path = Path(_UNPACKED.name) / name
    path.write_bytes(lzma.decompress((_PACKED / f"{name}.xz").read_bytes()))
    return path


@cache
def captured(program: str, number: int) -> Capture:
    """One capture, loaded and analysed once."""
    return load_capture(capture_file(program, number), Selection(), Facts())
