"""Launches of mla: configurations, the plan of a context, scratch, and the two launches of a decode step."""

import functools
import math
from dataclasses import dataclass

import torch
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tracelab.kernels._device import sm_count
from tracelab.kernels._kernel import INTERPRETED
from tracelab.kernels._mla_device import mla_batched, mla_merge, mla_per_head
from tracelab.kernels._mla_few import mla_few_heads
from tracelab.kernels._mla_many import mla_many_heads
from tracelab.kernels._split_kv_launch import dependent_launches
from tracelab.kernels._split_plan import SplitPlan, ceil_div, power_of_two, split_plan

LOG2E = math.log2(math.e)
LATENT, ROPE = 512, 64  # of DeepSeek-V2/V3, Kimi K2 and Kimi-Linear; the warp-specialised kernels know no others
TMA_BYTES = 16  # addresses and strides of a tensor map are multiples of it (CUDA driver API, cuTensorMapEncodeTiled)


@dataclass(frozen=True)
class MergeForm:
    """A block of the merge: `floats` partials a thread in registers and as many on their way, beside W_UV.

    `blocks_per_sm` is what merge_pieces counts on; registers may allow more.
    """

    warps: int
    floats: int
    blocks_per_sm: int


# By blocks a head: on an H200 the fastest of some 20, or within 1 % of it. 8 merge 12 heads in 4.6 µs (4: 6.2), 32 in
# 6.3; 2 merge 96 heads in 7.9 µs at 44 slices (4: 8.7, 8: 10.8) and 128 in 9.8. With as many floats a thread 8 warps
# are 9 to 57 % slower than 4.
MERGE_FORMS = {8: MergeForm(4, 32, 2), 4: MergeForm(4, 16, 2), 2: MergeForm(4, 16, 2), 1: MergeForm(8, 8, 1)}


@dataclass(frozen=True)
class Config:
    """How blocks walk the cache, `block_heads` heads over tiles of `block_tokens` tokens.

    engine    "many" and "few": warp-specialised, one warp group copies, the others multiply (sm_90); heads are rows of
              the products in "many", columns in "few"; `stages` is the ring of 16 KiB chunks
              "dot": tl.dot, copies and products by the same warps; "per_head": one head a block, no tensor cores
    maxnreg   registers per thread that the compiler may not exceed
    """

    engine: str
    block_heads: int
    block_tokens: int
    warps: int
    stages: int
    maxnreg: int | None = None
    blocks_per_sm: int = 1

    @property
    def name(self) -> str:
        """Short and unique among the configurations of a sweep."""
        cap = "" if self.maxnreg is None or self.engine in ("many", "few") else f" maxnreg {self.maxnreg}"
        per_sm = "" if self.blocks_per_sm == 1 else f" ×{self.blocks_per_sm}/SM"
        return f"{self.engine} {self.block_heads}x{self.block_tokens} w{self.warps} s{self.stages}{cap}{per_sm}"


# Registers are handed to warp groups at run time: 240 to those that multiply, 24 to the one that copies. A launch with
# maxnreg 168 × 384 threads has 504 to a group's thread, which is just that. FEW hands out 216 and 40, SOME 232 and 56.
MANY = Config("many", 64, 64, 12, 9, maxnreg=168)
FEW = Config("few", 16, 64, 8, 11, maxnreg=128)
SOME = Config("few", 32, 64, 8, 8, maxnreg=144)
DOT_MANY = Config("dot", 64, 64, 8, 2)
DOT_FEW = Config("dot", 16, 64, 4, 3)
CAPPED = Config("dot", 32, 32, 8, 2, maxnreg=128, blocks_per_sm=2)
WALK = Config("dot", 16, 32, 4, 2)
PER_HEAD = Config("per_head", 1, 16, 8, 1)


def config_for(heads: int, width: int, dtype: torch.dtype, device: torch.device) -> Config:
    """The configuration for `heads` heads on rows of `width` elements; tl.dot where the others do not apply.

    By the split launch on an H200: at 32 heads and 32 768 tokens two blocks of 16 heads take 15.9 µs, one of 32 takes
    16.4. At 64 two of 32 take 20.3 µs, MANY 25.7. At 96 three of 32 take 84 µs at 131 072 tokens and 26.3 at 32 768,
    MANY 96 and 32: it pads to 128 heads and computes scores twice. At 128, which it fills, they are even at 32 768
    (33 µs); at 131 072 MANY takes 95 µs, four of 32 would take 84 · 4/3.
    """
    specialised = (
        not INTERPRETED
        and width == LATENT + ROPE
        and dtype in (torch.bfloat16, torch.float16)
        and torch.cuda.get_device_capability(device)[0] == 9
    )
    if not specialised:
        return dot_config_for(heads)
    return FEW if heads <= 2 * FEW.block_heads else SOME if heads <= 3 * SOME.block_heads else MANY


def dot_config_for(heads: int) -> Config:
    """The best configuration that uses tl.dot.

    At 96 heads and 131 072 tokens DOT_MANY reaches 189 TFLOP/s on an H200, SOME 326. The same warps copy, multiply and
    weigh, so that the tensor cores idle during each softmax; its two tiles fill the shared memory and all registers
    (255), so that no second block could work meanwhile; and of its 128 rows 32 are padding.
    """
    return DOT_MANY if heads > DOT_FEW.block_heads else DOT_FEW


def decode_plan(
    ctx: int,
    batch: int,
    heads: int,
    device: torch.device,
    config: Config,
    *,
    latent: int = LATENT,
    gate: int = 0,
    cap: int | None = None,
) -> SplitPlan:
    """The plan for up to `ctx` tokens. Shorter contexts may use it too: slices follow the length of each call.

    W_UV needs a second launch with or without slices, so that leaving a short context whole saves nothing: no gate.
    """
    return split_plan(
        ctx,
        batch * ceil_div(heads, config.block_heads),
        sms=sm_count(device),
        blocks_per_sm=config.blocks_per_sm,
        block_tokens=config.block_tokens,
        value_dim=latent,
        rows=min(heads, config.block_heads),
        gate=gate,
        cap=cap,
    )


@dataclass(frozen=True)
class Scratch:
    """Partial results on one device: made once, written by every call. Counters are zero between calls.

    part      [batch × heads, splits, latent] fp32, sums weighted by exp2(score − m), not normalised
    stats     [batch × heads, splits, 2] fp32, m and the sum of those weights
    pieces    [batch × heads, pieces, value_dim] fp32, products of some columns of the latent result with W_UV
    """

    part: torch.Tensor
    stats: torch.Tensor
    pieces: torch.Tensor
    counters: torch.Tensor

    @classmethod
    def of(
        cls,
        splits: int,
        rows: int,
        device: torch.device,
        *,
        latent: int = LATENT,
        value_dim: int = 128,
        pieces: int | None = None,
    ) -> "Scratch":
        """Scratch for `splits` slices of `rows` = batch × heads query rows."""
        make = functools.partial(torch.empty, device=device, dtype=torch.float32)
        pieces = pieces or merge_pieces(rows, latent, sm_count(device))
        counters = torch.zeros(rows, device=device, dtype=torch.int32)
        return cls(make((rows, splits, latent)), make((rows, splits, 2)), make((rows, pieces, value_dim)), counters)

    def poison(self) -> None:
        """Fill all partial results with NaN; the counters stay, they carry no result."""
        for buffer in (self.part, self.stats, self.pieces):
            buffer.fill_(math.nan)


def merge_pieces(rows: int, latent: int, sms: int) -> int:
    """Blocks that share the merge of one head: as many as all run at once, at least 64 columns each.

    On 132 SMs 8 up to 33 heads, 4 up to 66, 2 up to 132, 1 beyond.
    """
    fitting = (n for n, form in MERGE_FORMS.items() if n * rows <= form.blocks_per_sm * sms and n * 64 <= latent)
    return max(fitting, default=1)


def merge_chunk(splits: int, pieces: int, latent: int) -> int:
    """Slices that a block of the merge holds at a time: a power of two, no more than there are."""
    form = MERGE_FORMS[pieces]
    return max(1, min(power_of_two(splits), form.floats * 32 * form.warps * pieces // latent))


def decode(
    query: torch.Tensor,
    cache: torch.Tensor,
    w_uv: torch.Tensor,
    latent: torch.Tensor,
    value: torch.Tensor,
    scratch: Scratch,
    length: int | torch.Tensor,
    scale: float,
    config: Config,
) -> None:
    """Attend `query` to the first `length` tokens and multiply with W_UV: two launches, shapes in the docstring of mla.

    `length` is a number, or int32 [batch] on the device for graphs whose context grows: the grid stays, slices beyond
    the end are empty. The row stride of `cache` is free, in multiples of 16 bytes. Nothing is allocated and the host
    never waits. From sm_90 on the second launch begins while the first ends and fetches W_UV (programmatic dependent
    launch): on an H200 43.6 µs instead of 44.9 with 12 heads and 131 072 tokens, 97.1 instead of 100.5 with 96; only
    64 heads at 32 768 tokens lose, 0.5 µs. Raises ValueError for sizes that are no powers of two, and in `attend` for
    a layout that the configuration cannot read.
    """
    attend(query, cache, scratch, length, scale, config)
    merge(w_uv, latent, value, scratch, dependent=dependent_launches(query.device))


def attend(
    query: torch.Tensor,
    cache: torch.Tensor,
    scratch: Scratch,
    length: int | torch.Tensor,
    scale: float,
    config: Config,
) -> None:
    """The first launch: the partial results of every slice, into `scratch`."""
    batch, heads, width = query.shape
    splits, latent = scratch.part.shape[1:]
    if latent & (latent - 1) or (width - latent) & (width - latent - 1) or width <= latent:
        raise ValueError(f"latent {latent} and rope {width - latent} must be powers of two")
    on_device = isinstance(length, torch.Tensor)
    common = (length if on_device else scratch.counters, scratch.part, scratch.stats, 0 if on_device else length, heads)
    grid = (ceil_div(heads, config.block_heads), splits, batch)
    capped = {} if config.maxnreg is None else {"maxnreg": config.maxnreg}
    if config.engine in ("many", "few"):
        kernel = mla_many_heads if config.engine == "many" else mla_few_heads
        kernel[grid](
            *_tensor_maps(query, cache, config.block_heads), cache, *common, _rows_per_sequence(cache), cache.stride(1),
            scale * LOG2E, BLOCK_HEADS=config.block_heads, RING=config.stages, ON_DEVICE=on_device, num_warps=4,
            **capped,
        )  # fmt: skip
        return
    strides = (cache.stride(0), cache.stride(1), scale * LOG2E)
    constants = {"LATENT": latent, "ROPE": width - latent, "BLOCK_TOKENS": config.block_tokens, "ON_DEVICE": on_device}
    if config.engine == "dot":
        constants |= {"BLOCK_HEADS": config.block_heads, "UP": INTERPRETED}
    kernel = mla_batched if config.engine == "dot" else mla_per_head
    kernel[grid](
        query, cache, *common, *strides, **constants, num_warps=config.warps, num_stages=config.stages, **capped
    )


def merge(
    w_uv: torch.Tensor, latent: torch.Tensor, value: torch.Tensor, scratch: Scratch, *, dependent: bool = False
) -> None:
    """The second launch: merges the slices into `latent` and multiplies with W_UV into `value`.

    If `dependent`, it may begin before the launch ahead of it ends, and reads its results only then.
    """
    rows, splits, width = scratch.part.shape
    pieces, value_dim = scratch.pieces.shape[1:]
    if value_dim & (value_dim - 1):
        raise ValueError(f"the value dimension {value_dim} must be a power of two")
    rounded = power_of_two(splits)
    mla_merge[(rows, pieces)](
        scratch.part, scratch.stats, w_uv, latent, value, scratch.pieces, scratch.counters, w_uv.shape[0], splits,
        LATENT=width, VALUE=value_dim, PIECES=pieces, SPLITS=rounded,
        CHUNK=merge_chunk(splits, pieces, width), PDL=dependent, num_warps=MERGE_FORMS[pieces].warps, num_stages=1,
        launch_pdl=dependent,
    )  # fmt: skip


def _rows_per_sequence(cache: torch.Tensor) -> int:
    """Rows from one sequence of the cache to the next; raises ValueError where it is not a whole number."""
    rows, rest = divmod(cache.stride(0), cache.stride(1)) if cache.shape[0] > 1 else (cache.shape[1], 0)
    if rest or cache.stride(1) * cache.element_size() % TMA_BYTES:
        raise ValueError(f"cache strides {cache.stride()[:2]} do not fit a tensor map")
    return int(rows)


def _tensor_maps(query: torch.Tensor, cache: torch.Tensor, block_heads: int) -> list[TensorDescriptor]:
    """Tensor maps of query and cache as matrices, for boxes of 128 latent columns and for the 64 rope columns."""
    layout = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    width, per_sequence = query.shape[2], _rows_per_sequence(cache)
    rows = (cache.shape[0] - 1) * per_sequence + cache.shape[1]
    query_shape, cache_shape = [query.shape[0] * query.shape[1], width], [rows, width]
    return [
        TensorDescriptor(tensor, shape, strides, [block_rows, columns], layout)
        for tensor, shape, strides, block_rows in (
            (query, query_shape, [width, 1], block_heads), (cache, cache_shape, [cache.stride(1), 1], MANY.block_tokens)
        )
        for columns in (128, ROPE)
    ]  # fmt: skip
