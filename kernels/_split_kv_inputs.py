"""Inputs of split_kv: caches with NaN where nothing may be read, shuffled block tables; attention by other means."""

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from tracelab.kernels._kernel import poisoned, random
from tracelab.kernels._split_plan import ceil_div

UNUSED_PAGE = 2147480000  # an id that no pool holds: whoever follows it faults
SPARE_PAGES = 5  # pages of a pool that no table names


@dataclass(frozen=True)
class Inputs:
    """One call's tensors: shapes in split_kv's docstring; `table` is None where the cache is contiguous."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor | None
    out: torch.Tensor


def random_inputs(
    seed: int,
    batch: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    ctx: int,
    page: int,
    *,
    paged: bool,
    device: torch.device,
    dtype: torch.dtype,
) -> Inputs:
    """Normal q, K and V. The cache goes on for a page after the context, and is NaN there."""
    q, k, v = (
        random(3 * seed + part, batch, *rows, head_dim, device=device, dtype=dtype)
        for part, rows in enumerate([(heads,), (ctx + page, kv_heads), (ctx + page, kv_heads)])
    )
    k[:, ctx:], v[:, ctx:] = math.nan, math.nan
    out = poisoned(*q.shape, device=device, dtype=dtype)
    if not paged:
        return Inputs(q, k, v, None, out)
    table = page_table(seed, batch, ctx, page, device)
    return Inputs(q, paged_copy(k, ctx, page, table), paged_copy(v, ctx, page, table), table, out)


def page_table(seed: int, batch: int, length: int, page: int, device: torch.device) -> torch.Tensor:
    """A block table of pages in random order; the entries past the context's last page are no pages at all."""
    used = ceil_div(length, page)
    table = torch.full((batch, used + 3), UNUSED_PAGE, dtype=torch.int32)
    order = torch.randperm(batch * used + SPARE_PAGES, generator=torch.Generator().manual_seed(seed))
    table[:, :used] = order[: batch * used].view(batch, used)
    return table.to(device)


def paged_copy(cache: torch.Tensor, length: int, page: int, table: torch.Tensor) -> torch.Tensor:
    """A pool [pages, page, …] with the first `length` tokens of `cache` where `table` says; NaN everywhere else."""
    batch, used, row = cache.shape[0], ceil_div(length, page), cache.shape[2:]
    padded = poisoned(batch, used * page, *row, device=cache.device, dtype=cache.dtype)
    padded[:, :length] = cache[:, :length]
    pool = poisoned(batch * used + SPARE_PAGES, page, *row, device=cache.device, dtype=cache.dtype)
    pool[table[:, :used].flatten().long()] = padded.view(batch * used, page, *row)
    return pool


def contiguous(pool: torch.Tensor, length: int, table: torch.Tensor | None) -> torch.Tensor:
    """The cache [batch, ctx_max, …] that a pool and its table stand for, for `length` tokens."""
    if table is None:
        return pool
    used = ceil_div(length, pool.shape[1])
    return pool[table[:, :used].long()].view(table.shape[0], -1, *pool.shape[2:])


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int) -> torch.Tensor:
    """The same attention in float64, one KV head at a time, by plain softmax over contiguous K and V."""
    batch, heads, head_dim = q.shape
    grouped = q.double().view(batch, k.shape[2], -1, head_dim)
    out = torch.empty_like(grouped)
    for head in range(k.shape[2]):
        scores = grouped[:, head] @ k[:, :length, head].double().transpose(1, 2) * head_dim**-0.5
        out[:, head] = scores.softmax(2) @ v[:, :length, head].double()
    return out.view(batch, heads, head_dim)


def torch_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int) -> torch.Tensor:
    """The same over a contiguous cache by torch, for comparison; allocates its output, shaped like `q`.

    Torch chooses the backend: its choice for one query position and grouped heads took 126.6 µs at 131072 tokens on an
    H200, flash attention asked for by name 151.6, four query rows a KV head 1490.
    """
    k, v = (cache[:, :length].transpose(1, 2) for cache in (k, v))
    return scaled_dot_product_attention(q.unsqueeze(2), k, v, enable_gqa=True).squeeze(2)
