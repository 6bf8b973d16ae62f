"""Whether a trace can be trusted, as Markdown."""

from tracelab.reports._diff_markdown_text import bullets, code, inline, md_table, prose
from tracelab.reports._page_tables import Column
from tracelab.reports._trust_page import about, because, effect, fine, trust_sentence
from tracelab.trust_result import RELIABLE, Trust


def trust_markdown(trust: Trust) -> list[list[str]]:
    """The blocks of the judgement."""
    words = [found.verdict if found.verdict == RELIABLE else found.verdict.upper() for found in trust.verdicts]
    columns = [
        Column("verdict", words, right=False),
        Column("because", [because(found) for found in trust.verdicts], right=False),
    ]
    seen = [f"{check.severity}: {check.seen} {effect(check, trust)}".rstrip() for check in trust.checks]
    return [
        [f"### tracelab doctor: {inline(trust_sentence(trust).rstrip('.'))}"],
        [prose(about(trust))],
        md_table("analyzer", [code(found.analyzer) for found in trust.verdicts], columns),
        bullets(seen),
        [prose(fine(trust))] if trust.fine else [],
    ]
