"""What the doctor says of real captures: the corpus (skipped without TRACELAB_CORPUS) and the bundled recordings."""

from pathlib import Path

import pytest
from corpus import CORPUS, IN_CORPUS
from trust_asking import EVERY, IDLE, check, codes, judged, verdicts

from tracelab.load import load_trace
from tracelab.registry import leaves
from tracelab.samples import FOLDER, samples
from tracelab.trust import judge_nothing
from tracelab.trust_result import Trust

# Codes of what was seen, apart from a count of events that old files lack; analyzers that are limited, and refused.
# None of the corpus holds a workload record, so mbu is refused in all.
FAILED = {"kernels", "phases", *IDLE}
SEEN: dict[str, tuple[set[str], set[str], set[str]]] = {
    "h200_eager_and_graph.sqlite": ({"no-floor"}, set(), {"mbu"}),
    "h200_failed_launches.sqlite": ({"no-floor", "failed-launches", "few-steps"}, FAILED, {"mbu"}),
    "h200_autograd_threads.sqlite": ({"no-floor", "timer-grain"}, set(), {"mbu"}),
    "t4_power_iteration.sqlite": ({"no-floor", "steps-left-out"}, set(), {"mbu"}),
    "rtx4060ti_llama_steps.sqlite": ({"no-floor"}, set(), {"mbu"}),  # 9 processes beside it without CUDA
    "v100_null_names.sqlite": ({"no-floor", "device-mapping"}, {"grids"}, {"mbu"}),
    "gtx1060_con_kernel.sqlite": (
        {"no-floor", "no-gpu-info", "work-without-launch", "impossible-overlap", "no-steps"},
        {"kernels", "phases", *IDLE},
        {"mbu", "grids"},
    ),
    "rtx6000_oldest_schema.sqlite": ({"no-floor", "few-steps", "steps-inferred"}, IDLE, {"mbu"}),
    "a100_saxpy_mpi.sqlite": ({"no-floor", "few-steps"}, IDLE, {"mbu"}),
    "rtx3090_trt.parquetdir": ({"no-floor", "device-mapping"}, {"grids"}, {"mbu"}),
    "rtx3090_trt.arrowdir": ({"no-floor", "device-mapping"}, {"grids"}, {"mbu"}),
}


@IN_CORPUS
@pytest.mark.parametrize("name", SEEN)
def test_what_is_seen_in_the_corpus(name: str) -> None:
    trust = judged(CORPUS / name)
    assert (codes(trust), verdicts(trust, "limited"), verdicts(trust, "refused")) == SEEN[name]


@IN_CORPUS
def test_numbers_of_the_corpus() -> None:
    overlap = check(judged(CORPUS / "gtx1060_con_kernel.sqlite"), "impossible-overlap")
    assert (overlap.numbers["kernels"], overlap.numbers["overlap_ns"]) == (2, 971512)  # as the manifest counts them
    failed = check(judged(CORPUS / "h200_failed_launches.sqlite"), "failed-launches")
    assert failed.numbers["launches"] == 12
    # The two kernels without a launch row that the manifest names, and a copy.
    assert check(judged(CORPUS / "gtx1060_con_kernel.sqlite"), "work-without-launch").numbers["rows"] == 3


@IN_CORPUS
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a5000_no_kernels.sqlite", "the program called CUDA but launched no kernel"),
        ("a100_julia_nvtx_only.sqlite", "nsys saw no CUDA activity"),
    ],
)
def test_without_kernels_everything_is_refused(name: str, reason: str) -> None:
    trust = judge_nothing(load_trace(CORPUS / name), tuple(leaves("analyzers")))
    assert reason in check(trust, "no-gpu-work").seen
    assert verdicts(trust, "refused") == EVERY


# Bundled recordings that are whole and have at least six steps used.
TRUSTED = {f"llama8b_{kind}_h200.sqlite" for kind in ("eager_b1", "eager_b64", "graph_b1", "graph_b64")}
FAILING = {"failed_launch_h200.sqlite", "guard_h200.sqlite", "llama8b_fail_h200.sqlite"}
WITHOUT_FLOOR = {"failed_launch_h200.sqlite", "guard_h200.sqlite", "mla_sweep_h200.sqlite"}
HARMLESS = {"timer-grain", "steps-left-out"}


def test_the_bundled_recordings_are_whole_and_limited_by_few_steps_or_failing_launches_alone() -> None:
    found: dict[str, Trust] = {sample.path.name: judged(sample.path) for sample in samples()}
    assert {name for name, trust in found.items() if trust.verdict == "reliable"} == TRUSTED
    assert {name for name, trust in found.items() if "failed-launches" in codes(trust)} == FAILING
    assert {name for name, trust in found.items() if "no-floor" in codes(trust)} == WITHOUT_FLOOR
    few = {name for name, trust in found.items() if "few-steps" in codes(trust)}
    assert few == set(found) - TRUSTED - {"failed_launch_h200.sqlite"}
    known = HARMLESS | {"few-steps", "failed-launches", "no-floor"}
    assert {name: codes(trust) - known for name, trust in found.items() if codes(trust) - known} == {}
    assert all("event counts" in trust.fine for trust in found.values())


def test_a_file_from_which_rows_were_taken_is_not_reliable(tmp_path: Path) -> None:
    import shutil
    import sqlite3
    from contextlib import closing

    path = tmp_path / "cut.sqlite"
    shutil.copyfile(FOLDER / "llama8b_graph_b1_h200.sqlite", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        gone = connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid % 10 = 0").rowcount
    trust = judged(path)
    assert check(trust, "rows-dropped").numbers["rows_missing"] == gone == 351
    assert verdicts(trust, "refused") >= IDLE
    assert verdicts(trust, "reliable") == set()
