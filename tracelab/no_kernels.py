"""Why a trace holds no kernels: the one reason that the evidence supports, not a list of all that could be."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# From here on nsys exports a row for each graph replay in graph mode; before, graphs are invisible there.
_FIRST_WITH_GRAPH_ROWS = (2024, 1)
# Healthy captures lose 1 % of the events between CUPTI and the report at most; the seen failure lost 94 %.
_LOSS_FACTOR = 2
_DRIVER_TOO_NEW = re.compile(r"CUDA driver version .*not supported", re.I)
_NOT_STARTED = re.compile(r"No CUDA events collected|CUDA profiling might have not been started correctly")
_OTHER_CLIENT = re.compile(r"CUPTI_ERROR_[A-Z_]+")


@dataclass(frozen=True)
class Evidence:
    """What is known of a trace without kernels; None = not known.

    `diagnostics` are nsys's own messages. `processes_with_calls` counts processes with CUDA API calls, `launch_calls`
    their kernel launches, `graph_launches` their graph launches. `graph_mode` is "Node" or "Graph". `events_produced`
    is what CUPTI made, `events_collected` what arrived. `incomplete_export` says that the exporter stopped half-way,
    `api_rows_missing` that GPU rows stand without any API row, so tables were left out of the export. `silent` names
    the processes that launched work (`pid 100, 101`), `said` quotes what nsys says about CUDA.
    """

    diagnostics: Sequence[str] = ()
    processes: int | None = None
    processes_with_calls: int = 0
    launch_calls: int = 0
    graph_launches: int = 0
    graph_mode: str | None = None
    nsys_version: str | None = None
    program_exit_code: int | None = None
    capture_range_asked: bool = False
    capture_range_hit: bool | None = None
    events_produced: int | None = None
    events_collected: int | None = None
    incomplete_export: bool = False
    api_rows_missing: bool = False
    silent: str = ""
    said: str = ""


def explain(evidence: Evidence) -> str:
    """One sentence: no kernels, why, and what to do next. Reasons are tried from the most to the least certain."""
    for reason in _REASONS:
        sentence = reason(evidence)
        if sentence is not None:
            return f"the trace holds no kernels: {sentence}"
    return "the trace holds no kernels: the program launched no GPU work while nsys was collecting"


def _incomplete(evidence: Evidence) -> str | None:
    if not evidence.incomplete_export:
        return None
    return (
        "the export is incomplete, its exporter stopped half-way; export the report again with an nsys at least as new"
    )


def _range_not_hit(evidence: Evidence) -> str | None:
    if not evidence.capture_range_asked or evidence.capture_range_hit is not False:
        return None
    return "the capture range was never opened; the program must call cudaProfilerStart, else leave out --capture-range"


def _not_followed(evidence: Evidence) -> str | None:
    silent = any(text.startswith("No CUDA events collected") for text in evidence.diagnostics)
    if evidence.launch_calls or evidence.graph_launches or not silent:
        return None
    if evidence.processes is not None and evidence.processes > 1 and not evidence.processes_with_calls:
        return (
            f"none of the {evidence.processes} processes that nsys followed used CUDA; work started elsewhere (ray, "
            "ssh, a server that already ran) or in a child forked without exec is not followed"
        )
    return None


def _graphs_invisible(evidence: Evidence) -> str | None:
    if not evidence.graph_launches or evidence.graph_mode == "Node" or evidence.nsys_version is None:
        return None
    version = tuple(int(part) for part in re.findall(r"\d+", evidence.nsys_version)[:2])
    if version >= _FIRST_WITH_GRAPH_ROWS:
        return None
    return (
        f"{evidence.graph_launches} CUDA graphs were launched, and nsys {evidence.nsys_version} in graph mode exports "
        "nothing of them; capture with --cuda-graph-trace=node or nsys 2024.1 or newer"
    )


def _killed(evidence: Evidence) -> str | None:
    if evidence.program_exit_code != 137:
        return None
    return "the program was killed (SIGKILL) before it handed over its events; let it end by itself or use --duration"


def _driver(evidence: Evidence) -> str | None:
    for text in evidence.diagnostics:
        if _DRIVER_TOO_NEW.search(text):
            return f"nsys does not support this driver (it says: {text.strip()}); use a newer nsys"
    return None


def _other_client(evidence: Evidence) -> str | None:
    for text in evidence.diagnostics:
        if match := _OTHER_CLIENT.search(text):
            return (
                f"CUPTI refused ({match[0]}): another profiler (torch.profiler, DCGM) is using it; switch that one off"
            )
    return None


def _events_lost(evidence: Evidence) -> str | None:
    produced, collected = evidence.events_produced, evidence.events_collected
    if produced is None or collected is None or produced < _LOSS_FACTOR * max(collected, 1):
        return None
    return (
        f"CUPTI produced {produced} events but only {collected} reached the report; try a shorter capture or another "
        "nsys version"
    )


def _trimmed(evidence: Evidence) -> str | None:
    if not evidence.api_rows_missing:
        return None
    return "the export was trimmed (nsys export --tables or --times); export the whole report"


def _launched(evidence: Evidence) -> str | None:
    if not evidence.launch_calls:
        return None
    parts = [
        f"the program made {evidence.launch_calls} launch calls, yet no GPU activity was recorded",
        f"the calls are of {evidence.silent}" if evidence.silent else "",
        f"nsys says: {evidence.said}" if evidence.said else "",
        likely_cause(evidence.diagnostics),
    ]
    return "; ".join(filter(None, parts))


def likely_cause(diagnostics: Sequence[str], *, only_graphs: bool = False) -> str:
    """Why launches of a process left no GPU work, by what nsys says: a clause without a full stop."""
    if only_graphs:
        return "only CUDA graphs were launched, which graph mode can hide; capture with --cuda-graph-trace=node"
    if any(_NOT_STARTED.match(text.strip()) for text in diagnostics):
        return (
            "CUDA tracing did not start there: often a worker forked without exec (capture with "
            "--trace-fork-before-exec=true), or a cudaProfilerApi range that this process never opened"
        )
    return "MIG, WSL, another profiler or missing permission can cause that"


def _no_launch(evidence: Evidence) -> str | None:
    if not evidence.processes_with_calls or evidence.graph_launches:
        return None
    return "the program called CUDA but launched no kernel while nsys was collecting"


def _no_cuda(evidence: Evidence) -> str | None:
    if any(text.startswith("No CUDA events collected") for text in evidence.diagnostics):
        return "nsys saw no CUDA activity in the program (it says: No CUDA events collected)"
    return None


# In this order each reason rules out the later ones: an export that broke off says nothing about the program.
_REASONS = (
    _incomplete,
    _range_not_hit,
    _not_followed,
    _graphs_invisible,
    _killed,
    _driver,
    _other_client,
    _events_lost,
    _trimmed,
    _launched,
    _no_launch,
    _no_cuda,
)
