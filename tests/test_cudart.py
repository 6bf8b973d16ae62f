"""The way to torch's CUDA runtime: launch configurations, where NVRTC is found; on fakes, without a driver."""

import ctypes
import ctypes.util
import importlib.util
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracelab.errors import CaptureUnavailableError, UsageError
from tracelab.kernels import _cudart, _guard_kernel
from tracelab.kernels._guard import OVERSIZED_BYTES, UncheckedLaunch, parse_fail

RESERVED_BYTES = 1024  # of shared memory per block, for the system on sm_90; not out of the 48 KiB of a launch


class FakeLibrary:
    """Functions of a CUDA runtime that note what they are given."""

    def __init__(self, code: int = 0) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.code = code

    def cudaLibraryLoadData(self, *_: object) -> int:  # noqa: N802
        return 0

    def cudaLibraryGetKernel(self, *_: object) -> int:  # noqa: N802
        return 0

    def cudaLaunchKernelExC(self, config: Any, _: object, pointers: Any) -> int:  # noqa: N802
        c = config._obj
        values = [ctypes.cast(p, ctypes.POINTER(ctypes.c_int)).contents.value for p in pointers]
        self.launched.append((c.grid.x, c.grid.y, c.grid.z, c.block.x, c.shared_bytes, c.stream, values))
        return self.code


def runtime(library: Any) -> _cudart.Cudart:
    return _cudart.Cudart(library, last_error=lambda: 0, stream=lambda: 77)


def test_the_launch_configuration_has_cudas_layout() -> None:
    # cudaLaunchConfig_t: two dim3 of 12 bytes, size_t, two pointers, unsigned, padded to 8
    offsets = [getattr(_cudart.LaunchConfig, name).offset for name, _ in _cudart.LaunchConfig._fields_]
    assert offsets == [0, 12, 24, 32, 40, 48]
    assert ctypes.sizeof(_cudart.LaunchConfig) == 56


def test_unchecked_launch_asks_for_more_than_there_is_and_ignores_the_answer() -> None:
    library = FakeLibrary(code=1)
    fail = UncheckedLaunch(runtime(library), image=b"cubin")
    assert library.launched == []
    fail()
    assert library.launched == [(1, 1, 1, 32, OVERSIZED_BYTES, 77, [])]
    assert OVERSIZED_BYTES > 232_448  # what sm_90 can give a block


def test_a_launch_passes_pointers_to_its_arguments_on_the_current_stream() -> None:
    library = FakeLibrary()
    tensor = SimpleNamespace(data_ptr=lambda: 4096)
    cudart = runtime(library)
    module = _cudart.Module(cudart, b"cubin")
    launch = _cudart.Launch(
        cudart, module, module.kernel("k"), tensor, 5, 0.0, blocks=3, threads=64, shared_bytes=9
    )  # fmt: skip
    assert launch() == 0
    assert library.launched == [(3, 1, 1, 64, 9, 77, [4096, 5, 0])]


def test_an_old_runtime_is_one_sentence() -> None:
    with pytest.raises(CaptureUnavailableError, match=r"older than 12\.8"):
        _cudart.Module(runtime(SimpleNamespace()), b"cubin")


def test_a_call_that_fails_while_loading_is_named() -> None:
    library = SimpleNamespace(cudaLibraryLoadData=lambda *_: 35)
    with pytest.raises(CaptureUnavailableError, match="cudaLibraryLoadData returned 35"):
        _cudart.Module(runtime(library), b"cubin")


@pytest.mark.parametrize("text", ["attn_mla", "@5", "attn_mla@", "attn_mla@x", "a b@1", "attn@1@2", "attn@-1"])
def test_fail_wants_phase_and_layer(text: str) -> None:
    with pytest.raises(UsageError, match="phase@layer"):
        parse_fail(text)


def test_fail_is_phase_and_layer() -> None:
    assert parse_fail("attn_mla@12") == ("attn_mla", 12)


def test_mapped_libraries_are_found_by_their_file_name() -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("this system has no /proc/self/maps")
    (libc,) = _cudart.mapped("libc.so")
    assert Path(libc).is_file()
    assert _cudart.mapped("c.so") == []


def test_nvrtc_of_the_wheels_comes_before_the_toolkits_and_the_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cu13/lib/libnvrtc.so.13", "cu13/lib/libnvrtc-builtins.so.13.0", "cuda_nvrtc/lib/libnvrtc.so.12"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    monkeypatch.setattr(_cudart, "mapped", lambda _: [])
    assert _cudart.nvrtc_path() == str(tmp_path / "cuda_nvrtc/lib/libnvrtc.so.12")
    monkeypatch.setattr(_cudart, "mapped", lambda _: ["/already/libnvrtc.so.13"])
    assert _cudart.nvrtc_path() == "/already/libnvrtc.so.13"


def test_without_nvrtc_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(_cudart, "mapped", lambda _: [])
    monkeypatch.setattr(_cudart, "_nvrtc_in", lambda _: [])
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    with pytest.raises(CaptureUnavailableError, match="NVRTC is not installed"):
        _cudart.nvrtc_path()


def cubin_or_skip(source: str) -> bytes:
    """Compiled for sm_90, which needs no driver; a skip where NVRTC is missing, as torch's CPU wheels lack it."""
    try:
        _cudart.nvrtc_path()
    except CaptureUnavailableError as error:
        pytest.skip(str(error))
    return _cudart.compile_cubin(source, "sm_90")


def section_bytes(image: bytes) -> dict[str, int]:
    """Size of every section of a 64-bit ELF file; header fields e_shoff, e_shentsize, e_shnum, e_shstrndx (elf(5))."""
    (table,) = struct.unpack_from("<Q", image, 40)
    entry, count, names = struct.unpack_from("<HHH", image, 58)
    rows = [struct.unpack_from("<IIQQQQ", image, table + index * entry) for index in range(count)]
    start = rows[names][4]
    return {image[start + row[0] : image.index(b"\0", start + row[0])].decode(): row[5] for row in rows}


def test_the_demos_kernels_compile_for_sm_90_and_leave_all_48_kib_to_the_launch() -> None:
    sections = section_bytes(cubin_or_skip(_guard_kernel.SOURCE))
    assert all(sections[f".text.{name}"] for name in ("mla_decode", "nothing", "nothing_opted_in"))
    assert sections.get(".nv.shared.mla_decode", 0) <= RESERVED_BYTES


def test_control_static_shared_memory_would_be_seen() -> None:
    source = 'extern "C" __global__ void k(int* p) { __shared__ int s[64]; s[threadIdx.x] = *p; *p = s[*p]; }'
    assert section_bytes(cubin_or_skip(source))[".nv.shared.k"] >= 64 * 4 + RESERVED_BYTES


def test_a_compile_error_carries_the_compilers_words() -> None:
    cubin_or_skip('extern "C" __global__ void k() {}')
    with pytest.raises(CaptureUnavailableError, match=r"(?s)sm_90: .*tracelab\.cu\(1\): error"):
        _cudart.compile_cubin("no such code", "sm_90")
