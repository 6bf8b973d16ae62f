"""Words and numbers of a comparison: what a verdict is called, and changes as text that add up as printed.

A change inside its noise floor, or one that cannot be judged, is never printed as a number with a sign.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import PurePath

from tracelab.difference import (
    COUNT_CHANGED,
    GONE,
    IMPROVEMENT,
    INCONCLUSIVE,
    NEUTRAL,
    NEW,
    NOT_COMPARABLE,
    REGRESSION,
    Change,
    Control,
    Diff,
    MetricChange,
    SideFacts,
)
from tracelab.reports._page_values import as_number, counted, mbu_text
from tracelab.units import TimeUnit, number, percent, time_unit

ARROW = " → "
NOTHING = "–"
WORDS = {
    REGRESSION: "slower",
    IMPROVEMENT: "faster",
    NEUTRAL: "no measurable change",
    INCONCLUSIVE: "inconclusive",
    NEW: "new",
    GONE: "gone",
    COUNT_CHANGED: "count changed",
    NOT_COMPARABLE: "not comparable",
}
STYLES = {
    REGRESSION: "bold red",
    IMPROVEMENT: "bold green",
    NEUTRAL: "dim",
    INCONCLUSIVE: "yellow",
    NEW: "magenta",
    GONE: "magenta",
    COUNT_CHANGED: "magenta",
    NOT_COMPARABLE: "bold red",
}
_HEADLINES = {
    REGRESSION: "regression",
    IMPROVEMENT: "improvement",
    NEUTRAL: "no measurable change",
    INCONCLUSIVE: "inconclusive",
    NOT_COMPARABLE: "not comparable",
}
_JUDGED = {REGRESSION, IMPROVEMENT, NEW, GONE, COUNT_CHANGED}
_WHOLE_TRACE = "whole-trace"
_ONE_DECIMAL_FROM = 0.0005  # a smaller change would print as 0.0 %
_BOUNDS = {"host": "host-bound", "device": "device-bound", "mixed": "partly host-bound"}


def judged(change: Change) -> bool:
    """True where the change was found to be one, so that it may be printed with its sign."""
    return change.verdict in _JUDGED


def headline_word(diff: Diff) -> str:
    """The verdict in one or a few words, in lower case."""
    return _HEADLINES.get(diff.verdict, diff.verdict)


def has_comparison(diff: Diff) -> bool:
    """False where the two could not be compared and nothing was forced."""
    return diff.verdict != NOT_COMPARABLE


def time_text(value_ns: float | None, unit: TimeUnit) -> str:
    """A time without its unit; a dash where a side lacks it."""
    return NOTHING if value_ns is None else number(value_ns, unit)


def unit_of(changes: Iterable[Change]) -> TimeUnit:
    """The unit that fits the largest time of both sides."""
    return time_unit(ns for change in changes for ns in (change.before_ns, change.after_ns) if ns is not None)


def difference(before: str, after: str) -> str:
    """The second printed time minus the first, with its sign; a dash counts as zero."""
    return signed_decimal(as_decimal(after) - as_decimal(before))


def as_decimal(text: str) -> Decimal:
    """A printed time as an exact number; what is no number counts as zero."""
    try:
        return Decimal(text.replace("−", "-"))
    except InvalidOperation:
        return Decimal(0)


def signed_decimal(value: Decimal) -> str:
    """An exact number with its sign; zero has none."""
    return _signed(str(abs(value)), float(value))


def signed_percent(change: float | None) -> str:
    """A relative change: `+6.0 %`; one too small for a decimal gets two. Empty where it is unknown."""
    if change is None or change != change:
        return ""
    return _signed(percent(abs(change), 1 if abs(change) >= _ONE_DECIMAL_FROM else 2), change)


def interval_text(change: Change) -> str:
    """The 95 % interval: `+5.8 to +6.3 %`; empty where there is none, or nothing but noise."""
    if change.interval is None or not (judged(change) or change.verdict == INCONCLUSIVE):
        return ""
    low, high = (signed_percent(end) for end in change.interval)
    return f"{low.removesuffix(' %')} to {high}"


def change_sentence(name: str, change: Change, a_step: str, *, word: bool = True) -> str:
    """One time before and after in words; `word` False leaves the verdict to the headline before it."""
    if change.before_ns is None and change.after_ns is None:
        return f"{name} unknown" + (f": {change.remark}" if change.remark else "")
    unit = unit_of([change])
    before, after = time_text(change.before_ns, unit), time_text(change.after_ns, unit)
    said = f"{name} {before}{ARROW}{after} {unit.symbol}{a_step}"
    said += f", {WORDS.get(change.verdict, change.verdict)}" if word else ""
    if not judged(change):
        return said + (f": {change.remark}" if change.remark else "")
    interval = interval_text(change)
    parts = [f"{difference(before, after)} {unit.symbol}", signed_percent(change.change)]
    inside = ", ".join(filter(None, parts)) + (f"; 95 % interval {interval}" if interval else "")
    return f"{said} ({inside})"


def headlines(diff: Diff) -> tuple[str, list[str]]:
    """The verdict in capitals, and the sentences that follow it: what it is of, device time, step time."""
    a_step = "" if diff.after.source == _WHOLE_TRACE else " a step"
    same = diff.device_time.verdict == diff.verdict
    device = change_sentence("device time", diff.device_time, a_step, word=not same)
    step = change_sentence("step time", diff.step, a_step)
    of = [] if same else list(diff.regressed) or _with_verdict(diff)
    return headline_word(diff).upper(), [*([", ".join(of)] if of else []), device, step]


def floor_text(diff: Diff) -> str:
    """What counts as no measurable change, in percent and absolute."""
    floor = diff.noise_floor
    shares = [
        _one_floor(share, what, change)
        for share, what, change in (
            (floor.device_time, "device time", diff.device_time),
            (floor.step_time, "step time", diff.step),
        )
    ]
    sources = (floor.source, floor.step_source)
    known = [f"{text}{f', from {said}' if said else ''}" for text, said in zip(shares, sources, strict=True) if text]
    return f"noise floor {'; '.join(known) or 'unknown'}"


def controls_text(controls: Sequence[Control]) -> str:
    """The phases that should not have moved, and by how much they did."""
    if not controls:
        return "no phase serves as a control"
    moved = (f"{control.phase} {_control_percent(control.change)}" for control in controls)
    return f"controls: {', '.join(moved)}"


def side_names(sides: Sequence[SideFacts]) -> list[str]:
    """How each side is named: by its title, or where titles are alike by its file names, last by its paths."""
    choices = (
        [side.title or _files(side) for side in sides],
        [_files(side) for side in sides],
        [", ".join(side.paths) for side in sides],
    )
    return next((names for names in choices if len(set(names)) == len(names)), choices[0])


def steps_text(side: SideFacts) -> str:
    """How many steps were used, of which name, from how many captures."""
    if side.source == _WHOLE_TRACE:
        return "the whole trace as one step"
    if side.source == "none" and not side.gpu:
        return "no GPU work"
    of = f" of {side.pattern}" if side.pattern else ""
    captures = f" in {len(side.paths)} captures" if len(side.paths) > 1 else ""
    return f"{counted(side.steps_used, 'step')}{of}{captures}"


def gpu_text(side: SideFacts) -> str:
    """The GPU with its SMs."""
    if side.source == "none" and not side.gpu:
        return ""
    return f"{side.gpu or 'unknown GPU'}{f', {side.sm_count} SMs' if side.sm_count else ''}"


def bound_text(bound: str) -> str:
    """What bounds a step, in words; captures of one side may differ (`host or mixed`)."""
    return " or ".join(_BOUNDS.get(word, "bound unknown") for word in bound.split(" or ")) if bound else ""


def both(before: str, after: str) -> str:
    """Two texts as `a → b`, one where they are alike."""
    return before if before == after else f"{before or NOTHING}{ARROW}{after or NOTHING}"


def values(metric: MetricChange | None) -> tuple[float | None, float | None]:
    """A metric on both sides as numbers."""
    return (as_number(metric.before), as_number(metric.after)) if metric else (None, None)


def mbu_pair(metric: MetricChange | None) -> str:
    """An MBU before and after; empty where neither side has it."""
    before, after = ("" if value is None else mbu_text(value) for value in values(metric))
    return both(before, after) if before or after else ""


def remarks(changes: Iterable[Change]) -> list[str]:
    """Why rows have the verdict they have, each reason once."""
    found = (f"{WORDS.get(c.verdict, c.verdict)}: {c.remark}" for c in changes if c.remark)
    return list(dict.fromkeys(found))


def warning_texts(diff: Diff) -> list[str]:
    """What the reader must know; reasons come first where the comparison was forced in spite of them."""
    forced = (
        [] if diff.comparable else [f"not comparable, and compared all the same: {r.message}" for r in diff.reasons]
    )
    return [*forced, *(warning.message for warning in diff.warnings)]


def _with_verdict(diff: Diff) -> list[str]:
    """What the overall verdict is of, where it is not the device time."""
    step = ["step time"] if diff.step.verdict == diff.verdict else []
    return [*step, *(row.phase for row in diff.phases if row.time.verdict == diff.verdict)]


def _signed(text: str, value: float) -> str:
    if not any(digit in text for digit in "123456789"):
        return text
    return f"{'+' if value > 0 else '−'}{text}"


def _control_percent(change: float) -> str:
    """A drift; one that prints as zero needs no second decimal."""
    return _signed(percent(abs(change)), change)


def _one_floor(share: float | None, what: str, change: Change) -> str:
    if share is None:
        return ""
    if change.before_ns is None:
        return f"{percent(share)} of {what}"
    absolute = share * change.before_ns
    unit = time_unit([absolute])
    return f"{percent(share)} of {what} ({number(absolute, unit)} {unit.symbol})"


def _files(side: SideFacts) -> str:
    return ", ".join(PurePath(path).name for path in side.paths)
