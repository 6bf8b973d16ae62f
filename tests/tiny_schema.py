"""Tables and columns of an nsys 2025.3 SQLite export, and the facts nsys states of an H200."""

from typing import Any

META, OLD_META = "META_DATA_EXPORT", "EXPORT_META_DATA"

_WORK = "start end deviceId contextId greenContextId streamId correlationId globalPid"
_TEXTS = {
    "StringIds": "value",
    "NVTX_EVENTS": "text jsonText binaryData",
    "DIAGNOSTIC_EVENT": "text",
    "TARGET_INFO_GPU": "name busLocation uuid chipName",
    "TARGET_INFO_SYSTEM_ENV": "name value",
    "META_DATA_CAPTURE": "name value",
    "TARGET_INFO_CUDA_GPU": "name",
    META: "name value",
    OLD_META: "name value",
}
_COLUMNS = {
    "StringIds": "id value",
    "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
    "META_DATA_CAPTURE": "name value",
    META: "name value",
    OLD_META: "name value",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_WORK} demangledName shortName mangledName launchType cacheConfig "
    "registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory "
    "localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_WORK} bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId "
    "dstDeviceId dstContextId migrationCause graphNodeId virtualAddress copyCount",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_WORK} value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_WORK} graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_WORK} syncType eventId eventSyncId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "NVTX_EVENTS": "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value "
    "int64Value doubleValue uint32Value int32Value floatValue jsonTextId jsonText binaryData",
    "PROFILER_OVERHEAD": "start end globalTid nameId returnValue",
    "CUDA_GRAPH_NODE_EVENTS": "start end eventClass globalTid nameId graphNodeId originalGraphNodeId",
    "CUDA_GRAPH_EVENTS": "start end eventClass globalTid nameId graphNodeId originalGraphNodeId",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "TARGET_INFO_GPU": "vmId id name busLocation isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount "
    "uuid chipName cuDevice maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm "
    "maxRegistersPerSm threadsPerWarp maxWarpsPerSm maxBlocksPerSm computeMajor computeMinor",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    "TARGET_INFO_CUDA_GPU": "id name numMultiprocessors globalMemoryBandwidth computeCapabilityMajor "
    "computeCapabilityMinor",
}
SCHEMA = {
    table: {name: "TEXT" if name in _TEXTS.get(table, "").split() else "INTEGER" for name in columns.split()}
    for table, columns in _COLUMNS.items()
}

# As nsys 2025.3.2 stated it on the machine of the bundled captures.
H200: dict[str, Any] = {
    "id": 0, "name": "NVIDIA H200", "totalMemory": 150109880320, "memoryBandwidth": 4814304000000, "smCount": 132,
    "cuDevice": 0, "maxRegistersPerBlock": 65536, "maxShmemPerSm": 233472, "maxRegistersPerSm": 65536,
    "threadsPerWarp": 32, "maxWarpsPerSm": 64, "maxBlocksPerSm": 32, "computeMajor": 9, "computeMinor": 0,
}  # fmt: skip
