"""How a decode kernel cuts its context into slices, so that few heads still fill the GPU. Arithmetic without torch."""

from dataclasses import dataclass

SMS = 132  # H200 and H100 SXM (NVIDIA data sheets)
GATE_TOKENS = 4096  # up to here one kernel walks the context and no merge follows
SCRATCH_BYTES = 64 << 20
PARTIAL_BYTES = 4  # partial results are fp32, whatever the cache holds


@dataclass(frozen=True)
class SplitPlan:
    """`splits` slices of `slice_tokens` tokens each, the last one shorter; 1 split is the un-split kernel, no merge."""

    splits: int
    slice_tokens: int

    def slices(self, length: int) -> list[tuple[int, int]]:
        """First and one-past-last token of each slice of a context of `length` tokens; empty ones repeat its end."""
        starts = [min(length, index * self.slice_tokens) for index in range(self.splits)]
        return list(zip(starts, [*starts[1:], length], strict=True))


def split_plan(
    length: int,
    units: int,
    *,
    sms: int = SMS,
    blocks_per_sm: int = 1,
    block_tokens: int,
    value_dim: int,
    rows: int = 1,
    gate: int = GATE_TOKENS,
    scratch_bytes: int = SCRATCH_BYTES,
    cap: int | None = None,
) -> SplitPlan:
    """Slices of `length` tokens where one block serves one of `units` (batch × KV heads, or batch × blocks of heads).

    A slice is contiguous, a multiple of `block_tokens` (the last one excepted) and never empty, and units × splits is
    at most `sms` × `blocks_per_sm`. The partials (m, ℓ and `value_dim` sums, for each of a unit's `rows` query rows)
    take at most `scratch_bytes`: the budget is on units × splits, so fewer heads get more splits, never more scratch.
    `cap` limits the splits on top, as engines with a fixed limit do. Raises ValueError for sizes below 1.
    """
    if min(units, sms, blocks_per_sm, block_tokens, value_dim, rows) < 1 or length < 0:
        raise ValueError(f"no plan for {length} tokens and {units} units in tiles of {block_tokens}")
    if length <= gate:
        return SplitPlan(1, max(1, length))
    affordable = scratch_bytes // (units * rows * (value_dim + 2) * PARTIAL_BYTES)
    splits = min(sms * blocks_per_sm // units, affordable, ceil_div(length, block_tokens))
    splits = max(1, splits if cap is None else min(splits, cap))
    slice_tokens = ceil_div(ceil_div(length, splits), block_tokens) * block_tokens
    splits = ceil_div(length, slice_tokens)
    return SplitPlan(splits, slice_tokens if splits > 1 else length)


def ceil_div(count: int, size: int) -> int:
    """How many pieces of `size` hold `count`."""
    return -(-count // size)


def power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()
