"""split_kv in Triton's interpreter: accuracy of both paths, edges, empty slices, pages, and the merge gone wrong.

A context up to the gate takes the un-split kernel, a longer one slices and a merge; each test says which it reaches.
"""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from kernel_cpu import Deferred

from tracelab.registry import leaves

torch, split_kv = Deferred("torch"), Deferred("split_kv")
inputs, kernel, planning = Deferred("_split_kv_inputs"), Deferred("_kernel"), Deferred("_split_plan")

TYPES = ["float32", "float16", "bfloat16"]
VARIANTS = list(leaves("kernels")["split-kv"].variants)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiles are too small to share: where cores are busy, threads that wait for one another take minutes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def cpu() -> Any:
    return torch.device("cpu")


def error_of(dtype: str = "float32", **options: Any) -> float:
    """Worst error of one variant at CHECK's shape unless told otherwise, on NaN-poisoned buffers."""
    return float(kernel.worst_error(case_of(dtype, **options)))


def case_of(dtype: str = "float32", **options: Any) -> Any:
    return split_kv.case({**split_kv.DEFAULTS, **split_kv.CHECK, **options}, cpu(), getattr(torch, dtype))


def one_kv_head(seed: int, ctx: int, heads: int, dtype: str = "float32", offset: float = 0.0) -> Any:
    """q [1, heads, 128] and K, V [1, ctx, 1, 128]; with `offset`, scores grow by about that much over the context."""
    q, k, v = (
        kernel.random(seed + part, 1, rows, *rest, 128, device=cpu(), dtype=getattr(torch, dtype))
        for part, rows, rest in ((0, heads, ()), (100, ctx, (1,)), (200, ctx, (1,)))
    )
    if offset:  # along the mean of the queries, so that every head's scores rise
        q += 1.0
        k += (torch.linspace(0, offset, ctx) * 128**-0.5).view(1, ctx, 1, 1).to(k.dtype)
    return q, k, v


def decoded(q: Any, k: Any, v: Any, splits: int, length: Any, config: Any = None, **options: Any) -> Any:
    """What decode writes with that many splits, and the scratch, which was NaN before."""
    batch, heads, head_dim = q.shape
    kv_heads = k.shape[2]
    plan = planning.SplitPlan(splits, -(-k.shape[1] // splits))
    scratch = split_kv.Scratch.of(plan, batch, heads, kv_heads, head_dim, cpu())
    scratch.poison()
    out = kernel.poisoned(*q.shape, device=cpu(), dtype=q.dtype)
    split_kv.decode(q, k, v, out, scratch, plan, length, config=config, **options)
    return out, scratch


def merged(scratch: Any, rescale: bool = True) -> Any:
    """The merge of the partials of one sequence in plain torch; without the rescale by exp2(m_i − m) if told so."""
    weight = torch.exp2(scratch.m - scratch.m.amax(1, keepdim=True)) if rescale else torch.ones_like(scratch.m)
    total = (weight * scratch.l).sum(1)
    return ((weight.unsqueeze(-1) * scratch.acc).sum(1) / total.unsqueeze(-1)).flatten(0, 1).unsqueeze(0)


def scheduled(q: Any, k: Any, v: Any, splits: int, block: int, p_dtype: str = "float32") -> Any:
    """The kernel's schedule in plain torch for one KV head: slices side by side, tiles in order, then the merge.

    Scores are exact to the last bit, so that what remains is the error of the sums.
    """
    heads, head_dim = q.shape[1:]
    tiles = planning.ceil_div(k.shape[1], splits * block)
    padding = splits * tiles * block - k.shape[1]
    scores = (q[0].double() @ k[0, :, 0].double().T * (head_dim**-0.5 * math.log2(math.e))).float()
    scores = torch.nn.functional.pad(scores, (0, padding), value=-math.inf).view(heads, splits, tiles, block)
    values = torch.nn.functional.pad(v[0, :, 0], (0, 0, 0, padding)).view(splits, tiles, block, head_dim)
    m = torch.full((heads, splits), -1e30)
    total, acc = torch.zeros(heads, splits), torch.zeros(splits, heads, head_dim)
    for tile in range(tiles):
        peak = torch.maximum(m, scores[:, :, tile].amax(2))
        p, keep = torch.exp2(scores[:, :, tile] - peak.unsqueeze(2)), torch.exp2(m - peak)
        total = total * keep + p.sum(2)
        p = p.to(getattr(torch, p_dtype)).float().transpose(0, 1)
        acc, m = acc * keep.T.unsqueeze(2) + p @ values[:, tile], peak
    weight = torch.exp2(m - m.amax(1, keepdim=True))
    return (weight.T.unsqueeze(2) * acc).sum(0) / (weight * total).sum(1, keepdim=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_past_the_gate(variant: str, dtype: str) -> None:
    # 345 tokens past a gate of 256: 6 slices of 64 tokens, the starved serial and per_head un-split by construction
    case = case_of(dtype, variant=variant)
    unsplit = {"serial": "4 × 1 blocks", "per_head": "12 × 1 blocks", "sdpa": "torch"}
    assert case.remark == unsplit.get(variant, "4 × 6 blocks")
    assert case.kernels == (1 if variant in ("last_block", "serial", "per_head") else 2)
    assert kernel.worst_error(case) < kernel.TOLERANCE[getattr(torch, dtype)]


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "sdpa"])
def test_up_to_the_gate_every_variant_is_one_launch_of_the_same_walk(variant: str) -> None:
    # the un-split path: the A/A row of the table, so the bits are those of `split` too
    gated: dict[str, Any] = {"gate": 345, "batch": 1, "variant": variant}
    case = case_of(**gated)
    assert case.kernels == 1
    assert case.remark == ("6 × 1 blocks" if variant == "per_head" else "2 × 1 blocks")
    assert kernel.worst_error(case) < kernel.TOLERANCE[torch.float32]
    assert torch.equal(case.launch(0)[0], case_of(**gated | {"variant": "split"}).launch(0)[0])


@pytest.mark.parametrize("ctx", [1, 63, 64, 65, 129, 192])
def test_lengths_about_the_tile(ctx: int) -> None:
    # split path from 65 tokens on (tiles of 64), below it one slice and so un-split, whatever the gate
    for variant in ("split", "paged"):
        assert error_of(ctx=ctx, variant=variant, gate=0, batch=1) < kernel.TOLERANCE[torch.float32]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(2, 2, 16), (8, 2, 128), (7, 1, 64), (12, 1, 16), (20, 1, 16), (16, 4, 16)]
)
def test_groups_of_any_size(heads: int, kv_heads: int, head_dim: int) -> None:
    # split path; groups of 1, 4, 7, 12, 20 (two rows of matrix instructions) and 4 with 4 KV heads
    shape: dict[str, Any] = {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "ctx": 300,
        "gate": 0,
        "batch": 1,
    }
    assert error_of(**shape) < kernel.TOLERANCE[torch.float32]
    assert error_of(**shape, variant="last_block") < kernel.TOLERANCE[torch.float32]


def test_an_empty_context_gives_zeros() -> None:
    # un-split: nothing is longer than the gate
    case = case_of(ctx=0, gate=0)
    assert kernel.worst_error(case) == 0.0
    assert not case.launch(0)[0].any()


@pytest.mark.parametrize("heads", [5, 6])
def test_shapes_that_the_kernel_cannot_do_are_refused(heads: int) -> None:
    q, k = torch.zeros(1, heads, 24), torch.zeros(1, 8, 2, 24)
    with pytest.raises(ValueError, match="cannot attend"):
        split_kv.decode(q, k, k, q, None, planning.SplitPlan(1, 8), 8)
    with pytest.raises(ValueError, match="2 splits"):
        split_kv.decode(torch.zeros(1, 6, 32), torch.zeros(1, 8, 2, 32), k, q, None, planning.SplitPlan(2, 8), 8)


def test_slices_past_the_end_are_neutral_in_poisoned_scratch() -> None:
    # split path, 6 slices; 100 tokens fill one of them and half of another
    q, k, v = one_kv_head(1, 700, 3)
    out, scratch = decoded(q, k, v, 6, 100)
    assert kernel.relative_l2(out, inputs.attention(q, k, v, 100)) < 2e-6
    assert scratch.l[0, 2:].eq(0).all()
    assert scratch.acc[0, 2:].eq(0).all()
    assert scratch.m[0, 2:].eq(-1e30).all()
    # and that is load-bearing: a slice that were left unwritten, or −∞, would spoil the result
    for poison in (math.nan, -math.inf):
        scratch.m[0, :] = poison
        assert not torch.isfinite(merged(scratch)).all()


def test_a_length_on_the_device_may_grow_under_one_plan() -> None:
    # split path, the grid of a captured graph: 3 slices whatever the length, and a length for each sequence
    s = inputs.random_inputs(3, 2, 4, 2, 16, 300, 16, paged=False, device=cpu(), dtype=torch.float32)
    lengths = torch.zeros(2, dtype=torch.int32)
    for pair in ([1, 300], [0, 129], [255, 256]):
        lengths.copy_(torch.tensor(pair))
        out, _ = decoded(s.q, s.k, s.v, 3, lengths)
        want = [inputs.attention(s.q[i : i + 1], s.k[i : i + 1], s.v[i : i + 1], n) for i, n in enumerate(pair)]
        assert kernel.relative_l2(out, torch.cat(want)) < 2e-6
        if pair[0] == 0:
            assert not out[0].any()


def test_a_number_and_a_device_length_give_the_same_bits() -> None:
    q, k, v = one_kv_head(4, 500, 4)
    number, _ = decoded(q, k, v, 4, 500)
    assert torch.equal(number, decoded(q, k, v, 4, torch.tensor([500], dtype=torch.int32))[0])


def test_counters_are_zero_again_after_every_call() -> None:
    # split path with the merge by the last block: a second call on the same scratch is a replay
    case = case_of(variant="last_block")
    first = case.launch(0)[0].clone()
    assert torch.equal(first, case.launch(0)[0])
    q, k, v = one_kv_head(3, 300, 4)
    assert not decoded(q, k, v, 3, 300, last_block=True)[1].counters.any()


@pytest.mark.parametrize("page", [1, 16, 64])
def test_pages_in_random_order_give_the_bits_of_a_contiguous_cache(page: int) -> None:
    # split path; unused pages are NaN, and ids past the context's last page would fault
    s = inputs.random_inputs(5, 2, 4, 2, 32, 333, page, paged=False, device=cpu(), dtype=torch.float32)
    table = inputs.page_table(6, 2, 333, page, cpu())
    k, v = (inputs.paged_copy(cache, 333, page, table) for cache in (s.k, s.v))
    assert table.max() == inputs.UNUSED_PAGE
    assert k.isnan().any()
    paged, _ = decoded(s.q, k, v, 3, 333, table=table)
    assert torch.equal(paged, decoded(s.q, s.k, s.v, 3, 333)[0])
    other = table.roll(1, 0)  # negative control: the other sequence's pages
    assert kernel.relative_l2(decoded(s.q, k, v, 3, 333, table=other)[0], paged) > 1e-2


def test_an_empty_slice_follows_no_page() -> None:
    # 64 tokens are 4 whole pages of a table with nothing after them; slices 1 and 2 of 3 are empty
    s = inputs.random_inputs(7, 1, 4, 1, 16, 64, 16, paged=False, device=cpu(), dtype=torch.float32)
    table = inputs.page_table(8, 1, 64, 16, cpu())[:, :4].contiguous()
    k, v = (inputs.paged_copy(cache, 64, 16, table) for cache in (s.k, s.v))
    out, _ = decoded(s.q, k, v, 3, 64, table=table)
    assert kernel.relative_l2(out, inputs.attention(s.q, s.k, s.v, 64)) < 2e-6


def test_splitting_improves_float32_at_20_000_tokens() -> None:
    # the kernel itself, tiles of 32, one warp: 625 sums one after the other against 40 in each of 16 slices
    q, k, v = one_kv_head(1, 20_000, 12)
    want, small = inputs.attention(q, k, v, 20_000), split_kv.Config(block_tokens=32, lanes=1, stages=3)
    serial, split = (kernel.relative_l2(decoded(q, k, v, n, 20_000, small)[0], want) for n in (1, 16))
    assert serial >= 1.5 * split  # numpy's products round as the processor has them: 1.76 on one, above 2 on another
    # and the schedule in plain torch, which the next tests use, makes errors of the same size
    model = kernel.relative_l2(scheduled(q, k, v, 1, 32), want[0])
    assert serial / 1.5 < model < serial * 1.5


@pytest.mark.parametrize(
    ("ctx", "ratio", "seed"),
    [*((12_289, 1.5, seed) for seed in range(4)), *((20_000, 2.0, seed) for seed in range(4)), (131_072, 3.0, 0)],
)
def test_splitting_improves_float32_for_every_seed(ctx: int, ratio: float, seed: int) -> None:
    # the schedule model at the real head size, 16 slices of tiles of 32; seen are 2.2–2.5, 2.5–3.5 and 4.2–5.2
    q, k, v = one_kv_head(seed, ctx, 12)
    want = inputs.attention(q, k, v, ctx)[0]
    serial, split = (kernel.relative_l2(scheduled(q, k, v, n, 32), want) for n in (1, 16))
    assert serial >= ratio * split


@pytest.mark.parametrize("seed", range(4))
def test_in_bf16_splitting_does_not_harm(seed: int) -> None:
    # weights rounded to bf16 dominate: no gain is claimed, only no loss
    q, k, v = one_kv_head(seed, 20_000, 4, "bfloat16")
    want = inputs.attention(q, k, v, 20_000)[0]
    serial, split = (
        kernel.relative_l2(scheduled(q.float(), k.float(), v.float(), n, 32, "bfloat16"), want) for n in (1, 16)
    )
    assert split <= 1.1 * serial


def test_bf16_of_the_kernel_past_the_real_gate() -> None:
    # 4500 tokens, the shipped configurations: split path against the un-split walk
    q, k, v = one_kv_head(9, 4500, 4, "bfloat16")
    want = inputs.attention(q, k, v, 4500)
    serial, split = (kernel.relative_l2(decoded(q, k, v, n, 4500)[0], want) for n in (1, 16))
    assert split <= 1.1 * serial < 1e-2


@pytest.mark.parametrize(("offset", "spoiled"), [(40.0, True), (None, False)])
def test_the_merge_needs_its_rescale(offset: float | None, spoiled: bool) -> None:
    # split path, 6 slices. Scores that rise over the context give each slice another maximum; with q = 0 all maxima are
    # equal and the control has no power, so such data may not be used to test a merge.
    q, k, v = one_kv_head(10, 768, 4, offset=offset or 0.0)
    if offset is None:
        q.zero_()
    want = inputs.attention(q, k, v, 768)
    out, scratch = decoded(q, k, v, 6, 768)
    assert scratch.m.shape[1] > 1, "with one split a wrong merge passes by construction"
    rounding = 1e-5 if spoiled else 2e-6  # a score of 40 is off by up to 2.4e-6 in float32, and so is its exponential
    assert kernel.relative_l2(out, want) < rounding
    assert kernel.relative_l2(merged(scratch), want) < rounding
    wrong = kernel.relative_l2(merged(scratch, rescale=False), want)
    assert wrong > 1e-2 if spoiled else wrong < rounding
