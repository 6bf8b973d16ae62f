"""Two tensor-parallel ranks, a process and a GPU each, that decode with NCCL all-reduces between their phases.

Each step is a range `step i` with `attn`, `allreduce`, `mlp`, `allreduce` inside; the ranks are spawned by this program
itself. With `--fail RANK:STEP` one launch in `mlp` of that rank and step asks for more threads than a block may have:
it returns an error and nothing runs, the code is ignored and the error cleared, so every rank goes on into the next
all-reduce. Profiled with `tracelab profile -- python3 tests/gpu/two_ranks.py`; `--cpu` runs it without any GPU (gloo),
where a launch only pretends to fail.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn.functional as F  # noqa: N812 (torch's own convention)

from tracelab.kernels._cudart import Launch, Module, compile_cubin, gpu_architecture, torch_cudart

RANKS = 2
HIDDEN, INNER = 4096, 7168  # of one rank; small sizes on the CPU
HIDDEN_CPU, INNER_CPU = 64, 128
THREADS, TOO_MANY_THREADS = 256, 2048  # a block has 1024 at most (CUDA C++ programming guide, technical specifications)
INVALID_CONFIGURATION = 9  # cudaErrorInvalidConfiguration (driver_types.h)
SCALE = 0.5

SOURCE = """
extern "C" __global__ void scale(float* values, int count, float factor) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) values[i] *= factor;
}
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Start both ranks and wait for them."""
    options = parse(argv)
    if not options.cpu and torch.cuda.device_count() < RANKS:
        sys.exit(f"two_ranks.py needs {RANKS} GPUs and sees {torch.cuda.device_count()}; --cpu runs without any.")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast is not usable on every host
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        torch.multiprocessing.spawn(work, args=(options, store), nprocs=RANKS)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options: `steps`, `cpu`, and `fail` as (rank, step) or None."""
    parser = argparse.ArgumentParser(description="two tensor-parallel ranks with NCCL all-reduces")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--fail", type=rank_and_step, metavar="RANK:STEP", help="a launch in mlp that fails")
    parser.add_argument("--cpu", action="store_true", help="gloo, without GPUs and ranges")
    options = parser.parse_args(argv)
    if options.steps < 1:
        parser.error("--steps must be 1 or more")
    if options.fail and options.fail[1] >= options.steps:
        parser.error(f"--fail names step {options.fail[1]}, but the steps are 0 to {options.steps - 1}")
    return options


def rank_and_step(text: str) -> tuple[int, int]:
    """`1:4` as (1, 4)."""
    rank, _, step = text.partition(":")
    if not (rank.isdecimal() and step.isdecimal() and int(rank) < RANKS):
        raise argparse.ArgumentTypeError(f"{text!r} is not RANK:STEP with a rank below {RANKS}, as in 1:4")
    return int(rank), int(step)


def work(rank: int, options: argparse.Namespace, store: str) -> None:
    """One rank: warm up, then the profiled steps; says on stderr how many launches failed, and its result."""
    device = torch.device("cpu") if options.cpu else torch.device("cuda", rank)
    join(rank, device, store)
    with torch.inference_mode():
        program = Rank(rank, device)
        program.step(fails=False)
        meet(device)
        if device.type == "cuda":
            torch.cuda.profiler.start()
        codes = [program.ranged_step(i, fails=options.fail == (rank, i)) for i in range(options.steps)]
        meet(device)  # no rank may stop the collection while the other still works
        if device.type == "cuda":
            torch.cuda.profiler.stop()
        total = float(program.x.double().sum())
    failed = [code for code in codes if code]
    said = f"rank {rank}: {len(failed)} of {len(codes)} launches failed, codes {sorted(set(failed))}, sum {total:.6f}\n"
    sys.stderr.write(said)  # in one piece: both ranks write at the same time
    sys.stderr.flush()
    dist.destroy_process_group()


def join(rank: int, device: torch.device, store: str) -> None:
    """Join the process group through a file, so that no port is needed."""
    where = {"init_method": f"file://{store}", "rank": rank, "world_size": RANKS}
    if device.type == "cpu":
        dist.init_process_group("gloo", **where)
        return
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, **where)


def meet(device: torch.device) -> None:
    """Wait until both ranks and their GPUs are here."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()


class Rank:
    """One rank's shard of a small decode step; `x` [1, hidden] is alike on both ranks after each step."""

    def __init__(self, rank: int, device: torch.device) -> None:
        hidden, inner = (HIDDEN, INNER) if device.type == "cuda" else (HIDDEN_CPU, INNER_CPU)
        self.device = device
        torch.manual_seed(0)
        self.x = torch.randn(1, hidden).to(device)
        torch.manual_seed(1 + rank)
        self.mix, self.out = weight(hidden, hidden, device), weight(hidden, hidden, device)
        self.up, self.down = weight(inner, hidden, device), weight(hidden, inner, device)
        self.gated = torch.zeros(1, inner, device=device)  # `scale` changes it in place
        self.scale = scaler(self.gated)

    def ranged_step(self, index: int, *, fails: bool) -> int:
        """`step` inside its range."""
        with self.range(f"step {index}"):
            return self.step(fails=fails)

    def step(self, *, fails: bool) -> int:
        """One step; returns the code of the launch in `mlp`, 0 if it ran."""
        with self.range("attn"):
            partial = F.linear(F.linear(F.rms_norm(self.x, self.x.shape[1:]), self.mix), self.out)
        self.all_reduce(partial)
        with self.range("mlp"):
            normed = F.rms_norm(self.x + partial, self.x.shape[1:])
            self.gated.copy_(F.silu(F.linear(normed, self.up)))
            code = self.scale(TOO_MANY_THREADS if fails else THREADS)
            reduced = F.linear(self.gated, self.down)
        self.all_reduce(reduced)
        self.x = F.rms_norm(self.x + partial + reduced, self.x.shape[1:])
        return code

    def all_reduce(self, partial: torch.Tensor) -> None:
        """Add up the ranks' shares, in place."""
        with self.range("allreduce"):
            dist.all_reduce(partial)

    def range(self, name: str) -> contextlib.AbstractContextManager[None]:
        """An NVTX range; nothing on the CPU, where torch may come without NVTX."""
        found: contextlib.AbstractContextManager[None] = (
            torch.cuda.nvtx.range(name) if self.device.type == "cuda" else contextlib.nullcontext()
        )
        return found


def weight(rows: int, columns: int, device: torch.device) -> torch.Tensor:
    """[rows, columns] float32, scaled to keep the size of activations."""
    return torch.randn(rows, columns, device=device) * columns**-0.5


def scaler(values: torch.Tensor) -> Callable[[int], int]:
    """A function that halves `values` in place by a launch with so many threads, and returns the launch's code."""
    if values.device.type == "cpu":
        return lambda threads: scale_on_the_cpu(values, threads)
    cudart = torch_cudart()
    module = Module(cudart, compile_cubin(SOURCE, gpu_architecture()))
    kernel, count = module.kernel("scale"), values.numel()
    blocks = -(-count // THREADS)
    launches = {
        threads: Launch(cudart, module, kernel, values, count, SCALE, blocks=blocks, threads=threads)
        for threads in (THREADS, TOO_MANY_THREADS)
    }

    def launch(threads: int) -> int:
        code = launches[threads]()
        cudart.last_error()  # clears the error, else torch would raise it at its next call
        return code

    return launch


def scale_on_the_cpu(values: torch.Tensor, threads: int) -> int:
    """As the kernel: a block of too many threads changes nothing and says so."""
    if threads > TOO_MANY_THREADS // 2:
        return INVALID_CONFIGURATION
    values.mul_(SCALE)
    return 0


if __name__ == "__main__":
    main()
