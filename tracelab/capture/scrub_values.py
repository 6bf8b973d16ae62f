"""What a text of nsys itself may say in a shareable copy: settings, versions and messages in its own words only."""

import json
import re
from typing import Any

REMOVED = "(removed)"

# Settings of nsys that hold no text of the user's, and the values that nsys itself gives them.
_SETTING = re.compile(
    r"(PROCESS_[0-9]{1,4}:)?(CUDA_GRAPH_TRACE_OPTIONS:(MODE|TRACE_DEVICE_GRAPH_LAUNCH)|COLLECT_(CUDA|NVTX)_TRACE"
    r"|CUDA_(FLUSH_PERIOD(ICALLY)?|FLUSH_ON_CUDA_PROFILER_STOP|SKIP_SOME_API_CALLS|TRACE_SCOPE))"
    r"|CAPTURE_EVENT_TYPE|(START|STOP)_TRIGGER|START_DELAY_MS|RUN_DURATION_MS|INCLUDE_CHILDREN"
    r"|TRACE_AFTER_FORK_BEFORE_EXEC|EXPORT_PRODUCT_(NAME|DATE)|EXPORT_SCHEMA_VERSION(_(MAJOR|MINOR|MICRO|CKSUM))?"
    r"|EXPORT_PARAM_(LAZY|APPEND|OVERWRITE|TIME_NORMALIZE|TIME_SHIFT)|EXPORT_LAZY|EXPORT_PLATFORM|EXPORT_ARCH"
)
_SETTING_VALUE = re.compile(
    r"|true|false|-?[0-9]{1,12}( [0-9]{1,12})?|[0-9]{1,5}(\.[0-9]{1,5}){1,3}|[Nn]ode|[Gg]raph|None|Off"
    r"|Immediate|Delayed|Cuda|NvtxEvents|OSRuntime|Graphics|Mpi|ProcessTree|SystemWide|NVIDIA Nsight Systems"
    r"|(linux|windows)-desktop|linux-(embedded|server)|x64|x86_64|aarch64|arm64|sbsa"
)
_PRODUCT_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,5}){1,3}")  # what stands behind it names the build

# Of the system's properties, which hold the whole environment: versions as `580.159.04`, `52510517`, `13000`.
_VERSIONS = frozenset({"NvDriverVersion", "CudaDriverVersion"})
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}")
_GPU_NAME = re.compile(r"[\w ()./+-]{0,80}")
_MOST_SMS_DIGITS = 5

# Every word of nsys's own messages, as seen in 2022.4 to 2026.2: a message with any other word may quote the user's.
_OWN_WORDS = """
a about absent account across activity additional all and another any api application are asynchronous at available
backtrace backtraces based be been behavior branch buffers build by cached call called calls can cannot cause clock
collected collection common completely configuration context control correctly cpu cuda cudaprofilerstart
cudaprofilerstop cupti current cycles data database debuginfod deduced device disabled displayed does done driver
due dwarf enable enabled enabling error errors event events every exception export exterior failed faults file files
find flush flush-on-cudaprofilerstop flushed for format found from gpu graph has have held hold holding in
inaccurate incomplete incorrect index info information initialization initialized injection installed insufficient
intel interrupts into invoked ip is it last launch launched lbr lead libraries library loaded log longer lost may
memory might missing more must needed new newer no not nsight number nvidia nvtx of on one only open opengl or order
os other output overflow period permission permissions please possible process process-tree processed processes
processing produced profiler profiling program provided queries range read record recorded reference removed requires
runtime sample samples sampling scheduling sec see session set spent started starting stop stopped string successful
successfully support supported sw systems tables take target that the then this thread time timed to tools total
trace traced traces tracing trigger try turned unable unknown unsupported unwind up update use used using value
version versions was were when while will with without work
"""
_WORDS = frozenset(_OWN_WORDS.split())
# Numbers are counts and versions as `580.159.04`; of four parts they may be the address of a machine.
_TOKEN = re.compile(
    r"[0-9]{1,12}|[0-9]{1,4}(\.[0-9]{1,3}){1,2}|c|out|--flush-on-cudaprofilerstop|pid_[0-9]{1,10}_stdout\.log|stderr\.log"
    r"|libcupti\.so(\.[0-9]{1,4}){0,3}|CUPTI_ERROR_[A-Z_]{1,40}"
)
_BETWEEN = re.compile(r"[\s,:;()'\"?!/=]+")
_ERROR_CODE = re.compile(r"CUPTI_ERROR_[A-Z_]{1,40}")
_LONGEST_MESSAGE = 400


def clean_setting(name: str, value: str) -> str | None:
    """The value that a copy may hold of a row of a META_DATA table, None if it may not hold the row."""
    if name == "EXPORT_PRODUCT_VERSION":
        version = _PRODUCT_VERSION.match(value)
        return version[0] if version else None
    return value if _SETTING.fullmatch(name) and _SETTING_VALUE.fullmatch(value) else None


def clean_property(name: str, value: str) -> str | None:
    """The value that a copy may hold of a row of TARGET_INFO_SYSTEM_ENV, None if it may not hold the row.

    Kept are the versions of the driver, if they can be nothing else, and of the description of the GPUs, which stands
    here in old exports, their names and numbers of SMs.
    """
    if name == "GpuInfo":
        return _gpu_info(value)
    return value if name in _VERSIONS and _VERSION.fullmatch(value) else None


def is_own_word(word: str) -> bool:
    """True for a word of nsys's own messages, in whatever case: it says nothing of the user."""
    return word.lower() in _WORDS


def clean_diagnostic(text: str) -> str:
    """A message of nsys: as it is where every word is nsys's own, else the error code in it, else `(removed)`."""
    words = [word.rstrip(".") for word in _BETWEEN.split(text[: _LONGEST_MESSAGE + 1])]
    if len(text) <= _LONGEST_MESSAGE and all(not w or is_own_word(w) or _TOKEN.fullmatch(w) for w in words):
        return text
    code = _ERROR_CODE.search(text)
    return code[0] if code else REMOVED


def _gpu_info(value: str) -> str | None:
    try:
        entries = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return json.dumps([_gpu(entry) for entry in entries]) if isinstance(entries, list) else None


def _gpu(entry: Any) -> dict[str, str | int]:
    facts = entry if isinstance(entry, dict) else {}
    name, count = str(facts.get("name", "")), str(facts.get("smCount") or facts.get("numMultiprocessors"))
    kept: dict[str, str | int] = {"name": name if _GPU_NAME.fullmatch(name) else ""}
    if count.isascii() and count.isdigit() and len(count) <= _MOST_SMS_DIGITS:
        kept["smCount"] = int(count)
    return kept
