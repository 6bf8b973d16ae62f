"""Programs whose every number can be worked out by hand. Times in ns unless a name says otherwise."""

from tiny_trace import MAIN, SYNC, US, Thread, TinyTrace

STEP_NS = 1000


def eager(steps: int = 3, *, on: Thread = MAIN, trace: TinyTrace | None = None, name: str = "step") -> TinyTrace:
    """Steps of 1000 ns with three kernels of 100 ns; T is the start of a step.

    attn: `attention` called at T+20, runs T+30 … T+130. mlp: `gemm` called at T+120 … T+125, runs T+140 … T+240;
    `silu` called at T+200, runs T+230 … T+330 on another stream.
    So a step has span 300, sum 300, busy 100 + 190 = 290 and idle 10 (130 … 140). gemm was called before
    that gap began: a dependency. Between steps 330 … 1030 is idle, 700, until a call at 1020: launch.
    """
    trace = trace or TinyTrace()
    for i in range(steps):
        t = i * STEP_NS
        trace.range(f"{name} {i}", t, t + 400, on=on)
        trace.range("attn", t + 10, t + 100, on=on).launch(t + 20, "attention", t + 30, t + 130, on=on)
        trace.range("mlp", t + 110, t + 300, on=on).launch(t + 120, "gemm", t + 140, t + 240, on=on)
        trace.launch(t + 200, "silu", t + 230, t + 330, on=on, stream=8)
    return trace


def replays(steps: int = 3, trace: TinyTrace | None = None, *, start: int = 0, name: str = "graph_step") -> TinyTrace:
    """Steps of 1000 ns that replay a graph of the three kernels of `eager`: 10 … 110, 120 … 220, 220 … 320.

    One call a step, at T … T+5. span 310, busy 300, idle 10 inside the replay: a dependency.
    """
    trace = trace or TinyTrace()
    for i in range(steps):
        t = start + i * STEP_NS
        times = ((t + 10, t + 110), (t + 120, t + 220), (t + 220, t + 320))
        names = ("attention", "gemm", "silu")
        ops = [(n, a, b, 2 << 32 | k) for k, (n, (a, b)) in enumerate(zip(names, times, strict=True))]
        trace.range(f"{name} {i}", t, t + 8).replay(t, ops)
    return trace


def synchronised_replays(steps: int = 8) -> TinyTrace:
    """One replay of 300 µs every 5 ms: the host waits for it, thinks, and launches the next."""
    trace = TinyTrace()
    for i in range(steps):
        t = i * 5_000 * US
        trace.replay(t, [("decode", t + 10 * US, t + 310 * US, 2 << 32)], api_ns=5 * US)
        trace.call(t + 6 * US, t + 320 * US, SYNC)
    return trace
