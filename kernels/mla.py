"""Multi-head latent attention of one new token per sequence, in its absorbed form.

Math, for each head: o = softmax(scale·q·[c|r]ᵀ)·c over the cache rows [c|r] that all heads share, c the latent part and
r the rotary part of the keys; q = [W_UKᵀ·q_nope | q_rope] comes absorbed. Then value = o·W_UV of that head. Values are
the first `latent` columns of what serves as keys, so that a tile is loaded once for both. The context is cut into
slices as in split_kv; W_UV comes after their merge, in the same kernel.

query   [batch, heads, latent + rope]
cache   [batch, ctx_max, latent + rope], rows of any stride
W_UV    [heads, latent, value_dim]
out     latent [batch, heads, latent] and value [batch, heads, value_dim]

At latent 512 and rope 64 a token is 1152 B in bf16 and 2·1088 FLOPs a head: memory-bound at 12 heads (23 FLOPs a byte;
the H200 has 206), at its ridge with 96, compute-bound with 128. `scale` is that of the un-absorbed head,
(value_dim + rope)^-½.

Sources: DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1; its absorption of W_UK and W_UV, appendix C; the shapes are
those of DeepSeek-V3, Kimi K2 and Kimi-Linear.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from tracelab.kernels._bench import copies_for, time_launches
from tracelab.kernels._compile import CompileSpec, compile_spec
from tracelab.kernels._kernel import Case, Options, Table, Tensors
from tracelab.kernels._kernel_main import main
from tracelab.kernels._mla_launch import (
    CAPPED,
    DOT_FEW,
    DOT_MANY,
    FEW,
    LATENT,
    MANY,
    PER_HEAD,
    ROPE,
    SOME,
    WALK,
    Config,
    config_for,
    dot_config_for,
)
from tracelab.kernels._mla_specs import SWEEP, merge_spec, spec_of
from tracelab.kernels._mla_steps import Shape, reference, steps_of
from tracelab.kernels._split_plan import ceil_div

VARIANTS = {
    "batched_split": "blocks of heads on slices of the cache; copies and products by warps of their own",
    "batched_dot": "the same with tl.dot: the next tile is asked for only after the products of this one",
    "bh32_maxnreg": "32 heads a block and registers capped for 2 blocks per SM, yet slower than 1",
    "batched_unsplit": "starved: blocks of 16 heads walk the whole context, 6 blocks for 96 heads",
    "per_head_split": "starved: one head a block, 8 slices; each head streams the cache again, without tensor cores",
    "per_head_serial": "starved: one head a block walks the whole context",
}
DEFAULTS = {
    "variant": "batched_split",
    "batch": 1,
    "heads": 96,
    "ctx": 131072,
    "latent": 512,
    "rope": 64,
    "value_dim": 128,
    "gate": 0,
    "steps": 12,
    "graph": False,
}
CHECK = {"batch": 2, "heads": 3, "ctx": 203, "latent": 32, "rope": 16, "value_dim": 16}

PER_HEAD_SPLITS = 8  # whatever the grid: 768 blocks of 96 heads, one per SM, are 6 waves
HBM_BYTES_PER_NS = 4800  # H200 SXM (NVIDIA data sheet)


def shape_of(options: Options) -> Shape:
    """The sizes that options ask for."""
    return Shape(*(int(options[name]) for name in ("batch", "heads", "ctx", "latent", "rope", "value_dim")))


def case(options: Options, device: torch.device, dtype: torch.dtype, copies: int = 1) -> Case:
    """One variant on random inputs."""
    variant = str(options["variant"])
    shape = shape_of(options)
    configs = {"batched_dot": dot_config_for(shape.heads), "bh32_maxnreg": CAPPED, "batched_unsplit": WALK,
               "per_head_split": PER_HEAD, "per_head_serial": PER_HEAD}  # fmt: skip
    config = configs.get(variant) or config_for(shape.heads, shape.width, dtype, device)
    splits = {"per_head_split": PER_HEAD_SPLITS, "per_head_serial": 1, "batched_unsplit": 1}.get(variant)
    return case_of(shape, config, device, dtype, copies, gate=int(options["gate"]), splits=splits)


def case_of(
    shape: Shape,
    config: Config,
    device: torch.device,
    dtype: torch.dtype,
    copies: int = 1,
    *,
    gate: int = 0,
    splits: int | None = None,
) -> Case:
    """One configuration on random inputs, in as many slices as its plan says, or in `splits`."""
    steps = steps_of(shape, config, device, dtype, copies, gate=gate, splits=splits)

    def launch(copy: int) -> Tensors:
        steps.both(copy)
        return steps.out

    def poison() -> None:
        steps.scratch.poison()
        for buffer in steps.out:
            buffer.fill_(math.nan)

    blocks = shape.batch * ceil_div(shape.heads, config.block_heads) * steps.scratch.part.shape[1]
    sets = steps.sets
    return Case(
        launch=launch,
        reference=lambda i: reference(sets[i].query, sets[i].cache, sets[i].w_uv, shape.ctx, shape.scale),
        poison=poison,
        copies=copies,
        work=shape.work(dtype.itemsize, config),
        kernels=2,
        remark=f"{blocks} blocks, {config.name}",
    )


def parts(options: Options, device: torch.device, copies: int = 1) -> dict[str, Callable[[int], object]]:
    """The launches of `batched_split` in bf16 by name, to be timed apart: "split", "merge" with W_UV, and "sum".

    Each takes the number of an input set below `copies`. "merge" merges what the last "split" or "sum" has left.
    """
    shape = shape_of(options)
    config = config_for(shape.heads, shape.width, torch.bfloat16, device)
    steps = steps_of(shape, config, device, torch.bfloat16, copies, gate=int(options["gate"]))
    return {"split": steps.attend, "merge": steps.merge, "sum": steps.both}


def sweep() -> tuple[tuple[Config, CompileSpec], ...]:
    """Blocks of 16, 32 and 64 heads to compare: `case_of` runs one, its spec gives registers and blocks per SM."""
    return tuple((config, spec_of(config)) for config in SWEEP)


def sweep_specs() -> tuple[CompileSpec, ...]:
    """The specs of the sweep, in its order, for a number of heads that is a multiple of 16, as 96 is."""
    return tuple(replace(spec, divisible=(*spec.divisible, "heads")) for _, spec in sweep())


def tables(options: Options, device: torch.device) -> Iterator[Table]:
    """The sweep, with what the compiler made of each configuration beside its time; and the launches one by one."""
    shape = shape_of(options)
    rows = []
    for config, spec in sweep():
        if config.engine in ("many", "few") and (shape.width, shape.latent) != (LATENT + ROPE, LATENT):
            continue
        taken = compile_spec(spec)
        if taken.blocks_per_sm == 0:
            continue
        work = shape.work(2, config)
        copies = copies_for(work.bytes)
        ns = time_launches(steps_of(shape, config, device, torch.bfloat16, copies).attend, copies).ns
        rows.append((
            config.engine, *(str(n) for n in (config.block_heads, config.block_tokens, config.warps, config.stages)),
            f"{ns / 1e3:.1f}", f"{work.flops / ns / 1e3:.0f}", f"{work.bytes / ns / HBM_BYTES_PER_NS * 100:.1f}",
            str(taken.registers), str(taken.blocks_per_sm), config.name,
        ))  # fmt: skip
    columns = ("engine", "heads", "tokens", "warps", "stages", "µs", "TFLOP/s", "MBU %", "registers", "blocks/SM", "")
    rows.sort(key=lambda row: float(row[5]))
    title = f"heads and tokens of a block, {shape.heads} heads, {shape.ctx} tokens, merge not included"
    note = "Registers and blocks per SM are those of latent 512 and rope 64. Most blocks per SM are not the fastest."
    yield Table(title, columns, tuple(rows), note)
    yield _launches_table(options, device)


def _launches_table(options: Options, device: torch.device) -> Table:
    """Times of the two launches of `batched_split`, apart and together."""
    shape = shape_of(options)
    config = config_for(shape.heads, shape.width, torch.bfloat16, device)
    copies = copies_for(shape.work(2, config).bytes)
    launches = parts(options, device, copies)
    launches["sum"](0)  # the merge has something finite to merge
    rows = [(name, f"{time_launches(launch, copies).ns / 1e3:.1f}") for name, launch in launches.items()]
    note = "In the sum, from sm_90 on, the merge fetches W_UV while the split ends (programmatic dependent launch)."
    return Table(f"launches of batched_split, {config.name}", ("launch", "µs"), tuple(rows), note)


def compile_specs() -> tuple[CompileSpec, ...]:
    """The shipped configurations; registers as compiled by Triton 3.6.0 and 8 more."""
    return (
        spec_of(MANY, registers=168, stack_bytes=72, on_device=True),
        spec_of(FEW, registers=128),
        spec_of(SOME, registers=144),
        spec_of(SOME, registers=144, on_device=True),
        spec_of(DOT_MANY, registers=255),
        spec_of(DOT_FEW, registers=136),
        spec_of(CAPPED, registers=128),
        spec_of(WALK, registers=136),
        spec_of(PER_HEAD, registers=172),
        merge_spec(pieces=8, splits=128, registers=191),
        merge_spec(pieces=4, splits=64, registers=167),
        merge_spec(pieces=2, splits=64, registers=255),
        merge_spec(pieces=1, splits=64, registers=255),
    )


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
