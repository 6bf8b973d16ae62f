"""Which kernels are communication, and what each is called."""

import pytest
from rank_programs import ALL_GATHER, ALL_REDUCE

from tracelab.communication import collective
from tracelab.families import classify
from tracelab.load import load_trace
from tracelab.samples import samples

NO_USER_FILE: dict[str, str] = {}

COMMUNICATION = {
    ALL_REDUCE: "AllReduce",
    "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)": "AllReduce",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "AllReduce",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(ncclSymkDevWorkArgs4K)": "AllReduce",
    "ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLD_sum_bf16(ncclSymkDevWorkArgs4K)": "ReduceScatter",
    ALL_GATHER: "AllGather",
    "ncclDevKernel_ReduceScatter_Sum_f32_TREE_LL128(ncclDevComm*)": "ReduceScatter",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)": "Broadcast",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevComm*)": "Reduce",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "SendRecv",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": "ncclDevKernel_Generic_1",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "custom AllReduce",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": "custom AllReduce",
    "void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8>(float**)": "custom AllReduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<x>(T1)": "custom AllReduce",
    "void tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<1>(T1)": "custom AllToAll",
    "void deep_ep::internode_ll::combine<true, 7168, 9, 128>(void*)": "DeepEP combine",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)": "DeepEP dispatch",
    "nvshmemi_transfer_rma_warp": "NVSHMEM",
    "c10d::symmetric_memory::barrier_kernel(unsigned int**, unsigned long, int, int)": "barrier_kernel",
    "kuserbuffers_pushsend(int, int, int4*)": "kuserbuffers_pushsend",
}
COMPUTE = (
    "triton_poi_fused_all_reduce_lift_fresh_0",
    "triton_poi_fused_all_to_all_single_clone_permute_view_0",
    "triton_red_fused_all_reduce_wait_tensor_1",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<x, AllReduceEpilogue>>(T1)",
    "allgather_gemm_kernel",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(T3)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "scatter_reduce_kernel",
    "broadcast_kernel",
    "splitKreduce_kernel",
)


@pytest.mark.parametrize("name", COMMUNICATION)
def test_communication_kernels_are_known(name: str) -> None:
    assert list(classify([name], NO_USER_FILE).families) == ["communication"]
    assert collective(name) == COMMUNICATION[name]


def test_what_computes_is_no_communication() -> None:
    found = classify(COMPUTE, NO_USER_FILE).families
    assert [name for name, family in zip(COMPUTE, found, strict=True) if family == "communication"] == []


def test_no_kernel_of_the_bundled_recordings_communicates() -> None:
    """All of them are of one GPU."""
    names = {name for sample in samples() for name in load_trace(sample.path).names}
    found = classify(sorted(names), NO_USER_FILE).families
    assert [name for name, family in zip(sorted(names), found, strict=True) if family == "communication"] == []
