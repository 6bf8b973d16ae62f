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

The state is read and written once a step and is nearly all of the bytes. More states than SMs: one block a state, which
it works through in slices, all of them on their way from the start. Fewer: a state is one tile, or so many that the
GPU is filled, every load in flight before the first wait; the block that finishes last of a head does its norm.

Sources: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture" (2025); flash-linear-attention's
`naive_recurrent_kda` and `naive_kda_gate` for the recurrence; K3's bounded gate as vLLM's decode kernel has it.
"""

import sys
from dataclasses import dataclass, replace

import torch

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._device import sm_count
from tracelab.kernels._kda_chain import conv_silu, eager, gated_norm, recurrent
from tracelab.kernels._kda_data import TAPS, Cache, Token, Weights, reference, work
from tracelab.kernels._kda_device import fused, fused_sliced
from tracelab.kernels._kda_inputs import Inputs, Shape, slot_tables
from tracelab.kernels._kernel import TOLERANCE, Case, Options, Tensors, Work, poisoned
from tracelab.kernels._kernel_main import main
from tracelab.kernels._split_plan import SMS

__all__ = ["Cache", "Chain", "Plan", "Scratch", "Token", "Weights", "case", "decode_plan", "step", "step_unfused"]

VARIANTS = {
    "fused": "one launch, the form chosen by the number of states",
    "unfused": "three launches: convolution, recurrence, norm; q, k, v and o through memory",
    "eager": "starved: torch operations, 55 launches or 56, the state read or written 6 times",
    "warps8": "starved: one block of 8 warps on an SM, which loads a state when it has all else",
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
CHECK = {"batch": 3, "heads": 3, "key_dim": 64, "value_dim": 32, "null_rows": 1}

POSITION = 1021  # of the new token in a case: its place in the ring is not the first
EAGER_KERNELS = 55  # of one row, bf16 activations and an fp32 state, by torch's profiler; of more rows see `_kernels`
FEWEST_ROWS = 8  # where tiles of 16 leave SMs empty: as fast (12 states: 3.66 µs against 3.65), on all SMs
TILE_ROWS = 16  # 8 KiB of a state: the convolution, which every tile repeats, is little of its work
CHAIN_ROWS = 32  # of a tile in the unfused step, which repeats no convolution
SLICE_ROWS = 32
ONE_TILE_UNITS = 64  # from so many states on, one block a state; measured at 32 (16 rows win) and 96 (128 rows do)


@dataclass(frozen=True)
class Plan:
    """How the fused step runs. `stages` 0: tiles of `block_v` rows of a state; else whole states in slices.

    stages   slices of a state on their way to a block
    slice_v  rows of a slice
    lines    of 128 bytes of a state row, that one access of a warp reads
    early    tiles: issue the state's load before the first wait
    """

    block_v: int
    warps: int
    stages: int = 0
    slice_v: int = 0
    lines: int = 1
    early: bool = True


WARPS8 = Plan(128, warps=8, lines=4, early=False)  # the starved form


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


def decode_plan(units: int, value_dim: int, sms: int = SMS, state_bytes: int = 4) -> Plan:
    """The plan for `units` = rows × heads states with elements of `state_bytes`, the fastest measured on an H200.

    3072 states: two blocks of 8 warps on an SM hold 128 KiB in flight, and a slice of 32 rows is stored while the
    others still arrive: 107 µs, against 113 for a state in one piece. In bf16 a state is half of that, and blocks of 4
    warps, three on an SM, make up for it: 65 µs against 69. 96 states: an SM has one block, and 16 warps are done
    with it soonest: 7.2 µs, against 7.5 with 4. 12 and 32 states: tiles of one warp need no barriers: 3.7 and 5.5 µs.
    """
    if units > sms:
        slice_v = min(SLICE_ROWS, value_dim)
        return Plan(value_dim, warps=8 if state_bytes > 2 else 4, stages=value_dim // slice_v, slice_v=slice_v, lines=2)
    if units >= ONE_TILE_UNITS:
        return Plan(value_dim, warps=16)
    rows = TILE_ROWS if units * (value_dim // TILE_ROWS) >= sms else FEWEST_ROWS
    return Plan(min(rows, value_dim), warps=1)


def unfused_plan(units: int, value_dim: int, sms: int = SMS) -> Plan:
    """The tiles of the unfused step's recurrence: 96 states take 12.9 µs so, 14.0 in whole states, 16.7 in 8 rows."""
    return Plan(value_dim if units > sms else min(CHAIN_ROWS, value_dim), warps=4)


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
) -> None:
    """One step in one launch: writes `out` [rows, H, V] and changes the cache.

    `slots` int32 [rows] are different slots, or −1; `pos` int32 [1] is the position of the new token. Nothing is
    allocated and the host never waits.
    """
    heads, key_dim, value_dim = cache.sizes
    first = (token.x, cache.ring, weights.conv)
    rest = (token.g, weights.dt_bias, weights.a_log, token.b, token.gate, weights.norm, slots, pos, out)
    sizes = (token.x.stride(0), token.b.stride(0), heads)
    piece = min(key_dim, plan.lines * cache.row_piece)
    constants = {"K": key_dim, "V": value_dim, "KI": piece, "K3": gate == "k3"}
    launch = {"num_warps": plan.warps, "num_stages": 1}
    if plan.stages:
        fused_sliced[(len(slots) * heads,)](
            *first, cache.state, *rest, *sizes, **constants, BV=plan.slice_v, AHEAD=plan.stages, **launch
        )
    else:
        fused[(len(slots) * heads, value_dim // plan.block_v)](
            *first, cache.state, *rest, scratch.part, scratch.done, *sizes, **constants,
            BV=plan.block_v, EARLY=plan.early, **launch,
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
    fixed = {f"bv{rows}": Plan(min(rows, shape.value_dim), warps=4) for rows in (32, 128)}
    fixed["warps8"] = replace(WARPS8, block_v=shape.value_dim)
    if variant == "unfused":
        return unfused_plan(shape.units, shape.value_dim, sms)
    return fixed.get(variant) or decode_plan(shape.units, shape.value_dim, sms, shape.state.itemsize)


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
            step(token, weights, cache, slots, pos, out, scratch, plan, shape.gate)
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
        kernels=_kernels(variant, shape.rows),
        remark=_remark(variant, plan, shape, dtype),
        tolerance=TOLERANCE[torch.bfloat16] if shape.state == torch.bfloat16 else None,
    )


def _kernels(variant: str, rows: int) -> int:
    """Launches of a step. With more rows than one, torch must copy k for its product with the states."""
    return {"eager": EAGER_KERNELS + (rows > 1), "unfused": 3}.get(variant, 1)


def _work(shape: Shape, dtype: torch.dtype) -> Work:
    live = shape.rows - shape.null_rows
    return work(live, shape.heads, shape.key_dim, shape.value_dim, dtype.itemsize, shape.state.itemsize)


def _remark(variant: str, plan: Plan, shape: Shape, dtype: torch.dtype) -> str:
    """The grid, and the bytes of the other common count."""
    blocks = shape.units * shape.value_dim // plan.block_v
    grid = "" if variant == "eager" else f"{blocks} blocks"
    again = (shape.rows - shape.null_rows - 1) * TAPS * shape.channels * torch.float32.itemsize
    if again < 1e6:
        return grid
    every_row = f"{(_work(shape, dtype).bytes + again) / 1e6:.0f} MB if every row reads the conv weights"
    return ", ".join(filter(None, (grid, every_row)))


def _spec(name: str, plan: Plan, registers: int, blocks: int, *, k3: bool = True, state: str = "fp32") -> CompileSpec:
    """A fused form at the shape of Kimi-Linear and K3 heads, with bf16 activations."""
    piece = min(128, plan.lines * 128 // {"fp32": 4, "bf16": 2}[state])
    types = dict.fromkeys(("X", "RING", "G", "B", "GATE", "OUT"), "*bf16") | dict.fromkeys(("SLOTS", "POS"), "*i32")
    types |= dict.fromkeys(("W", "DT_BIAS", "A_LOG", "NORM", "PART"), "*fp32") | {"DONE": "*i32", "STATE": f"*{state}"}
    types |= dict.fromkeys(("x_stride", "b_stride", "H"), "i32")
    constants: dict[str, object] = {"K": 128, "V": 128, "KI": piece, "K3": k3}
    sliced, tiled = {"BV": plan.slice_v, "AHEAD": plan.stages}, {"BV": plan.block_v, "EARLY": plan.early}
    fn, more = (fused_sliced, sliced) if plan.stages else (fused, tiled)
    constants |= more
    signature = {arg: "constexpr" if arg in constants else types[arg] for arg in fn.arg_names}
    aligned = [arg for arg, kind in signature.items() if kind.startswith("*") or arg in ("H", "x_stride", "b_stride")]
    return CompileSpec(
        name=name, fn=fn, signature=signature, constexprs=constants, num_warps=plan.warps, num_stages=1,
        divisible=tuple(aligned), max_registers=registers, min_blocks_per_sm=blocks, wgmma=False,
    )  # fmt: skip


def compile_specs() -> tuple[CompileSpec, ...]:
    """The shipped configurations, with the registers that Triton 3.6.0 gives them."""
    many, one, few = (decode_plan(units, 128) for units in (32 * 96, 96, 32))
    return (
        _spec("kda slices", many, 128, 2),
        _spec("kda slices kimi", many, 128, 2, k3=False),
        _spec("kda slices bf16 state", decode_plan(32 * 96, 128, state_bytes=2), 168, 3, state="bf16"),
        _spec("kda state", one, 104, 1),
        _spec("kda state kimi", one, 104, 1, k3=False),
        _spec("kda tiles of 8", Plan(FEWEST_ROWS, warps=1), 126, 16),
        _spec("kda tiles of 16", few, 168, 12),
        _spec("kda tiles of 16 kimi", few, 168, 12, k3=False),
        _spec("kda bv128", Plan(128, warps=4), 249, 2),
        _spec("kda bv32", Plan(32, warps=4), 116, 4),
        _spec("kda warps8", WARPS8, 238, 1),
    )


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
