"""The command `tracelab profile`: its command line, what it keeps and prints, and the code it ends with."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from fake_nsys import make_export, make_nsys
from typer.testing import CliRunner, Result

from tracelab.capture import gpu
from tracelab.capture.folder import make_run_folder
from tracelab.capture.run import Capture
from tracelab.capture.session import Request, Session
from tracelab.commands import profile
from tracelab.commands.shared import with_parameters
from tracelab.errors import InputError, TracelabError, UsageError
from tracelab.registry import leaves
from tracelab.report import CaptureFacts, DeviceReport, Report, StepsFacts, TraceFacts

WORKLOAD = "llama8b"
assert WORKLOAD in leaves("kernels")


def invoke(run: Callable[..., None], words: Sequence[str]) -> Result:
    """Call `run` as the command line does."""
    app = typer.Typer()
    command = with_parameters(run, profile.PARAMETERS, profile.HELP)
    app.command(cls=profile.ProfileCommand, context_settings={"allow_extra_args": True})(command)
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def parse(*words: str) -> tuple[Request, str | None]:
    """What a command line asks for, and the analysis option --steps, which a workload has as well."""
    seen: list[tuple[Request, str | None]] = []

    def run(ctx: typer.Context, **values: Any) -> None:
        seen.append((profile.request_from(ctx, values), values["steps"]))

    result = invoke(run, words)
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
    "words", [["--layers", "0"], ["--starve", "nonsense"], ["--fail", "ffn@99"], ["--graph", "--fail", "ffn@1"]]
)
def test_options_that_make_no_sense_are_a_usage_error_on_any_machine(words: list[str]) -> None:
    with pytest.raises(UsageError, match=words[-2] if len(words) == 2 else "--fail"):
        parse("llama8b", *words)


@pytest.mark.parametrize("words", [["--heads", "0"], ["--batch", "0", "--graph"], ["--steps", "0"]])
def test_zeros_of_a_kernel_are_a_usage_error_on_any_machine(words: list[str]) -> None:
    with pytest.raises(UsageError, match=f"mla: {words[0]} must be 1 or more"):
        parse("mla", *words)
    assert parse("mla", "--gate", "0")[0].arguments == ("--gate", "0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), f"Give a workload .*{WORKLOAD}.*, or a command after `--`"),
        (("nope",), f"There is no workload 'nope'; there is .*{WORKLOAD}"),
        (("python", "x.py"), "There is no workload 'python'; .* A command goes after `--`"),
        ((WORKLOAD, "more"), "'more' is no option of `tracelab profile` or of the workload"),
        ((WORKLOAD, "--", "true"), "not both"),
    ],
)
def test_command_lines_that_make_no_sense(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(*words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--delay", "0"), "--delay must be more than 0"),
        (("--duration=-1",), "--duration must be more than 0"),
        (("--graph-trace", "kernel"), "--graph-trace 'kernel' is none of node, graph"),
        (("--capture-range", "--duration", "2"), "--capture-range excludes"),
    ],
)
def test_capture_options_that_make_no_sense(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(*words, "--", "true")


@pytest.mark.parametrize("words", [("--format", "pdf"), ("--window", "5:5:5"), ("--dtype", "int3"), ("--phases", "x")])
def test_wrong_analysis_options_do_not_cost_a_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        invoke(profile.run, [*words, "-o", str(tmp_path / "out"), "--", "true"])
    assert not (tmp_path / "out").exists()


def test_capture_analysis_and_exit_code_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "has_gpu", lambda: True)
    monkeypatch.setattr(profile, "build_report", analyse)
    nsys = make_nsys(tmp_path / "nsys", export=make_export(tmp_path / "export"))
    words = [
        "--nsys",
        str(nsys),
        "--format",
        "json",
        "-o",
        str(tmp_path / "out"),
        "--",
        sys.executable,
        "-c",
        "exit(3)",
    ]
    result = invoke(profile.run, words)
    assert result.exit_code == 3
    printed = json.loads(result.stdout)
    assert printed["capture"] == {"program_exit_code": 3, "nsys": str(nsys), "nsys_version": "2025.3.2.367"}
    kept = json.loads((tmp_path / "out/analysis.json").read_text())
    assert kept == printed | {
        "trace": printed["trace"] | {"path": "trace.sqlite"},
        "capture": printed["capture"] | {"nsys": "nsys"},
    }  # no folder of this machine
    assert str(tmp_path) not in (tmp_path / "out/page.txt").read_text()
    assert "private/ holds" in " ".join((tmp_path / "out/page.txt").read_text().split())


def captured(tmp_path: Path, code: int, notes: tuple[str, ...] = ()) -> Session:
    folder = make_run_folder("x", tmp_path / "out")
    done = Capture(folder.trace, folder.trace, code, Path("/n/nsys"), "2025.3.2", ("nsys",), 1.0, False, notes)
    return Session(folder.trace, folder, done, None)


def analyse(trace: Path, *, capture: CaptureFacts | None, recording: str | None, **_: object) -> Report:
    facts = TraceFacts(str(trace), "nsys", None, 3, 9, recording, None, (), ())
    return Report(facts, capture, DeviceReport(0, StepsFacts("none", "", 0, 0, (), (), ()), {}, ()))


def render(report: Report, format_name: str, target: Path | None) -> str:
    text = f"{format_name} of {report.trace.kernels} kernels, {report.capture}, {report.trace.recording}"
    return text + "\n" if target is None else text


def test_page_and_json_are_kept_and_the_programs_code_is_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = captured(tmp_path, 137, ("tracelab ended the program with SIGKILL",))
    assert profile.finish(session, analyse, render, "terminal") == 137
    out, err = capsys.readouterr()
    facts = CaptureFacts(137, "/n/nsys", "2025.3.2")
    assert session.folder is not None
    assert out == f"terminal of 3 kernels, {facts}, None\n\n{session.folder.note}\n"
    page = session.folder.page.read_text()
    assert page == f"terminal of 3 kernels, {replace(facts, nsys='nsys')}, None\n\n{session.folder.contents}\n"
    assert session.folder.analysis.read_text().startswith("json of 3 kernels")
    assert err == (
        "tracelab: the program ended with SIGKILL (exit code 137); tracelab ended the program with SIGKILL\n"
    )


def test_json_on_stdout_is_nothing_but_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = captured(tmp_path, 0)
    assert profile.finish(session, analyse, render, "json") == 0
    out, err = capsys.readouterr()
    assert out.startswith("json of 3 kernels") and "Kept in" not in out and err == ""


def test_a_replay_has_no_program_and_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert profile.finish(Session(Path("r.sqlite"), None, None, "r.sqlite"), analyse, render, "terminal") == 0
    assert capsys.readouterr().out == "terminal of 3 kernels, None, r.sqlite\n"


def test_an_analysis_that_fails_names_the_kept_capture(tmp_path: Path) -> None:
    def failing(trace: Path, *, capture: CaptureFacts | None, recording: str | None) -> Report:
        raise InputError(f"{trace.name} holds no kernels for {capture and capture.nsys_version} {recording}")

    with pytest.raises(
        InputError,
        match=r"trace\.sqlite holds no kernels .* The program ended with SIGKILL .* The capture is kept in .*out\.",
    ):
        profile.finish(captured(tmp_path, 137), failing, render, "terminal")
    with pytest.raises(TracelabError, match=r"None r$"):
        profile.finish(Session(Path("r.sqlite"), None, None, "r"), failing, render, "terminal")
