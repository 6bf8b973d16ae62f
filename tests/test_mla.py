"""Multi-head latent attention in Triton's interpreter: its tl.dot kernels and the merge.

A test says whether it reaches one slice, which the merge only normalises, or several. CHECK has 203 tokens: 4 slices of
one tile of 64 (the last of 11 tokens) for batched_split, and 1 for the starved variants.
"""

import math
from dataclasses import dataclass
from typing import Any

import pytest
from kernel_cpu import kernel_on_cpu

DTYPES = ("float32", "float16", "bfloat16")
VARIANTS = (
    "batched_split",
    "batched_dot",
    "bh32_maxnreg",
    "batched_unsplit",
    "per_head_split",
    "per_head_serial",
)
SCALE = 192**-0.5
# FlashMLA, tests/test_flash_mla_dense_decoding.py: out is within 8e-4 or 2.01/128, and 1 − cosine ≤ 5e-6;
# the log-sum-exp within 1e-6 or 8.01/65536.
OUT_ABS, OUT_REL, OUT_COS = 8e-4, 2.01 / 128, 5e-6
LSE_ABS, LSE_REL = 1e-6, 8.01 / 65536


@dataclass(frozen=True)
class Problem:
    """Random inputs of one call, NaN in the cache from `length` on, and what the kernel made of them."""

    query: Any
    cache: Any
    w_uv: Any
    latent: Any
    value: Any
    scratch: Any

    def errors(self, module: Any, length: int) -> list[float]:
        from tracelab.kernels._kernel import relative_l2

        wanted = module.reference(self.query, self.cache, self.w_uv, length, SCALE)
        return [relative_l2(got, want) for got, want in zip((self.latent, self.value), wanted, strict=True)]


def solve(
    torch: Any,
    config: Any,
    splits: int,
    *,
    batch: int = 1,
    heads: int = 3,
    length: int = 200,
    dims: tuple[int, int, int] = (32, 16, 16),
    dtype: str = "float32",
    seed: int = 0,
    stride: int = 0,
    drift: float = 0.0,
    on_device: bool = False,
    pieces: int | None = None,
) -> Problem:
    """One call with `splits` slices. With `drift`, scores rise by about as much from the first token to the last."""
    from tracelab.kernels import _mla_launch

    kind, (latent, rope, value_dim) = getattr(torch, dtype), dims
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(batch, heads, latent + rope, generator=generator).to(kind)
    cache = torch.randn(batch, length + 70, stride or latent + rope, generator=generator).to(kind)[..., : latent + rope]
    if drift:
        query[..., latent] = 1.0
        cache[:, :length, latent] = torch.linspace(0, drift / SCALE, length).to(kind)
    cache[:, length:] = math.nan
    w_uv = (torch.randn(heads, latent, value_dim, generator=generator) * latent**-0.5).to(kind)
    scratch = _mla_launch.Scratch.of(
        splits, batch * heads, torch.device("cpu"), latent=latent, value_dim=value_dim, pieces=pieces
    )
    scratch.poison()
    merged, value = (torch.full((batch, heads, size), math.nan, dtype=kind) for size in (latent, value_dim))
    asked = torch.full((batch,), length, dtype=torch.int32) if on_device else length
    _mla_launch.decode(query, cache, w_uv, merged, value, scratch, asked, SCALE, config)
    assert not scratch.counters.any()
    return Problem(query, cache, w_uv, merged, value, scratch)


def tile(heads: int = 16, tokens: int = 16) -> Any:
    """A small block of tl.dot, so that small shapes have many tiles."""
    from tracelab.kernels._mla_launch import Config

    return Config("dot", heads, tokens, 4, 2)


def log_sum_exp(torch: Any, scratch: Any) -> Any:
    """Natural logarithm of Σ exp(score), of the partial results."""
    peaks, sums = scratch.stats[..., 0], scratch.stats[..., 1]
    peak = peaks.amax(1, keepdim=True)
    return (peak[:, 0] + torch.log2((torch.exp2(peaks - peak) * sums).sum(1))) * math.log(2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_against_float64(variant: str, dtype: str) -> None:
    """Several slices, except in the three that are starved of them; every buffer is NaN before."""
    torch, module = kernel_on_cpu("mla")
    from tracelab.kernels._kernel import TOLERANCE, worst_error

    assert tuple(module.VARIANTS) == VARIANTS
    kind = getattr(torch, dtype)
    case = module.case({**module.DEFAULTS, **module.CHECK, "variant": variant}, torch.device("cpu"), kind)
    assert worst_error(case) <= TOLERANCE[kind]


@pytest.mark.parametrize(("heads", "length", "splits"), [(12, 20_000, 105), (8, 20_000, 105), (12, 12_289, 97)])
def test_real_sizes_within_the_tolerances_of_flashmla(heads: int, length: int, splits: int) -> None:
    """512 + 64 columns in fp16, heads padded to 16, a partial last tile; many slices.

    Not in bf16, which the interpreter truncates to: the weights, and so the results, come out 0.5 % small.
    """
    torch, module = kernel_on_cpu("mla")
    from tracelab.kernels._mla_launch import DOT_FEW, decode_plan

    assert decode_plan(length, 1, heads, torch.device("cpu"), DOT_FEW).splits == splits
    solved = solve(torch, DOT_FEW, splits, heads=heads, length=length, dims=(512, 64, 128), dtype="float16")
    want, _ = module.reference(solved.query, solved.cache, solved.w_uv, length, SCALE)
    got, off = solved.latent.double(), (solved.latent.double() - want).abs()
    assert bool(((off <= OUT_ABS) | (off <= OUT_REL * want.abs())).all())
    assert 1 - 2 * float((got * want).sum()) / float((got * got + want * want).sum()) <= OUT_COS
    assert max(solved.errors(module, length)) <= 1e-3
    scores = solved.query[0].double() @ solved.cache[0, :length].double().T * SCALE
    wanted, found = scores.logsumexp(1), log_sum_exp(torch, solved.scratch).double()
    assert bool(((found - wanted).abs() <= torch.maximum(LSE_REL * wanted.abs(), torch.tensor(LSE_ABS))).all())


@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65])
@pytest.mark.parametrize("splits", [1, 4])
def test_lengths_around_a_tile(splits: int, length: int) -> None:
    """Tiles of 16: with 4 slices some of them are empty at up to 48 tokens, and must add nothing."""
    torch, module = kernel_on_cpu("mla")
    assert max(solve(torch, tile(), splits, length=length).errors(module, length)) <= 2e-6


def test_no_tokens_give_zeros() -> None:
    """All slices empty, and none: a query without keys attends to nothing."""
    torch, _ = kernel_on_cpu("mla")
    for splits in (1, 3):
        solved = solve(torch, tile(), splits, length=0)
        assert not solved.latent.any() and not solved.value.any()


def test_the_gate_leaves_a_short_context_whole() -> None:
    """4096 tokens and a gate of 4096: one slice; one token more: many."""
    torch, module = kernel_on_cpu("mla")
    sizes = {"variant": "batched_split", "batch": 1, "heads": 2, "latent": 16, "rope": 16, "value_dim": 16}
    for ctx, blocks in ((4096, "1 blocks"), (4097, "65 blocks")):
        case = module.case({**sizes, "ctx": ctx, "gate": 4096}, torch.device("cpu"), torch.float32)
        assert case.remark.startswith(blocks)
        from tracelab.kernels._kernel import worst_error

        assert worst_error(case) <= 2e-6


@pytest.mark.parametrize("on_device", [False, True])
def test_strides_batches_and_lengths_on_the_device(on_device: bool) -> None:
    """Two sequences, rows of 56 elements for 48, 20 heads in two blocks; 5 slices of two tiles."""
    torch, module = kernel_on_cpu("mla")
    solved = solve(torch, tile(), 5, batch=2, heads=20, length=150, stride=56, on_device=on_device)
    assert solved.cache.stride(1) == 56
    assert max(solved.errors(module, 150)) <= 2e-6


@pytest.mark.parametrize("pieces", [1, 2, 8])
def test_the_merge_in_pieces(pieces: int) -> None:
    """128 columns merged by one block, two and eight; who is last adds up and leaves the counter as it was."""
    torch, module = kernel_on_cpu("mla")
    assert max(solve(torch, tile(), 4, dims=(128, 16, 16), pieces=pieces).errors(module, 200)) <= 2e-6


@pytest.mark.parametrize("splits", [1, 2, 5, 8, 11])
def test_the_merge_in_chunks(splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 4 slices: fewer than one, one, two whole ones, and a partial last."""
    torch, module = kernel_on_cpu("mla")
    from tracelab.kernels import _mla_launch

    monkeypatch.setattr(_mla_launch, "merge_chunk", lambda splits, *_: min(4, 1 << (splits - 1).bit_length()))
    assert max(solve(torch, tile(), splits, dims=(128, 16, 16), pieces=2).errors(module, 200)) <= 2e-6


def test_heads_in_blocks_are_as_heads_alone() -> None:
    """Six slices, tensor-core form against multiply-add form, in float32."""
    torch, _ = kernel_on_cpu("mla")
    from tracelab.kernels._kernel import relative_l2
    from tracelab.kernels._mla_launch import PER_HEAD

    batched, alone = (solve(torch, config, 6, length=333) for config in (tile(), PER_HEAD))
    assert relative_l2(batched.latent, alone.latent) <= 2e-6
    assert relative_l2(batched.value, alone.value) <= 2e-6


@pytest.mark.parametrize("seed", range(2))
def test_slices_improve_float32(seed: int) -> None:
    """20 000 tokens in tiles of 64, one slice against 32: shorter sums round less, if the merge is right."""
    torch, module = kernel_on_cpu("mla")
    whole, split = (
        solve(torch, tile(tokens=64), splits, heads=12, length=20_000, seed=seed).errors(module, 20_000)[0]
        for splits in (1, 32)
    )
    assert whole >= 2 * split


def test_negative_control_the_rope_columns_count() -> None:
    torch, module = kernel_on_cpu("mla")
    solved = solve(torch, tile(), 4)
    without = solved.query.clone()
    without[..., 32:] = 0
    wrong, _ = module.reference(without, solved.cache, solved.w_uv, 200, SCALE)
    assert max(solved.errors(module, 200)) <= 2e-6
    assert float((solved.latent - wrong).norm() / wrong.norm()) > 1e-2


def test_negative_control_values_are_the_first_columns() -> None:
    """Values from columns rope … rope + latent − 1 instead of 0 … latent − 1."""
    torch, module = kernel_on_cpu("mla")
    solved = solve(torch, tile(), 4)
    scores = solved.query[0].double() @ solved.cache[0, :200].double().T * SCALE
    wrong = scores.softmax(1) @ solved.cache[0, :200, 16:].double()
    assert max(solved.errors(module, 200)) <= 2e-6
    assert float((solved.latent[0] - wrong).norm() / wrong.norm()) > 1e-2


def test_negative_control_the_merge_needs_the_maxima() -> None:
    """Four slices whose maxima differ: adding their sums up as they are is far off, weighing them is not."""
    torch, module = kernel_on_cpu("mla")
    solved = solve(torch, tile(), 4, drift=6.0)
    peaks, sums, part = solved.scratch.stats[..., 0], solved.scratch.stats[..., 1], solved.scratch.part
    want = module.reference(solved.query, solved.cache, solved.w_uv, 200, SCALE)[0][0]
    weight = torch.exp2(peaks - peaks.amax(1, keepdim=True))
    merged = (weight[..., None] * part).sum(1) / (weight * sums).sum(1, keepdim=True)
    unweighted = part.sum(1) / sums.sum(1, keepdim=True)
    assert float((merged - want).norm() / want.norm()) <= 2e-6
    assert float((unweighted - want).norm() / want.norm()) > 1e-2


def test_sizes_that_are_refused() -> None:
    torch, _ = kernel_on_cpu("mla")
    from tracelab.kernels._mla_launch import MANY, Scratch, attend

    for dims in ((48, 16, 16), (32, 24, 16), (32, 16, 12)):
        with pytest.raises(ValueError, match="power"):
            solve(torch, tile(), 1, dims=dims)
    # a tensor map needs rows of 16 B multiples, and a whole number of them from one sequence to the next
    query, scratch = torch.zeros(2, 3, 576), Scratch.of(1, 6, torch.device("cpu"))
    for cache in (torch.zeros(2, 9, 577)[..., :576], torch.zeros(2, 9 * 576 + 8)[:, : 9 * 576].view(2, 9, 576)):
        with pytest.raises(ValueError, match="tensor map"):
            attend(query, cache, scratch, 5, SCALE, MANY)
