"""Real traces changed at random: 2 000 cases, each answered with one sentence or with sound numbers.

The seed is printed; TRACELAB_FUZZ_SEED and TRACELAB_FUZZ_CASES give others. One case again: see `fuzzing`.
"""

import dataclasses
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import fuzzing
import pytest
from fuzz_checks import Question, json_document, problems
from fuzz_tables import MUTATIONS
from tiny_trace import TinyTrace

from tracelab.analysis import Analysis, report
from tracelab.errors import InputError
from tracelab.load import load_trace
from tracelab.report import Report
from tracelab.result import Metric
from tracelab.trace import Trace
from tracelab.view import View

SEED, CASES = 20_240_607, 2_000


def test_changed_traces_get_a_sentence_or_a_sound_answer(capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("TRACELAB_FUZZ_SEED", SEED))
    cases = int(os.environ.get("TRACELAB_FUZZ_CASES", CASES))
    with capsys.disabled():
        print(f"\nfuzzing {cases} cases of TRACELAB_FUZZ_SEED={seed}")
    failures = fuzzing.run_cases(seed, cases, workers=os.cpu_count() or 1)
    shown = "\n\n".join(map(str, failures[:5]))
    assert not failures, f"{len(failures)} of {cases} cases of seed {seed} failed; the first are:\n{shown}"


def test_a_case_is_the_same_each_time(tmp_path: Path) -> None:
    for index in range(25):
        made = []
        for number in ("one", "two"):
            folder = tmp_path / f"{index}-{number}"
            folder.mkdir()
            case = fuzzing.make_case(3, index, folder)
            # The log of a database holds random numbers of SQLite's own.
            files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".sqlite-wal")
            made.append((case.changes, [(path.relative_to(folder), path.read_bytes()) for path in files]))
        assert made[0] == made[1], index


@pytest.mark.parametrize("change", dict.fromkeys(MUTATIONS), ids=lambda change: change.__name__)
def test_every_change_of_tables_changes_the_file(change: Callable[..., str], tmp_path: Path) -> None:
    original = fuzzing.bases()[0]
    path = Path(shutil.copyfile(original, tmp_path / "changed.sqlite"))
    changed = 0
    for number in range(6):
        with sqlite3.connect(path) as db:
            try:
                change(db, random.Random(number))
            except sqlite3.Error:
                continue
        changed += path.read_bytes() != original.read_bytes()
    assert changed


def asked(folder: Path, planted: Mapping[str, object] | None = None) -> list[str]:
    """The problems with a plain trace, some of what is asked replaced by `planted`."""
    place, scratch = folder / "case", folder / "scratch"
    place.mkdir()
    scratch.mkdir()
    path = TinyTrace().launch(0, "a", 10, 20).launch(5, "b", 30, 50).save(place)
    with pytest.MonkeyPatch.context() as patch:
        for name, function in (planted or {}).items():
            patch.setattr(name, function)
        return problems(Question(path, path, scratch), random.Random(1))


def test_a_plain_trace_has_no_problems(tmp_path: Path) -> None:
    assert asked(tmp_path) == []


def _raises_a_key_error(path: Path) -> Trace:
    raise KeyError(path.name)


def _returns_a_negative_time(path: Path) -> Trace:
    trace = load_trace(path)
    return dataclasses.replace(trace, ops=dataclasses.replace(trace.ops, end=trace.ops.start - 1))


def _writes_beside_the_input(path: Path) -> Trace:
    path.with_name("trace.sqlite-shm").write_bytes(b"")
    return load_trace(path)


def _changes_the_input(path: Path) -> Trace:
    with path.open("ab") as file:
        file.write(b"\0")
    return load_trace(path)


def _says_nothing(path: Path) -> Trace:
    raise InputError("" if path else "?")


def _takes_half_a_gigabyte(path: Path) -> Trace:
    assert len(b"x" * (500 << 20))
    return load_trace(path)


def _names_the_gpu_in_red(path: Path) -> Trace:
    trace = load_trace(path)
    return dataclasses.replace(trace, devices=tuple(dataclasses.replace(gpu, name="\x1b[31m") for gpu in trace.devices))


def _has_a_share_above_one(analysis: Analysis, views: Sequence[View]) -> Report:
    return _with_gaps(report(analysis, views=views), gap_share=Metric(1.5, "ratio"))


def _has_a_negative_metric(analysis: Analysis, views: Sequence[View]) -> Report:
    return _with_gaps(report(analysis, views=views), step_ns=Metric(-1, "ns"))


def _with_gaps(told: Report, **metrics: Metric) -> Report:
    gaps = told.main.results["gaps"]
    changed = dataclasses.replace(gaps, metrics={**gaps.metrics, **metrics})
    main = dataclasses.replace(told.main, results={**told.main.results, "gaps": changed})
    return dataclasses.replace(told, main=main)


def _adds_up_to_less(analysis: Analysis, views: Sequence[View]) -> Report:
    told = report(analysis, views=views)
    waterfall = told.main.results["waterfall"]
    rows = [{**row, "ns": 0} for row in waterfall.tables["waterfall"]]
    changed = dataclasses.replace(waterfall, tables={"waterfall": rows})
    main = dataclasses.replace(told.main, results={**told.main.results, "waterfall": changed})
    return dataclasses.replace(told, main=main)


LOADER, REPORT = "fuzz_checks.load_trace", "fuzz_checks.report"


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({LOADER: _raises_a_key_error}, "KeyError"),
        ({LOADER: _returns_a_negative_time}, "negative time"),
        ({LOADER: _writes_beside_the_input}, "files: changed, written or removed: ['.', 'trace.sqlite-shm']"),
        ({LOADER: _changes_the_input}, "files: changed"),
        ({LOADER: _says_nothing}, "no sentence"),
        ({LOADER: _takes_half_a_gigabyte}, "memory: "),
        ({LOADER: _names_the_gpu_in_red, "tracelab.reports._page_head.escape": str}, "not printable: ['\\x1b']"),
        ({REPORT: _has_a_share_above_one}, "gap_share"),
        ({REPORT: _has_a_negative_metric}, "step_ns"),
        ({REPORT: _adds_up_to_less}, "waterfall"),
    ],
)
def test_a_planted_bug_is_found(planted: Mapping[str, object], said: str, tmp_path: Path) -> None:
    found = asked(tmp_path, planted)
    assert any(said in problem for problem in found), found


def test_numbers_that_are_none_are_found() -> None:
    assert json_document('{"a": 1}') == {"a": 1}
    for text in ('{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', '{"x_share": 1.1}', '{"before_ns": -1}'):
        with pytest.raises(AssertionError):
            json_document(text)


def test_an_endless_loop_and_a_crash_are_found_and_the_rest_still_runs(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(
        "import os, sys, time\n"
        "import fuzzing\n"
        "from fuzzing import *\n"
        "def run_case(seed, index, folder):\n"
        "    if index == 1: time.sleep(60)\n"
        "    if index == 3: os.abort()\n"
        "    return Case(folder, folder, ('none',)), ['asked'] if index == 4 else []\n"
        "fuzzing.run_case = run_case\n"
        "fuzzing.run_many(int(sys.argv[2]), range(*map(int, sys.argv[3:])), limit_s=1)\n"
    )
    failures = fuzzing.run_cases(0, 6, workers=1, script=planted)
    assert [(failure.index, failure.found[0][:14]) for failure in failures] == [
        (1, "ended with cod"), (3, "ended with cod"), (4, "asked"),
    ]  # fmt: skip
    assert "time.sleep" in str(failures[0]) or "run_case" in str(failures[0])
    assert f"python tests/fuzzing.py 0 {failures[0].index}" in str(failures[0])
