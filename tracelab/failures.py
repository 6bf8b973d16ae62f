"""What an API call's name and return code mean. Meant for the few distinct names and codes of a trace, not for rows.

Severities follow the table of failed calls in the nsys export reference; names are those of `driver_types.h`, CUDA
13.0. Runtime and driver numbers agree for every code listed.
"""

import re
from typing import Literal

Severity = Literal["ignore", "info", "warning", "error", "fatal"]

ERROR_NAMES = {
    0: "cudaSuccess",
    1: "cudaErrorInvalidValue",
    2: "cudaErrorMemoryAllocation",
    3: "cudaErrorInitializationError",
    4: "cudaErrorCudartUnloading",
    9: "cudaErrorInvalidConfiguration",
    98: "cudaErrorInvalidDeviceFunction",
    100: "cudaErrorNoDevice",
    200: "cudaErrorInvalidKernelImage",
    201: "cudaErrorDeviceUninitialized",
    209: "cudaErrorNoKernelImageForDevice",
    217: "cudaErrorPeerAccessUnsupported",
    218: "cudaErrorInvalidPtx",
    222: "cudaErrorUnsupportedPtxVersion",
    500: "cudaErrorSymbolNotFound",
    600: "cudaErrorNotReady",
    700: "cudaErrorIllegalAddress",
    701: "cudaErrorLaunchOutOfResources",
    702: "cudaErrorLaunchTimeout",
    704: "cudaErrorPeerAccessAlreadyEnabled",
    705: "cudaErrorPeerAccessNotEnabled",
    709: "cudaErrorContextIsDestroyed",
    710: "cudaErrorAssert",
    712: "cudaErrorHostMemoryAlreadyRegistered",
    713: "cudaErrorHostMemoryNotRegistered",
    714: "cudaErrorHardwareStackError",
    715: "cudaErrorIllegalInstruction",
    716: "cudaErrorMisalignedAddress",
    717: "cudaErrorInvalidAddressSpace",
    718: "cudaErrorInvalidPc",
    719: "cudaErrorLaunchFailure",
    720: "cudaErrorCooperativeLaunchTooLarge",
    801: "cudaErrorNotSupported",
    803: "cudaErrorSystemDriverMismatch",
    900: "cudaErrorStreamCaptureUnsupported",
    901: "cudaErrorStreamCaptureInvalidated",
    902: "cudaErrorStreamCaptureMerge",
    903: "cudaErrorStreamCaptureUnmatched",
    904: "cudaErrorStreamCaptureUnjoined",
    905: "cudaErrorStreamCaptureIsolation",
    906: "cudaErrorStreamCaptureImplicit",
    907: "cudaErrorCapturedEvent",
    908: "cudaErrorStreamCaptureWrongThread",
    910: "cudaErrorGraphExecUpdateFailure",
    912: "cudaErrorInvalidClusterSize",
    999: "cudaErrorUnknown",
}
_NOT_READY = 600
_PEER_ALREADY_ENABLED = 704
_AT_PROCESS_END = frozenset({4, 709})
_INFO = frozenset({3, 100, 201, 500, 712, 713, 910})
_FATAL = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 999})

# Runtime rows carry `_v7000` or `_v12000_ptsz`; the `_v2` of a driver call is part of its name.
_VERSION = re.compile(r"_v\d{4,}(_pts[zd])?$")
_LAUNCH = re.compile(r"^(cuda\w*Launch|cuLaunch|cu\w*GraphLaunch|hip\w*Launch)")
_GRAPH_LAUNCH = re.compile(r"^(cuda|cu|hip)GraphLaunch")
_HOST_WAIT = re.compile(
    r"^((cuda|hip)(Device|Stream|Event|Thread)Synchronize"
    r"|cu(Ctx|Stream|Event)Synchronize"
    r"|(cuda|hip)Memcpy(?!\w*Async)"
    r"|cuMemcpy(DtoH|HtoD)(?!Async)"
    r"|(cuda|hip)Free(_v\d|$))"
)
_MODULE_LOAD = re.compile(r"^((cu|hip)ModuleLoad|cu(da)?LibraryLoad|cuLink|(nv|hip)rtc)")
_QUERY = re.compile(r"Query(_|$)")


def judge(api_name: str, code: int, event_class: int = 0, *, after_last_work: bool = False) -> Severity:
    """How bad it is that this call returned `code`.

    `event_class` is 0 for a runtime and 1 for a driver call; any other class is a duplicate of such a row and ignored.
    `after_last_work`: the call started after the GPU's last work, when unloading errors are normal.
    """
    if code == 0 or event_class not in (0, 1):
        return "ignore"
    if code in _FATAL:
        return "fatal"
    if _LAUNCH.match(api_name):
        return "error"
    if code == _PEER_ALREADY_ENABLED or (code == _NOT_READY and _QUERY.search(api_name)):
        return "ignore"
    if code in _AT_PROCESS_END and after_last_work:
        return "ignore"
    return "info" if code in _INFO else "warning"


def error_name(code: int) -> str:
    """Name of a return code, such as `cudaErrorInvalidValue`; `error N` if unknown."""
    return ERROR_NAMES.get(code, f"error {code}")


def strip_version(api_name: str) -> str:
    """The call's name without the version that runtime rows carry."""
    return _VERSION.sub("", api_name)


def is_launch(api_name: str) -> bool:
    """Whether the call launches GPU work: a kernel or a graph, not a function on the host."""
    return _LAUNCH.match(api_name) is not None and "HostFunc" not in api_name


def is_graph_launch(api_name: str) -> bool:
    """Whether the call replays a CUDA graph."""
    return _GRAPH_LAUNCH.match(api_name) is not None


def is_host_wait(api_name: str) -> bool:
    """Whether the host waits for the GPU in this call: a synchronise, a synchronous copy, or cudaFree (by habit)."""
    return _HOST_WAIT.match(api_name) is not None


def is_module_load(api_name: str) -> bool:
    """Whether the call loads, links or compiles device code."""
    return _MODULE_LOAD.match(api_name) is not None
