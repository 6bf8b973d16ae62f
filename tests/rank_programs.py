"""Tensor-parallel ranks, one process and one GPU each, whose every number can be worked out by hand. Times in ns."""

from typing import Any

from tiny_schema import H200
from tiny_trace import Thread, TinyTrace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP_NS = 2000
RANKS = (Thread(100, 100), Thread(200, 200))


def one_rank(steps: int = 3, *, all_reduce: tuple[int, int] = (400, 1000), trace: TinyTrace | None = None,
             rank: int = 0, gemm_ends: int = 500, name: str = "step {}", first: int = 0) -> TinyTrace:  # fmt: skip
    """Steps of 2000 ns; T is the start of a step.

    mlp: `gemm` runs T+100 … T+500; comm: the all-reduce T+400 … T+1000 on another stream; head: `lm_head` T+1000 …
    T+1200. So 600 of communication, of which 100 under the gemm and 500 exposed: 25 % of the step.
    """
    trace, on = trace or TinyTrace(), RANKS[rank]
    where: dict[str, Any] = {"on": on, "device": rank}
    for i in range(first, first + steps):
        t = i * STEP_NS
        trace.range(name.format(i), t, t + 400, on=on)
        trace.range("mlp", t + 10, t + 100, on=on).launch(t + 20, "gemm", t + 100, t + gemm_ends, **where)
        trace.range("comm", t + 110, t + 200, on=on)
        trace.launch(t + 120, ALL_REDUCE, t + all_reduce[0], t + all_reduce[1], stream=20, **where)
        trace.range("head", t + 210, t + 300, on=on).launch(t + 220, "lm_head", t + 1000, t + 1200, **where)
    return trace


def two_gpus() -> TinyTrace:
    trace = TinyTrace().gpu(**{**H200, "id": 1, "cuDevice": 1})
    return trace.cuda_device(0, 0, pid=100).cuda_device(1, 1, pid=200)


def two_ranks(steps: int = 3, /, *, name: str = "step {}", **of_the_second: str | int) -> TinyTrace:
    """Rank 0 as `one_rank`; rank 1's gemm ends at T+700 and its all-reduce runs T+800 … T+1000: 200, all exposed."""
    trace = one_rank(steps, trace=two_gpus(), name=name.format("{}", rank=0))
    late: dict[str, Any] = {"steps": steps, "all_reduce": (800, 1000), "gemm_ends": 700, **of_the_second}
    return one_rank(trace=trace, rank=1, name=name.format("{}", rank=1), **late)
