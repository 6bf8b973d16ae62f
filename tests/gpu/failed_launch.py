"""A decode-like program in which one phase's launch silently fails once the context is long enough.

The kernel of phase `attn_bad` keeps its scores in dynamic shared memory, 4·(ctx + 576) bytes, without asking for more
than the default 48 KiB: at ctx 11712 it fits exactly, at 11713 the launch returns cudaErrorInvalidValue and nothing
runs. The return code is ignored and the error cleared, so the program goes on with the output of an earlier step.
By default 4 steps launch and 8 fail.
"""

import argparse
import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)

from tracelab.kernels._cudart import Dim3, LaunchConfig

HIDDEN, HEADS, HEAD_DIM, VOCAB = 1024, 16, 64, 4096
THREADS = 256
SCRATCH_FLOATS = 576  # beside the scores: one float a thread for reductions, and room to spare

SOURCE = b"""
extern "C" __global__ void attend(const float* query, const float* cache, float* out, int ctx) {
    extern __shared__ float scores[];               // ctx scores, then one slot per thread
    float* slots = scores + ctx;
    const int thread = threadIdx.x;
    const float* q = query + blockIdx.x * 64;       // one block per head, head_dim 64, one shared KV head
    float total = 0.0f;
    for (int t = thread; t < ctx; t += blockDim.x) {
        float dot = 0.0f;
        for (int d = 0; d < 64; ++d) dot += q[d] * cache[t * 64 + d];
        scores[t] = expf(dot * 0.125f);             // 1/sqrt(64); inputs are normalised, no maximum is needed
        total += scores[t];
    }
    slots[thread] = total;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (thread < half) slots[thread] += slots[thread + half];
        __syncthreads();
    }
    const float sum = slots[0];
    __syncthreads();
    const int column = thread % 64, part = thread / 64, parts = blockDim.x / 64;
    float mixed = 0.0f;
    for (int t = part; t < ctx; t += parts) mixed += scores[t] * cache[t * 64 + column];
    slots[thread] = mixed / sum;
    __syncthreads();
    if (thread < 64) {
        float value = 0.0f;
        for (int p = 0; p < parts; ++p) value += slots[p * 64 + thread];
        out[blockIdx.x * 64 + thread] = value;
    }
}
"""


@dataclass(frozen=True)
class Weights:
    """All in float32, rows are outputs."""

    norm: torch.Tensor  # [HIDDEN]
    query: torch.Tensor  # [HEADS HEAD_DIM, HIDDEN]
    up: torch.Tensor  # [4 HIDDEN, HIDDEN]
    down: torch.Tensor  # [HIDDEN, 4 HIDDEN]
    head: torch.Tensor  # [VOCAB, HIDDEN]


def main(argv: Sequence[str] | None = None) -> None:
    """Warm up with a context that fits, then run the profiled steps; says on stderr how many launches failed."""
    parser = argparse.ArgumentParser(description="a phase whose launch silently fails from ctx 11713 on")
    parser.add_argument("--ctx", type=int, default=11709, help="context of the first step; each step adds one")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    with torch.inference_mode():
        program = Program(capacity=options.ctx + options.steps)
        program.step(ctx=128)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        codes = [program.ranged_step(index, options.ctx + index) for index in range(options.steps)]
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    failed = [code for code in codes if code]
    print(f"{len(failed)} of {len(codes)} launches of attn_bad failed, codes {sorted(set(failed))}", file=sys.stderr)


class Program:
    """One small decode step with the phases `norm`, `attn_bad`, `mlp`, `head`."""

    def __init__(self, capacity: int) -> None:
        self.weights = Weights(
            norm=torch.ones(HIDDEN, device="cuda"),
            query=random_weight(HEADS * HEAD_DIM, HIDDEN),
            up=random_weight(4 * HIDDEN, HIDDEN),
            down=random_weight(HIDDEN, 4 * HIDDEN),
            head=random_weight(VOCAB, HIDDEN),
        )
        self.cache = F.normalize(torch.randn(capacity, HEAD_DIM, device="cuda"), dim=-1)
        self.mixed = torch.zeros(1, HIDDEN, device="cuda")  # keeps its old values when the launch fails
        self.x = torch.randn(1, HIDDEN, device="cuda")
        self.attend = UncheckedKernel(SOURCE, b"attend")

    def ranged_step(self, index: int, ctx: int) -> int:
        """`step` inside its NVTX range."""
        torch.cuda.nvtx.range_push(f"step {index}")
        code = self.step(ctx)
        torch.cuda.nvtx.range_pop()
        return code

    def step(self, ctx: int) -> int:
        """One step; returns the error code that the launch left behind, 0 if it ran."""
        w = self.weights
        normed = in_range("norm", lambda: F.rms_norm(self.x, (HIDDEN,), w.norm))
        code = in_range("attn_bad", lambda: self.attention(normed, ctx))
        hidden = in_range("mlp", lambda: self.mixed + F.linear(F.silu(F.linear(self.mixed, w.up)), w.down))
        in_range("head", lambda: F.linear(hidden, w.head).argmax(-1))
        return int(code)

    def attention(self, normed: torch.Tensor, ctx: int) -> int:
        """Launch without a look at the return code; the poll afterwards clears the error, else torch would raise it."""
        query = F.linear(normed, self.weights.query)
        self.attend.launch(HEADS, 4 * (ctx + SCRATCH_FLOATS), query, self.cache, self.mixed, ctx)
        return self.attend.poll()


def in_range(name: str, run: Any) -> Any:
    """`run()` inside an NVTX range."""
    torch.cuda.nvtx.range_push(name)
    result = run()
    torch.cuda.nvtx.range_pop()
    return result


def random_weight(rows: int, columns: int) -> torch.Tensor:
    """[rows, columns] on the GPU, scaled to keep the size of activations."""
    return torch.randn(rows, columns, device="cuda") * columns**-0.5


class UncheckedKernel:
    """A kernel launched through the CUDA runtime that torch itself uses: every other way from Python raises errors."""

    def __init__(self, source: bytes, name: bytes) -> None:
        torch.cuda.init()
        self._runtime = ctypes.CDLL(mapped_library("libcudart.so"))
        self._image = compile_cubin(source)  # the runtime reads it lazily: it must live as long as the kernel
        library, self._kernel = ctypes.c_void_p(), ctypes.c_void_p()
        load = self._runtime.cudaLibraryLoadData
        require(load(ctypes.byref(library), self._image, None, None, 0, None, None, 0), "cudaLibraryLoadData")
        require(self._runtime.cudaLibraryGetKernel(ctypes.byref(self._kernel), library, name), "cudaLibraryGetKernel")

    def launch(self, blocks: int, shared_bytes: int, *arguments: torch.Tensor | int) -> None:
        """Launch on torch's current stream, return code ignored."""
        stream = torch.cuda.current_stream().cuda_stream
        config = LaunchConfig(Dim3(blocks, 1, 1), Dim3(THREADS, 1, 1), shared_bytes, stream, None, 0)
        values = [ctypes.c_int(a) if isinstance(a, int) else ctypes.c_void_p(a.data_ptr()) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self._runtime.cudaLaunchKernelExC(ctypes.byref(config), self._kernel, pointers)

    def poll(self) -> int:
        """The last error of this thread, which the call clears."""
        return int(self._runtime.cudaGetLastError())


def mapped_library(name: str) -> str:
    """Path of a shared library that this process has mapped."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines if f"/{name}" in line}
    if not paths:
        raise RuntimeError(f"{name} is not mapped into this process")
    return min(paths)


def compile_cubin(source: bytes) -> bytes:
    """Compile with NVRTC for the current GPU."""
    nvrtc = ctypes.CDLL(nvrtc_path())
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    require(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"attend.cu", 0, None, None), "nvrtcCreateProgram")
    major, minor = torch.cuda.get_device_capability()
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{major}{minor}".encode())
    require(nvrtc.nvrtcCompileProgram(program, 1, options), "nvrtcCompileProgram")
    require(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
    image = ctypes.create_string_buffer(size.value)
    require(nvrtc.nvrtcGetCUBIN(program, image), "nvrtcGetCUBIN")
    return image.raw


def nvrtc_path() -> str:
    """NVRTC as torch mapped it, as its wheel brings it, or as the loader finds it."""
    try:
        return mapped_library("libnvrtc.so")
    except RuntimeError:
        packages = Path(torch.__file__).parent.parent
        found = sorted(packages.glob("nvidia/*/lib/libnvrtc.so*"))
        return str(found[-1]) if found else "libnvrtc.so"


def require(code: int, call: str) -> None:
    """Raise unless `code` is 0."""
    if code:
        raise RuntimeError(f"{call} returned {code}")


if __name__ == "__main__":
    main()
