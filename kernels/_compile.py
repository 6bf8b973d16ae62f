"""Compiles Triton and Gluon kernels for sm_90 without a GPU: registers, spills, shared memory, MMA instructions.

`python -m tracelab.kernels._compile NAME …` compiles what `compile_specs()` of those lists, one JSON object a line.
"""

import dataclasses
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

from tracelab.occupancy import SmLimits, occupancy

SM_90 = GPUTarget("cuda", 90, 32)
BLOCK_SHARED_BYTES = 232448  # what one block may have on sm_90 (CUDA C++ programming guide, compute capabilities)


@dataclass(frozen=True)
class CompileSpec:
    """One shipped configuration, and what the compiler must make of it (Triton 3.6.0).

    `signature` names every parameter in order, constexprs as "constexpr"; `divisible` are the parameters known to be
    multiples of 16, as torch's allocations are.
    """

    name: str
    fn: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, object]
    num_warps: int
    num_stages: int
    divisible: tuple[str, ...]
    max_registers: int
    min_blocks_per_sm: int
    wgmma: bool
    stack_bytes: int = 0
    maxnreg: int | None = None


@dataclass(frozen=True)
class Compiled:
    """What one block of a compiled kernel takes, and which tensor-core instructions it has."""

    registers: int
    stack_bytes: int
    shared_bytes: int
    blocks_per_sm: int
    wgmma: int
    mma: int


def compile_spec(spec: CompileSpec) -> Compiled:
    """Compile for sm_90. Raises what Triton raises for code that it cannot compile."""
    place = {name: (index,) for index, name in enumerate(spec.signature)}
    attrs = {place[name]: [["tt.divisibility", 16]] for name in spec.divisible}
    kind = GluonASTSource if spec.fn.is_gluon() else ASTSource
    source = kind(spec.fn, dict(spec.signature), constexprs=dict(spec.constexprs), attrs=attrs)
    options: dict[str, int] = {"num_warps": spec.num_warps, "num_stages": spec.num_stages}
    if spec.maxnreg is not None:
        options["maxnreg"] = spec.maxnreg
    kernel = triton.compile(source, target=SM_90, options=options)
    registers, stack = _usage(kernel.asm["cubin"])
    ptx = kernel.asm["ptx"]
    shared = kernel.metadata.shared
    # Warp-specialised kernels start more warps than asked for; the PTX says how many.
    threads = int(re.findall(r"\.reqntid (\d+)", ptx)[0])
    return Compiled(
        registers=registers,
        stack_bytes=stack,
        shared_bytes=shared,
        blocks_per_sm=blocks_per_sm(registers, shared, threads),
        wgmma=ptx.count("wgmma.mma_async"),
        mma=ptx.count("mma.sync"),
    )


def blocks_per_sm(registers: int, shared_bytes: int, threads: int) -> int:
    """Blocks that fit on one multiprocessor of an H200, by the rule that traces are analysed with; 0 if none fits."""
    limits = SmLimits.with_defaults(9, 0, sm_count=132)
    assert limits is not None
    if shared_bytes > BLOCK_SHARED_BYTES:
        return 0
    return int(occupancy(limits, threads, registers, shared_bytes, 1).blocks_per_sm)


def _usage(cubin: bytes) -> tuple[int, int]:
    """Registers per thread and stack bytes of the kernel in `cubin`."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        raise ValueError(f"cuobjdump names no registers: {text[:200]!r}")
    return int(found[1]), int(found[2])


def compiled_lines(names: Sequence[str]) -> Iterator[dict[str, object]]:
    """For each configuration that the kernel modules `names` list: what it is to be, and what it is.

    `mla` stands for what its `compile_specs()` lists, the shipped ones, `mla:other` for what its `other()` does.
    """
    for word in names:
        name, _, function = word.partition(":")
        for spec in getattr(importlib.import_module(f"tracelab.kernels.{name}"), function or "compile_specs")():
            wanted = {key: getattr(spec, key) for key in ("max_registers", "min_blocks_per_sm", "wgmma", "stack_bytes")}
            yield {"kernel": name, "name": spec.name, "wanted": wanted, **dataclasses.asdict(compile_spec(spec))}


if __name__ == "__main__":
    for line in compiled_lines(sys.argv[1:]):
        print(json.dumps(line), flush=True)
