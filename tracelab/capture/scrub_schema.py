"""What a shareable copy of an nsys export may hold. Everything that is not listed here is left out.

Source: the export schemas of nsys 2021.2 to 2026.2. Columns are numbers unless listed in `texts`; a text where a number
is expected is left out too, since SQLite does not enforce types.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """A table of the copy: its number columns, its text columns, the columns that point into StringIds."""

    numbers: tuple[str, ...]
    texts: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()
    blanked: tuple[str, ...] = ()


def _columns(names: str) -> tuple[str, ...]:
    return tuple(names.split())


_GPU_ROW = _columns("start end deviceId contextId greenContextId streamId correlationId globalPid graphNodeId graphId")
_CALL = _columns("start end eventClass globalTid nameId")
_KERNEL = _columns(
    "demangledName shortName mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY "
    "blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted "
    "sharedMemoryLimitConfig clusterX clusterY clusterZ clusterSchedulingPolicy maxPotentialClusterSize "
    "maxActiveClusters sharedMemoryRequestedPercentage"
)
_MEMCPY = _columns(
    "bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId migrationCause "
    "copyCount"
)
_SYNC = _columns("syncType deprecatedSyncType eventId eventSyncId")
_NODE_EVENT = (*_CALL, "graphNodeId", "originalGraphNodeId", "graphId", "originalGraphId", "graphExecId")
_NVTX = _columns(
    "start end eventType rangeId category color globalTid endGlobalTid textId domainId uint64Value int64Value "
    "doubleValue uint32Value int32Value floatValue"
)
_GPU_INFO = _columns(
    "vmId id isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount cuDevice revision constantMemory "
    "maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm maxRegistersPerSm threadsPerWarp "
    "asyncEngines maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX "
    "maxGridDimY maxGridDimZ computeMajor computeMinor smMajor smMinor"
)
_OLD_GPU_INFO = _columns(
    "id cuDevice cudaId globalMemoryBandwidth coreClockRate numMultiprocessors globalMemorySize totalMemory "
    "l2CacheSize constantMemorySize maxBlocksPerMultiprocessor maxWarpsPerMultiprocessor "
    "maxRegistersPerBlock maxRegistersPerMultiprocessor maxSharedMemoryPerBlock maxSharedMemoryPerMultiprocessor "
    "maxThreadsPerBlock numThreadsPerWarp computeCapabilityMajor computeCapabilityMinor"
)
_STREAM = _columns("streamId hwId vmId processId contextId priority flag")
_CONTEXT = _columns("nullStreamId streamId hwId vmId processId deviceId contextId parentContextId isGreenContext")

TABLES: dict[str, Kept] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": Kept((*_GPU_ROW, *_KERNEL), strings=("demangledName", "shortName", "mangledName")),
    "CUPTI_ACTIVITY_KIND_MEMCPY": Kept((*_GPU_ROW, *_MEMCPY)),
    "CUPTI_ACTIVITY_KIND_MEMSET": Kept((*_GPU_ROW, "value", "bytes", "memKind")),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": Kept((*_GPU_ROW, "graphExecId")),
    "CUPTI_ACTIVITY_KIND_RUNTIME": Kept((*_CALL, "correlationId", "returnValue"), strings=("nameId",)),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": Kept((*_GPU_ROW, *_SYNC)),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": Kept((*_GPU_ROW, "timestamp", *_SYNC)),
    "CUPTI_ACTIVITY_KIND_OVERHEAD": Kept(("start", "end", "globalTid", "correlationId", "overheadType")),
    "CUDA_GRAPH_NODE_EVENTS": Kept(_NODE_EVENT, strings=("nameId",)),
    "CUDA_GRAPH_EVENTS": Kept(_NODE_EVENT, strings=("nameId",)),
    "NVTX_EVENTS": Kept(_NVTX, texts=("text",), strings=("textId",)),
    "PROFILER_OVERHEAD": Kept(
        ("start", "end", "globalTid", "nameId", "returnValue", "correlationId", "overheadType"), strings=("nameId",)
    ),
    "TARGET_INFO_GPU": Kept(_GPU_INFO, texts=("name", "chipName"), blanked=("uuid", "busLocation")),
    "TARGET_INFO_CUDA_GPU": Kept(_OLD_GPU_INFO, texts=("name",), blanked=("uuid",)),
    "TARGET_INFO_CUDA_DEVICE": Kept(("gpuId", "cudaId", "pid"), blanked=("uuid",)),
    "TARGET_INFO_CUDA_CONTEXT_INFO": Kept(_CONTEXT),
    "TARGET_INFO_CUDA_NULL_STREAM": Kept(_CONTEXT),
    "TARGET_INFO_CUDA_STREAM": Kept(_STREAM),
    "ANALYSIS_DETAILS": Kept(("globalVid", "duration", "startTime", "stopTime")),
    "META_DATA_EXPORT": Kept((), texts=("name", "value")),
    "EXPORT_META_DATA": Kept((), texts=("name", "value")),
    "META_DATA_CAPTURE": Kept((), texts=("name", "value")),
    "TARGET_INFO_SYSTEM_ENV": Kept((), texts=("name", "value")),  # of its rows two, see `keeps_property`
    "DIAGNOSTIC_EVENT": Kept(("timestamp", "timestampType", "source", "severity", "globalPid"), texts=("text",)),
}
ENUM = Kept(("id",), texts=("name", "label"))
# What a small copy leaves out beside: no analysis reads it.
SLIM_WITHOUT_TABLES = frozenset({"CUPTI_ACTIVITY_KIND_CUDA_EVENT", "TARGET_INFO_CUDA_STREAM"})
SLIM_WITHOUT_COLUMNS = frozenset({"mangledName", "localMemoryTotal", "cacheConfig"})

# nsys settings that hold no user text, and the shape of a value that cannot hold any.
_SETTING = re.compile(
    r"(PROCESS_\d+:)?(CUDA_GRAPH_TRACE_OPTIONS:[A-Z_]+|COLLECT_(CUDA|NVTX)_TRACE|CUDA_(FLUSH|SKIP|TRACE)_[A-Z_]+)"
    r"|CAPTURE_EVENT_TYPE|(START|STOP)_TRIGGER|START_DELAY_MS|RUN_DURATION_MS|INCLUDE_CHILDREN"
    r"|TRACE_AFTER_FORK_BEFORE_EXEC|EXPORT_(PRODUCT|SCHEMA|PARAM)_[A-Z_]+|EXPORT_LAZY|EXPORT_PLATFORM|EXPORT_ARCH"
)
_SETTING_VALUE = re.compile(r"[\w. -]{0,40}")

# Of the system's properties, which hold the whole environment, the two versions; as `580.159.04`, `52510517`, `13000`.
_PROPERTIES = frozenset({"NvDriverVersion", "CudaDriverVersion"})
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}")

# Messages of nsys without a word of the user's, as seen in 2024.6 to 2026.2.
_DIAGNOSTIC = re.compile(
    r"Number of [\w ./]+ (collected|produced): *\t?\d+(, CUPTI buffers: \d+)?\."
    r"|(No|Not all) [\w ./]+ events( might have been)? collected\.( Does the process use [\w ./]+\?)?"
    r"|CUDA profiling might have not been started correctly\."
    r"|[\w ]+ injection( library)? initialized successfully\."
    r"|Loaded CUPTI library: libcupti\.so[\d.]*"
    r"|Enabling trace for device graph launch"
    r"|Profiling (has started|has stopped)\.|Profiling started due to \w+ API invoked in the application\."
    r"|Process was launched by the profiler, see pid_\d+_stdout\.log and stderr\.log for program output"
    r"|Buffers holding CUDA trace data will be flushed on CudaProfilerStop\(\) call\."
    r" See --flush-on-cudaprofilerstop to control this behavior\."
    r"|Error when processing events:? ?Cannot find string for an exterior index\.?"
    r"|Installed CUDA driver version \(?[\d.]+\)? is not supported by this build[\w .,()-]*"
    r"|[\w :,()-]*CUPTI_ERROR_[A-Z_]+[\w :,()-]*"
)


def keeps_setting(name: str, value: str) -> bool:
    """True if a row of a META_DATA table may be kept."""
    return _SETTING.fullmatch(name) is not None and _SETTING_VALUE.fullmatch(value) is not None


def keeps_property(name: str, value: str) -> bool:
    """True if a row of TARGET_INFO_SYSTEM_ENV may be kept: a driver's version, and one that can be nothing else."""
    return name in _PROPERTIES and _VERSION.fullmatch(value) is not None


def keeps_diagnostic(text: str) -> bool:
    """True if a message of nsys holds nothing of the user's."""
    return _DIAGNOSTIC.fullmatch(text) is not None
