"""Attention over a whole prompt: scores kept in memory, or one pass that never writes them.

Math: OUT = softmax(Q·Kᵀ/√d)·V for each head; with `causal` query i sees the keys up to i. Q, K, V and OUT are
[batch, heads, length, head_dim], contiguous.

`flash` keeps a running maximum m, sum l and weighted sum O for each query, all in log2: with s = q·k·log2(e)/√d and
m' = max(m, s), every step does l = l·2^(m−m') + Σ2^(s−m') and O = O·2^(m−m') + Σ2^(s−m')·v, and OUT = O/l at the end
(FlashAttention-2, Dao 2023). Weights are rounded to V's type before they multiply it, as in the other variants. Its
memory traffic grows with length, that of `naive` with length²; but its time is that of the FLOPs, so the ratio of times
is far from that of bytes: 33 or 49 times the bytes at 4096, a few times the time.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tracelab.kernels import _attention_launch
from tracelab.kernels._attention_launch import flash, flash_serial, flash_triton
from tracelab.kernels._attention_shape import PASSES, Shape, TrafficRow, shape_of, traffic_bytes, work
from tracelab.kernels._bench import Timing, copies_for, time_launches
from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._kernel import Case, Options, Table, Tensors, poisoned, random
from tracelab.kernels._kernel_main import main

VARIANTS = {
    "flash": "one pass over K and V, scores stay on the chip; on sm_90 a warp copies while two warp groups multiply",
    "flash_triton": "the same pass by tl.dot, a block a tile of 128 queries: what flash is on other GPUs and lengths",
    "naive": "torch with the scores in memory: product, scale, softmax, product, each reading what the last wrote",
    "naive_folded": "naive with the scale inside the first product: one kernel and two passes fewer",
    "sdpa": "torch's scaled_dot_product_attention, for comparison",
    "flash_serial": "flash with a block a head, which does its queries one tile after the other: 32 blocks on 132 SMs",
}

DEFAULTS = {
    "variant": "flash",
    "batch": 1,
    "heads": 32,
    "head_dim": 128,
    "length": 4096,
    "causal": 0,
    "steps": 12,
    "graph": False,
}

CHECK = {"batch": 1, "heads": 2, "head_dim": 32, "length": 301}

CHECKED_ROWS = 512  # queries of a head compared with float64, whose scores would not fit for all of them


def naive(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, scratch: "Scratch", *, folded: bool = False
) -> None:
    """What `flash` does, with scores and weights in memory: 4 torch kernels, 3 if `folded`, one more with a mask."""
    q, k, v, out = (x.flatten(0, 1) for x in (q, k, v, out))
    scale = 1 / math.sqrt(q.shape[2])
    scores = scratch.scores
    if folded:
        torch.baddbmm(scores, q, k.transpose(1, 2), beta=0, alpha=scale, out=scores)
    else:
        torch.bmm(q, k.transpose(1, 2), out=scores)
        scores.mul_(scale)
    if scratch.unseen is not None:
        scores.masked_fill_(scratch.unseen, -math.inf)
    torch.softmax(scores, -1, out=scratch.weights)
    torch.bmm(scratch.weights, v, out=out)


@dataclass(frozen=True)
class Scratch:
    """What `naive` keeps in memory: scores and weights [batch·heads, length, length], and a mask [length, length]."""

    scores: torch.Tensor
    weights: torch.Tensor
    unseen: torch.Tensor | None

    @staticmethod
    def of(q: torch.Tensor, causal: bool) -> "Scratch":
        """Scratch, filled with NaN, for these queries."""
        batch, heads, length, _ = q.shape
        size = (batch * heads, length, length)
        scores, weights = (poisoned(*size, device=q.device, dtype=q.dtype) for _ in range(2))
        unseen = torch.ones(length, length, dtype=torch.bool, device=q.device).triu_(1) if causal else None
        return Scratch(scores, weights, unseen)


def traffic_rows(
    options: Options,
    device: torch.device,
    dtype: torch.dtype,
    *,
    lengths: Sequence[int] = (4096, 16384),
    variants: Sequence[str] = ("naive", "naive_folded", "flash"),
    measure: Callable[[Callable[[int], object], int], Timing] = time_launches,
) -> Iterator[TrafficRow]:
    """Time the variants at each length. Needs a GPU with room for two [batch·heads, length, length] tensors."""
    for length in lengths:
        for variant in variants:
            asked = {**options, "length": length, "variant": variant}
            copies = copies_for(work(shape_of(asked), variant, dtype.itemsize).bytes)
            timing = measure(case(asked, device, dtype, copies).launch, copies)
            yield TrafficRow(length, variant, traffic_bytes(asked, variant, dtype.itemsize), timing.ns)


def tables(options: Options, device: torch.device) -> Iterator[Table]:
    """The traffic table: what each algorithm moves, how long it takes, and the bandwidth that makes."""
    rows = [
        (str(row.length), row.variant, f"{row.bytes / 1e9:.2f}", f"{row.ns / 1e3:.1f}", f"{row.bytes / row.ns:.0f}", "")
        for row in traffic_rows(options, device, torch.bfloat16)
    ]
    note = (
        "Flash prefill is bound by FLOPs on this GPU: it uses next to nothing of the bandwidth, and times are far from "
        "the ratio of bytes."
    )
    yield Table("traffic", ("length", "variant", "GB moved", "µs", "GB/s", ""), tuple(rows), note)


@dataclass(frozen=True)
class _Inputs:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor

    @staticmethod
    def of(seed: int, shape: Shape, **where: Any) -> "_Inputs":
        size = (shape.batch, shape.heads, shape.length, shape.dim)
        q, k, v = (random(3 * seed + i, *size, **where) for i in range(3))
        return _Inputs(q, k, v, poisoned(*size, **where))


def _launcher(variant: str, causal: bool, scratch: Scratch | None) -> Callable[[_Inputs], torch.Tensor]:
    """One variant on one input set; returns its output."""
    if variant == "sdpa":
        sdpa: Callable[..., torch.Tensor] = torch.nn.functional.scaled_dot_product_attention
        return lambda i: sdpa(i.q, i.k, i.v, is_causal=causal)

    def run(i: _Inputs) -> torch.Tensor:
        if scratch is not None:
            naive(i.q, i.k, i.v, i.out, scratch, folded=variant == "naive_folded")
        else:
            forms = {"flash_triton": flash_triton, "flash_serial": flash_serial}
            forms.get(variant, flash)(i.q, i.k, i.v, i.out, causal=causal)
        return i.out

    return run


def case(options: Options, device: torch.device, dtype: torch.dtype, copies: int = 1) -> Case:
    """One variant on random inputs. Output: [batch, heads, ≤ CHECKED_ROWS, head_dim], every n-th query, n odd.

    Raises ValueError for a head_dim that is no power of two of 16 or more.
    """
    shape, variant = shape_of(options), str(options["variant"])
    sets = [_Inputs.of(seed, shape, device=device, dtype=dtype) for seed in range(copies)]
    scratch = Scratch.of(sets[0].q, shape.causal) if variant in PASSES else None
    run = _launcher(variant, shape.causal, scratch)
    step = -(-shape.length // CHECKED_ROWS) | 1  # odd, so that all rows of a tile have their turn; ends at the last
    some = slice((shape.length - 1) % step, None, step)

    def launch(copy: int) -> Tensors:
        return (run(sets[copy])[:, :, some],)

    def reference(copy: int) -> Tensors:
        i = sets[copy]
        return (_reference(i.q[:, :, some], i.k, i.v, torch.arange(shape.length, device=device)[some], shape.causal),)

    def poison() -> None:
        for buffer in [i.out for i in sets] + ([scratch.scores, scratch.weights] if scratch else []):
            buffer.fill_(float("nan"))

    return Case(
        launch=launch,
        reference=reference,
        poison=poison,
        copies=copies,
        work=work(shape, variant, dtype.itemsize),
        kernels=_kernels(variant, shape.causal),
        remark=f"moves {traffic_bytes(options, variant, dtype.itemsize) / 1e9:.3g} GB",
    )


def _kernels(variant: str, causal: bool) -> int:
    return {"naive": 4, "naive_folded": 3}[variant] + causal if variant in PASSES else 1


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, at: torch.Tensor, causal: bool) -> torch.Tensor:
    """Float64 attention of the queries `q`, which are those at the positions `at`."""
    scores = q.double() @ k.double().transpose(2, 3) / math.sqrt(q.shape[3])
    if causal:
        unseen = torch.arange(k.shape[2], device=k.device) > at[:, None]
        scores.masked_fill_(unseen, -math.inf)
    return scores.softmax(3) @ v.double()


def compile_specs() -> tuple[CompileSpec, ...]:
    """The shipped configurations."""
    return _attention_launch.compile_specs()


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
