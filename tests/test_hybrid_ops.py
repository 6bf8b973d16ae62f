"""_hybrid_ops in the interpreter: small products, the cache's new row and the embedding, against float64."""

import importlib
from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu

TOLERANCES = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2}


def hybrid_ops() -> tuple[Any, Any]:
    """Torch and `_hybrid_ops` in the interpreter."""
    torch, _ = kernel_on_cpu("_kernel")
    return torch, importlib.import_module("tracelab.kernels._hybrid_ops")


def error(got: Any, want: Any) -> float:
    return float((got.double() - want).norm() / want.norm())


def random(torch: Any, seed: int, *size: int) -> Any:
    return torch.empty(size).normal_(generator=torch.Generator().manual_seed(seed))


# Rows, groups, outputs, K and copied columns: one tile and a rest of outputs; two lots of rows; a row padded to 16.
@pytest.mark.parametrize(("rows", "groups", "outputs", "k", "extra"), [(1, 3, 100, 32, 0), (19, 2, 64, 16, 8)])
@pytest.mark.parametrize("name", sorted(TOLERANCES))
def test_expand_equals_float64(name: str, rows: int, groups: int, outputs: int, k: int, extra: int) -> None:
    """x is a slice of wider rows, and out another layout of groups, as in a KDA layer."""
    torch, ops = hybrid_ops()
    dtype = getattr(torch, name)
    wide = random(torch, 1, rows, groups * (k + extra) + 5).to(dtype)
    x = wide[:, 5:].unflatten(1, (groups, k + extra))
    weight = random(torch, 2, groups, outputs, k).to(dtype)
    out = torch.full((groups, rows, outputs + extra), float("nan"), dtype=dtype).transpose(0, 1)
    ops.expand(x, weight, out)
    want = torch.einsum("bgk,gnk->bgn", x[:, :, :k].double(), weight.double())
    assert error(out[:, :, :outputs], want) < TOLERANCES[name]
    assert torch.equal(out[:, :, outputs:], x[:, :, k:])


@pytest.mark.parametrize(("x", "weight", "out"), [
    ((2, 3, 32), (2, 8, 32), (2, 3, 8)), ((2, 2, 35), (2, 8, 32), (2, 2, 11)), ((2, 2, 24), (2, 8, 24), (2, 2, 8)),
    ((2, 2, 40), (2, 8, 32), (2, 2, 8)),
])  # fmt: skip
def test_expand_refuses_shapes_that_do_not_fit(
    x: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...]
) -> None:
    torch, ops = hybrid_ops()
    with pytest.raises(ValueError, match="do not fit"):
        ops.expand(torch.zeros(x), torch.zeros(weight), torch.zeros(out))


@pytest.mark.parametrize("name", sorted(TOLERANCES))
def test_latent_append_equals_float64_and_touches_one_row(name: str) -> None:
    torch, ops = hybrid_ops()
    dtype = getattr(torch, name)
    x, weight = random(torch, 3, 3, 50).to(dtype)[:, 2:], random(torch, 4, 32).to(dtype)
    cache = torch.full((3, 5, 48), float("nan"), dtype=dtype)
    ops.latent_append(x, weight, cache, torch.tensor([3], dtype=torch.int32), eps=1e-5)
    latent = x[:, :32].double()
    want = latent / (latent.square().mean(1, keepdim=True) + 1e-5).sqrt() * weight.double()
    assert error(cache[:, 3, :32], want) < TOLERANCES[name]
    assert torch.equal(cache[:, 3, 32:], x[:, 32:])
    assert cache[:, [0, 1, 2, 4]].isnan().all()
    without_weight = want / weight.double()
    assert error(cache[:, 3, :32], without_weight) > 1e-2


@pytest.mark.parametrize("position", [-1, 5])
def test_latent_append_writes_nothing_outside_of_the_cache(position: int) -> None:
    torch, ops = hybrid_ops()
    guarded = torch.zeros(3, 7, 48)
    ops.latent_append(
        torch.ones(3, 48), torch.ones(32), guarded[:, 1:-1], torch.tensor([position], dtype=torch.int32), eps=1e-5
    )
    assert not guarded.any()


@pytest.mark.parametrize("width", [20, 1030])
def test_embedding_copies_rows_and_counts_the_position_once(width: int) -> None:
    torch, ops = hybrid_ops()
    table, token = random(torch, 5, 7, width), torch.tensor([6, 0, 6])
    out, position = torch.full((3, width), float("nan")), torch.tensor([41], dtype=torch.int32)
    ops.embed_advance(token, table, out, position)
    assert torch.equal(out, table[token])
    assert position.tolist() == [42]
