"""Is everything in the file that was recorded? The profiler's own counts, unusable rows, messages, processes."""

from pathlib import Path

import pytest
from tiny_trace import GRAPH_LAUNCH, MAIN, NVTX, RUNTIME, US, Thread, TinyTrace
from trust_asking import EVERY, GPU_ROWS, IDLE, WORK, check, codes, healthy, judged, names, verdicts, with_counts

OTHER = Thread(pid=200, tid=200)
ROWS = 32  # 8 steps of 2 calls and 2 kernels
MARKS = 25  # 8 steps of 3 ranges, and the record
BEGIN, END = "cudaStreamBeginCapture_v10000", "cudaStreamEndCapture_v10000"


def test_a_healthy_trace_shows_nothing_and_every_analyzer_is_reliable(tmp_path: Path) -> None:
    trace = with_counts(healthy(), ROWS, ROWS + 150).diagnostic(f"Number of NVTX events collected: \t{MARKS}.", 1)
    trust = judged(trace.diagnostic("Not all CUDA events might have been collected."), tmp_path)
    assert trust.checks == ()
    assert verdicts(trust, "reliable") == EVERY
    assert trust.verdict == "reliable"
    assert {"event counts", "NVTX counts", "clocks", "floor"} <= set(trust.fine)


@pytest.mark.parametrize(
    ("collected", "missing", "refused"),
    [
        (33, 1, set()),  # 3.0 %: limits
        (40, 8, IDLE),  # 20 %: as much as idle time
        (100, 68, EVERY),  # 68 %: more than half
    ],
)
def test_rows_that_the_profiler_collected_and_the_file_lacks(
    tmp_path: Path, collected: int, missing: int, refused: set[str]
) -> None:
    trust = judged(with_counts(healthy(), collected), tmp_path)
    found = check(trust, "rows-dropped")
    assert found.numbers == {"events_collected": collected, "rows": ROWS, "rows_missing": missing}
    assert names(found.refuses) == refused
    assert names(found.limits) == EVERY - refused
    assert verdicts(trust, "refused") == refused
    assert "event counts" not in trust.fine


def test_rows_that_nobody_collected(tmp_path: Path) -> None:
    found = check(judged(with_counts(healthy(), ROWS - 2), tmp_path), "rows-added")
    assert found.numbers["rows_added"] == 2
    assert names(found.limits) == EVERY


@pytest.mark.parametrize(
    ("collected", "seen"), [(32, set()), (33, set()), (34, {"rows-dropped"}), (31, {"rows-added"})]
)
def test_repeats_of_a_call_may_or_may_not_have_been_counted(tmp_path: Path, collected: int, seen: set[str]) -> None:
    trace = healthy().call(20 * US, 25 * US, event_class=67, correlation=101)
    assert codes(judged(with_counts(trace, collected), tmp_path)) == seen


@pytest.mark.parametrize(("produced", "lost"), [(288, None), (289, 257), (1032, 1000)])
def test_events_that_were_produced_and_never_arrived(tmp_path: Path, produced: int, lost: int | None) -> None:
    # Up to 256 and 1 % of 32 are usual: 32 + 256 = 288.
    trust = judged(with_counts(healthy(), ROWS, produced), tmp_path)
    if lost is None:
        assert codes(trust) == set()
        return
    found = check(trust, "lost-events")
    assert found.numbers == {"events_produced": produced, "events_collected": ROWS, "events_lost": lost}
    assert names(found.refuses) == EVERY  # 89 % and 97 % of all


def test_synchronisations_and_event_records_are_produced_and_not_counted(tmp_path: Path) -> None:
    trace = healthy()
    for i in range(300):
        trace.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=i, end=i, syncType=2, globalPid=MAIN.global_pid)
    assert codes(judged(with_counts(trace, ROWS, ROWS + 300 + 256), tmp_path)) == set()
    assert codes(judged(with_counts(trace, ROWS, ROWS + 300 + 257 + ROWS), tmp_path)) != set()


def test_a_slim_copy_without_event_records_has_lost_none(tmp_path: Path) -> None:
    trace = healthy()
    for i in range(300):
        trace.call(i * US, i * US + 1, "cudaEventRecord_v3020")
    assert codes(judged(with_counts(trace, ROWS + 300, ROWS + 300 + 300 + 200), tmp_path)) == set()


def test_without_counts_nothing_is_said_to_be_lost_nor_fine(tmp_path: Path) -> None:
    trust = judged(healthy(), tmp_path)
    assert check(trust, "events-unknown").severity == "note"
    assert "event counts" not in trust.fine
    assert trust.verdict == "reliable"


@pytest.mark.parametrize("kept", [True, False])
def test_ranges_that_the_file_lacks(tmp_path: Path, kept: bool) -> None:
    trace = healthy().diagnostic(f"Number of NVTX events collected: \t{MARKS + 2}.", 1)
    trust = judged(trace if kept else trace.without(NVTX), tmp_path)
    found = check(trust, "marks-dropped")
    assert found.numbers == {"events_collected": MARKS + 2, "rows": MARKS if kept else 0}
    assert (found.limits, found.refuses) == ((("phases",), ()) if kept else ((), ("phases",)))


def test_work_without_times_or_with_inverted_ones(tmp_path: Path) -> None:
    # 16 kernels and one that is unusable: 1 of 17 is 5.9 %, above 5 %.
    for code, start, end in (("untimed-work", 0, 0), ("inverted-work", 90, 80)):
        found = check(judged(healthy().kernel("bad", start, end), tmp_path), code)
        assert found.numbers == {"rows": 1, "of_rows": 17}
        assert (names(found.limits), names(found.refuses)) == (GPU_ROWS - IDLE, IDLE)
        assert "of 17 rows of GPU work 1 with" in found.seen


def test_calls_that_do_not_say_what_they_returned(tmp_path: Path) -> None:
    trust = judged(healthy().without(f"{RUNTIME}.returnValue"), tmp_path)
    assert check(trust, "no-return-codes").seen.startswith("None of 16 API calls says what it returned")
    assert verdicts(trust, "refused") == {"launches"}
    assert "no-return-codes" not in codes(judged(healthy(), tmp_path))


REFUSED = "CUPTI_ERROR_NOT_INITIALIZED"
LOST = "Error when processing events: Cannot find string for an exterior index."


def test_messages_of_the_profiler_are_quoted(tmp_path: Path) -> None:
    trace = healthy().diagnostic(REFUSED).diagnostic(REFUSED).diagnostic(LOST)
    found = check(judged(trace, tmp_path), "profiler-messages")
    assert f"“{REFUSED}” ×2; " in found.seen
    assert names(found.limits) == EVERY
    assert names(check(judged(healthy().diagnostic(LOST), tmp_path), "profiler-messages").limits) == EVERY


@pytest.mark.parametrize(
    "text",
    [
        "Not all CUDA events might have been collected.",
        "No CUDA events collected. Does the process use CUDA?",
        "No OpenGL events collected. Does the process use OpenGL?",
        "CUDA profiling might have not been started correctly.",
    ],
)
def test_what_every_capture_says_is_no_problem(tmp_path: Path, text: str) -> None:
    assert codes(judged(healthy().diagnostic(text, on=OTHER), tmp_path)) == set()


def test_information_is_no_problem(tmp_path: Path) -> None:
    assert codes(judged(healthy().diagnostic(LOST, 1), tmp_path)) == set()


@pytest.mark.parametrize(("severity", "limits"), [(2, set()), (3, EVERY)])
def test_what_may_hold_words_of_the_user_is_withheld(tmp_path: Path, severity: int, limits: set[str]) -> None:
    trace = healthy().diagnostic("Cannot open /home/someone/secret-model.bin\x1b[31m", severity)
    found = check(judged(trace, tmp_path), "profiler-messages")
    assert found.seen == "The profiler reported 1 problem: a message of the profiler (withheld)."
    assert names(found.limits) == limits


def test_at_most_five_kinds_are_quoted(tmp_path: Path) -> None:
    trace = healthy()
    for name in ("A", "B", "C", "D", "E", "F", "G"):
        trace.diagnostic(f"CUPTI_ERROR_{name}")
    found = check(judged(trace, tmp_path), "profiler-messages")
    assert found.seen.count("“") == 5
    assert found.seen.endswith("; and 2 more.")


def test_a_process_whose_work_is_missing(tmp_path: Path) -> None:
    trace = healthy()
    for i in range(3):
        trace.call(i * US, i * US + 1, on=OTHER)
    found = check(judged(trace, tmp_path), "process-without-work")
    assert found.numbers == {"processes": 1, "launch_calls": 3}
    assert "(pid 200)" in found.seen
    assert names(found.limits) == WORK


def test_a_process_that_only_captures_a_graph_misses_nothing_until_it_replays_it(tmp_path: Path) -> None:
    trace = healthy().call(0, 1, BEGIN, on=OTHER).call(2, 3, on=OTHER).call(4, 5, END, on=OTHER)
    assert codes(judged(trace, tmp_path)) == set()
    found = check(judged(trace.call(6, 7, GRAPH_LAUNCH, on=OTHER), tmp_path), "process-without-work")
    assert found.numbers["launch_calls"] == 1


def test_a_process_whose_launches_failed_or_that_launched_nothing_misses_nothing(tmp_path: Path) -> None:
    trace = healthy().call(0, 1, on=OTHER, code=1).call(2, 3, "cudaMalloc_v3020", on=OTHER)
    assert "process-without-work" not in codes(judged(trace, tmp_path))


def test_times_below_zero_and_an_empty_table_are_healthy(tmp_path: Path) -> None:
    trace = with_counts(healthy(trace=TinyTrace().call(-2000 * US, -1999 * US, "cudaMalloc_v3020")), ROWS + 1)
    trace.copy(-5, -1, correlation=101).sql("DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY")
    assert codes(judged(trace, tmp_path)) == set()
