"""Is everything in the file that the profiler recorded? Checks of the trace as a whole, with or without GPU work."""

import re
from collections import Counter
from collections.abc import Iterator

from tracelab.nothing_captured import evidence
from tracelab.nsys_messages import quoted
from tracelab.silent_processes import silent_processes as silent_processes_of
from tracelab.trace import Trace
from tracelab.trust_checks import EVERY, GPU_ROWS, WORK, counted, refused
from tracelab.trust_result import TrustCheck
from tracelab.units import percent

# Of 62 captures without loss (38 to 11195 events, nsys 2024.6 to 2025.3) CUPTI produced 6 to 150 events more than were
# collected and than there are synchronisations and event records; the reference knows 1 % on big files. The one capture
# that lost its kernels missed 94 %.
_SLACK_EVENTS, _SLACK_SHARE = 256, 0.01
# Calls that leave an event which is produced but not counted as collected; a slim copy lacks those events.
_UNCOUNTED = re.compile(
    r"^(cuda|cu)(Event(Record|Synchronize|Query)|Stream(Synchronize|WaitEvent|Query)|(Device|Ctx)Sync)"
)
_NONE_COLLECTED = re.compile("No CUDA events collected")
_MARKS_COLLECTED = re.compile(r"Number of NVTX events collected:\s*([\d,]+)")

# In every capture by cudaProfilerApi, and for every process that does not use what was asked for.
_USUAL = re.compile(r"Not all [\w ./]+ events might have been collected\.|No (?!CUDA )[\w ./]+ events collected\..*")
# Of processes beside the one that used the GPU (compilers, helpers); they count only where no process did.
_USUAL_BESIDE = re.compile(r"No CUDA events collected\..*|CUDA profiling might have not been started correctly\.")
_ABOUT_CUDA = re.compile(r"CUDA|CUPTI|processing events")
_WARNING, _ERROR = 2, 3
_QUOTED = 5


def event_counts(trace: Trace) -> Iterator[TrustCheck]:
    """The profiler's own counts of CUDA events against the rows of the file."""
    said, rows = evidence(trace), trace.events
    collected = said.events_collected
    if rows is not None and rows.calls + rows.work == 0 and any(map(_NONE_COLLECTED.match, said.diagnostics)):
        return
    if rows is None or collected is None:
        yield TrustCheck(
            "events-unknown",
            "events were not counted",
            "The trace does not say how many CUDA events the profiler collected, so lost events cannot be told.",
        )
        return
    least = rows.calls - rows.dropped_calls + rows.work
    yield from _collected(collected, least, rows.calls + rows.work + rows.graphs)
    if said.events_produced is not None:
        uncounted = max(rows.unread, int(trace.calls_named(_UNCOUNTED.match).sum())) + rows.graphs
        yield from _produced(said.events_produced, collected, uncounted)


def _collected(collected: int, least: int, most: int) -> Iterator[TrustCheck]:
    """`least` and `most` rows may be what was counted: whether repeats and whole graphs are, is not known."""
    if collected > most:
        gone = collected - most
        yield TrustCheck(
            "rows-dropped",
            f"{gone} of {collected} rows are not in the file",
            f"The profiler collected {collected} CUDA events, the file holds {most}: {gone} rows "
            f"({percent(gone / collected)}) are missing.",
            limits=EVERY,
            refuses=refused(gone / collected),
            advice="Export the whole report, without --tables and --times.",
            numbers={"events_collected": collected, "rows": most, "rows_missing": gone},
        )
    elif collected < least:
        more = least - collected
        yield TrustCheck(
            "rows-added",
            f"{more} rows more than recorded",
            f"The profiler collected {collected} CUDA events, the file holds {least}: {more} rows were added or "
            "stand there twice.",
            limits=EVERY,
            advice="Export the report again.",
            numbers={"events_collected": collected, "rows": least, "rows_added": more},
        )


def _produced(produced: int, collected: int, uncounted: int) -> Iterator[TrustCheck]:
    lost = produced - collected - uncounted
    if lost <= _SLACK_EVENTS + _SLACK_SHARE * collected:
        return
    yield TrustCheck(
        "lost-events",
        f"{lost} of {produced} events were lost",
        f"CUPTI produced {produced} events, {collected} reached the report and up to {uncounted} are of kinds that are "
        f"not counted: {lost} ({percent(lost / produced)}) were lost.",
        limits=EVERY,
        refuses=refused(lost / produced),
        advice="Capture less at a time, or use another nsys version.",
        numbers={"events_produced": produced, "events_collected": collected, "events_lost": lost},
    )


def mark_counts(trace: Trace) -> Iterator[TrustCheck]:
    """The profiler's own count of NVTX events against the rows of the file."""
    collected = _marks_collected(trace)
    if trace.events is None or collected is None or collected <= trace.events.marks:
        return
    rows = trace.events.marks
    yield TrustCheck(
        "marks-dropped",
        f"{collected - rows} of {collected} NVTX events are not in the file",
        f"The profiler collected {counted(collected, 'NVTX event')}, the file holds {rows}: steps and phases that the "
        "program marked are missing.",
        limits=("phases",),
        refuses=() if rows else ("phases",),
        advice="Export the whole report, without --tables and --times.",
        numbers={"events_collected": collected, "rows": rows},
    )


def _marks_collected(trace: Trace) -> int | None:
    found = [hit for diagnostic in trace.diagnostics if (hit := _MARKS_COLLECTED.search(diagnostic.text))]
    return sum(int(hit[1].replace(",", "")) for hit in found) if found else None


def counts_marks(trace: Trace) -> bool:
    """Whether the profiler says how many NVTX events it collected; an nsys export without ranges need not."""
    return _marks_collected(trace) is not None


def unusable_rows(trace: Trace) -> Iterator[TrustCheck]:
    """GPU work without a time, or that ends before it starts."""
    total = len(trace.ops) + trace.loss.untimed + trace.loss.inverted
    for code, rows, fault in (
        ("untimed-work", trace.loss.untimed, "without a usable time"),
        ("inverted-work", trace.loss.inverted, "with an end before the start"),
    ):
        if rows:
            yield TrustCheck(
                code,
                f"{counted(rows, 'row')} {fault}",
                f"Left out of every sum: of {counted(total, 'row')} of GPU work {rows} {fault} "
                f"({percent(rows / total)}).",
                limits=GPU_ROWS,
                refuses=refused(rows / total, GPU_ROWS),
                numbers={"rows": rows, "of_rows": total},
            )


def return_codes(trace: Trace) -> Iterator[TrustCheck]:
    """Calls that do not say what they returned cannot be told from calls that succeeded."""
    if trace.returns_known:
        return
    yield TrustCheck(
        "no-return-codes",
        "calls do not say what they returned",
        f"{_no_returns(trace)}, so failed launches cannot be told.",
        refuses=("launches",),
        numbers={"calls": len(trace.calls)},
    )


def _no_returns(trace: Trace) -> str:
    if len(trace.calls) == 0:
        return "The file holds no API calls and no return codes"
    return f"None of {counted(len(trace.calls), 'API call')} says what it returned"


def silent_processes(trace: Trace) -> Iterator[TrustCheck]:
    """Processes that launched work of which nothing is in the trace, beside others whose work is."""
    silent = silent_processes_of(trace)
    if len(trace.ops) == 0 or not silent.pids:
        return
    yield TrustCheck(
        "process-without-work",
        f"no work of {counted(len(silent.pids), 'process')} that launched some",
        f"{counted(len(silent.pids), 'process')} ({silent.shown}) made {counted(silent.launch_calls, 'launch call')}, "
        "and none of their work is in the trace.",
        limits=WORK,
        advice="Capture with --trace-fork-before-exec=true if it was forked, and let it end by itself.",
        numbers={"processes": len(silent.pids), "launch_calls": silent.launch_calls},
    )


def messages(trace: Trace) -> Iterator[TrustCheck]:
    """Warnings and errors of the profiler beyond those that every capture has; only known wordings are quoted."""
    said = [d for d in trace.diagnostics if d.severity >= _WARNING and not _is_usual(d.text, beside=len(trace.ops) > 0)]
    if not said:
        return
    texts = Counter(quoted(diagnostic.text) for diagnostic in said).most_common()
    shown = [f"{text}{f' ×{times}' if times > 1 else ''}" for text, times in texts[:_QUOTED]]
    more = f"; and {len(texts) - _QUOTED} more" if len(texts) > _QUOTED else ""
    errors = sum(diagnostic.severity >= _ERROR for diagnostic in said)
    grave = errors > 0 or any(_ABOUT_CUDA.search(diagnostic.text) for diagnostic in said)
    kind = "error" if errors else "warning"
    yield TrustCheck(
        "profiler-messages",
        f"the profiler reported {counted(errors or len(said), kind)}",
        f"The profiler reported {counted(len(said), 'problem')}: {'; '.join(shown)}{more}.",
        limits=EVERY if grave else (),
        numbers={"messages": len(said), "errors": errors},
    )


def _is_usual(text: str, *, beside: bool) -> bool:
    said = text.strip()
    return bool(_USUAL.fullmatch(said)) or (beside and bool(_USUAL_BESIDE.fullmatch(said)))
