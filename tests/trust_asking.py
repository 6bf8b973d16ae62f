"""A healthy program in microseconds, and short ways to ask whether a trace can be trusted."""

from pathlib import Path

from tiny_trace import US, TinyTrace

from tracelab.analysis import attribute, device_views, main_device, report
from tracelab.load import load_trace
from tracelab.options import Facts, Selection
from tracelab.trust import judge
from tracelab.trust_result import Trust, TrustCheck

STEPS = 8
WORK = {"kernels", "phases", "gaps", "mbu", "waterfall"}
GPU_ROWS = WORK | {"grids"}
EVERY = GPU_ROWS | {"launches"}
IDLE = {"gaps", "waterfall"}


def healthy(steps: int = STEPS, trace: TinyTrace | None = None) -> TinyTrace:
    """Steps of 1000 µs with two kernels of 100 µs: 2 calls, 2 kernels and 3 ranges each, and one mark for all.

    T is the start of a step. attn is called at T+20 … T+25 and runs T+30 … T+130, mlp T+120 … T+125 and T+140 … T+240
    (µs), so busy is 200. The record says 480 MB: 100 µs at 4.8 TB/s.
    """
    trace = (trace or TinyTrace()).workload(bytes_per_step=480_000_000)
    for i in range(steps):
        t = i * 1000
        trace.range(f"step {i}", t * US, (t + 300) * US)
        for name, at in (("attn", t + 20), ("mlp", t + 120)):
            start = t + 30 if name == "attn" else t + 140
            trace.range(name, (at - 5) * US, (at + 10) * US)
            trace.launch(at * US, f"k_{name}", start * US, (start + 100) * US, api_ns=5 * US)
    return trace


def with_counts(trace: TinyTrace, collected: int, produced: int | None = None) -> TinyTrace:
    """The trace with what the profiler says it collected, and what CUPTI says it produced."""
    trace.diagnostic(f"Number of CUDA events collected: \t{collected}.", 1)
    if produced is not None:
        trace.diagnostic(f"Number of CUPTI events produced: \t{produced}, CUPTI buffers: 50.", 1)
    return trace


def judged(
    trace: TinyTrace | Path, folder: Path | None = None, facts: Facts | None = None, **selection: object
) -> Trust:
    """The judgement of a trace, as the command makes it."""
    path = trace if isinstance(trace, Path) else trace.save(folder or Path())
    chosen = Selection(**selection)  # type: ignore[arg-type]
    analysis = attribute(load_trace(path), facts or Facts(), chosen)
    views = device_views(analysis)
    return judge(views[main_device(analysis, views)], report(analysis, views=views).main.results)


def check(trust: Trust, code: str) -> TrustCheck:
    """The only check of this code."""
    (found,) = [check for check in trust.checks if check.code == code]
    return found


def codes(trust: Trust) -> set[str]:
    """The codes of all checks but one: most tiny traces hold no counts of the profiler, and are not about them."""
    return {check.code for check in trust.checks} - {"events-unknown"}


def verdicts(trust: Trust, *kinds: str) -> set[str]:
    """The analyzers with one of these verdicts, but for communication, which tiny traces have none of."""
    return {found.analyzer for found in trust.verdicts if found.verdict in kinds} - {"communication"}


def names(analyzers: object) -> set[str]:
    """Analyzers of a check, but for communication."""
    return set(analyzers) - {"communication"}  # type: ignore[call-overload, no-any-return]
