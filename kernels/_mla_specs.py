"""What the compiler must make of the configurations of mla, and the sweep over heads and tokens of a block."""

from collections.abc import Mapping

from triton.experimental.gluon.language import NVMMASharedLayout

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._mla_device import mla_batched, mla_merge, mla_per_head
from tracelab.kernels._mla_few import mla_few_heads
from tracelab.kernels._mla_launch import CAPPED, FEW, LATENT, MANY, MERGE_FORMS, ROPE, SOME, Config, merge_chunk
from tracelab.kernels._mla_many import mla_many_heads

VALUE_DIM = 128
KERNELS = {"many": mla_many_heads, "few": mla_few_heads, "dot": mla_batched, "per_head": mla_per_head}
TYPES = {
    "query": "*bf16", "cache": "*bf16", "lengths": "*i32", "part": "*fp32", "stats": "*fp32", "w_uv": "*bf16",
    "latent": "*bf16", "value": "*bf16", "pieces": "*fp32", "counters": "*i32", "scale_log2e": "fp32",
    **dict.fromkeys(("length", "heads", "splits", "stride_batch", "stride_token", "row_stride", "rows_per_sequence"),
                    "i32"),
}  # fmt: skip
# (heads, tokens, warps, stages, blocks per SM) for tl.dot. 64 × 64 with 3 stages, 295 KB, cannot launch.
DOT_SWEEP = (
    *((16, 32, 4, stages, 1) for stages in (2, 3, 4, 5, 6)), (16, 32, 4, 3, 2), (16, 32, 8, 5, 1),
    (16, 64, 4, 2, 2), (16, 64, 4, 3, 1), (16, 64, 8, 3, 1), (16, 128, 4, 2, 1), (16, 128, 8, 2, 1),
    (32, 32, 8, 2, 1), (32, 32, 8, 3, 1), (32, 64, 8, 2, 1),
    (64, 32, 8, 3, 1), (64, 64, 8, 2, 1),
)  # fmt: skip
SWEEP = (
    MANY, SOME, FEW, CAPPED,
    *(Config("dot", heads, tokens, warps, stages, blocks_per_sm=per_sm)
      for heads, tokens, warps, stages, per_sm in DOT_SWEEP),
)  # fmt: skip


def spec_of(config: Config, *, registers: int = 255, stack_bytes: int = 0, on_device: bool = False) -> CompileSpec:
    """`config` in bf16 at latent 512 and rope 64, the length known to the host or read from the device."""
    constants = {"BLOCK_HEADS": config.block_heads, "BLOCK_TOKENS": config.block_tokens, "RING": config.stages,
                 "LATENT": LATENT, "ROPE": ROPE, "ON_DEVICE": on_device, "UP": False}  # fmt: skip
    specialised = config.engine in ("many", "few")
    maps = {
        f"{name}_map": f"tensordesc<bf16[{rows}, {columns}],{NVMMASharedLayout(128, 16, 2)!r}>"
        for side, rows in (("q", config.block_heads), ("c", config.block_tokens))
        for name, columns in ((side, 128), (f"{side}_rope", ROPE))
    }
    return _spec(
        f"{config.name}{' length on device' if on_device else ''}",
        KERNELS[config.engine],
        TYPES | maps,
        constants,
        num_warps=4 if specialised else config.warps,
        num_stages=config.stages,
        max_registers=registers,
        min_blocks_per_sm=config.blocks_per_sm,
        wgmma=specialised or (config.engine == "dot" and config.block_heads >= 64),
        stack_bytes=stack_bytes,
        maxnreg=config.maxnreg,
    )


def merge_spec(*, pieces: int, splits: int, registers: int) -> CompileSpec:
    """The merge of `splits` slices by `pieces` blocks a head."""
    constants = {"LATENT": LATENT, "VALUE": VALUE_DIM, "PIECES": pieces, "SPLITS": splits,
                 "CHUNK": merge_chunk(splits, pieces, LATENT), "PDL": True}  # fmt: skip
    form = MERGE_FORMS[pieces]
    return _spec(
        f"merge of {splits} by {pieces}", mla_merge, TYPES, constants, num_warps=form.warps, num_stages=1,
        max_registers=registers, min_blocks_per_sm=form.blocks_per_sm, wgmma=False,
    )  # fmt: skip


def _spec(
    name: str,
    kernel: object,
    types: Mapping[str, str],
    constants: Mapping[str, object],
    **wanted: object,
) -> CompileSpec:
    """A spec with the types and constants that `kernel` has, in the order of its parameters."""
    parameters: list[str] = kernel.arg_names  # type: ignore[attr-defined]
    signature = {parameter: types.get(parameter, "constexpr") for parameter in parameters}
    divisible = tuple(
        parameter for parameter, kind in signature.items()
        if kind.startswith("*") or parameter in ("stride_batch", "stride_token", "row_stride", "rows_per_sequence")
    )  # fmt: skip
    return CompileSpec(
        name=name,
        fn=kernel,
        signature=signature,
        constexprs={key: value for key, value in constants.items() if key in signature},
        divisible=divisible,
        **wanted,  # type: ignore[arg-type]
    )
