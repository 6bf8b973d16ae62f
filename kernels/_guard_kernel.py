"""The device side of the guard's demo: MLA decode by one block a head, whose shared memory grows with the context."""

from typing import TYPE_CHECKING

from tracelab.errors import UsageError
from tracelab.kernels._cudart import Cudart, Launch, Module, compile_cubin, gpu_architecture, torch_cudart

if TYPE_CHECKING:
    import torch

HEADS = 8
LATENT, ROPE = 512, 64  # MLA's cache row (DeepSeek-V2, section 2.1): the latent, also the value; the key's RoPE part
ROW = LATENT + ROPE
SCALE = 192**-0.5  # of the scores: query heads are 128 + 64 wide before absorption (DeepSeek-V2)
HIDDEN = 1024
THREADS = LATENT  # one per output column
# Dynamic shared memory that a launch gets without opting in, on every GPU (CUDA C++ programming guide, shared memory).
DEFAULT_SHARED_BYTES = 48 * 1024
# Relative L2 error of the output. One thread adds 11712 float32 products one after another: 2e-6 seen in a CPU model.
OUTPUT_TOLERANCE = 2e-5

SOURCE = """
__device__ float over_block(float value, float* slots, bool largest) {
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, offset);
        value = largest ? fmaxf(value, other) : value + other;
    }
    __syncthreads();  // whoever still reads the slots comes first
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = value;
    __syncthreads();
    float all = slots[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) all = largest ? fmaxf(all, slots[warp]) : all + slots[warp];
    return all;
}

extern "C" __global__ void mla_decode(const float* query, const float* cache, float* out, int ctx, float scale) {
    extern __shared__ float scores[];  // one per token, then the head's query of 576
    float* row = scores + ctx;
    const int thread = threadIdx.x, lane = thread % 32, warps = blockDim.x / 32;
    for (int d = thread; d < 576; d += blockDim.x) row[d] = query[blockIdx.x * 576 + d] * scale;
    __syncthreads();
    for (int token = thread / 32; token < ctx; token += warps) {
        float dot = 0.0f;
        for (int d = lane; d < 576; d += 32) dot += row[d] * cache[(size_t)token * 576 + d];
        for (int offset = 16; offset > 0; offset /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, offset);
        if (lane == 0) scores[token] = dot;
    }
    __syncthreads();  // the query is used up: its place serves the reductions
    float top = -3.4e38f, total = 0.0f, mixed = 0.0f;
    for (int token = thread; token < ctx; token += blockDim.x) top = fmaxf(top, scores[token]);
    top = over_block(top, row, true);
    for (int token = thread; token < ctx; token += blockDim.x) total += scores[token] = expf(scores[token] - top);
    total = over_block(total, row, false);
    #pragma unroll 8
    for (int token = 0; token < ctx; ++token) mixed += scores[token] * cache[(size_t)token * 576 + thread];
    out[blockIdx.x * 512 + thread] = mixed / total;
}

extern "C" __global__ void nothing() {}

extern "C" __global__ void nothing_opted_in() {}
"""


def shared_bytes(ctx: int) -> int:
    """Dynamic shared memory of a launch: a score per token and the query, in float32. 48 KiB exactly at ctx 11712."""
    return 4 * (ctx + ROW)


class MlaDecode:
    """Random queries, a cache and outputs for `layers` layers in float32, and the launches over them.

    query [layers, HEADS, ROW], cache [capacity, ROW] (all layers read the same), mixed [layers, HEADS, LATENT]. Raises
    CaptureUnavailableError where the kernel cannot be compiled or loaded, UsageError where the cache does not fit.
    """

    def __init__(self, layers: int, capacity: int, cudart: Cudart | None = None) -> None:
        import torch

        from tracelab.kernels._kernel import random

        free_bytes, _ = torch.cuda.mem_get_info()
        if 4 * ROW * capacity > free_bytes:
            raise UsageError(f"the cache of {capacity} tokens does not fit into the GPU's memory; lower --ctx.")
        device, dtype = torch.device("cuda"), torch.float32
        self.cudart = cudart or torch_cudart()
        self.query = random(1, layers, HEADS, ROW, device=device, dtype=dtype)
        self.cache = random(2, capacity, ROW, device=device, dtype=dtype)
        self.mixed = torch.zeros(layers, HEADS, LATENT, device=device, dtype=dtype)
        self.weight = random(3, HIDDEN, HEADS * LATENT, device=device, dtype=dtype, std=(HEADS * LATENT) ** -0.5)
        self.module = Module(self.cudart, compile_cubin(SOURCE, gpu_architecture()))
        self._kernel = self.module.kernel("mla_decode")

    def launch(self, layer: int, ctx: int) -> Launch:
        """Attention of one layer over the first `ctx` tokens, into `mixed[layer]`; fails from ctx 11713 on."""
        tensors = (self.query[layer], self.cache, self.mixed[layer])
        return Launch(
            self.cudart, self.module, self._kernel, *tensors, ctx, SCALE,
            blocks=HEADS, threads=THREADS, shared_bytes=shared_bytes(ctx),
        )  # fmt: skip

    def empty_launch(self, *, blocks: int = 1, threads: int = 32, shared: int = 0) -> Launch:
        """A kernel that does nothing, with a configuration that may be impossible."""
        kernel = self.module.kernel("nothing")
        return Launch(self.cudart, self.module, kernel, blocks=blocks, threads=threads, shared_bytes=shared)

    def ffn(self, layer: int) -> "torch.Tensor":
        """Torch ops on the layer's output, [1, HIDDEN]; the first one checks the error slot after its own launch."""
        import torch.nn.functional as F  # noqa: N812 (torch's own convention)

        return F.linear(F.silu(self.mixed[layer].view(1, -1)), self.weight)

    def reference(self, layer: int, ctx: int) -> "torch.Tensor":
        """The layer's output in float64, [HEADS, LATENT]."""
        cache = self.cache[:ctx].double()
        weights = (self.query[layer].double() @ cache.T * SCALE).softmax(-1)
        return weights @ cache[:, :LATENT]
