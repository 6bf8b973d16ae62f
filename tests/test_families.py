"""Families by kernel name: real names of the common engines, every name of the corpus, and broken rule files."""

import ast
import sqlite3
from pathlib import Path

import pytest
from corpus import CORPUS
from source_tree import gpu_functions, package_sources

from tracelab.errors import InputError
from tracelab.families import FAMILIES, USER_FILE_VARIABLE, classify

_NO_USER_FILE: dict[str, str] = {}

# Real names of torch, cuBLAS, cuDNN, FlashAttention, FlashInfer, FlashMLA, vLLM, SGLang, TensorRT-LLM, llama.cpp,
# Triton, fla, DeepGEMM, NCCL and CUB kernels, one a line; arguments shortened.
BY_FAMILY = {
    "gemm": """
nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_NNT
nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT
void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasLt::cublasSplitKParams<T6>)
ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn
ampere_sgemm_128x64_nn
sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off
void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(T1::Params)
fused_moe_kernel
void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8, false, 4>(int4 const*)
void mul_mat_q<(ggml_type)12, 64, false>(char const*)
triton_tem_fused_mm_4
void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 2048u, 1u, 64u, 128u>(float*)
""",
    "gemv": """
void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float>(T)
void gemvNSP_kernel<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 1, 32, 4, 1024>(cublasGemvParamsEx)
std::enable_if<!(T7), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16>(T)
void mul_mat_vec_q<(ggml_type)12, 1, false, false>(void const*, void const*)
""",
    "elementwise": """
void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, x>(int, T2)
void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>(long)
void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)
void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(c10::BFloat16*)
void vllm::scaled_fp8_quant_kernel<c10::BFloat16>(c10::Float8_e4m3fn*)
void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn, true>(void const*)
quantize_q8_1(float const*, void*, long, long, long, long, unsigned int, unsigned int)
void rope_neox<true, false, float, float>(float const*)
void k_bin_bcast<&op_add, float, float, float>(float const*)
void unary_gated_op_kernel<&op_silu, float>(float const*)
triton_poi_fused_mul_silu_1
void thrust::cuda_cub::core::_kernel_agent<__parallel_for::ParallelForAgent<x>>(T1)
""",
    "copy": """
void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<direct_copy_kernel_cuda>>(int)
void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>(T1)
void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long>(TensorInfo)
void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<x>>(long, T3)
void flashinfer::AppendPagedKVCacheDecodeKernel<128, 8>(T1)
void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(__nv_bfloat16 const*)
void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16>(T1)
void k_set_rows<float, long, __half>(float const*)
""",
    "reduction": """
void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(T3)
void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*)
void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(float*)
void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float>>(float*)
triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0
triton_per_fused_sum_3
void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy900, false, float>(int*)
""",
    "sampling": """
void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(T3)
void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(at::cuda::detail::TensorInfo)
void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024>(float*)
""",
    "norm": """
void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)
void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)
void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)
void rms_norm_f32<1024, true, false>(float const*)
layer_norm_gated_fwd_kernel
""",
    "attention": """
cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0
void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, false>(flash::Flash_fwd_params)
void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(flash::Flash_fwd_params)
void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloop>>(T1)
pytorch_flash::flash_fwd_kernel
fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>)
void flashinfer::BatchDecodeWithPagedKVCacheKernel<flashinfer::PosEncodingMode, 2, 4>(T1)
void flashinfer::BatchPrefillWithPagedKVCacheKernel<x>(T1)
void flashinfer::PersistentVariableLengthMergeStatesKernel<8, 16>(T1)
void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>>(Flash_fwd_mla_params)
sm90::decode::sparse_fp8::flash_mla_kernel
void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128>(float*)
kernel_unified_attention_2d
_fwd_grouped_kernel_stage1
_fwd_kernel_stage2
fmhaSm90Kernel_QkvBfloat16OBfloat16H128PagedKvCausalP32VarSeqQ8Kv128LsStaticSwapsAbForGen
void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<__nv_bfloat16, 128>(T1)
void flash_attn_ext_f16<128, 128, 8, 8, 4, false, false>(char const*)
void flash_attn_combine_results<128>(float const*)
fused_recurrent_gated_delta_rule_fwd_kernel
chunk_gated_delta_rule_fwd_kernel_h_blockdim64
fused_recurrent_kda_fwd_kernel
""",
    "other": """
void vllm::moe::topkGating<8, 128, 4, 16, 32, int, float>(float const*)
void vllm::moe::moe_align_block_size_kernel<int>(int const*)
kernel
saxpy(double *, double *, double *, double, int)
""",
    "communication": """
void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)
ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
""",
}
ENGINES = [(name, family) for family, names in BY_FAMILY.items() for name in names.strip().splitlines()]


@pytest.mark.parametrize(("name", "family"), ENGINES)
def test_engine_kernels(name: str, family: str) -> None:
    assert classify([name], _NO_USER_FILE).families == [family]


# The kernels under kernels/, as a trace names them
BUNDLED = {
    ("attention", "attn"): """flash_kernel hopper_kernel serial_kernel split_kv_decode split_kv_merge mla_batched
        mla_per_head mla_few_heads mla_many_heads mla_merge fused fused_sliced conv_silu recurrent""",
    ("gemm", "moe"): "masked_kernel contiguous_kernel",
    ("gemm", None): "expand_kernel",
    ("gemv", None): "gemv_row gemv_tile",
    ("norm", "norm"): "rms_norm_kernel gated_norm",
    ("elementwise", "attn"): "rope_append_kernel",
    ("elementwise", "mlp"): "silu_mul silu_mul_kernel",
    ("copy", "attn"): "latent_append_kernel",
    ("copy", None): "embedding_kernel embed_advance_kernel scatter_kernel",
    ("sampling", "sampling"): "argmax_runs_kernel argmax_winner_kernel",
    ("other", "moe"): "route_kernel combine_kernel",
}
NO_STEPS = {"add_one"}  # what the launch guard is checked with


@pytest.mark.parametrize("place", BUNDLED, ids=str)
def test_bundled_kernels(place: tuple[str, str | None]) -> None:
    got = classify(BUNDLED[place].split(), _NO_USER_FILE)
    assert set(zip(got.families, got.phases, got.matched, strict=True)) == {(*place, True)}


def test_every_bundled_kernel_has_a_rule() -> None:
    """A kernel is a GPU function that no other one refers to; those others are its parts."""
    functions, named = set(), set()
    for source in package_sources():
        gpu = gpu_functions(source)
        bodies = [node for node in source.tree.body if isinstance(node, ast.FunctionDef) and node.name in gpu]
        functions |= gpu
        named |= {at.id for node in bodies for at in ast.walk(node) if isinstance(at, ast.Name)}
    kernels = sorted(functions - named - NO_STEPS)
    assert len(kernels) > 25
    got = classify(kernels, _NO_USER_FILE)
    assert [name for name, matched in zip(kernels, got.matched, strict=True) if not matched] == []


@pytest.mark.parametrize("name", ["my_serial_kernel", "fused", "masked_kernel_2", "recurrent_step", "fused_step"])
def test_plain_words_count_only_as_whole_names(name: str) -> None:
    assert classify([name], _NO_USER_FILE).matched == [name == "fused"]


def test_phases_only_where_the_name_tells() -> None:
    got = classify(["nvjet_sm90_x", "void vllm::rms_norm_kernel<x>(T1)", "flash_fwd_kernel", "scale"], _NO_USER_FILE)
    assert got.phases == [None, "norm", "attn", None]
    assert got.matched == [True, True, True, False]


def _corpus_names(file: str) -> list[str]:
    path = CORPUS / file
    if not path.exists():
        pytest.skip("needs the trace corpus")
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        query = (
            "SELECT DISTINCT value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName ORDER BY value"
        )
        return [row[0] for row in connection.execute(query)]


def _families_of(names: list[str]) -> dict[str, list[str]]:
    """Family to the names in it, each cut to what tells it apart."""
    found: dict[str, list[str]] = {}
    for name, family in zip(names, classify(names, _NO_USER_FILE).families, strict=True):
        found.setdefault(family, []).append(name)
    return found


def test_decode_kernels_of_the_corpus() -> None:
    got = _families_of(_corpus_names("h200_eager_and_graph.sqlite"))
    assert {family: len(names) for family, names in got.items()} == {
        "gemm": 2,
        "attention": 1,
        "elementwise": 2,
        "reduction": 1,
    }
    assert "lean_reduction_kernel" in got["reduction"][0]
    assert "sdpa" in got["attention"][0]
    assert all("nvjet" in name or "splitKreduce" in name for name in got["gemm"])


def test_training_kernels_of_the_corpus() -> None:
    got = _families_of(_corpus_names("h200_autograd_threads.sqlite"))
    assert {family: len(names) for family, names in got.items()} == {"gemm": 4, "reduction": 2, "elementwise": 14}
    assert all("xmma_gemm" in name for name in got["gemm"])
    assert all("reduce_kernel" in name for name in got["reduction"])


def test_failing_kernels_of_the_corpus() -> None:
    got = _families_of(_corpus_names("h200_failed_launches.sqlite"))
    assert got["other"] == ["scale"]
    assert len(got["elementwise"]) == 3


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("t4_power_iteration.sqlite", {"gemv": 1, "gemm": 1, "reduction": 2, "elementwise": 5, "copy": 1}),
        ("rtx4060ti_llama_steps.sqlite", {"gemm": 1, "elementwise": 1}),
        ("v100_null_names.sqlite", {"elementwise": 3}),
        ("rtx6000_oldest_schema.sqlite", {"other": 2}),
        ("gtx1060_con_kernel.sqlite", {"other": 5}),
        ("a100_saxpy_mpi.sqlite", {"other": 1}),
    ],
)
def test_other_kernels_of_the_corpus(file: str, expected: dict[str, int]) -> None:
    got = _families_of(_corpus_names(file))
    assert {family: len(names) for family, names in got.items()} == expected


def test_own_rules_go_first(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("[[rule]]\npattern = '^scale$'\nfamily = 'norm'\nphase = 'norm'\n", encoding="utf-8")
    got = classify(["scale", "nvjet_x"], {USER_FILE_VARIABLE: str(own)})
    assert (got.families, got.phases) == (["norm", "gemm"], ["norm", None])


BROKEN = {
    "[[rule]]\npattern = 'a'\nfamily = \n": "line 3",
    "[[rule]]\npattern = 'a'\nfamily = 'gemm'\n\n[[rule]]\npattern = '('\nfamily = 'gemm'\n": "line 5",
    "# note\n[[rule]]\npattern = 'a'\nfamily = 'matmul'\n": "line 2.*'matmul'",
    "[[rule]]\nfamily = 'gemm'\n": "line 1.*pattern",
    "[[rule]]\npattern = 3\nfamily = 'gemm'\n": "line 1",
    "rules = 1\n": "line 1",
    "rule = [1]\n": "line 1",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_one_sentence_naming_the_line(tmp_path: Path, text: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=BROKEN[text]) as caught:
        classify(["a"], {USER_FILE_VARIABLE: str(own)})
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        classify(["a"], {USER_FILE_VARIABLE: str(tmp_path / "none.toml")})
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        classify(["a"], {USER_FILE_VARIABLE: str(tmp_path / "binary.toml")})


def test_every_bundled_family_is_used() -> None:
    seen = set(classify([name for name, _ in ENGINES], _NO_USER_FILE).families)
    assert seen == set(FAMILIES)
