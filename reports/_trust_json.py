"""Whether a trace can be trusted, as nested dictionaries for JSON."""

from dataclasses import asdict
from typing import Any

from tracelab.reports._trust_page import trust_sentence
from tracelab.trust_result import Trust

_SCHEMA = "tracelab.trust/1"


def trust_document(trust: Trust) -> dict[str, Any]:
    """The judgement of schema `tracelab.trust/1`; the names of numbers carry their unit."""
    return {
        "schema": _SCHEMA,
        "trace": {"path": trust.trace, "producer": trust.producer},
        "device": trust.device,
        "steps": asdict(trust.steps),
        "verdict": trust.verdict,
        "sentence": trust_sentence(trust),
        "analyzers": [asdict(verdict) for verdict in trust.verdicts],
        "checks": [{"severity": check.severity, **asdict(check)} for check in trust.checks],
        "fine": list(trust.fine),
    }
