"""The page of `tracelab doctor TRACE`, its JSON and its Markdown."""

import json
from dataclasses import replace

import pytest

from tracelab.reports import json_report, markdown_report, terminal
from tracelab.trust_result import Reason, Trust, TrustCheck, TrustedSteps, Verdict

HOSTILE = "a|b`c\x1b[31m\n# <script> @someone ](http://x)"


def trust(**changed: object) -> Trust:
    """Two checks, three analyzers: one limited, one without an answer, one reliable."""
    made = Trust(
        trace="llama8b.sqlite",
        producer="nsys 2025.3.2",
        device=0,
        steps=TrustedSteps("nvtx", "decode_step #", 12, 11),
        verdicts=[
            Verdict("gaps", "limited", [Reason("clock", "2 kernels before their launch"), Reason("few", "5 steps")]),
            Verdict("mbu", "refused", [Reason("no-floor", "no workload record")]),
            Verdict("kernels", "reliable"),
        ],
        checks=[
            TrustCheck("no-floor", "no workload record", "The floor of a step is unknown.", refuses=("mbu",)),
            TrustCheck("clock", "2 kernels before their launch", "2 of 18 kernels start before their call.", ("gaps",),
                       (), "Times on the GPU are not touched.", {"kernels": 2, "largest_ns": 8000}),
            TrustCheck("steps-inferred", "steps are not marked", "No range marks the steps."),
        ],
        fine=["event counts", "return codes"],
    )  # fmt: skip
    return replace(made, **changed)  # type: ignore[arg-type]


def hostile() -> Trust:
    base = trust()
    check = replace(base.checks[1], seen=f"{HOSTILE} " * 9, brief=HOSTILE, advice=HOSTILE)
    verdict = Verdict("gaps", "limited", [Reason("clock", HOSTILE)] * 3)
    return replace(base, trace=HOSTILE * 5, producer=HOSTILE, verdicts=[verdict, *base.verdicts], checks=[check] * 3,
                   steps=TrustedSteps("nvtx", HOSTILE, 12, 11), fine=[f"thing {i}" for i in range(40)])  # fmt: skip


def page(found: Trust, width: int | None = 80) -> list[str]:
    return terminal.render_trust(found, full_names=False, width=width, color=False).splitlines()


def test_the_page_says_the_verdict_first_then_each_analyzer_then_what_was_seen() -> None:
    assert page(trust(), 100) == [
        "This trace can be trusted in part: of 3 analyzers 1 reliable, 1 limited, 1 without an answer.",
        "llama8b.sqlite · nsys 2025.3.2 · GPU 0 · decode_step #: 12 found, 11 used",
        "",
        "analyzer  verdict   because",
        "gaps      limited   2 kernels before their launch; 5 steps",
        "mbu       refused   no workload record",
        "kernels   reliable",
        "",
        "refuses  The floor of a step is unknown.",
        "         Refuses mbu.",
        "limits   2 of 18 kernels start before their call.",
        "         Limits gaps. Times on the GPU are not touched.",
        "note     No range marks the steps.",
        "",
        "Looked at and found fine: event counts, return codes.",
    ]


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([Verdict("a", "reliable")] * 2, "This trace can be trusted: all 2 analyzers are reliable."),
        (
            [Verdict("a", "reliable"), Verdict("b", "refused", [Reason("no-floor", "x")])],
            "This trace can be trusted: of 2 analyzers 1 reliable, 1 without an answer.",
        ),
        (
            [Verdict("a", "limited", [Reason("clock", "x")]), Verdict("b", "refused", [Reason("clock", "x")])],
            "This trace can be trusted in part: of 2 analyzers 1 limited, 1 refused.",
        ),
        ([Verdict("a", "refused", [Reason("clock", "x")])] * 2,
         "This trace cannot be trusted: every one of 2 analyzers is refused."),
    ],
)  # fmt: skip
def test_the_sentence(verdicts: list[Verdict], said: str) -> None:
    found = trust(verdicts=verdicts)
    assert page(found, None)[0] == said
    assert json.loads(json_report.render_trust(found, full_names=False, width=None, color=False))["sentence"] == said


def test_a_check_of_every_analyzer_says_so() -> None:
    every = TrustCheck("lost-events", "lost", "Events were lost.", limits=("gaps", "mbu", "kernels"))
    assert "         Limits every analyzer." in page(trust(checks=[every]))
    both = replace(every, limits=("kernels",), refuses=("gaps", "mbu"))
    assert "         Refuses gaps, mbu; limits kernels." in page(trust(checks=[both]))


def test_without_work_there_are_no_steps_to_speak_of() -> None:
    nothing = trust(device=None, steps=TrustedSteps(), producer=None, fine=())
    assert page(nothing, 120)[1] == "llama8b.sqlite"
    assert "found fine" not in "\n".join(page(nothing))
    whole = trust(steps=TrustedSteps("whole-trace", "whole trace", 1, 1))
    assert page(whole, 120)[1].endswith("no steps: the whole trace counts as one")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("found", [trust(), hostile()], ids=["plain", "hostile"])
def test_no_line_is_wider_than_the_screen_or_unprintable(found: Trust, width: int) -> None:
    lines = page(found, width)
    assert max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines)


def test_a_pipe_is_not_wrapped_and_colour_changes_no_word() -> None:
    lines = page(hostile(), None)
    assert len([line for line in lines if line.startswith("limits")]) == 3
    assert max(map(len, lines)) > 200
    coloured = terminal.render_trust(trust(), full_names=False, width=80, color=True)
    assert "\x1b[" in coloured
    assert "\x1b[" not in "\n".join(page(trust()))


def test_json_has_every_number_under_its_unit() -> None:
    said = json.loads(json_report.render_trust(trust(), full_names=False, width=None, color=False))
    assert said["schema"] == "tracelab.trust/1"
    assert said["verdict"] == "limited"
    assert said["trace"] == {"path": "llama8b.sqlite", "producer": "nsys 2025.3.2"}
    assert (said["device"], said["steps"]["used"], said["fine"]) == (0, 11, ["event counts", "return codes"])
    assert said["analyzers"][1] == {
        "analyzer": "mbu", "verdict": "refused", "because": [{"code": "no-floor", "text": "no workload record"}],
    }  # fmt: skip
    assert said["checks"][1] == {
        "severity": "limits", "code": "clock", "brief": "2 kernels before their launch", "limits": ["gaps"],
        "seen": "2 of 18 kernels start before their call.", "refuses": [],
        "advice": "Times on the GPU are not touched.", "numbers": {"kernels": 2, "largest_ns": 8000},
    }  # fmt: skip


def markdown(found: Trust) -> list[str]:
    return markdown_report.render_trust(found, full_names=False, width=None, color=False).splitlines()


def test_markdown() -> None:
    lines = markdown(trust())
    assert lines[0].startswith("### tracelab doctor: This trace can be trusted in part")
    assert "| `gaps` | LIMITED | 2 kernels before their launch; 5 steps |" in lines
    assert "| `kernels` | reliable |   |" in lines
    assert "- limits: 2 of 18 kernels start before their call. Limits gaps. Times on the GPU are not touched." in lines
    assert lines[-1] == "Looked at and found fine: event counts, return codes."


def test_nothing_of_a_trace_becomes_markup() -> None:
    text = "\n".join(markdown(hostile()))
    assert "<script>" not in text
    assert "@someone" not in text
    assert "\x1b" not in text
    rows = [line for line in markdown(hostile()) if line.startswith("| `")]
    assert {line.count("|") for line in rows} == {4}
