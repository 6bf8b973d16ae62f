"""Short kernel names: what distinguishes stays, noise goes, nothing raw reaches a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelab.kernel_names import cut, escape, shorten, shorten_all

NATIVE = "void at::native::"
MUL_FLOAT = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>"
MUL_SCALAR = "at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>"
SILU = (
    "at::native::<unnamed>::silu_kernel(at::TensorIteratorBase &)::[lambda() (instance 1)]::operator ()() const::"
    "[lambda() (instance 6)]::operator ()() const::[lambda(c10::BFloat16) (instance 1)]"
)
CASES = {
    f"{NATIVE}vectorized_elementwise_kernel<(int)8, {SILU}, std::array<char *, 2>>(int, T2, T3)": (
        "vectorized_elementwise_kernel<silu>"
    ),
    f"{NATIVE}vectorized_elementwise_kernel<(int)4, {MUL_FLOAT}, x>(int, T2)": "vectorized_elementwise_kernel<Mul>",
    f"{NATIVE}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>>"
    "(int, at::native::CUDAFunctor_add<c10::BFloat16>)": "vectorized_elementwise_kernel<add>",
    f"{NATIVE}elementwise_kernel<128, 4, {NATIVE}gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda()#1}>>(int, T3)": "elementwise_kernel<direct_copy>",
    f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, int>>(T3)": (
        "reduce_kernel<Mean>"
    ),
    f"{NATIVE}(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListMetadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor<float, 2, 1, 1>, at::native::Sqrt<float>>"
    "(T1)": "multi_tensor_apply_kernel<Sqrt>",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_16x16_128x2_tn_align8>(T1::Params)": (
        "Kernel2<cutlass_80_wmma_tensorop_bf16_16x16_128x2_tn_align8>"
    ),
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Mainloop>>>(T1)": (
        "device_kernel<FlashAttnFwdSm90>"
    ),
    "std::enable_if<!(T7), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16>(T13)": "gemvx::kernel",
    "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x128_1x4x1_cga1x1x1_kernel0_0": (
        "cudnn_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x128_1x4x1"
    ),
    "sm80_xmma_gemm_f32f32_nn_n_stage3_execute_split_k_kernel__5x_cublas": "sm80_xmma_gemm_f32f32_nn_n_stage3_split_k",
    "triton_red_fused__to_copy_add_mean_0": "triton_red_fused__to_copy_add_mean_0",
    "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(c10::BFloat16*)": (
        "act_and_mul_kernel<silu>"
    ),
    "saxpy(double *, double *, int)": "saxpy",
    "void k<(T1)5, &operator->>(int)": "k",
    "broken<int(": "broken<int(",
    "": "",
}


@pytest.mark.parametrize(("name", "short"), CASES.items(), ids=[str(i) for i in range(len(CASES))])
def test_short_names(name: str, short: str) -> None:
    assert shorten(name) == short


def test_a_long_name_is_cut_in_the_middle() -> None:
    assert shorten("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_NNT", 28) == "nvjet_sm90_tst…bz_splitK_NNT"
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdef", 1) == "…"


def test_different_kernels_with_one_short_name_stay_different() -> None:
    names = [
        f"{NATIVE}vectorized_elementwise_kernel<(int)4, {MUL_FLOAT}, x>(int, T2)",
        f"{NATIVE}vectorized_elementwise_kernel<(int)4, {MUL_SCALAR}, x>(int, T2)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(T1)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, double>(T1)",
    ]
    assert shorten_all(names) == [
        "vectorized_elementwise_kernel<Binary Mul>",
        "vectorized_elementwise_kernel<AUnary Mul>",
        "splitKreduce_kernel<32,16,int,float>",
        "splitKreduce_kernel<32,16,int,double>",
    ]


def test_names_that_differ_in_the_middle_show_the_difference() -> None:
    names = [f"sm80_xmma_gemm_f32f32_f32f32_f32_{layout}_n_tilesize64x64x8_stage3_aligna4" for layout in ("nn", "tn")]
    assert [name.count(layout) for name, layout in zip(shorten_all(names, 28), ("_nn_", "_tn_"), strict=True)] == [1, 1]


def test_the_same_name_twice_keeps_one_form() -> None:
    assert shorten_all(["saxpy(int)", "scale", "saxpy(int)"]) == ["saxpy", "scale", "saxpy"]


def test_escapes_are_never_raw() -> None:
    assert escape("a\x1b[31mb\nc\u202ed") == "a\\x1b[31mb\\nc\\u202ed"
    assert shorten("evil\x1b]0;title\x07(int)") == "evil\\x1b]0;title\\x07"


names_ = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="ab<>(): ,&\x1b\n_~2…", max_size=60),
    st.sampled_from(sorted(CASES)),
)


@given(st.lists(names_, max_size=12), st.one_of(st.none(), st.integers(8, 60)))
def test_shortening_keeps_names_apart_in_any_order(names: list[str], width: int | None) -> None:
    short = shorten_all(names, width)
    assert len(set(short)) == len(set(names))
    assert shorten_all(names[::-1], width) == short[::-1]
    assert all(text.isprintable() for text in short)
    assert all(width is None or len(text) <= width for text in short)
