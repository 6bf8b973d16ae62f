"""The shipped Triton configurations, compiled for sm_90 without a GPU: registers, spills, shared memory, blocks per SM.

Bound to Triton 3.6.0: other versions allocate other registers. In a process of its own, since the tests of the kernels
run in Triton's interpreter, which is chosen when a kernel is imported.
"""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from source_tree import ROOT

TRITON = "3.6.0"
MODULES = sorted(
    path.stem for path in (ROOT / "kernels").glob("*.py") if "def compile_specs" in path.read_text(encoding="utf-8")
)


def triton_or_skip() -> None:
    """Triton 3.6.0, or a skip; a failure instead where the environment promises it."""
    if importlib.util.find_spec("triton") is not None and importlib.util.find_spec("torch") is not None:
        found = importlib.metadata.version("triton")
        if found != TRITON:
            pytest.skip(f"the table is bound to Triton {TRITON}, here is {found}")
        return
    if os.environ.get("TRACELAB_REQUIRE_TORCH"):
        pytest.fail("TRACELAB_REQUIRE_TORCH is set but torch or Triton is not installed")
    pytest.skip("torch or Triton is not installed")


def compiled(*arguments: str) -> list[dict[str, Any]]:
    """What the compiler makes of the configurations of those modules."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tracelab.kernels._compile", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def shortfalls(line: dict[str, Any]) -> list[str]:
    """Where a configuration falls short of what is claimed for it."""
    wanted = line["wanted"]
    found = {
        "registers": line["registers"] > wanted["max_registers"],
        "spills": line["stack_bytes"] > wanted["stack_bytes"],
        "shared memory": line["shared_bytes"] > 232_448,
        "blocks per SM": line["blocks_per_sm"] < wanted["min_blocks_per_sm"],
        "wgmma": wanted["wgmma"] and line["wgmma"] == 0,
    }
    return [name for name, short in found.items() if short]


@pytest.mark.parametrize("module", MODULES)
def test_configurations_are_as_claimed(module: str) -> None:
    triton_or_skip()
    lines = compiled(module)
    assert lines
    assert {line["name"]: short for line in lines if (short := shortfalls(line))} == {}


def test_an_oversized_configuration_is_flagged() -> None:
    """Negative control: what cannot launch, spills, or lost its tensor cores does not pass the gate."""
    good = {
        "registers": 254, "stack_bytes": 0, "shared_bytes": 226_304, "blocks_per_sm": 1, "wgmma": 9,
        "wanted": {"max_registers": 255, "stack_bytes": 0, "min_blocks_per_sm": 1, "wgmma": True},
    }  # fmt: skip
    assert shortfalls(good) == []
    # reference section 3: MLA BH=64 BN=64 with three stages needs 295 KB and cannot launch
    assert shortfalls(good | {"shared_bytes": 302_080, "blocks_per_sm": 0}) == ["shared memory", "blocks per SM"]
    assert shortfalls(good | {"stack_bytes": 192}) == ["spills"]
    assert shortfalls(good | {"wgmma": 0, "registers": 256}) == ["registers", "wgmma"]


def test_blocks_per_sm_by_hand() -> None:
    triton_or_skip()
    from tracelab.kernels._compile import blocks_per_sm

    # 8 warps × 254 → 256 registers × 32 lanes = 65 536: one block; 80 registers × 32 × 8 warps = 20 480: three,
    # but 139 KB of shared memory allow one; 96 × 32 × 4 = 12 288: five; 232 449 B do not launch
    assert blocks_per_sm(254, 226_304, 256) == 1
    assert blocks_per_sm(80, 142_336, 256) == 1
    assert blocks_per_sm(96, 39_936, 128) == 5
    assert blocks_per_sm(96, 232_449, 128) == 0
