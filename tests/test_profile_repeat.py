"""`tracelab profile --repeat N`: N captures in one folder, the median one's report, and how far they differ."""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fake_nsys import calls, make_nsys, without_nsys
from test_capture_profile import WORKLOAD, invoke
from tiny_trace import US, TinyTrace

from tracelab.capture import gpu
from tracelab.capture import nsys as nsys_module
from tracelab.capture.folder import make_run_folder, traces_of
from tracelab.capture.run import Capture
from tracelab.capture.session import Session
from tracelab.commands import profile
from tracelab.commands.repeat import finish_repeated
from tracelab.errors import CaptureUnavailableError, InputError, TracelabError, UsageError
from tracelab.load import load_trace
from tracelab.report import CaptureFacts, DeviceReport, Report, StepsFacts, TraceFacts
from tracelab.result import Metric, Result

# The k-th run exports k.sqlite and ends with the k-th code; a fault given for it is there from its start on.
PROGRAM = """
import json, shutil, sys
from pathlib import Path
here, codes = Path({here!r}), {codes!r}
k = len(list(here.glob("ran-*")))
(here / f"ran-{{k}}").touch()
shutil.copyfile(here / f"{{k}}.sqlite", here / "export")
settings = here / "nsys/target-linux-x64/settings.json"
settings.write_text(json.dumps(json.loads(settings.read_text()) | {{"faults": {faults!r}}}))
sys.exit(codes[k])
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU, without an nsys of its own."""
    monkeypatch.setattr(gpu, "has_gpu", lambda: True)
    monkeypatch.setattr(nsys_module, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", without_nsys(os.environ["PATH"]))
    monkeypatch.delenv("TRACELAB_NSYS", raising=False)
    monkeypatch.chdir(tmp_path)


def steps(period_us: int) -> TinyTrace:
    """Five steps of two kernels, 10 and 20 µs busy; the second is launched when the first is long over.

    Kernels at 10–20 and 60–80 µs of each step, the second launch at 50 µs: 40 µs launch gap, the step is the period.
    """
    trace = TinyTrace()
    for i in range(5):
        t = i * period_us * US
        trace.range(f"step {i}", t, t + 90 * US)
        trace.launch(t, "first", t + 10 * US, t + 20 * US).launch(t + 50 * US, "second", t + 60 * US, t + 80 * US)
    return trace


def program(
    tmp_path: Path, periods_us: Sequence[int], codes: Sequence[int] = (0, 0, 0), faults: tuple[str, ...] = ()
) -> list[str]:
    """The words of a command line that captures a program whose k-th run has steps of the k-th period."""
    nsys = make_nsys(tmp_path / "nsys", export=tmp_path / "export")
    for k, period_us in enumerate(periods_us):
        steps(period_us).save(tmp_path / f"{k}.sqlite")
    code = PROGRAM.format(here=str(tmp_path), codes=tuple(codes), faults=faults)
    return ["--nsys", str(nsys), "-o", str(tmp_path / "out"), "--", sys.executable, "-c", code]


def profiles(tmp_path: Path) -> int:
    """How many programs nsys has run."""
    made = calls(tmp_path / "nsys/target-linux-x64/nsys")
    return len([call for call in made if call[0] == "profile" and "-o" in call])


TABLE = """3 captures, medians of a step; capture 3 is shown
capture  step time µs  device busy µs  launch gaps µs
1               200.0            30.0            40.0
2               100.0            30.0            40.0
3               125.0            30.0            40.0
spread         80.0 %           0.0 %           0.0 %
Spread: largest less smallest, relative to the median.
"""  # (200 - 100) / 125 = 80 %


def test_three_captures_in_one_folder_and_the_median_on_stdout(tmp_path: Path) -> None:
    result = invoke(profile.run, ["--repeat", "3", *program(tmp_path, [200, 100, 125], codes=(0, 3, 4))])
    out = tmp_path / "out"
    assert result.exit_code == 3  # the first that is not 0
    assert profiles(tmp_path) == 3
    assert sorted(path.name for path in out.iterdir()) == ["1", "2", "3", "repeat.txt"]
    assert [path.stat().st_mode & 0o777 for path in (out, out / "1", out / "3/private")] == [0o700] * 3
    for number in "123":
        kept = sorted(path.name for path in (out / number).iterdir())
        assert kept == ["analysis.json", "page.txt", "private", "trace.sqlite"]
    assert "125.0 µs a step" in result.stdout and "200.0 µs a step" not in result.stdout
    uses_all = f"`tracelab diff {out} OTHER_FOLDER` uses all 3 captures.\n"
    assert f"{TABLE}{uses_all}\nKept in {out}, each capture in a folder of its own: page.txt, " in result.stdout
    assert result.stderr.splitlines() == [
        "tracelab: capture 2 of 3: the program ended with exit code 3",
        "tracelab: capture 3 of 3: the program ended with exit code 4",
    ]
    text = (out / "repeat.txt").read_text()
    assert "125.0 µs a step" in text and f"{TABLE}`tracelab diff out OTHER_FOLDER` uses all 3 captures.\n" in text
    assert str(tmp_path) not in text  # it may be shared


def test_the_folder_names_the_traces_of_all_captures(tmp_path: Path) -> None:
    invoke(profile.run, ["--repeat", "2", *program(tmp_path, [200, 100])])
    found = traces_of(tmp_path / "out")
    assert found == [tmp_path / f"out/{k}/trace.sqlite" for k in (1, 2)]
    assert [len(load_trace(path).ops) for path in found] == [10, 10]


def test_other_formats_print_the_median_document_alone(tmp_path: Path) -> None:
    result = invoke(profile.run, ["--repeat", "3", "--format", "json", *program(tmp_path, [200, 100, 125])])
    printed = json.loads(result.stdout)
    assert printed["results"]["gaps"]["metrics"]["step_ns"]["value"] == 125 * US
    assert printed["trace"]["path"] == str(tmp_path / "out/3/trace.sqlite")
    assert result.stderr == f"{TABLE}`tracelab diff {tmp_path}/out OTHER_FOLDER` uses all 3 captures.\n"
    kept = [json.loads((tmp_path / f"out/{k}/analysis.json").read_text()) for k in (1, 2, 3)]
    assert [each["results"]["gaps"]["metrics"]["step_ns"]["value"] for each in kept] == [200_000, 100_000, 125_000]
    assert TABLE in (tmp_path / "out/repeat.txt").read_text()


def test_one_capture_is_what_it_was(tmp_path: Path) -> None:
    words = program(tmp_path, [100, 100])
    plain = invoke(profile.run, words)
    (tmp_path / "out").rename(tmp_path / "plain")
    once = invoke(profile.run, ["--repeat", "1", *words])
    assert (once.stdout, once.stderr, once.exit_code) == (plain.stdout, plain.stderr, plain.exit_code)
    assert "captures" not in once.stdout
    names = ["analysis.json", "page.txt", "private", "trace.sqlite"]
    assert [sorted(p.name for p in (tmp_path / f).iterdir()) for f in ("plain", "out")] == [names, names]
    assert (tmp_path / "out/page.txt").read_bytes() == (tmp_path / "plain/page.txt").read_bytes()


@pytest.mark.parametrize("value", ["0", "-2", "two"])
def test_less_than_one_is_a_usage_error_and_runs_nothing(tmp_path: Path, value: str) -> None:
    result = invoke(profile.run, ["--repeat", value, *program(tmp_path, [100])])
    assert result.exit_code == 2 and "--repeat" in result.stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("ran-*"))


def test_a_capture_that_fails_leaves_those_before_it(tmp_path: Path) -> None:
    words = program(tmp_path, [100, 100], faults=("disk_full",))
    with pytest.raises(TracelabError) as caught:
        invoke(profile.run, ["--repeat", "3", *words])
    out = tmp_path / "out"
    assert str(caught.value) == (
        "capture 2 of 3 failed: nothing was captured: the disk is full; make room, or point TMPDIR and -o elsewhere; "
        f"capture 1 is kept in {out}"
    )
    assert caught.value.exit_code == 1
    assert [path.name for path in out.iterdir()] == ["1"] and (out / "1/page.txt").exists()


def test_a_first_capture_that_fails_leaves_nothing(tmp_path: Path) -> None:
    nsys = make_nsys(tmp_path / "nsys", faults=("disk_full",))
    with pytest.raises(
        TracelabError, match=r"^capture 1 of 2 failed: nothing was captured: the disk is full.*elsewhere$"
    ):
        invoke(profile.run, ["--repeat", "2", "--nsys", str(nsys), "-o", str(tmp_path / "out"), "--", "true"])
    assert not (tmp_path / "out").exists()


def test_what_is_known_before_the_first_capture_is_of_no_capture(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").touch()
    with pytest.raises(UsageError, match=r"^.*out exists already; name a new or empty folder with -o$"):
        invoke(profile.run, ["--repeat", "2", *program(tmp_path, [100, 100])])
    with pytest.raises(UsageError, match=r"^the program to profile was not found: no-such$"):
        invoke(profile.run, ["--repeat", "2", "--", "no-such"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["old"]


def test_a_recording_cannot_be_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    words = [WORKLOAD, "-o", str(tmp_path / "out")]
    with pytest.raises(CaptureUnavailableError, match="a recording cannot answer for options of the capture") as caught:
        invoke(profile.run, [*words, "--repeat", "2"])
    assert caught.value.exit_code == 5 and not (tmp_path / "out").exists()
    with pytest.raises(CaptureUnavailableError, match="nothing can be captured here"):
        invoke(profile.run, ["--repeat", "2", "--", "true"])
    assert invoke(profile.run, [*words, "--repeat", "1"]).exit_code == 0


# What follows has captures that were not made, and analyses that say what they are told.


def made(tmp_path: Path, codes: Sequence[int], interrupted: int | None = None) -> Iterator[Session]:
    """One session for each program code; the one of the index `interrupted` was stopped from outside."""
    for i, code in enumerate(codes):
        folder = make_run_folder("x", tmp_path / "runs" / str(i + 1))
        stopped = ("stopped from outside",) if i == interrupted else ()
        paths = (folder.trace, folder.trace)
        done = Capture(*paths, code, Path("/n/nsys"), "2025.3.2", ("nsys",), 1.0, bool(stopped), stopped)
        yield Session(folder.trace, folder, done, None)


class Analysis:
    """Gives the k-th report the k-th step time (None: no metric), or raises it if it is an error."""

    def __init__(self, *step_ns: int | BaseException | None) -> None:
        self._left = list(step_ns)

    def __call__(self, trace: Path, *, capture: CaptureFacts | None, recording: str | None) -> Report:
        step_ns = self._left.pop(0)
        if isinstance(step_ns, BaseException):
            raise step_ns
        gaps = Result(metrics={} if step_ns is None else {"step_ns": Metric(step_ns, "ns")})
        facts = TraceFacts(str(trace), "nsys", None, 3, 9, recording, None, (), ())
        return Report(facts, capture, DeviceReport(0, StepsFacts("none", "", 0, 0, (), (), ()), {"gaps": gaps}, ()))


def render(report: Report, format_name: str, target: Path | None) -> str:
    return f"{format_name} of {report.trace.path}{'' if target is None else f' in {target.name}'}"


def repeated(
    tmp_path: Path, analysis: Analysis, codes: Sequence[int] = (0, 0, 0), interrupted: int | None = None
) -> int:
    return finish_repeated(made(tmp_path, codes, interrupted), len(codes), analysis, render, "terminal")


@pytest.mark.parametrize(
    ("steps_ns", "shown", "spread"),
    [
        ((30, 10, 20), 3, "100.0 %"),  # (30 - 10) / 20
        ((40, 10, 30, 20), 4, "150.0 %"),  # of 10 20 30 40 the lower of 20 and 30: (40 - 10) / 20
        ((20, 10), 2, "100.0 %"),
        ((None, 10, 20), 2, "–"),  # the one without steps is no median, and its difference is not known
        ((None, None), 1, "–"),
        ((0, 0), 1, "0.0 %"),
        ((0, 10), 1, "–"),  # relative to nothing
    ],
)
def test_the_median_is_the_lower_of_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], steps_ns: tuple[int | None, ...], shown: int, spread: str
) -> None:
    assert repeated(tmp_path, Analysis(*steps_ns), [0] * len(steps_ns)) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"terminal of {tmp_path}/runs/{shown}/trace.sqlite\n\n")
    assert f"capture {shown} is shown" in out
    (row,) = [line for line in out.splitlines() if line.startswith("spread")]
    assert re.split(r"\s{2,}", row) == ["spread", spread, "–", "–"]


def test_an_analysis_that_fails_names_the_capture(tmp_path: Path) -> None:
    said = (
        "^capture 3 of 3 failed: no kernels. The program ended with exit code 9. "
        f"The capture is kept in {tmp_path}/runs/3; captures 1 to 2 are kept in {tmp_path}/runs$"
    )
    with pytest.raises(TracelabError, match=said) as caught:
        repeated(tmp_path, Analysis(10, 20, InputError("no kernels.")), codes=(0, 7, 9))
    assert caught.value.exit_code == 7  # the program's, of the captures that were kept
    assert (tmp_path / "runs/2/page.txt").exists()


def test_ctrl_c_between_captures_keeps_what_there_is(tmp_path: Path) -> None:
    said = f"^stopped by Ctrl-C after 2 of 3 captures; what was captured is kept in {tmp_path}/runs$"
    with pytest.raises(TracelabError, match=said):
        repeated(tmp_path, Analysis(10, KeyboardInterrupt()))
    assert [(tmp_path / f"runs/{k}").exists() for k in (1, 2, 3)] == [True, True, False]


def test_a_capture_that_was_stopped_is_the_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert repeated(tmp_path, Analysis(10, 20), codes=(0, 130, 0), interrupted=1) == 130
    out, err = capsys.readouterr()
    assert "2 of 3 captures, medians of a step; capture 1 is shown" in out and "uses all 2 captures." in out
    assert err == "tracelab: capture 2 of 3: the program ended with SIGINT (exit code 130); stopped from outside\n"
    assert not (tmp_path / "runs/3").exists()


def test_a_single_capture_is_not_called_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert repeated(tmp_path, Analysis(10), codes=(130, 0), interrupted=0) == 130
    out = capsys.readouterr().out
    assert "1 of 2 captures, medians" in out and "OTHER_FOLDER` uses this capture." in out
