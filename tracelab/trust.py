"""Can this trace be trusted? Every check is run, and each analyzer gets its verdict."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tracelab import trust_clock, trust_events, trust_facts, trust_launches, trust_steps
from tracelab.no_kernels import explain
from tracelab.nothing_captured import evidence
from tracelab.result import Result
from tracelab.trace import Trace
from tracelab.trust_checks import EVERY
from tracelab.trust_result import LIMITED, REFUSED, RELIABLE, SKIPPED, Reason, Trust, TrustCheck, TrustedSteps, Verdict
from tracelab.view import View

_Check = tuple[str, Callable[[], Iterable[TrustCheck]]]

_MARKS, _FAILED = "NVTX counts", "failed launches"
# What is looked at, in the words of the line that says what is fine.
_OF_TRACE: tuple[tuple[str, Callable[[Trace], Iterable[TrustCheck]]], ...] = (
    ("event counts", trust_events.event_counts),
    (_MARKS, trust_events.mark_counts),
    ("times of rows", trust_events.unusable_rows),
    ("return codes", trust_events.return_codes),
    ("profiler messages", trust_events.messages),
    ("silent processes", trust_events.silent_processes),
)
_OF_VIEW: tuple[tuple[str, Callable[[View], Iterable[TrustCheck]]], ...] = (
    ("launch of every kernel", trust_launches.work_without_launch),
    ("work of every launch", trust_launches.launches_without_rows),
    ("whole graphs", trust_launches.whole_graphs),
    ("duplicate rows", trust_launches.rows_twice),
    (_FAILED, trust_launches.failed_launches),
    ("clocks", trust_clock.clocks),
    ("stream overlaps", trust_clock.overlaps),
    ("timer grain", trust_clock.grain),
    ("profiler overhead", trust_steps.overheads),
    ("flushes", trust_steps.flushes),
    ("other processes", trust_steps.other_processes),
    ("open ranges", trust_steps.open_ranges),
    ("steps left out", trust_steps.left_out),
    ("number of steps", trust_steps.enough_steps),
    ("step marks", trust_steps.marked_steps),
    ("module loads", trust_steps.loads),
    ("limits of the GPU", trust_facts.gpu),
    ("device mapping", trust_facts.mapping),
    ("floor", trust_facts.floor),
)
_RANKS = ("refuses", "limits", "note")


def judge(view: View, results: Mapping[str, Result]) -> Trust:
    """The judgement of the trace behind `view`; `results` are those of every analyzer on it, by name."""
    checks, fine = _run(
        [*_of_trace(view.trace), *((label, partial(check, view)) for label, check in _OF_VIEW)], tuple(results)
    )
    fine = _told(view.trace, fine)
    steps = TrustedSteps(view.group.source, view.group.pattern, len(view.table), view.steps_used)
    verdicts = tuple(_verdict(name, checks, result.skipped) for name, result in results.items())
    device = view.trace.devices[view.device].id
    return Trust(view.trace.path, view.trace.producer, device, steps, verdicts, checks, fine)


def judge_nothing(trace: Trace, analyzers: Sequence[str]) -> Trust:
    """The judgement of a trace without GPU work: every one of `analyzers` is refused, with the reason found."""
    checks, fine = _run([("GPU work", lambda: [_nothing(trace)]), *_of_trace(trace)], analyzers)
    verdicts = tuple(_verdict(name, checks, None) for name in analyzers)
    return Trust(trace.path, trace.producer, None, TrustedSteps(), verdicts, checks, _told(trace, fine))


def _nothing(trace: Trace) -> TrustCheck:
    sentence = explain(evidence(trace))
    return TrustCheck("no-gpu-work", "no GPU work", f"{sentence[:1].upper()}{sentence[1:]}.", refuses=EVERY)


def _of_trace(trace: Trace) -> list[_Check]:
    return [(label, partial(check, trace)) for label, check in _OF_TRACE]


def _run(checks: Iterable[_Check], analyzers: Sequence[str]) -> tuple[tuple[TrustCheck, ...], tuple[str, ...]]:
    """What was seen, worst first, with the analyzers it touches by name; and the labels of what saw nothing."""
    seen: list[TrustCheck] = []
    fine: list[str] = []
    for label, check in checks:
        found = list(check())
        seen += found
        if not found:
            fine.append(label)
    named = [_named(check, analyzers) for check in seen]
    ranked = sorted(named, key=lambda check: (_RANKS.index(check.severity), -len(check.refuses), -len(check.limits)))
    return tuple(ranked), tuple(fine)


def _told(trace: Trace, fine: Sequence[str]) -> tuple[str, ...]:
    """Of what saw nothing, that which the trace has facts about."""
    untold = {_FAILED: not trace.returns_known, _MARKS: not trust_events.counts_marks(trace)}
    return tuple(label for label in fine if not untold.get(label, False))


def _named(check: TrustCheck, analyzers: Sequence[str]) -> TrustCheck:
    """The check with the analyzers that there are; one that is refused is not limited as well."""
    refuses = _expanded(check.refuses, analyzers)
    limits = [name for name in _expanded(check.limits, analyzers) if name not in refuses]
    return replace(check, limits=tuple(limits), refuses=refuses)


def _expanded(names: Sequence[str], analyzers: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in analyzers if name in names or set(EVERY) <= set(names))


def _verdict(analyzer: str, checks: Sequence[TrustCheck], skipped: str | None) -> Verdict:
    """Refused if a check says so or the analyzer itself has no answer; limited if any check limits it."""
    refusing = [Reason(check.code, check.brief) for check in checks if analyzer in check.refuses]
    if skipped and not refusing:
        refusing = [Reason(SKIPPED, skipped.rstrip("."))]
    if refusing:
        return Verdict(analyzer, REFUSED, refusing)
    limiting = [Reason(check.code, check.brief) for check in checks if analyzer in check.limits]
    return Verdict(analyzer, LIMITED if limiting else RELIABLE, limiting)
