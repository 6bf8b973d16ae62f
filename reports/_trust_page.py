"""Whether a trace can be trusted, as text: the verdict of each analyzer, what was seen, and what is fine."""

from collections.abc import Sequence

from rich.text import Text

from tracelab.kernel_names import escape
from tracelab.reports._page_tables import Line, View, sentence
from tracelab.reports._page_values import counted
from tracelab.trust_result import LIMITED, REFUSED, RELIABLE, Trust, TrustCheck, Verdict

_STYLES = {RELIABLE: "green", LIMITED: "yellow", REFUSED: "bold red"}
_MARKS = {"refuses": "bold red", "limits": "yellow", "note": "dim"}
_NO_ANSWER = "without an answer"
_WORDS = (RELIABLE, LIMITED, REFUSED, _NO_ANSWER)
_VERDICT_WIDTH = len(RELIABLE)
_MARK_WIDTH = len("refuses")
_GAP = "  "


def trust_blocks(trust: Trust, view: View) -> list[list[Line]]:
    """The page's blocks: the verdict in a sentence, the verdicts by analyzer, what was seen, what is fine."""
    head = sentence(trust_sentence(trust), view, indent="  ", first="", style=f"bold {_STYLES[trust.verdict]}")
    return [
        [*head, *sentence(about(trust), view, indent="  ", first="")],
        _verdicts(trust.verdicts, view),
        [line for check in trust.checks for line in _check(check, trust, view)],
        sentence(fine(trust), view, indent="  ", first="", style="dim"),
    ]


def trust_sentence(trust: Trust) -> str:
    """The judgement in one sentence."""
    analyzers = counted(len(trust.verdicts), "analyzer")
    if trust.verdict == REFUSED:
        return f"This trace cannot be trusted: every one of {analyzers} is refused."
    words = [_word(verdict) for verdict in trust.verdicts]
    if set(words) == {RELIABLE}:
        return f"This trace can be trusted: all {analyzers} are reliable."
    numbers = ", ".join(f"{words.count(word)} {word}" for word in _WORDS if word in words)
    part = "" if trust.verdict == RELIABLE else " in part"
    return f"This trace can be trusted{part}: of {analyzers} {numbers}."


def about(trust: Trust) -> str:
    """Which trace and which steps the verdicts are about."""
    steps = trust.steps
    found = f"{steps.pattern}: {steps.found} found, {steps.used} used" if steps.found else ""
    if steps.source == "whole-trace":
        found = "no steps: the whole trace counts as one"
    device = "" if trust.device is None else f"GPU {trust.device}"
    return " · ".join(escape(part) for part in (trust.trace, trust.producer or "", device, found) if part)


def because(verdict: Verdict) -> str:
    """Why an analyzer is not reliable; empty if it is."""
    return "; ".join(reason.text for reason in verdict.because)


def effect(check: TrustCheck, trust: Trust) -> str:
    """What a check does to the analyzers, and what to do about it."""
    parts = [f"{word} {_names(names, trust)}" for word, names in (("Refuses", check.refuses), ("limits", check.limits))]
    said = "; ".join(part for part, names in zip(parts, (check.refuses, check.limits), strict=True) if names)
    return " ".join(part for part in (f"{said[:1].upper()}{said[1:]}." if said else "", check.advice) if part)


def fine(trust: Trust) -> str:
    """What was looked at and found in order."""
    return f"Looked at and found fine: {', '.join(trust.fine)}." if trust.fine else ""


def _word(verdict: Verdict) -> str:
    return _NO_ANSWER if verdict.has_no_answer else verdict.verdict


def _names(names: Sequence[str], trust: Trust) -> str:
    return "every analyzer" if len(names) == len(trust.verdicts) else ", ".join(names)


def _verdicts(verdicts: Sequence[Verdict], view: View) -> list[Line]:
    width = max(map(len, ("analyzer", *(verdict.analyzer for verdict in verdicts))))
    indent = " " * (width + _VERDICT_WIDTH + 2 * len(_GAP))
    lines = [Text(f"{'analyzer':<{width}}{_GAP}{'verdict':<{_VERDICT_WIDTH}}{_GAP}because", "bold")]
    for verdict in verdicts:
        start = f"{verdict.analyzer:<{width}}{_GAP}{verdict.verdict:<{_VERDICT_WIDTH}}"
        rows = sentence(because(verdict), view, indent=indent, first=start + _GAP) or [Text(start)]
        rows[0].stylize(_STYLES[verdict.verdict], width + len(_GAP), len(start))
        lines += rows
    return lines


def _check(check: TrustCheck, trust: Trust, view: View) -> list[Line]:
    indent = " " * (_MARK_WIDTH + len(_GAP))
    lines = sentence(check.seen, view, indent=indent, first=f"{check.severity:<{_MARK_WIDTH}}{_GAP}")
    lines[0].stylize(_MARKS[check.severity], 0, _MARK_WIDTH)
    return [*lines, *sentence(effect(check, trust), view, indent=indent, style="dim")]
