"""What the compiler must make of the configurations of split_kv."""

from typing import Any

from tracelab.kernels._compile import CompileSpec
from tracelab.kernels._split_kv_device import split_kv_decode, split_kv_merge
from tracelab.kernels._split_kv_launch import MERGE_WARPS, SPLIT, WALK, Config, decode_constants, merge_constants
from tracelab.kernels._split_plan import SMS

TYPES = (
    dict.fromkeys(("q", "k", "v", "table", "lengths", "out"), "*bf16")
    | dict.fromkeys(("part_m", "part_l", "part_acc"), "*fp32")
    | {"counters": "*i32", "scale_log2e": "fp32"}
)


def spec(name: str, fn: Any, constants: dict[str, Any], warps: int, stages: int, registers: int) -> CompileSpec:
    """A kernel at the Llama 8B shape in bf16."""
    types = TYPES | ({"table": "*i32"} if constants.get("PAGE") else {})
    signature = {at: "constexpr" if at in constants else types.get(at, "i32") for at in fn.arg_names}
    aligned = types.keys() - {"scale_log2e"} | {"stride_batch", "stride_token", "splits"}
    return CompileSpec(
        name=name,
        fn=fn,
        signature=signature,
        constexprs=constants,
        num_warps=warps,
        num_stages=stages,
        divisible=tuple(at for at in signature if at in aligned),
        max_registers=registers,
        min_blocks_per_sm=1,
        wgmma=False,
    )


def compile_specs() -> tuple[CompileSpec, ...]:
    """The shipped configurations; registers as compiled by Triton 3.6.0 and 8 more."""

    def walk(
        name: str, config: Config, registers: int, *, page: int = 0, split: bool = True, last_block: bool = False
    ) -> CompileSpec:
        constants = decode_constants(config, 4, 4, 128, page=page, split=split, last_block=last_block, on_device=False,
                               release=not last_block)  # fmt: skip
        return spec(name, split_kv_decode, constants | {"UP": False}, config.lanes, config.stages, registers)

    def merge(name: str, splits: int, group: int, registers: int) -> CompileSpec:
        constants = merge_constants(splits, group, 128, pdl=True)
        return spec(name, split_kv_merge, constants, MERGE_WARPS, 1, registers)

    return (
        walk("split", SPLIT, 174),
        walk("paged", SPLIT, 176, page=16),
        walk("last_block", SPLIT, 176, last_block=True),
        walk("walk", WALK, 190, split=False),
        merge("merge", 16, 4, 40),
        merge("merge of one KV head", SMS, 32, 64),
    )
