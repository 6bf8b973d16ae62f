"""One small program as the exports of different nsys versions hold it: the same numbers in other tables and columns.

The rows are those of nsys 2025.3 with `since` taken away or added by era; sources are the schemas of real exports from
2021.2 to 2026.2 and NVIDIA's description of 2019.
"""

from collections.abc import Callable

from tiny_programs import eager
from tiny_schema import META, OLD_META, SCHEMA
from tiny_trace import GRAPH_LAUNCH, KERNEL, MAIN, MEMCPY, MEMSET, NODES, NVTX, RUNTIME, STRINGS, Thread, TinyTrace

Era = Callable[[TinyTrace], TinyTrace]

OVERHEAD, GPUS, DEVICES = "PROFILER_OVERHEAD", "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"
SYNC, EVENT = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
CAPTURE, DETAILS, DIAGNOSTICS = "META_DATA_CAPTURE", "ANALYSIS_DETAILS", "DIAGNOSTIC_EVENT"
OLD_NODES = "CUDA_GRAPH_EVENTS"
_JSON_OF_NVTX = ("jsonTextId", "jsonText")


def program(on: Thread = MAIN) -> TinyTrace:
    """Four eager steps with a copy, a memset and a failed launch, then four replays with a copy node each.

    The graph was captured under `attn` and `mlp`, before time 0; profiler overhead lies in a gap.
    """
    trace = TinyTrace()
    trace.range("capture", -900, -500, on=on).range("attn", -890, -800, on=on).node(-850, 1 << 32, on=on)
    trace.range("mlp", -790, -600, on=on).node(-780, 1 << 32 | 1, on=on).node(-770, 1 << 32 | 2, on=on)
    for k in range(3):
        trace.node(-400 + k, 2 << 32 | k, 1 << 32 | k, on=on)
    eager(4, on=on, trace=trace)
    for i in range(4):
        t = 1000 * i
        trace.call(t + 260, t + 265, "cudaMemcpyAsync_v3020", on=on).copy(t + 340, t + 350, on=on, kind=8)
        trace.call(t + 270, t + 275, "cudaMemsetAsync_v3020", on=on).memset(t + 355, t + 360, on=on)
    trace.call(2280, 2285, "cuLaunchKernel", on=on, code=1, event_class=1)
    trace.overhead(700, 750, on=on)
    for i in range(4):
        _replay(trace, 10_000 + 1000 * i, on)
    trace.workload(at=5, bytes_per_step=1000)
    trace.diagnostic("Not all CUDA events might have been collected.", on=on)
    return trace.graph_mode("Node").duration(20_000).cuda_device(0, 0, on.pid)


def _replay(trace: TinyTrace, t: int, on: Thread) -> None:
    trace.range(f"graph_step {t // 1000}", t, t + 8, on=on).call(t, t + 5, GRAPH_LAUNCH, on=on)
    for k, (name, start, end) in enumerate((("attention", 10, 110), ("gemm", 120, 220), ("silu", 220, 320))):
        trace.kernel(name, t + start, t + end, on=on, node=2 << 32 | k)
    trace.copy(t + 330, t + 340, on=on, kind=8, node=2 << 32 | 3)


def _columns(table: str, *names: str) -> list[str]:
    return [f"{table}.{name}" for name in names]


def _without_green(trace: TinyTrace) -> TinyTrace:
    return trace.without(*(f"{table}.greenContextId" for table in (KERNEL, MEMCPY, MEMSET, SYNC)))


def since_2026_2(trace: TinyTrace) -> TinyTrace:
    """Event records are times only, and the codes of waits changed."""
    trace.row(META, name="EXPORT_SCHEMA_VERSION", value="3.25.0")
    trace.sql(f"ALTER TABLE {KERNEL} ADD COLUMN tensorSizeMinusOneElements INTEGER")
    trace.sql(f"CREATE TABLE {EVENT} (timestamp INTEGER, deviceId INTEGER, streamId INTEGER, eventId INTEGER)")
    trace.sql(f"INSERT INTO {EVENT} VALUES (350, 0, 7, 4294967295)")
    return since_2026_1(trace)


def since_2026_1(trace: TinyTrace) -> TinyTrace:
    """Graphs and clusters of kernels, a second table of overhead, no process in front of settings."""
    for name in ("graphId", "clusterX", "clusterY", "clusterZ", "clusterSchedulingPolicy", "maxPotentialClusterSize",
                 "maxActiveClusters", "sharedMemoryRequestedPercentage"):  # fmt: skip
        trace.sql(f"ALTER TABLE {KERNEL} ADD COLUMN {name} INTEGER")
    trace.sql(f"UPDATE {KERNEL} SET graphId = graphNodeId >> 32, clusterX = 0, clusterY = 0, clusterZ = 0")
    trace.sql("CREATE TABLE CUPTI_ACTIVITY_KIND_OVERHEAD (start INTEGER, end INTEGER, globalTid INTEGER,"
              " correlationId INTEGER, overheadType INTEGER)")  # fmt: skip
    trace.sql(f"INSERT INTO CUPTI_ACTIVITY_KIND_OVERHEAD VALUES (100, 900, {MAIN.global_tid}, 101, 8)")
    trace.sql(f"UPDATE {CAPTURE} SET name = replace(name, 'PROCESS_0:', '')")
    trace.sql(f"ALTER TABLE {OVERHEAD} ADD COLUMN overheadType INTEGER")
    return trace.without(f"{OVERHEAD}.returnValue")


def since_2025_1(trace: TinyTrace) -> TinyTrace:
    return trace.without(f"{MEMCPY}.copyCount")


def since_2024_6(trace: TinyTrace) -> TinyTrace:
    """No mapping of ordinals to GPUs, but the table of GPUs has the ordinal."""
    return since_2025_1(trace).without(DEVICES)


def since_2024_1(trace: TinyTrace) -> TinyTrace:
    """Node events under their new name; the old name is for whole graphs, with other columns."""
    trace.sql(f"CREATE TABLE {OLD_NODES} (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,"
              " nameId INTEGER, graphId INTEGER, originalGraphId INTEGER, graphExecId INTEGER)")  # fmt: skip
    for at, event_class in ((-950, 95), (-450, 94), (-440, 96)):
        trace.sql(f"INSERT INTO {OLD_NODES} VALUES ({at}, {at}, {event_class}, {MAIN.global_tid}, 1, 2, 1, 2)")
    return since_2024_6(trace).without(f"{NVTX}.binaryData")


def since_2023_4(trace: TinyTrace) -> TinyTrace:
    """Node events under their old name; no diagnostics."""
    trace.sql(f"ALTER TABLE {NODES} RENAME TO {OLD_NODES}")
    return since_2024_6(trace).without(f"{NVTX}.binaryData", DIAGNOSTICS)


def since_2022_1(trace: TinyTrace) -> TinyTrace:
    """Versions in the old table, no green contexts, no text of payloads."""
    trace.row(OLD_META, name="EXPORT_PRODUCT_VERSION", value="2022.1.1.61").without(META)
    trace.row(OLD_META, name="EXPORT_SCHEMA_VERSION", value="2.9.1").without(*_columns(NVTX, *_JSON_OF_NVTX))
    return _without_green(since_2023_4(trace))


def since_2021_2(trace: TinyTrace) -> TinyTrace:
    """No versions, no settings, no length of the capture; GPUs in a table of other units (kB/s, kHz)."""
    trace.without(META, OLD_META, CAPTURE, DETAILS, GPUS, *_columns(KERNEL, "mangledName"))
    trace.row("TARGET_INFO_CUDA_GPU", id=0, name="NVIDIA H200", numMultiprocessors=132,
              globalMemoryBandwidth=4_814_304_000, computeCapabilityMajor=9, computeCapabilityMinor=0)  # fmt: skip
    return since_2022_1(trace).without(OLD_META, f"{MEMCPY}.virtualAddress")


def since_2019(trace: TinyTrace) -> TinyTrace:
    """0 where later versions have NULL; calls have no class."""
    trace.without(f"{RUNTIME}.eventClass", f"{RUNTIME}.callchainId").sql(f"INSERT INTO {STRINGS} VALUES (0, '')")
    for table, name in ((KERNEL, "graphNodeId"), (MEMCPY, "graphNodeId"), (MEMSET, "graphNodeId"), (NVTX, "textId"),
                        (NVTX, "endGlobalTid"), (NVTX, "rangeId"), (RUNTIME, "returnValue"),
                        (NODES, "originalGraphNodeId")):  # fmt: skip
        trace.sql(f"UPDATE {table} SET {name} = 0 WHERE {name} IS NULL")
    return since_2021_2(trace)


def not_lazy(trace: TinyTrace) -> TinyTrace:
    """Every table that the schema knows is there, most of them without a row."""
    for table, columns in SCHEMA.items():
        kinds = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        trace.sql(f'CREATE TABLE IF NOT EXISTS "{table}" ({kinds})')
    trace.sql("CREATE TABLE IF NOT EXISTS SAMPLING_CALLCHAINS (id INTEGER)")
    return trace.row(META, name="EXPORT_PARAM_LAZY", value="false")


ERAS: dict[str, Era] = {
    "2019": since_2019, "2021.2": since_2021_2, "2022.1": since_2022_1, "2023.4": since_2023_4,
    "2024.1": since_2024_1, "2024.6": since_2024_6, "2025.1": since_2025_1, "2025.3": lambda trace: trace,
    "2026.1": since_2026_1, "2026.2": since_2026_2, "2025.3, not lazy": not_lazy,
    "2022.1, not lazy": lambda trace: not_lazy(since_2022_1(trace)),
}  # fmt: skip
