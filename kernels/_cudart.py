"""The CUDA runtime that torch itself uses, by ctypes: a thread's error slot, and launches whose code nobody checks.

An error that a launch returns also stays in a slot of its host thread until `cudaGetLastError` reads it, in the same
instance of the runtime library (CUDA runtime API, error handling). Every other way to launch from Python raises at the
launch, or keeps its slot in a runtime of its own, so device code is compiled with NVRTC and loaded and launched here
through the library that torch has mapped. Needs CUDA 12.8 or newer for `cudaLibraryLoadData`; torch is imported late.
"""

import ctypes
import ctypes.util
import functools
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelab.errors import CaptureUnavailableError
from tracelab.failures import error_name

if TYPE_CHECKING:
    import torch

_NVRTC = "libnvrtc.so"
MAX_DYNAMIC_SHARED = 8  # cudaFuncAttributeMaxDynamicSharedMemorySize (driver_types.h)


class Dim3(ctypes.Structure):
    """dim3 (vector_types.h)."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class LaunchConfig(ctypes.Structure):
    """cudaLaunchConfig_t (driver_types.h)."""

    _fields_ = (
        ("grid", Dim3),
        ("block", Dim3),
        ("shared_bytes", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass(frozen=True)
class Cudart:
    """One instance of the CUDA runtime: its functions, and torch's current stream.

    `last_error` is cudaGetLastError: it returns the calling thread's error and clears it.
    """

    library: Any  # ctypes.CDLL
    last_error: Callable[[], int]
    stream: Callable[[], int]

    def synchronize(self) -> int:
        """cudaDeviceSynchronize: waits for the GPU and returns the code of a fault in work before it."""
        return int(self.library.cudaDeviceSynchronize())

    def allow_shared(self, kernel: ctypes.c_void_p, shared_bytes: int) -> int:
        """Let launches of `kernel` ask for that much dynamic shared memory; returns the call's code."""
        return int(self.library.cudaFuncSetAttribute(kernel, MAX_DYNAMIC_SHARED, shared_bytes))


class Module:
    """Device code loaded into a runtime. Raises CaptureUnavailableError if it cannot be loaded."""

    def __init__(self, cudart: Cudart, image: bytes) -> None:
        self._cudart = cudart
        self._image = image  # the runtime reads it lazily, so it must live as long as its kernels
        self._library = ctypes.c_void_p()
        try:
            load = cudart.library.cudaLibraryLoadData
        except AttributeError:
            raise CaptureUnavailableError("torch's CUDA runtime is older than 12.8; install a newer torch.") from None
        _require(load(ctypes.byref(self._library), image, None, None, 0, None, None, 0), "cudaLibraryLoadData")

    def kernel(self, name: str) -> ctypes.c_void_p:
        """Handle of an `extern "C"` kernel."""
        handle = ctypes.c_void_p()
        call = self._cudart.library.cudaLibraryGetKernel
        _require(call(ctypes.byref(handle), self._library, name.encode()), "cudaLibraryGetKernel")
        return handle


class Launch:
    """A launch prepared ahead. Calling it starts the kernel on torch's current stream and returns the code, unchecked.

    Arguments are tensors (their address), whole numbers (int) and floats; what they refer to is kept alive.
    """

    def __init__(
        self,
        cudart: Cudart,
        module: Module,
        kernel: ctypes.c_void_p,
        *arguments: "torch.Tensor | int | float",
        blocks: int,
        threads: int,
        shared_bytes: int = 0,
    ) -> None:
        self._kept = (module, arguments)
        self._values = [_value(argument) for argument in arguments]
        self._pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(value) for value in self._values))
        self.config = LaunchConfig(Dim3(blocks, 1, 1), Dim3(threads, 1, 1), shared_bytes, None, None, 0)
        self._stream, self._kernel = cudart.stream, kernel
        self._start = cudart.library.cudaLaunchKernelExC

    def __call__(self) -> int:
        """Launch; 0 means that the kernel was accepted."""
        self.config.stream = self._stream()
        return int(self._start(ctypes.byref(self.config), self._kernel, self._pointers))


def _value(argument: "torch.Tensor | int | float") -> Any:
    if isinstance(argument, int):
        return ctypes.c_int(argument)
    return ctypes.c_float(argument) if isinstance(argument, float) else ctypes.c_void_p(argument.data_ptr())


@functools.cache
def torch_cudart() -> Cudart:
    """The runtime whose errors torch itself sees. Raises CaptureUnavailableError where torch has mapped none.

    A second runtime in the process, another package's, has error slots of its own: where there are several, functions
    are looked up through torch's library, which finds the one it is linked with.
    """
    import torch

    torch.cuda.init()
    runtimes = mapped("libcudart.so")
    path = runtimes[0] if len(runtimes) == 1 else next(iter(mapped("libc10_cuda.so")), None)
    if not runtimes or path is None:
        raise CaptureUnavailableError("torch has mapped no libcudart.so: its CUDA runtime cannot be reached.")
    # PyDLL keeps the interpreter lock: the call only reads a variable of its thread, and is 50 ns cheaper so.
    poll = ctypes.PyDLL(path).cudaGetLastError
    poll.argtypes = ()
    return Cudart(ctypes.CDLL(path), poll, lambda: int(torch.cuda.current_stream().cuda_stream))


def mapped(name: str) -> list[str]:
    """Paths of the shared libraries that this process has mapped and whose file name begins with `name`, sorted."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    fields = (line.split(maxsplit=5) for line in lines)
    return sorted({field[5] for field in fields if len(field) == 6 and Path(field[5]).name.startswith(name)})


def nvrtc_path() -> str:
    """NVRTC as torch has mapped it, as its wheels bring it, as a toolkit has it, or as the loader finds it.

    The oldest of several: a driver loads code of an older compiler, not always that of a newer one.
    """
    for files in (map(Path, mapped(_NVRTC)), _nvrtc_in(_wheels()), _nvrtc_in(Path("/usr/local").glob("cuda*/lib64"))):
        first = min(files, key=lambda file: (file.name, str(file)), default=None)
        if first is not None:
            return str(first)
    found = ctypes.util.find_library("nvrtc")
    if found is None:
        raise CaptureUnavailableError("NVRTC is not installed: torch's CUDA wheels bring it, and nvidia-cuda-nvrtc.")
    return found


def _nvrtc_in(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from folder.glob(f"{_NVRTC}*")  # not libnvrtc-builtins, nor libnvrtc.alt.so


def _wheels() -> Iterator[Path]:
    """Library folders of NVIDIA's wheels: nvidia/cuda_nvrtc/lib up to CUDA 12, nvidia/cu13/lib since."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield from Path(root).glob("*/lib")


def compile_cubin(source: str, architecture: str) -> bytes:
    """Compile CUDA C++ for an architecture such as "sm_90"; needs no driver.

    Raises CaptureUnavailableError with the compiler's words if it fails, and without NVRTC.
    """
    nvrtc = ctypes.CDLL(nvrtc_path())
    program = ctypes.c_void_p()
    create = nvrtc.nvrtcCreateProgram
    _require(create(ctypes.byref(program), source.encode(), b"tracelab.cu", 0, None, None), "nvrtcCreateProgram")
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    if nvrtc.nvrtcCompileProgram(program, 1, options):
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).rstrip(b"\0").decode()
        raise CaptureUnavailableError(f"NVRTC cannot compile for {architecture}: {log.strip()}")
    return _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)


def _text(size_of: Any, fill: Any, program: ctypes.c_void_p) -> bytes:
    """What a pair of NVRTC calls hands out: its size, then its bytes."""
    size = ctypes.c_size_t()
    _require(size_of(program, ctypes.byref(size)), "an NVRTC call")
    buffer = ctypes.create_string_buffer(size.value)
    _require(fill(program, buffer), "an NVRTC call")
    return buffer.raw


def gpu_architecture() -> str:
    """That of torch's current GPU, such as "sm_90"."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def _require(code: int, call: str) -> None:
    if code:
        raise CaptureUnavailableError(f"{call} returned {code} ({error_name(code)}).")
