"""The command `tracelab profile`: its command line, what it keeps and prints, and the code it ends with."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tracelab.capture.folder import make_run_folder
from tracelab.capture.run import Capture
from tracelab.capture.session import Request, Session
from tracelab.commands.profile import (
    NsysArgOption,
    OutputOption,
    ProfileCommand,
    WorkloadArgument,
    capture_options,
    finish,
    request_from,
)
from tracelab.errors import InputError, TracelabError, UsageError
from tracelab.registry import leaves
from tracelab.report import CaptureFacts, DeviceReport, Report, StepsFacts, TraceFacts

WORKLOAD = next(iter(leaves("kernels")))


def parse(*words: str) -> tuple[Request, str | None]:
    """What a command line asks for, and the analysis option --steps that `profile` has as well as the workload."""
    seen: list[tuple[Request, str | None]] = []
    app = typer.Typer()

    @app.command(cls=ProfileCommand, context_settings={"allow_extra_args": True})
    def profile(
        ctx: typer.Context,
        workload: WorkloadArgument = None,
        output: OutputOption = None,
        nsys_arg: NsysArgOption = None,
        steps: str | None = None,
    ) -> None:
        options = capture_options(False, None, None, nsys_arg or (), "node")
        settings: dict[str, Any] = {"nsys": None, "keep_environment": False, "replay": True}
        seen.append((request_from(ctx, workload, options=options, output=output, **settings), steps))

    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert seen, result.output
    return seen[0]


def test_everything_after_the_dashes_is_the_program() -> None:
    request, steps = parse("--steps", "decode", "--", "python", "x.py", "--steps", "3", "--", "-o", "y")
    assert request.command == ("python", "x.py", "--steps", "3", "--", "-o", "y")
    assert (request.workload, request.name, request.output, steps) == (None, "python", None, "decode")


def test_options_after_a_workload_are_its_own_where_it_knows_them() -> None:
    request, steps = parse("--steps", "step", WORKLOAD, "--steps", "7", "--graph", "-o", "out", "--nsys-arg=--x=1")
    assert request.workload is not None and request.workload.name == WORKLOAD
    assert request.workload.module == f"tracelab.kernels.{WORKLOAD}"
    assert request.arguments == ("--steps", "7", "--graph")
    assert (request.output, steps, request.options.nsys_args) == (Path("out"), "step", ("--x=1",))


def test_a_value_that_reads_like_a_workload_is_none() -> None:
    request, _ = parse("-o", WORKLOAD, WORKLOAD, "--batch", "2")
    assert (request.output, request.arguments) == (Path(WORKLOAD), ("--batch", "2"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), f"give a workload .*{WORKLOAD}.*, or a command after `--`"),
        (("nope",), f"there is no workload nope; there is .*{WORKLOAD}"),
        (("python", "x.py"), "there is no workload python; .* a command goes after `--`"),
        ((WORKLOAD, "more"), "more is no option of tracelab profile or of the workload"),
        ((WORKLOAD, "--", "true"), "not both"),
    ],
)
def test_command_lines_that_make_no_sense(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(*words)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((False, 0.0, None, (), "node"), "--delay must be more than 0"),
        ((False, None, -1.0, (), "node"), "--duration must be more than 0"),
        ((False, None, None, (), "kernel"), "--graph-trace is one of node, graph, not kernel"),
        ((True, None, 2.0, (), "node"), "--capture-range cannot be combined"),
    ],
)
def test_capture_options_that_make_no_sense(options: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        capture_options(*options)


def captured(tmp_path: Path, code: int, notes: tuple[str, ...] = ()) -> Session:
    folder = make_run_folder("x", tmp_path / "out")
    done = Capture(folder.trace, folder.trace, code, Path("/n/nsys"), "2025.3.2", ("nsys",), 1.0, False, notes)
    return Session(folder.trace, folder, done, None)


def analyse(sqlite: Path, *, capture: CaptureFacts | None, recording: str | None) -> Report:
    trace = TraceFacts(str(sqlite), "nsys", None, 3, 9, recording, None, (), ())
    return Report(trace, capture, DeviceReport(0, StepsFacts("none", "", 0, 0, (), (), ()), {}, ()))


def render(report: Report, format_name: str) -> str:
    return f"{format_name} of {report.trace.kernels} kernels, {report.capture}, {report.trace.recording}"


def test_page_and_json_are_kept_and_the_programs_code_is_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = captured(tmp_path, 137, ("tracelab ended the program with SIGKILL",))
    assert finish(session, analyse, render, "terminal") == 137
    out, err = capsys.readouterr()
    facts = CaptureFacts(137, "/n/nsys", "2025.3.2")
    assert session.folder is not None
    assert out == f"terminal of 3 kernels, {facts}, None\n\n{session.folder.note}\n"
    assert session.folder.page.read_text() == out
    assert session.folder.analysis.read_text().startswith("json of 3 kernels")
    assert err == (
        "tracelab: the program ended with SIGKILL (exit code 137); tracelab ended the program with SIGKILL\n"
    )


def test_json_on_stdout_is_nothing_but_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = captured(tmp_path, 0)
    assert finish(session, analyse, render, "json") == 0
    assert capsys.readouterr() == (session.folder and session.folder.analysis.read_text() + "\n", "")


def test_a_replay_has_no_program_and_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert finish(Session(Path("r.sqlite"), None, None, "r.sqlite"), analyse, render, "terminal") == 0
    assert capsys.readouterr().out == "terminal of 3 kernels, None, r.sqlite\n"


def test_an_analysis_that_fails_names_the_kept_capture(tmp_path: Path) -> None:
    def failing(sqlite: Path, *, capture: CaptureFacts | None, recording: str | None) -> Report:
        raise InputError(f"{sqlite.name} holds no kernels for {capture and capture.nsys_version} {recording}")

    with pytest.raises(InputError, match=r"trace\.sqlite holds no kernels .*\(the capture is kept in .*out\)"):
        finish(captured(tmp_path, 0), failing, render, "terminal")
    with pytest.raises(TracelabError, match=r"None r$"):
        finish(Session(Path("r.sqlite"), None, None, "r"), failing, render, "terminal")
