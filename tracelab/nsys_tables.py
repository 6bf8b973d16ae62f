"""The columns tracelab reads from an nsys export, declared once.

Source: the export's own schema (nsys 2021.2 to 2026.2). A table that a file lacks reads as empty, a column that it
lacks as all NULL; nothing ever depends on the version. Times are ns, sizes bytes, bandwidth bytes/s.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class TableSpec:
    """One table: integer columns and text columns to read, by their SQL names."""

    name: str
    ints: tuple[str, ...]
    texts: tuple[str, ...] = ()


_GPU_WORK = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")

SHAPE = (
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory",
    "dynamicSharedMemory",
)  # fmt: skip
KERNEL = TableSpec("CUPTI_ACTIVITY_KIND_KERNEL", (*_GPU_WORK, "demangledName", "shortName", "graphNodeId", *SHAPE))
MEMCPY = TableSpec("CUPTI_ACTIVITY_KIND_MEMCPY", (*_GPU_WORK, "graphNodeId", "bytes", "copyKind"))
MEMSET = TableSpec("CUPTI_ACTIVITY_KIND_MEMSET", (*_GPU_WORK, "graphNodeId", "bytes"))
GRAPH_TRACE = TableSpec("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_GPU_WORK, "graphId", "graphExecId"))
RUNTIME = TableSpec(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"),
)
NVTX = TableSpec(
    "NVTX_EVENTS",
    ("start", "end", "eventType", "globalTid", "endGlobalTid", "textId", "domainId"),
    ("text",),
)
OVERHEAD = TableSpec("PROFILER_OVERHEAD", ("start", "end", "globalTid", "nameId"))
# Until 2023.4 the node events stood in CUDA_GRAPH_EVENTS; that name was then reused for graph-level rows, which have
# no graphNodeId column and so read as all NULL.
GRAPH_NODES = TableSpec("CUDA_GRAPH_NODE_EVENTS", ("start", "globalTid", "graphNodeId", "originalGraphNodeId"))
GRAPH_NODES_OLD = TableSpec("CUDA_GRAPH_EVENTS", GRAPH_NODES.ints)
STRINGS = TableSpec("StringIds", ("id",), ("value",))
DIAGNOSTICS = TableSpec("DIAGNOSTIC_EVENT", ("severity", "globalPid"), ("text",))
GPU_INFO = TableSpec(
    "TARGET_INFO_GPU",
    (
        "id", "cuDevice", "smCount", "totalMemory", "memoryBandwidth", "computeMajor", "computeMinor",
        "maxRegistersPerSm", "maxRegistersPerBlock", "maxShmemPerSm", "maxWarpsPerSm", "maxBlocksPerSm",
        "threadsPerWarp",
    ),
    ("name",),
)  # fmt: skip
CUDA_DEVICE = TableSpec("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
DETAILS = TableSpec("ANALYSIS_DETAILS", ("duration",))
EXPORT_META = TableSpec("META_DATA_EXPORT", (), ("name", "value"))
EXPORT_META_OLD = TableSpec("EXPORT_META_DATA", (), ("name", "value"))
CAPTURE_META = TableSpec("META_DATA_CAPTURE", (), ("name", "value"))
SYSTEM_ENV = TableSpec("TARGET_INFO_SYSTEM_ENV", (), ("name", "value"))

COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
}  # fmt: skip

NVTX_PUSH_POP = (59, 70)  # 70: the same, imported from a text log
NVTX_START_END = (60, 71)
NVTX_MARK = 34
NVTX_DOMAIN = 75
