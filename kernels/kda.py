"""One decode step of Kimi Delta Attention, its recurrent state updated in place.

Math, for each row (sequence) and head, with the state S [K, V]:
1. q, k, v = silu of a depthwise convolution over the last 4 inputs;
2. q ← q / √(Σq² + 1e-6) · K^-½, k ← k / √(Σk² + 1e-6);
3. α = exp(−5·σ(exp(A_log)·g)) for the gate `k3`, exp(−exp(A_log)·softplus(g)) for `kimi`, g with its bias; β = σ(b);
4. S ← Diag(α)·S, u = β·(v − Sᵀk), S ← S + k·uᵀ, o = Sᵀq;
5. out = o / √(mean o² + 1e-5) · w · σ(output gate).

Each row has a slot in the cache, −1 for none: such a row gives zeros and changes nothing. The convolution's inputs are
kept in a ring of 4 places, the input of position p at p % 4; p is read from the device, so a graph can be replayed.
Shapes are in `_kda_data`.

The state is read and written once a step and is nearly all of the bytes. Many (row, head)s: blocks that stay, the next
two states on their way while one is computed. Few: each state in as many tiles as fill the GPU, every load in flight
before the first wait; the block that finishes last of a head does its norm.

Sources: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture" (2025); flash-linear-attention's
`naive_recurrent_kda` and `naive_kda_gate` for the recurrence; K3's bounded gate as vLLM's decode kernel has it.
"""

import sys
from dataclasses import dataclass

import torch

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._kda_chain import conv_silu, eager, gated_norm, recurrent
from tracelab.kernels._kda_data import TAPS, Cache, Token, Weights, reference, work
from tracelab.kernels._kda_device import fused, fused_stream
from tracelab.kernels._kda_inputs import Inputs, Shape, slot_tables
from tracelab.kernels._kernel import Case, Options, Tensors, Work, poisoned
from tracelab.kernels._kernel_main import main

__all__ = ["Cache", "Chain", "Plan", "Scratch", "Token", "Weights", "case", "decode_plan", "step", "step_unfused"]

VARIANTS = {
    "fused": "one launch, the form chosen by the number of states",
    "unfused": "three launches: convolution, recurrence, norm; q, k, v and o through memory",
    "eager": "starved: torch operations, 56 launches, the state read or written 6 times",
    "warps8": "starved: tiles by 8 warps: more registers a block, one block on an SM",
    "bv32": "starved: a state in 4 tiles of 32 rows, each with its own convolution, joined at the end",
    "bv128": "starved for few heads: one block a state, whatever their number",
}
DEFAULTS = {
    "variant": "fused",
    "batch": 32,
    "heads": 96,
    "key_dim": 128,
    "value_dim": 128,
    "gate": "k3",
    "state_bits": 32,
    "null_rows": 0,
    "steps": 12,
    "graph": False,
}
CHECK = {"batch": 3, "heads": 3, "key_dim": 64, "value_dim": 16, "null_rows": 1}

SMS = 132  # of an H200 (NVIDIA data sheet), assumed where there is no GPU
POSITION = 1021  # of the new token in a case: its place in the ring is not the first
EAGER_KERNELS = 56  # with bf16 activations and an fp32 state: torch operations that are no views
MIN_BLOCK_V = 8  # 4 KiB of a state: with less, the convolution that every tile repeats is most of its work
ONE_TILE_UNITS = 96  # from so many states on, one block a state
STREAM_STATES = 4  # states an SM must get so that a block that stays is worth its start


@dataclass(frozen=True)
class Plan:
    """How the fused step runs. `stages` 0: tiles of `block_v` rows of a state; else blocks that stay, whole states.

    early   tiles: issue the state's load before the first wait
    evict   tiles: L2's eviction policy for the state
    pdl     tiles: start while the launch before is still running, and wait for its end (programmatic dependent launch)
    """

    block_v: int
    warps: int
    stages: int = 0
    early: bool = True
    evict: str = ""
    pdl: bool = False


@dataclass(frozen=True)
class Scratch:
    """Between the tiles of a head: o [units, V] in fp32 and a counter [units], zero between calls."""

    part: torch.Tensor
    done: torch.Tensor

    @classmethod
    def of(cls, rows: int, heads: int, value_dim: int, device: torch.device) -> "Scratch":
        part = torch.empty(rows * heads, value_dim, device=device)
        return cls(part, torch.zeros(rows * heads, device=device, dtype=torch.int32))


@dataclass(frozen=True)
class Chain:
    """What the unfused step passes on: q, k, v [rows, C] after the convolution, o [rows, H, V]."""

    y: torch.Tensor
    o: torch.Tensor


def sm_count(device: torch.device) -> int:
    return SMS if device.type == "cpu" else int(torch.cuda.get_device_properties(device).multi_processor_count)


def decode_plan(units: int, value_dim: int, sms: int = SMS) -> Plan:
    """The plan for `units` = rows × heads states."""
    if units >= STREAM_STATES * sms:
        return Plan(value_dim, warps=8, stages=3)
    block_v = value_dim
    while units < ONE_TILE_UNITS and block_v > MIN_BLOCK_V and units * value_dim // block_v < sms:
        block_v //= 2
    return Plan(block_v, warps=4)


def step(
    token: Token,
    weights: Weights,
    cache: Cache,
    slots: torch.Tensor,
    pos: torch.Tensor,
    out: torch.Tensor,
    scratch: Scratch,
    plan: Plan,
    gate: str,
    programs: int = SMS,
) -> None:
    """One step in one launch: writes `out` [rows, H, V] and changes the cache.

    `slots` int32 [rows] are different slots, or −1; `pos` int32 [1] is the position of the new token. `programs` are
    the blocks that stay, where the plan has such. Nothing is allocated and the host never waits.
    """
    heads, key_dim, value_dim = cache.sizes
    units = len(slots) * heads
    first = (token.x, cache.ring, weights.conv)
    rest = (token.g, weights.dt_bias, weights.a_log, token.b, token.gate, weights.norm, slots, pos, out)
    sizes = (token.x.stride(0), token.b.stride(0), heads)
    constants = {"K": key_dim, "V": value_dim, "KI": cache.row_piece, "K3": gate == "k3"}
    if plan.stages:
        fused_stream[(min(units, programs),)](
            *first, cache.descriptor, *rest, *sizes, units, **constants,
            STAGES=plan.stages, num_warps=plan.warps, num_stages=1,
        )  # fmt: skip
    else:
        fused[(units, value_dim // plan.block_v)](
            *first, cache.state, *rest, scratch.part, scratch.done, *sizes, **constants,
            BV=plan.block_v, EARLY=plan.early, EVICT=plan.evict, PDL=plan.pdl, num_warps=plan.warps, num_stages=1,
            **({"launch_pdl": True} if plan.pdl else {}),
        )  # fmt: skip


def step_unfused(
    token: Token,
    weights: Weights,
    cache: Cache,
    slots: torch.Tensor,
    pos: torch.Tensor,
    out: torch.Tensor,
    chain: Chain,
    plan: Plan,
    gate: str,
) -> None:
    """The same in three launches. `plan` gives the recurrence's tiles; they need no joining, the norm comes after."""
    heads, key_dim, value_dim = cache.sizes
    units, dims = len(slots) * heads, {"K": key_dim, "V": value_dim}
    conv_silu[(units,)](
        token.x, cache.ring, weights.conv, slots, pos, chain.y, token.x.stride(0), heads, **dims, num_warps=4
    )
    recurrent[(units, value_dim // plan.block_v)](
        chain.y, cache.state, token.g, weights.dt_bias, weights.a_log, token.b, slots, chain.o, token.b.stride(0),
        heads, **dims, BV=plan.block_v, KI=cache.row_piece, K3=gate == "k3", num_warps=plan.warps,
    )  # fmt: skip
    gated_norm[(units,)](chain.o, token.gate, weights.norm, slots, out, heads, V=value_dim, num_warps=1)


def _variant_plan(variant: str, shape: Shape, sms: int) -> Plan:
    fixed = {
        "warps8": Plan(shape.value_dim, warps=8),
        "bv32": Plan(min(32, shape.value_dim), warps=4),
        "bv128": Plan(min(128, shape.value_dim), warps=4),
    }
    chosen = fixed.get(variant) or decode_plan(shape.units, shape.value_dim, sms)
    # The chain's recurrence has the tiles that the fused step would have, and no blocks that stay.
    return Plan(chosen.block_v, warps=4) if variant == "unfused" else chosen


def case(options: Options, device: torch.device, dtype: torch.dtype, copies: int = 1) -> Case:
    """One variant on random inputs. Raises UsageError for dimensions that are no powers of two, and the like."""
    variant, shape, sms = str(options["variant"]), Shape.of(options), sm_count(device)
    plan = _variant_plan(variant, shape, sms)
    sets = [Inputs.random(copy, shape, device, dtype) for copy in range(copies)]
    # One step has one position and one slot table, whatever the layer: all sets share them.
    pos = torch.tensor([POSITION], device=device, dtype=torch.int32)
    slots, row_of = slot_tables(shape.rows, shape.null_rows, device)
    scratch = Scratch.of(shape.rows, shape.heads, shape.value_dim, device)
    chain = Chain(poisoned(shape.rows, shape.channels, device=device, dtype=dtype), torch.empty_like(sets[0].out))

    def launch(copy: int) -> Tensors:
        token, weights, cache, out = (sets[copy].token, sets[copy].weights, sets[copy].cache, sets[copy].out)
        if variant == "eager":
            eager(token, weights, cache, slots, row_of, pos, out, shape.gate)
        elif variant == "unfused":
            step_unfused(token, weights, cache, slots, pos, out, chain, plan, shape.gate)
        else:
            step(token, weights, cache, slots, pos, out, scratch, plan, shape.gate, sms)
        return [out, cache.state, cache.ring]

    def poison() -> None:
        for buffer in (scratch.part, chain.y, chain.o, *(s.out for s in sets)):
            buffer.fill_(float("nan"))

    return Case(
        launch=launch,
        reference=lambda i: reference(sets[i].token, sets[i].weights, sets[i].cache, slots, POSITION, shape.gate),
        poison=poison,
        copies=copies,
        work=_work(shape, dtype),
        kernels={"eager": EAGER_KERNELS, "unfused": 3}.get(variant, 1),
        remark=_remark(variant, plan, shape, dtype, sms),
    )


def _work(shape: Shape, dtype: torch.dtype) -> Work:
    live = shape.rows - shape.null_rows
    return work(live, shape.heads, shape.key_dim, shape.value_dim, dtype.itemsize, shape.state.itemsize)


def _remark(variant: str, plan: Plan, shape: Shape, dtype: torch.dtype, sms: int) -> str:
    """The grid, and the bytes of the other common count."""
    blocks = min(shape.units, sms) if plan.stages else shape.units * shape.value_dim // plan.block_v
    grid = "" if variant == "eager" else f"{blocks} blocks"
    again = (shape.rows - shape.null_rows - 1) * TAPS * shape.channels * torch.float32.itemsize
    if again < 1e6:
        return grid
    every_row = f"{(_work(shape, dtype).bytes + again) / 1e6:.0f} MB if every row reads the conv weights"
    return f"{grid}, {every_row}" if grid else every_row


def _spec(name: str, plan: Plan, registers: int, blocks: int, *, k3: bool = True, state: str = "fp32") -> CompileSpec:
    """A fused form at the shape of Kimi-Linear and K3 heads, with bf16 activations."""
    piece = 128 // {"fp32": 4, "bf16": 2}[state]
    types = dict.fromkeys(("X", "RING", "G", "B", "GATE", "OUT"), "*bf16") | dict.fromkeys(("SLOTS", "POS"), "*i32")
    types |= dict.fromkeys(("W", "DT_BIAS", "A_LOG", "NORM", "PART"), "*fp32") | {"DONE": "*i32", "units": "i32"}
    types |= dict.fromkeys(("x_stride", "b_stride", "H"), "i32")
    types["STATE"] = f"tensordesc<{state}[{128 // piece}, 128, {piece}]>" if plan.stages else f"*{state}"
    constants: dict[str, object] = {"K": 128, "V": 128, "KI": piece, "K3": k3}
    if plan.stages:
        constants["STAGES"] = plan.stages
    else:
        constants |= {"BV": plan.block_v, "EARLY": plan.early, "EVICT": plan.evict, "PDL": plan.pdl}
    fn = fused_stream if plan.stages else fused
    signature = {arg: "constexpr" if arg in constants else types[arg] for arg in fn.arg_names}
    aligned = [arg for arg, kind in signature.items() if kind.startswith("*") or arg in ("H", "x_stride", "b_stride")]
    return CompileSpec(
        name=name, fn=fn, signature=signature, constexprs=constants, num_warps=plan.warps, num_stages=1,
        divisible=tuple(aligned), max_registers=registers, min_blocks_per_sm=blocks, wgmma=False,
    )  # fmt: skip


def compile_specs() -> tuple[CompileSpec, ...]:
    """The shipped configurations, with the registers that Triton 3.6.0 gives them."""
    stream = decode_plan(32 * 96, 128)
    return (
        _spec("kda stream", stream, 242, 1),
        _spec("kda stream kimi", stream, 242, 1, k3=False),
        _spec("kda stream bf16 state", stream, 244, 1, state="bf16"),
        _spec("kda tile 128", Plan(128, warps=4), 249, 2),
        _spec("kda tile 128 kimi", Plan(128, warps=4), 254, 2, k3=False),
        _spec("kda tile 32", Plan(32, warps=4), 116, 4),
        _spec("kda tile 8", Plan(8, warps=4), 56, 9),
        _spec("kda tile 128, 8 warps", Plan(128, warps=8), 159, 1),
    )


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
