"""The tables and columns that a shareable copy of an nsys export may hold. What is not listed here is left out.

Source: the export schemas of nsys 2021.2 to 2026.2. Columns are numbers unless listed in `texts`; a text where a number
is expected is left out too, since no kind of export enforces types. What a text may say: scrub_values.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """A table of the copy: its number columns, its text columns, and the numbers that point into StringIds.

    `blanked` columns are there with empty texts. `says` tells how texts are judged: `fact` of the machine, `name` that
    a program gave, `overhead` name of nsys, `diagnostic` message of nsys; `setting` and `property` are rows of name
    and value, each kept or left out as a whole.
    """

    numbers: tuple[str, ...]
    texts: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()
    blanked: tuple[str, ...] = ()
    says: str = "fact"

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that the copy may hold of this table."""
        return (*self.numbers, *self.texts, *self.blanked)

    @property
    def pairs(self) -> bool:
        """True if its rows are judged as a whole."""
        return self.says in ("setting", "property")


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
_OVERHEAD = _columns("start end globalTid nameId returnValue correlationId overheadType")
_STREAM = _columns("streamId hwId vmId processId contextId priority flag")
_PAIR = ("name", "value")
_CONTEXT = _columns("nullStreamId streamId hwId vmId processId deviceId contextId parentContextId isGreenContext")

_EVENTS: dict[str, Kept] = {
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
    "NVTX_EVENTS": Kept(_NVTX, texts=("text",), strings=("textId",), says="name"),
    "PROFILER_OVERHEAD": Kept(_OVERHEAD, strings=("nameId",), says="overhead"),
}
_FACTS: dict[str, Kept] = {
    "TARGET_INFO_GPU": Kept(_GPU_INFO, texts=("name", "chipName"), blanked=("uuid", "busLocation")),
    "TARGET_INFO_CUDA_GPU": Kept(_OLD_GPU_INFO, texts=("name",), blanked=("uuid",)),
    "TARGET_INFO_CUDA_DEVICE": Kept(("gpuId", "cudaId", "pid"), blanked=("uuid",)),
    "TARGET_INFO_CUDA_CONTEXT_INFO": Kept(_CONTEXT),
    "TARGET_INFO_CUDA_NULL_STREAM": Kept(_CONTEXT),
    "TARGET_INFO_CUDA_STREAM": Kept(_STREAM),
    "ANALYSIS_DETAILS": Kept(("globalVid", "duration", "startTime", "stopTime")),
    **{name: Kept((), _PAIR, says="setting") for name in ("META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE")},
    "TARGET_INFO_SYSTEM_ENV": Kept((), _PAIR, says="property"),
    "DIAGNOSTIC_EVENT": Kept(
        ("timestamp", "timestampType", "source", "severity", "globalPid"), ("text",), says="diagnostic"
    ),
}
# What the numbers of kept columns mean; nsys writes the same words into every export.
_ENUMS = _columns(
    "NSYS_EVENT_TYPE NSYS_EVENT_CLASS CUDA_MEMCPY_OPER CUDA_MEM_KIND CUDA_KERNEL_LAUNCH_TYPE CUDA_FUNC_CACHE_CONFIG "
    "CUDA_SHARED_MEM_LIMIT_CONFIG CUDA_UNIF_MEM_MIGRATION CUPTI_STREAM_TYPE CUPTI_SYNC_TYPE DIAGNOSTIC_SEVERITY_LEVEL "
    "DIAGNOSTIC_SOURCE_TYPE DIAGNOSTIC_TIMESTAMP_SOURCE"
)
TABLES = _EVENTS | _FACTS | {f"ENUM_{name}": Kept(("id",), ("name", "label")) for name in _ENUMS}

STRINGS = "StringIds"
KEPT_STRINGS = Kept(("id",), ("value",), says="name")
# An export that has none of these is one that its exporter left half-written.
FINISHED = frozenset(
    {
        "TARGET_INFO_GPU", "ANALYSIS_DETAILS", "TARGET_INFO_SYSTEM_ENV", "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
    }
)  # fmt: skip
NVTX = "NVTX_EVENTS"
NVTX_THREAD_NAME = 39  # eventType of a row whose text names a thread
