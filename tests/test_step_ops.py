"""The small kernels of a decode step against float64 in the interpreter, and controls that must fail."""

import math
from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu

DTYPES = ["float32", "float16", "bfloat16"]
THETA = 500_000.0
NAN = float("nan")


def error(got: Any, want: Any) -> float:
    """Relative L2 error; NaN counts as infinite."""
    value = float((got.double() - want).norm() / want.norm())
    return value if value == value else math.inf


def tolerance(torch: Any, dtype: str) -> float:
    from tracelab.kernels._kernel import TOLERANCE

    return TOLERANCE[getattr(torch, dtype)]


def normed(x: Any, weight: Any, eps: float = 1e-5) -> Any:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "width"), [(1, 1), (1, 37), (3, 64), (2, 2304), (2, 4096), (1, 7168)])
def test_rms_norm(batch: int, width: int, dtype: str) -> None:
    torch, ops = kernel_on_cpu("_step_ops")
    torch.manual_seed(width)
    x, added = (torch.randn(batch, width).to(getattr(torch, dtype)) for _ in range(2))
    weight = torch.randn(width).to(x.dtype)
    out = torch.full_like(x, NAN)
    ops.rms_norm(x, weight, out, eps=1e-5)
    assert error(out, normed(x.double(), weight)) <= tolerance(torch, dtype)
    want, out = x.double() + added.double(), torch.full_like(x, NAN)
    ops.rms_norm(x, weight, out, eps=1e-5, add=added, total=x)  # the sum replaces x, as a residual stream does
    assert error(out, normed(want, weight)) <= tolerance(torch, dtype)
    assert error(x, want) <= tolerance(torch, dtype)


def test_rms_norm_of_zeros_is_zero_and_a_sum_needs_a_place() -> None:
    torch, ops = kernel_on_cpu("_step_ops")
    x, out = torch.zeros(2, 37), torch.full((2, 37), NAN)
    ops.rms_norm(x, torch.ones(37), out, eps=1e-5)
    assert torch.equal(out, x)
    with pytest.raises(ValueError, match="go together"):
        ops.rms_norm(x, torch.ones(37), out, eps=1e-5, add=x)


def test_control_a_norm_over_the_padded_width_is_seen() -> None:
    torch, ops = kernel_on_cpu("_step_ops")
    x, weight, out = torch.randn(2, 37), torch.ones(37), torch.full((2, 37), NAN)
    ops.rms_norm(x, weight, out, eps=1e-5)
    padded = torch.nn.functional.pad(x.double(), (0, 64 - 37))
    assert error(out, normed(padded, torch.ones(64))[:, :37]) > 1e-2


class Rope:
    """q, k and v of a few heads, poisoned caches, and the truth as a complex product in float64."""

    batch, heads, kv_heads, dim, capacity = 2, 6, 2, 20, 9  # 10 pairs: a block has 16

    def __init__(self, torch: Any, dtype: str) -> None:
        torch.manual_seed(7)
        kind = getattr(torch, dtype)
        self.qkv = torch.randn(self.batch, (self.heads + 2 * self.kv_heads) * self.dim).to(kind)
        self.query = torch.full((self.batch, self.heads, self.dim), NAN, dtype=kind)
        self.keys, self.values = (
            torch.full((self.batch, self.capacity, self.kv_heads, self.dim), NAN, dtype=kind) for _ in range(2)
        )

    def run(self, torch: Any, ops: Any, position: int) -> None:
        where = torch.tensor([position], dtype=torch.int32)
        turns = ops.rope_turns(self.dim, THETA, torch.device("cpu"))
        ops.rope_append(self.qkv, self.query, self.keys, self.values, where, turns)

    def want(self, torch: Any, position: int) -> tuple[Any, Any, Any]:
        x = self.qkv.double().view(self.batch, -1, self.dim)
        half = self.dim // 2
        angle = torch.tensor([position * THETA ** (-2 * i / self.dim) for i in range(half)], dtype=torch.float64)
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
        rotated = torch.cat((turned.real, turned.imag), -1)
        last = self.heads + self.kv_heads
        return rotated[:, : self.heads], rotated[:, self.heads : last], x[:, last:]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("position", [0, 1, 5, 8])
def test_rope_and_append(position: int, dtype: str) -> None:
    torch, ops = kernel_on_cpu("_step_ops")
    case = Rope(torch, dtype)
    case.run(torch, ops, position)
    query, key, value = case.want(torch, position)
    assert error(case.query, query) <= tolerance(torch, dtype)
    assert error(case.keys[:, position], key) <= tolerance(torch, dtype)
    assert torch.equal(case.values[:, position].double(), value)  # v is moved, not computed
    for cache in (case.keys, case.values):
        assert int((~cache.isnan()).any(-1).sum()) == case.batch * case.kv_heads  # one row of each sequence


def test_rope_beyond_the_cache_writes_the_query_alone() -> None:
    torch, ops = kernel_on_cpu("_step_ops")
    case = Rope(torch, "float32")
    case.run(torch, ops, case.capacity)
    assert error(case.query, case.want(torch, case.capacity)[0]) <= 2e-6
    assert bool(case.keys.isnan().all()) and bool(case.values.isnan().all())


def test_control_one_position_off_and_neighbours_paired_are_seen() -> None:
    torch, ops = kernel_on_cpu("_step_ops")
    case = Rope(torch, "float32")
    case.run(torch, ops, 5)
    assert error(case.query, case.want(torch, 4)[0]) > 1e-2
    half = case.dim // 2  # elements 2i and 2i + 1 as one pair, the other convention in use
    case.qkv = case.qkv.view(case.batch, -1, half, 2).transpose(2, 3).reshape(case.batch, -1)
    assert error(case.query, case.want(torch, 5)[0]) > 1e-2


def test_angles_stay_exact_at_long_contexts() -> None:
    """At 131071 a float32 product would be off by 131071·6e-8 = 8e-3 radians in the first pair."""
    torch, ops = kernel_on_cpu("_step_ops")
    turns = ops.rope_turns(128, THETA, torch.device("cpu"))
    position = 131_071
    part = (turns * position).to(torch.float32).double() * (math.tau * 2.0**-64)
    exact = torch.tensor([position * THETA ** (-i / 64) for i in range(64)], dtype=torch.float64)
    assert float((part.sin() - exact.sin()).abs().max()) <= 3e-7
    assert float((part.cos() - exact.cos()).abs().max()) <= 3e-7
    single = (exact.float() * (1 + 2**-24)).double()  # control: what rounding the angle alone does
    assert float((single.sin() - exact.sin()).abs().max()) > 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "width"), [(1, 1), (3, 37), (2, 1024), (2, 1025), (2, 5000)])
def test_argmax_then_embed(batch: int, width: int, dtype: str) -> None:
    """One run of columns up to 1024, two and five above."""
    torch, ops = kernel_on_cpu("_step_ops")
    torch.manual_seed(width)
    logits = torch.randn(batch, width).to(getattr(torch, dtype))
    scratch = ops.argmax_scratch(batch, width, torch.device("cpu"))
    assert scratch.value.shape == (batch, -(-width // 1024))
    scratch.value.fill_(NAN)
    token = torch.full((batch,), -1)
    ops.argmax(logits, token, scratch)
    first = [row.index(max(row)) for row in logits.tolist()]
    assert token.tolist() == first
    table = torch.randn(width, 1030).to(logits.dtype)
    out = torch.full((batch, 1030), NAN, dtype=table.dtype)
    ops.embed(token, table, out)
    assert torch.equal(out, table[token])


def test_argmax_takes_the_first_of_equals_and_stays_inside_the_table() -> None:
    torch, ops = kernel_on_cpu("_step_ops")
    logits = torch.zeros(4, 3000)
    logits[0, [2999, 1500, 1501]] = 2.0  # in two runs
    logits[1] = -math.inf
    logits[2, 2999] = 1.0
    logits[3] = NAN
    token = torch.full((4,), -1)
    ops.argmax(logits, token, ops.argmax_scratch(4, 3000, torch.device("cpu")))
    assert token[:3].tolist() == [1500, 0, 2999]
    assert 0 <= int(token[3]) < 3000
