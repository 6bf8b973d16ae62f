"""`tracelab doctor TRACE`: verdicts by analyzer, traces without GPU work, the command and its exit codes."""

import dataclasses
import json
from pathlib import Path

import pytest
from called import called
from tiny_trace import SYNC, US, Thread, TinyTrace
from trust_asking import EVERY, check, healthy, judged, verdicts

from tracelab.load import load_trace
from tracelab.registry import leaves
from tracelab.result import Result
from tracelab.trust import judge, judge_nothing
from tracelab.trust_result import Reason, Trust, TrustCheck, Verdict

NONE = "No CUDA events collected. Does the process use CUDA?"


def test_every_analyzer_has_a_verdict_in_the_order_of_the_registry(tmp_path: Path) -> None:
    trust = judged(healthy(), tmp_path)
    assert [found.analyzer for found in trust.verdicts] == list(leaves("analyzers"))
    assert (trust.device, trust.steps.source, trust.steps.found, trust.steps.used) == (0, "nvtx", 8, 7)


def verdict_of(trust: Trust, analyzer: str) -> Verdict:
    (found,) = [found for found in trust.verdicts if found.analyzer == analyzer]
    return found


def test_a_new_analyzer_without_rules_is_reliable_and_one_that_skips_is_refused(tmp_path: Path) -> None:
    path = healthy().call(3050 * US, 3055 * US, code=1).save(tmp_path)
    from asking import view

    results = {"kernels": Result(), "new": Result(), "silent": Result(skipped="Nothing of that kind ran.")}
    trust = judge(view(path), results)
    assert verdict_of(trust, "new") == Verdict("new", "reliable", [])
    assert verdict_of(trust, "silent") == Verdict("silent", "refused", [Reason("skipped", "Nothing of that kind ran")])
    assert verdict_of(trust, "kernels").because == [Reason("failed-launches", "1 launch of the steps failed")]
    # The others that a failed launch limits are not here, so the check does not name them.
    assert check(trust, "failed-launches").limits == ("kernels",)


def test_what_a_check_refuses_is_told_by_it_and_not_by_the_analyzer(tmp_path: Path) -> None:
    trust = judged(healthy().sql("DELETE FROM NVTX_EVENTS WHERE eventType = 34"), tmp_path)
    assert [reason.code for reason in verdict_of(trust, "mbu").because] == ["no-floor"]


def test_checks_are_ranked_worst_first_and_reasons_with_them(tmp_path: Path) -> None:
    trace = healthy(3).call(1050 * US, 1055 * US, code=1)  # 2 steps, a failed launch, no count of events
    trust = judged(trace.sql("DELETE FROM NVTX_EVENTS WHERE eventType = 34"), tmp_path)
    assert [(found.code, found.severity) for found in trust.checks] == [
        ("no-floor", "refuses"), ("failed-launches", "limits"), ("few-steps", "limits"), ("events-unknown", "note"),
    ]  # fmt: skip
    assert [reason.code for reason in verdict_of(trust, "gaps").because] == ["failed-launches", "few-steps"]


def test_severity_follows_from_what_a_check_touches() -> None:
    plain = TrustCheck("a", "b", "c")
    assert plain.severity == "note"
    assert dataclasses.replace(plain, limits=("x",)).severity == "limits"
    assert dataclasses.replace(plain, limits=("x",), refuses=("y",)).severity == "refuses"


@pytest.mark.parametrize(
    ("kinds", "whole"),
    [
        (["reliable", "reliable"], "reliable"),
        (["reliable", "absent"], "reliable"),  # the trace is not at fault for a fact that it lacks
        (["reliable", "limited"], "limited"),
        (["reliable", "refused"], "limited"),
        (["limited", "absent"], "limited"),
        (["refused", "absent"], "refused"),
    ],
)
def test_the_verdict_of_the_whole(tmp_path: Path, kinds: list[str], whole: str) -> None:
    trust = judged(healthy(), tmp_path)
    made = {
        "absent": Verdict("x", "refused", [Reason("no-floor", "")]),
        "refused": Verdict("x", "refused", [Reason("clock", "")]),
        "limited": Verdict("x", "limited", [Reason("clock", "")]),
        "reliable": Verdict("x", "reliable"),
    }
    assert dataclasses.replace(trust, verdicts=[made[kind] for kind in kinds]).verdict == whole


def without_work() -> TinyTrace:
    """Two calls, no launch, and a message that no process used CUDA."""
    return TinyTrace().call(0, 5, "cudaMalloc_v3020").call(10, 15, SYNC).diagnostic(NONE)


def test_a_trace_without_gpu_work_refuses_all_with_the_reason(tmp_path: Path) -> None:
    trust = judge_nothing(load_trace(without_work().save(tmp_path)), tuple(leaves("analyzers")))
    assert verdicts(trust, "refused") == EVERY
    assert trust.verdict == "refused"
    assert trust.device is None
    found = check(trust, "no-gpu-work")
    assert found.seen.startswith("The trace holds no kernels: the program called CUDA but launched no kernel")
    assert {reason.code for reason in verdict_of(trust, "gaps").because} == {"no-gpu-work"}
    # Beside work it would be usual; here it is the point.
    assert check(trust, "profiler-messages").numbers["messages"] == 1


def test_pitfall_c2_launches_whose_work_was_all_lost(tmp_path: Path) -> None:
    trace = TinyTrace()
    for i in range(100):
        trace.call(i * US, i * US + 5)
    trace.diagnostic("Number of CUDA events collected: 100.", 1).diagnostic("Number of CUPTI events produced: 900.", 1)
    trust = judge_nothing(load_trace(trace.save(tmp_path)), ("kernels",))
    assert check(trust, "lost-events").numbers["events_lost"] == 800
    assert "CUPTI produced 900 events but only 100 reached the report" in check(trust, "no-gpu-work").seen


def test_pitfall_c1_ranks_whose_kernels_are_missing(tmp_path: Path) -> None:
    trace = healthy()
    for pid in range(200, 207):
        trace.call(0, 5, on=Thread(pid, pid))
    found = check(judged(trace, tmp_path), "process-without-work")
    assert found.numbers == {"processes": 7, "launch_calls": 7}
    assert "(pid 200, 201, 202, 203, 204, 205, 206)" in found.seen


def test_the_command_answers_with_code_0_whatever_the_verdicts(tmp_path: Path) -> None:
    answer = called("doctor", healthy().save(tmp_path))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("This trace can be trusted")
    refused = called("doctor", without_work().save(tmp_path))
    assert (refused.code, refused.err) == (0, "")
    assert refused.out.startswith("This trace cannot be trusted")


def test_the_command_takes_the_options_of_a_report(tmp_path: Path) -> None:
    path = healthy().save(tmp_path)
    said = json.loads(called("doctor", path, "--format", "json", "--skip-steps", 5, "--params", "1e9").out)
    assert said["steps"] == {"source": "nvtx", "pattern": "step #", "found": 8, "used": 3}
    assert {found["code"] for found in said["checks"]} == {"few-steps", "mbu-above-1", "events-unknown"}
    assert called("doctor", path, "--steps", "nothing").code == 1
    assert called("doctor", path, "-o", tmp_path / "page.txt").out == ""
    assert (tmp_path / "page.txt").read_text(encoding="utf-8").startswith("This trace can be trusted")


def test_what_is_no_trace_ends_with_code_1_and_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("no trace", encoding="utf-8")
    for path in (tmp_path / "x.sqlite", tmp_path / "none.sqlite"):
        answer = called("doctor", path)
        assert (answer.code, answer.out) == (1, "")
        assert len(answer.err.splitlines()) == 1


def test_the_trace_is_never_overwritten(tmp_path: Path) -> None:
    path = healthy().save(tmp_path)
    answer = called("doctor", path, "-o", path)
    assert answer.code == 2
    assert "would overwrite the trace" in answer.err


def test_options_of_traces_need_a_trace() -> None:
    answer = called("doctor", "--steps", "x", "--format", "json")
    assert answer.code == 2
    assert "Without a trace there is no use for --format, --steps; name one" in answer.err
