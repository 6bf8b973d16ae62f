"""Severity, name and kind of API calls, by the table of failed calls."""

import pytest

from tracelab.failures import (
    ERROR_NAMES,
    Severity,
    error_name,
    is_graph_launch,
    is_host_wait,
    is_launch,
    is_module_load,
    judge,
    strip_version,
)


@pytest.mark.parametrize(
    ("api", "code", "severity"),
    [
        ("cudaLaunchKernel_v7000", 0, "ignore"),
        ("cuLaunchKernel", 1, "error"),
        ("cudaLaunchKernel_v7000", 701, "error"),
        ("cudaGraphLaunch_v10000", 720, "error"),
        ("cudaLaunchKernelExC_v11060", 2, "error"),
        ("cudaLaunchKernel_v7000", 12345, "error"),
        ("cudaLaunchKernel_v7000", 719, "fatal"),
        ("cudaDeviceSynchronize_v3020", 700, "fatal"),
        ("cudaEventQuery_v3020", 600, "ignore"),
        ("cuStreamQuery", 600, "ignore"),
        ("cudaStreamQuery_v3020_ptsz", 600, "ignore"),
        ("cudaMemcpyAsync_v3020", 600, "warning"),
        ("cudaDeviceEnablePeerAccess_v4000", 704, "ignore"),
        ("cudaMalloc_v3020", 2, "warning"),
        ("cudaMemcpy_v3020", 1, "warning"),
        ("cuGetProcAddress_v2", 500, "info"),
        ("cudaGraphExecUpdate_v10020", 910, "info"),
        ("cudaStreamEndCapture_v10000", 901, "warning"),
        ("cudaFree_v3020", 709, "warning"),
        ("cudaMalloc_v3020", 4711, "warning"),
    ],
)
def test_severity(api: str, code: int, severity: Severity) -> None:
    assert judge(api, code, 0) == severity


def test_unloading_errors_are_normal_only_at_the_end() -> None:
    assert judge("cudaEventDestroy_v3020", 4, 0, after_last_work=True) == "ignore"
    assert judge("cudaEventDestroy_v3020", 4, 0) == "warning"


def test_a_duplicate_row_of_a_backtrace_is_not_judged() -> None:
    assert judge("cudaLaunchKernel", 1, 67) == "ignore"


def test_names() -> None:
    assert error_name(1) == "cudaErrorInvalidValue"
    assert error_name(912) == "cudaErrorInvalidClusterSize"
    assert error_name(4711) == "error 4711"
    assert all(name.startswith("cuda") for name in ERROR_NAMES.values())


@pytest.mark.parametrize(
    ("name", "stripped"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel_ptsz"),
        ("cudaMemcpyAsync_v3020_ptsz", "cudaMemcpyAsync"),
        ("cuGetProcAddress_v2", "cuGetProcAddress_v2"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx"),
    ],
)
def test_versions(name: str, stripped: str) -> None:
    assert strip_version(name) == stripped


LAUNCHES = (
    "cudaLaunchKernel cudaLaunchKernel_v7000 cudaLaunchKernelExC_v11060 cudaLaunchCooperativeKernel_v9000 cudaLaunch"
)
DRIVER_LAUNCHES = "cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel cuLaunchGrid"
GRAPHS = "cudaGraphLaunch_v10000 cuGraphLaunch cuGraphLaunch_ptsz"
WAITS = (
    "cudaDeviceSynchronize_v3020 cudaStreamSynchronize_v3020 cudaEventSynchronize_v3020 cudaThreadSynchronize_v3020 "
    "cuCtxSynchronize cuStreamSynchronize cuEventSynchronize cudaMemcpy_v3020 cudaMemcpy2D_v3020 cuMemcpyDtoH_v2 "
    "cudaMemcpyToSymbol_v3020 cuMemcpyHtoD_v2 cudaFree_v3020 cudaFree"
)
LOADS = "cuModuleLoadData cuModuleLoadDataEx cuLibraryLoadData cudaLibraryLoadData_v12080 cuLinkCreate_v2 nvrtcX"
NEITHER = (
    "cudaMemcpyAsync_v3020 cudaMemcpy2DAsync_v3020 cuMemcpyDtoHAsync_v2 cudaFreeHost_v3020 cudaFreeAsync_v11020 "
    "cudaStreamWaitEvent_v3020 cudaEventQuery_v3020 cudaEventRecord_v3020 cuModuleGetFunction cuLibraryGetKernel "
    "cudaStreamIsCapturing_v10000 cuKernelGetName cudaGraphInstantiate_v12000 cudaLaunchHostFunc_v10000 cudaMalloc"
)


def test_kinds_of_calls() -> None:
    kinds = {
        is_launch: f"{LAUNCHES} {DRIVER_LAUNCHES} {GRAPHS}",
        is_graph_launch: GRAPHS,
        is_host_wait: WAITS,
        is_module_load: LOADS,
    }
    every = " ".join([LAUNCHES, DRIVER_LAUNCHES, GRAPHS, WAITS, LOADS, NEITHER]).split()
    for kind, names in kinds.items():
        assert [name for name in every if kind(name)] == [name for name in every if name in names.split()]
