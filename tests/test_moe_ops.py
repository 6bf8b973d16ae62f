"""_moe_ops in the interpreter: routing, slots, scatter, silu·mul, combine against float64; overflow; broken forms."""

import importlib
from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu

TOLERANCES = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2}
SCALE = 2.446  # Kimi-Linear's routed_scaling_factor


def moe_ops() -> tuple[Any, Any]:
    """Torch and `_moe_ops` in the interpreter."""
    torch, _ = kernel_on_cpu("_kernel")
    return torch, importlib.import_module("tracelab.kernels._moe_ops")


def error(got: Any, want: Any) -> float:
    return float((got.double() - want).norm() / want.norm())


def random(torch: Any, seed: int, *size: int) -> Any:
    return torch.empty(size).normal_(generator=torch.Generator().manual_seed(seed))


def chosen_by_hand(torch: Any, logits: Any, bias: Any, top_k: int) -> tuple[list[list[int]], list[list[float]]]:
    """Experts of each row and their weights in float64, one row at a time, by sorting."""
    experts, weights = [], []
    for row in logits.double():
        score = torch.sigmoid(row)
        order = sorted(range(len(row)), key=lambda e: (-(score + bias.double())[e].item(), e))[:top_k]
        total = sum(score[e].item() for e in order)
        experts.append(order)
        weights.append([score[e].item() / total * SCALE for e in order])
    return experts, weights


def routed(torch: Any, ops: Any, logits: Any, bias: Any, top_k: int, capacity: int, live: int | None = None) -> Any:
    rows, experts = logits.shape
    into = ops.assignment(rows, experts, top_k, capacity, torch.device("cpu"))
    for buffer in (into.expert, into.slot, into.count, into.dropped):
        buffer.fill_(-77)
    into.weight.fill_(float("nan"))
    ops.route(logits, bias, torch.tensor([rows if live is None else live], dtype=torch.int32), into, scale=SCALE)
    return into


# One lot, several lots with a rest, one expert left over in the tile, every expert chosen, a single row.
@pytest.mark.parametrize(("rows", "experts", "top_k"), [(1, 5, 2), (7, 16, 8), (37, 13, 3), (16, 4, 4), (33, 32, 1)])
def test_route_chooses_and_weighs_as_sorting_does(rows: int, experts: int, top_k: int) -> None:
    torch, ops = moe_ops()
    logits, bias = random(torch, 1, rows, experts), 0.3 * random(torch, 2, experts)
    into = routed(torch, ops, logits, bias, top_k, rows)
    want_experts, want_weights = chosen_by_hand(torch, logits, bias, top_k)
    assert into.expert.tolist() == want_experts
    assert error(into.weight, torch.tensor(want_weights, dtype=torch.float64)) < TOLERANCES["float32"]
    assert into.dropped.tolist() == [0]


@pytest.mark.parametrize(("rows", "experts", "top_k"), [(1, 5, 2), (37, 13, 3), (16, 4, 4)])
def test_slots_number_the_rows_of_each_expert_in_order(rows: int, experts: int, top_k: int) -> None:
    torch, ops = moe_ops()
    into = routed(torch, ops, random(torch, 3, rows, experts), torch.zeros(experts), top_k, rows)
    taken = [0] * experts
    for chosen, slots in zip(into.expert.tolist(), into.slot.tolist(), strict=True):
        assert len(set(chosen)) == top_k
        for expert, slot in zip(chosen, slots, strict=True):
            assert slot == taken[expert]
            taken[expert] += 1
    assert into.count.tolist() == taken


def test_equal_scores_go_to_the_first_experts() -> None:
    torch, ops = moe_ops()
    into = routed(torch, ops, torch.zeros(3, 6), torch.zeros(6), 2, 3)
    assert into.expert.tolist() == [[0, 1]] * 3
    assert into.count.tolist() == [3, 3, 0, 0, 0, 0]


def test_rows_that_are_not_live_get_no_expert() -> None:
    torch, ops = moe_ops()
    logits = random(torch, 4, 5, 6)
    into = routed(torch, ops, logits, torch.zeros(6), 2, 16, live=3)
    alone = routed(torch, ops, logits[:3].contiguous(), torch.zeros(6), 2, 16)
    assert into.expert[:3].tolist() == alone.expert.tolist()
    assert into.slot[3:].tolist() == into.expert[3:].tolist() == [[-1, -1]] * 2
    assert into.count.tolist() == alone.count.tolist()


def test_an_assignment_of_more_choices_than_experts_is_refused() -> None:
    torch, ops = moe_ops()
    with pytest.raises(ValueError, match="top_k 5"):
        ops.assignment(2, 4, 5, 16, torch.device("cpu"))


def mixture(torch: Any, ops: Any, dtype: Any, into: Any, x: Any, up: Any, down: Any) -> Any:
    """The routed part with the kernels, the grouped products by torch on the rows in use; slots start as NaN."""
    experts, width = up.shape[0], x.shape[1]
    nan = {"fill_value": float("nan"), "dtype": dtype}
    a, h = (torch.full((experts, into.capacity, n), **nan) for n in (width, up.shape[1]))
    act, y = (torch.full((experts, into.capacity, n), **nan) for n in (down.shape[2], width))
    ops.scatter(x, into, a)
    grouped(a, up, into.count, h)
    ops.silu_mul(h, into, act)
    grouped(act, down, into.count, y)
    out = torch.full_like(x, float("nan"))
    ops.combine(y, x, into, out)
    return out


def grouped(a: Any, weight: Any, count: Any, out: Any) -> None:
    for e, rows in enumerate(count.tolist()):
        out[e, :rows] = (a[e, :rows].float() @ weight[e].float().T).to(out.dtype)


def mixture_by_hand(torch: Any, x: Any, experts: Any, weights: Any, up: Any, down: Any) -> Any:
    """The same in float64, one row and one expert at a time, without slots."""
    rows = []
    for row, chosen, weight in zip(x.double(), experts, weights, strict=True):
        total = row.clone()
        for e, w in zip(chosen, weight, strict=True):
            gate, lift = (up[e].double() @ row).chunk(2)
            total = total + w * (down[e].double() @ (gate * torch.sigmoid(gate) * lift))
        rows.append(total)
    return torch.stack(rows)


def weights_of(torch: Any, experts: int, width: int, inner: int, dtype: Any) -> tuple[Any, Any]:
    up = random(torch, 5, experts, 2 * inner, width) * width**-0.5
    down = random(torch, 6, experts, width, inner) * inner**-0.5
    return up.to(dtype), down.to(dtype)


# 600 columns: a whole tile and a rest; 24: less than one.
@pytest.mark.parametrize(("width", "inner"), [(24, 40), (600, 16)])
@pytest.mark.parametrize("name", sorted(TOLERANCES))
def test_mixture_equals_float64(name: str, width: int, inner: int) -> None:
    torch, ops = moe_ops()
    dtype = getattr(torch, name)
    x = random(torch, 7, 9, width).to(dtype)
    logits = random(torch, 8, 9, 5)
    up, down = weights_of(torch, 5, width, inner, dtype)
    into = routed(torch, ops, logits, torch.zeros(5), 2, 16)
    want = mixture_by_hand(torch, x, *chosen_by_hand(torch, logits, torch.zeros(5), 2), up, down)
    assert error(mixture(torch, ops, dtype, into, x, up, down), want) < TOLERANCES[name]


def test_rows_without_a_slot_stay_untouched() -> None:
    torch, ops = moe_ops()
    into = routed(torch, ops, random(torch, 9, 4, 3), torch.zeros(3), 1, 16)
    out = torch.full((3, 16, 8), float("nan"))
    ops.scatter(torch.ones(4, 8), into, out)
    for e, rows in enumerate(into.count.tolist()):
        assert torch.equal(out[e, :rows], torch.ones(rows, 8))
        assert out[e, rows:].isnan().all()


@pytest.mark.parametrize("capacity", [1, 2])
def test_an_overflow_drops_the_last_rows_and_corrupts_nothing(capacity: int) -> None:
    """All rows want experts 0 and 1; the buffers lie between guards that a wrong slot would hit."""
    torch, ops = moe_ops()
    rows, experts, width = 5, 3, 8
    logits = torch.tensor([[4.0, 3.0, -4.0]]).repeat(rows, 1)
    into = routed(torch, ops, logits, torch.zeros(experts), 2, capacity)
    assert into.dropped.tolist() == [2 * (rows - capacity)]
    assert into.count.tolist() == [capacity, capacity, 0]
    assert into.slot.tolist() == [[s, s] if s < capacity else [-1, -1] for s in range(rows)]
    guarded = torch.full((experts + 2, capacity, width), -7.0)
    x = random(torch, 10, rows, width)
    ops.scatter(x, into, guarded[1:-1])
    assert torch.equal(guarded[1], x[:capacity]) and torch.equal(guarded[2], x[:capacity])
    for untouched in (guarded[0], guarded[3], guarded[4]):
        assert torch.equal(untouched, torch.full_like(untouched, -7.0))
    out = torch.full_like(x, float("nan"))
    ops.combine(torch.ones(experts, capacity, width), x, into, out)
    assert error(out[:capacity], x[:capacity].double() + SCALE) < TOLERANCES["float32"]
    assert torch.equal(out[capacity:], x[capacity:])


def test_logits_that_are_not_numbers_write_nothing_outside() -> None:
    torch, ops = moe_ops()
    into = routed(torch, ops, torch.full((3, 4), float("nan")), torch.zeros(4), 2, 16)
    assert int(into.expert.min()) >= -1 and int(into.expert.max()) < 4
    assert int(into.slot.min()) >= -1 and int(into.slot.max()) < 16
    assert int(into.count.sum()) <= 6


@pytest.mark.parametrize("fault", ["expert", "slot", "weight"])
def test_a_wrong_expert_slot_or_weight_is_far_from_float64(fault: str) -> None:
    """Negative control: one expert further on, another row's slot, weights of the wrong choice."""
    torch, ops = moe_ops()
    logits, x = random(torch, 11, 9, 4), random(torch, 12, 9, 24)
    up, down = weights_of(torch, 4, 24, 40, torch.float32)
    into = routed(torch, ops, logits, torch.zeros(4), 2, 16)
    want = mixture_by_hand(torch, x, *chosen_by_hand(torch, logits, torch.zeros(4), 2), up, down)
    y = torch.zeros(4, 16, 24)
    right = mixture(torch, ops, torch.float32, into, x, up, down)
    assert error(right, want) < TOLERANCES["float32"]
    a, h, act = torch.zeros(4, 16, 24), torch.zeros(4, 16, 80), torch.zeros(4, 16, 40)
    ops.scatter(x, into, a)
    grouped(a, up.roll(-1, 0) if fault == "expert" else up, into.count, h)
    ops.silu_mul(h, into, act)
    grouped(act, down, into.count, y)
    if fault == "slot":
        into.slot.copy_((into.slot + 1) % into.count[into.expert.long()])
    if fault == "weight":
        into.weight.copy_(into.weight.flip(1))
    out = torch.empty_like(x)
    ops.combine(y, x, into, out)
    assert error(out, want) > 1e-2
