"""Decode steps of a small transformer under the PyTorch profiler, eager and in a CUDA graph: two Chrome traces.

python3 tests/gpu/kineto_loop.py FOLDER
"""

import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

HIDDEN, HEADS, CONTEXT, LAYERS, STEPS = 2048, 16, 512, 4, 8


class Layer(torch.nn.Module):  # type: ignore[misc] # torch has no types here
    """Attention over a fixed cache and a feed-forward block, each in a range of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = torch.nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up = torch.nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.down = torch.nn.Linear(4 * HIDDEN, HIDDEN, bias=False)
        self.register_buffer("cache", torch.randn(1, HEADS, CONTEXT, HIDDEN // HEADS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One token of shape [1, HIDDEN]."""
        with record_function("attn"):
            q, k, v = (part.view(1, HEADS, 1, -1) for part in self.qkv(x).chunk(3, dim=-1))
            keys, values = torch.cat((self.cache, k), 2), torch.cat((self.cache, v), 2)
            x = x + self.out(torch.nn.functional.scaled_dot_product_attention(q, keys, values).reshape(1, -1))
        with record_function("mlp"):
            return x + self.down(torch.nn.functional.silu(self.up(x)))


def main() -> None:
    """Profile both forms into the folder named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with torch.inference_mode():
        model = torch.nn.Sequential(*(Layer() for _ in range(LAYERS))).cuda().bfloat16()
        x = torch.randn(1, HIDDEN, device="cuda", dtype=torch.bfloat16)
        for _ in range(3):
            model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x)
        for name, step in (("eager", lambda: model(x)), ("graph", graph.replay)):
            torch.cuda.synchronize()
            with profile(
                activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
                schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1),
                on_trace_ready=lambda p, name=name: p.export_chrome_trace(str(folder / f"{name}.json.gz")),
            ) as profiler:
                for _ in range(STEPS + 1):
                    step()
                    torch.cuda.synchronize()
                    profiler.step()


if __name__ == "__main__":
    main()
