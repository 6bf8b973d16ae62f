"""Whether a trace can be trusted, as every report format receives it: verdicts by analyzer, and what was seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

RELIABLE, LIMITED, REFUSED = "reliable", "limited", "refused"
SKIPPED = "skipped"
# Reasons to refuse an analyzer that are no fault of the trace: it lacks a fact, or has nothing for this analyzer.
_NO_FAULT = (SKIPPED, "no-floor", "no-gpu-info")


@dataclass(frozen=True)
class TrustCheck:
    """Something seen in the trace: in one sentence with its numbers and times, and in a few words (`brief`).

    `limits` and `refuses` name the analyzers whose numbers it makes doubtful or misleading; neither: worth knowing, no
    more. `numbers` are those of the sentence, for scripts; their names carry the unit. `advice`: what to do about it.
    """

    code: str
    brief: str
    seen: str
    limits: Sequence[str] = ()
    refuses: Sequence[str] = ()
    advice: str = ""
    numbers: Mapping[str, int | float] = field(default_factory=dict)

    @property
    def severity(self) -> str:
        """`refuses`, `limits` or `note`: the worst it does to an analyzer."""
        return "refuses" if self.refuses else "limits" if self.limits else "note"


@dataclass(frozen=True)
class Reason:
    """Why an analyzer is not reliable: the code of the check that says so, or SKIPPED, and a few words."""

    code: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """Whether one analyzer's numbers can be trusted: RELIABLE, LIMITED or REFUSED, with the reasons, worst first."""

    analyzer: str
    verdict: str
    because: Sequence[Reason] = ()

    @property
    def has_no_answer(self) -> bool:
        """Whether it is refused though the trace is not at fault: a fact is missing, or there is nothing to tell."""
        return self.verdict == REFUSED and all(reason.code in _NO_FAULT for reason in self.because)


@dataclass(frozen=True)
class TrustedSteps:
    """The steps that the verdicts are about; `source` as in a report, `none` without GPU work."""

    source: str = "none"
    pattern: str = ""
    found: int = 0
    used: int = 0


@dataclass(frozen=True)
class Trust:
    """The judgement of one trace. `device` is the GPU it is about, None without GPU work.

    `checks` are ordered, worst first; `fine` names, in a few words each, what was looked at and found in order.
    """

    trace: str
    producer: str | None
    device: int | None
    steps: TrustedSteps
    verdicts: Sequence[Verdict]
    checks: Sequence[TrustCheck]
    fine: Sequence[str]

    @property
    def verdict(self) -> str:
        """REFUSED if every analyzer is; RELIABLE if all are but for those that the trace has no answer for."""
        if all(found.verdict == REFUSED for found in self.verdicts):
            return REFUSED
        sound = all(found.verdict == RELIABLE or found.has_no_answer for found in self.verdicts)
        return RELIABLE if sound else LIMITED
