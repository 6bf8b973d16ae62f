"""A trace without kernels: the one reason that its evidence supports."""

import pytest

from tracelab.no_kernels import Evidence, explain

NONE_COLLECTED = "No CUDA events collected. Does the process use CUDA?"


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (Evidence(incomplete_export=True), "the export is incomplete"),
        (Evidence(capture_range_asked=True, capture_range_hit=False), "the capture range was never opened"),
        (
            Evidence(diagnostics=[NONE_COLLECTED] * 3, processes=3),
            "none of the 3 processes that nsys followed used CUDA",
        ),
        (
            Evidence(graph_launches=40, graph_mode="Graph", nsys_version="2023.4.4"),
            "40 CUDA graphs were launched, and nsys 2023.4.4 in graph mode exports nothing",
        ),
        (Evidence(program_exit_code=137, launch_calls=5), "the program was killed (SIGKILL)"),
        (
            Evidence(diagnostics=["Installed CUDA driver version (13.4) is not supported by this build"]),
            "nsys does not support this driver (it says: Installed CUDA driver",
        ),
        (
            Evidence(diagnostics=["CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED at start"], launch_calls=5),
            "CUPTI refused (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)",
        ),
        (
            Evidence(events_produced=7602, events_collected=445, launch_calls=400),
            "CUPTI produced 7602 events but only 445 reached the report",
        ),
        (Evidence(api_rows_missing=True), "the export was trimmed"),
        (Evidence(launch_calls=100), "the program made 100 launch calls, yet no GPU activity was recorded"),
        (Evidence(processes_with_calls=1), "the program called CUDA but launched no kernel"),
        (Evidence(diagnostics=[NONE_COLLECTED], processes=1), "nsys saw no CUDA activity in the program"),
        (Evidence(), "the program launched no GPU work while nsys was collecting"),
    ],
)
def test_each_reason(evidence: Evidence, reason: str) -> None:
    assert explain(evidence).startswith(f"the trace holds no kernels: {reason}")


def test_the_most_certain_reason_wins() -> None:
    everything = Evidence(
        diagnostics=[NONE_COLLECTED, "CUPTI_ERROR_UNKNOWN"],
        launch_calls=10,
        program_exit_code=137,
        events_produced=1000,
        events_collected=1,
        incomplete_export=True,
    )
    assert "incomplete" in explain(everything)


def test_healthy_counts_are_no_loss() -> None:
    evidence = Evidence(events_produced=2176, events_collected=2024, launch_calls=3)
    assert "launch calls" in explain(evidence)


def test_graphs_of_a_new_nsys_are_not_blamed() -> None:
    assert "graphs were launched" not in explain(
        Evidence(graph_launches=4, graph_mode="Graph", nsys_version="2025.3.2")
    )
