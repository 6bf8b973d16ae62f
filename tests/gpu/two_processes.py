"""Two spawned processes share one GPU, each with NVTX steps whose halves run on two streams: for identities, overlaps
and idle time over all processes. Usage: two_processes.py [--steps N]"""

import argparse
import multiprocessing

import torch

SIZE = 2048


def main() -> None:
    """Start both workers and wait for them."""
    parser = argparse.ArgumentParser(description="two processes on one GPU")
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(rank, steps)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def work(rank: int, steps: int) -> None:
    """Decode-like steps: two products on a stream each, then a reduction that waits for both."""
    left, right = torch.cuda.Stream(), torch.cuda.Stream()
    a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    for i in range(steps):
        torch.cuda.nvtx.range_push(f"rank{rank}_step {i}")
        torch.cuda.nvtx.range_push("mlp")
        for stream in (left, right):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                b = a @ a
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("head")
        for stream in (left, right):
            torch.cuda.current_stream().wait_stream(stream)
        float(b.sum())  # the host takes the result
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_pop()


if __name__ == "__main__":
    main()
