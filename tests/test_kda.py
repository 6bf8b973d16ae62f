"""One KDA decode step: every form against float64, 64 steps in a row, the ring bit for bit, null slots, in-place."""
# ruff: noqa: N803

import dataclasses
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu

from tracelab.errors import UsageError

DTYPES = ("float32", "float16", "bfloat16")
ONE: dict[str, Any] = {"batch": 1, "heads": 1, "key_dim": 32, "value_dim": 32}  # one state, one block: the cheapest
PLANS = {"slices": {"block_v": 16, "warps": 8, "stages": 2, "slice_v": 4}, "tiles": {"block_v": 8, "warps": 4}}
WHOLE = {"block_v": 16, "warps": 4}  # one block a state of 16 rows


@pytest.fixture
def lib() -> SimpleNamespace:
    """The kernel and what it is made of, for Triton's interpreter; a skip without torch."""
    torch, kda = kernel_on_cpu("kda")
    parts = {name: importlib.import_module(f"tracelab.kernels._kda_{name}") for name in ("data", "device", "inputs")}
    kernel = importlib.import_module("tracelab.kernels._kernel")
    return SimpleNamespace(
        torch=torch, kda=kda, cpu=torch.device("cpu"), relative_l2=kernel.relative_l2, worst_error=kernel.worst_error,
        tolerance={name: kernel.TOLERANCE[getattr(torch, name)] for name in DTYPES}, **parts,
    )  # fmt: skip


def options(lib: SimpleNamespace, **given: object) -> dict[str, Any]:
    return {**lib.kda.DEFAULTS, **lib.kda.CHECK, **given}


def error_of(lib: SimpleNamespace, dtype: str, **given: object) -> float:
    case = lib.kda.case(options(lib, **given), lib.cpu, getattr(lib.torch, dtype))
    return float(lib.worst_error(case))


class Layer:
    """One layer's inputs, cache and scratch, stepped by hand."""

    def __init__(
        self, lib: SimpleNamespace, dtype: str = "float32", slots: list[int] | None = None, **given: Any
    ) -> None:
        self.lib = lib
        self.shape = lib.inputs.Shape.of(options(lib, **given))
        self.inputs = lib.inputs.Inputs.random(0, self.shape, lib.cpu, getattr(lib.torch, dtype))
        default = list(range(self.shape.rows))
        self.slots = lib.torch.tensor(default if slots is None else slots, dtype=lib.torch.int32)
        self.scratch = lib.kda.Scratch.of(self.shape.rows, self.shape.heads, self.shape.value_dim, lib.cpu)

    def expected(self, pos: int, cache: Any = None) -> tuple[Any, Any, Any]:
        i = self.inputs
        want: tuple[Any, Any, Any] = self.lib.data.reference(
            i.token, i.weights, cache or i.cache, self.slots, pos, self.shape.gate
        )
        return want

    def step(self, pos: int, plan: dict[str, int]) -> tuple[Any, Any, Any]:
        i, at = self.inputs, self.lib.torch.tensor([pos], dtype=self.lib.torch.int32)
        i.out.fill_(float("nan"))
        self.scratch.part.fill_(float("nan"))
        form = self.lib.kda.Plan(**plan)
        self.lib.kda.step(i.token, i.weights, i.cache, self.slots, at, i.out, self.scratch, form, self.shape.gate)
        return i.out, i.cache.state, i.cache.ring

    def errors(self, pos: int, plan: dict[str, int]) -> list[float]:
        want = self.expected(pos)
        return [self.lib.relative_l2(g, w) for g, w in zip(self.step(pos, plan), want, strict=True)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["fused", "unfused", "eager"])
def test_a_variant_agrees_with_float64(lib: SimpleNamespace, variant: str, dtype: str) -> None:
    """3 rows, the last without a slot; `fused` in two tiles of 16 rows, joined by the last block."""
    assert error_of(lib, dtype, variant=variant, heads=1) <= lib.tolerance[dtype]


@pytest.mark.parametrize("variant", ["warps8", "bv32", "bv128"])
def test_the_other_tilings_agree_with_float64(lib: SimpleNamespace, variant: str) -> None:
    """`bv32` splits these states of 64 rows in two; the others keep them whole."""
    error = error_of(lib, "float32", variant=variant, heads=1, value_dim=64, gate="kimi")
    assert error <= lib.tolerance["float32"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("gate", ["k3", "kimi"])
def test_slices_agree_with_float64(lib: SimpleNamespace, gate: str, dtype: str) -> None:
    """6 states in 4 slices, in two pieces a state row; the row in the middle has no slot."""
    layer = Layer(lib, dtype, [1, -1, 0], heads=2, value_dim=16, gate=gate)
    assert max(layer.errors(6, PLANS["slices"])) <= lib.tolerance[dtype]


@pytest.mark.parametrize(("slice_v", "stages"), [(32, 4), (64, 1), (32, 3), (128, 1)])
def test_slices_of_whole_heads_give_the_same(lib: SimpleNamespace, slice_v: int, stages: int) -> None:
    """128 × 128 states: all slices on their way at once, some, one; a state that is its only slice."""
    layer = Layer(lib, batch=1, heads=1, key_dim=128, value_dim=128)
    plan = {"block_v": 128, "warps": 8, "stages": stages, "slice_v": slice_v, "lines": 2}
    assert max(layer.errors(2, plan)) <= lib.tolerance["float32"]


@pytest.mark.parametrize("block_v", [128, 32, 16])
def test_every_tile_height_gives_the_same(lib: SimpleNamespace, block_v: int) -> None:
    """128 × 128 states: one block, 4 and 8 blocks with the last one's norm."""
    layer = Layer(lib, batch=1, heads=1, key_dim=128, value_dim=128)
    assert max(layer.errors(2, {"block_v": block_v, "warps": 4})) <= lib.tolerance["float32"]
    assert not layer.scratch.done.any()  # ready for the next call


@pytest.mark.parametrize(("gate", "form"), [("k3", "slices"), ("kimi", "tiles")])
def test_64_steps_stay_on_float64(lib: SimpleNamespace, gate: str, form: str) -> None:
    """Every place of the ring is overwritten 16 times; the float64 side carries its own state and ring.

    The outputs are compared together: where one is small by cancellation, its own relative error says nothing.
    """
    layer, outs, torch = Layer(lib, **{**ONE, "value_dim": 16}, gate=gate), [], lib.torch
    token, cache = layer.inputs.token, layer.inputs.cache
    state, ring = cache.state.double(), cache.ring.clone()
    for pos in range(64):
        for part, activation in enumerate((token.x, token.g, token.b, token.gate)):
            activation.normal_(generator=torch.Generator().manual_seed(4 * pos + part))
        want, state, ring = layer.expected(pos, lib.data.Cache(state, ring))
        got = layer.step(pos, PLANS[form])
        assert torch.equal(got[2], ring)
        assert lib.relative_l2(got[1], state) <= lib.tolerance["float32"]
        outs.append((got[0].clone(), want))
    error = lib.relative_l2(*(torch.stack(side) for side in zip(*outs, strict=True)))
    assert error <= lib.tolerance["float32"]


@pytest.mark.parametrize("form", PLANS)
def test_a_step_changes_the_cache_in_place_and_the_next_uses_it(lib: SimpleNamespace, form: str) -> None:
    layer = Layer(lib, **{**ONE, "value_dim": 16})
    address, before = layer.inputs.cache.state.data_ptr(), layer.inputs.cache.state.clone()
    first = layer.step(0, PLANS[form])[0].clone()
    assert layer.inputs.cache.state.data_ptr() == address
    assert lib.relative_l2(layer.inputs.cache.state, before) > 1e-2
    assert max(layer.errors(1, PLANS[form])) <= lib.tolerance["float32"]
    assert lib.relative_l2(layer.inputs.out, first) > 1e-2


@pytest.mark.parametrize("form", PLANS)
def test_a_row_without_a_slot_gives_zeros_and_touches_nothing(lib: SimpleNamespace, form: str) -> None:
    layer, equal = Layer(lib, slots=[2, -1, 1], **{**ONE, "batch": 3, "value_dim": 16}), lib.torch.equal
    state, ring = layer.inputs.cache.state.clone(), layer.inputs.cache.ring.clone()
    out, new_state, new_ring = layer.step(3, PLANS[form])
    assert not out[1].any()
    assert equal(new_state[0], state[0])
    assert equal(new_ring[0], ring[0])
    assert not equal(new_state[1], state[1])


@pytest.mark.parametrize("slots", [[-1], [-1, -1]], ids=["one", "two"])
def test_a_batch_of_null_rows_only_is_all_zeros(lib: SimpleNamespace, slots: list[int]) -> None:
    layer = Layer(lib, slots=slots, **{**ONE, "batch": len(slots), "value_dim": 16})
    assert not layer.step(0, WHOLE)[0].any()


@pytest.mark.parametrize("form", PLANS)
def test_a_bf16_state_is_float64_up_to_its_rounding(lib: SimpleNamespace, form: str) -> None:
    """The output comes from the state before it is rounded. A unit of the 8 bits is 2⁻⁷ of a value of 1, and the
    interpreter cuts off what a GPU would round: an error of 2⁻⁷ / √3 = 4.5e-3 in the mean at most."""
    layer = Layer(lib, **{**ONE, "key_dim": 128, "value_dim": 16, "state_bits": 16})
    assert layer.inputs.cache.row_piece == 64  # 128 bytes
    out, state, ring = layer.errors(1, PLANS[form])
    assert out <= lib.tolerance["float32"]
    assert 1e-3 < state < 4.5e-3
    assert ring == 0


def test_a_case_with_a_bf16_state_allows_its_rounding(lib: SimpleNamespace) -> None:
    cases = {bits: lib.kda.case(options(lib, **ONE, null_rows=0, state_bits=bits), lib.cpu, lib.torch.float32)
             for bits in (16, 32)}  # fmt: skip
    assert cases[32].tolerance is None
    assert lib.tolerance["float32"] < lib.worst_error(cases[16]) <= cases[16].tolerance == lib.tolerance["bfloat16"]


@pytest.mark.parametrize("block_v", [16, 8])
def test_joint_sums_are_the_sums(lib: SimpleNamespace, block_v: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU's form of the sums over a tuple, which the interpreter otherwise replaces by single ones."""
    constexpr = importlib.import_module("triton.language").constexpr
    monkeypatch.setattr(lib.device, "ONE_BY_ONE", constexpr(False))
    layer = Layer(lib, **{**ONE, "key_dim": 16, "value_dim": 16})
    assert max(layer.errors(1, {"block_v": block_v, "warps": 4})) <= lib.tolerance["float32"]


def without_decay(s: Any, q: Any, k: Any, v: Any, alpha: Any, beta: Any, K: Any, KI: Any) -> Any:
    return RIGHT(s, q, k, v, alpha * 0.0 + 1.0, beta, K, KI)


def without_beta(s: Any, q: Any, k: Any, v: Any, alpha: Any, beta: Any, K: Any, KI: Any) -> Any:
    return RIGHT(s, q, k, v, alpha, beta * 0.0 + 1.0, K, KI)


def with_decay_after_the_update(s: Any, q: Any, k: Any, v: Any, alpha: Any, beta: Any, K: Any, KI: Any) -> Any:
    s, _ = RIGHT(s, q, k, v, alpha * 0.0 + 1.0, beta, K, KI)
    return RIGHT(s, q, k, v, alpha, beta * 0.0, K, KI)


def with_output_of_the_old_state(s: Any, q: Any, k: Any, v: Any, alpha: Any, beta: Any, K: Any, KI: Any) -> Any:
    _, o = RIGHT(s, q, k, v, alpha, beta * 0.0, K, KI)
    s, _ = RIGHT(s, q, k, v, alpha, beta, K, KI)
    return s, o


RIGHT: Any = None  # the kernel's own delta rule, while a test runs a wrong one


@pytest.mark.parametrize("form", PLANS)
@pytest.mark.parametrize(
    ("wrong", "state_too"),
    [
        (without_decay, True),
        (without_beta, True),
        (with_decay_after_the_update, True),
        (with_output_of_the_old_state, False),
    ],
)
def test_a_wrong_recurrence_is_noticed(
    lib: SimpleNamespace, wrong: Callable[..., Any], state_too: bool, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative controls, inside the fused kernels: an error above 1e-2 where the right rule is below 2e-6."""
    monkeypatch.setitem(globals(), "RIGHT", lib.device.delta_rule)
    monkeypatch.setattr(lib.device, "delta_rule", wrong)
    out, state, _ = Layer(lib, **{**ONE, "value_dim": 16}).errors(1, PLANS[form])
    assert out > 1e-2
    assert not state_too or state > 1e-2


def test_the_plan_goes_by_the_number_of_states(lib: SimpleNamespace) -> None:
    plan_of, plan = lib.kda.decode_plan, lib.kda.Plan
    slices = plan(128, warps=8, stages=4, slice_v=32, lines=2)
    assert plan_of(32 * 96, 128) == plan_of(lib.kda.SMS + 1, 128) == slices  # a block's whole state is on its way
    assert plan_of(32 * 96, 128, state_bytes=2) == dataclasses.replace(slices, warps=4)
    assert plan_of(96, 128) == plan_of(lib.kda.SMS, 128) == plan(128, warps=16)
    assert plan_of(32, 128) == plan(16, warps=1)  # 256 blocks
    assert plan_of(12, 128) == plan(8, warps=1)  # a TP8 rank's 12 heads: 192 blocks, where 16 rows make 96
    for value_dim in (16, 32, 64):
        many = plan_of(1000, value_dim)
        assert many.stages * many.slice_v == value_dim
        assert value_dim % plan_of(1, value_dim).block_v == 0
    assert [lib.kda.unfused_plan(units, 128).block_v for units in (12, 96, 32 * 96)] == [32, 32, 128]


@pytest.mark.parametrize(("variant", "rows", "kernels"), [("fused", 2, 1), ("unfused", 2, 3), ("eager", 1, 55)])
def test_a_case_says_its_launches(lib: SimpleNamespace, variant: str, rows: int, kernels: int) -> None:
    given = options(lib, **{**ONE, "batch": rows, "null_rows": 0, "variant": variant})
    assert lib.kda.case(given, lib.cpu, lib.torch.bfloat16).kernels == kernels


def test_bytes_of_one_row_of_96_heads(lib: SimpleNamespace) -> None:
    """By hand, in bytes: the state 96·128·128·4 read and written = 12 582 912. Channels 3·96·128 = 36 864: weights
    4·36 864·4 = 589 824; ring 3 read, 1 written and x: 5·36 864·2 = 368 640. g, gate, out 3·12 288·2 = 73 728; b 192;
    dt_bias 49 152, A_log 384, norm 512; slot and position 8. Together 13 665 352."""
    model = lib.data.work(1, 96, 128, 128, element_bytes=2, state_bytes=4)
    assert model.bytes == 13_665_352
    assert model.flops == 96 * 7 * 128 * 128
    # 32 rows share the weights: 32 · (12 582 912 + 368 640 + 73 728 + 192 + 4) + 589 824 + 50 048 + 4
    assert lib.data.work(32, 96, 128, 128, element_bytes=2, state_bytes=4).bytes == 417_455_108
    shape = lib.inputs.Shape.of(lib.kda.DEFAULTS)
    remark = lib.kda._remark("fused", lib.kda.decode_plan(shape.units, 128), shape, lib.torch.bfloat16)
    assert remark == "3072 blocks, 436 MB if every row reads the conv weights"


@pytest.mark.parametrize(
    "given",
    [{"key_dim": 96}, {"key_dim": 256}, {"value_dim": 8}, {"gate": "k2"}, {"state_bits": 8}, {"null_rows": 4}],
    ids=str,
)
def test_what_no_kernel_can_do_is_refused(lib: SimpleNamespace, given: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        lib.kda.case(options(lib, variant="fused", **given), lib.cpu, lib.torch.float32)
