"""From the command line to a run folder: capture, replay, or one sentence."""

import io
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections import namedtuple
from contextlib import closing
from pathlib import Path

import pytest
from fake_nsys import TOKEN, calls, make_export, make_nsys, without_nsys

from tracelab.capture import gpu
from tracelab.capture import nsys as nsys_module
from tracelab.capture.command import CaptureOptions
from tracelab.capture.folder import make_run_folder, write_command
from tracelab.capture.progress import Progress
from tracelab.capture.session import Request, Session, Workload, profile_session
from tracelab.errors import CaptureUnavailableError, InputError, TracelabError, UsageError

SOURCE = 'DEFAULTS: dict[str, object] = {"batch": 1, "ctx": 1024, "graph": False}\nimport no_such_module\n'
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU, without an nsys of its own."""
    monkeypatch.setattr(gpu, "has_gpu", lambda: True)
    monkeypatch.setattr(nsys_module, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", without_nsys(os.environ["PATH"]))
    monkeypatch.delenv("TRACELAB_NSYS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    source = tmp_path / "toy.py"
    source.write_text(SOURCE)
    return Workload("toy", "json.tool", source)  # a module of the standard library that runs without torch


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    folder = tmp_path / "samples"
    folder.mkdir()
    for name in ("eager", "graph"):
        make_export(folder / f"{name}.sqlite")
    entries = [
        {
            "file": "eager.sqlite",
            "title": "eager",
            "workload": "toy",
            "options": {"--batch": "1", "--ctx": "1024", "--graph": False},
        },
        {
            "file": "graph.sqlite",
            "title": "graph",
            "workload": "toy",
            "options": {"batch": 1, "ctx": 1024, "graph": True},
        },
        {"file": "failed.sqlite", "title": "failed"},
    ]
    (folder / "manifest.json").write_text(json.dumps({"recordings": entries}))
    return folder


def fake(tmp_path: Path, faults: tuple[str, ...] = ()) -> Path:
    return make_nsys(tmp_path / "nsys", export=make_export(tmp_path / "export"), faults=faults)


def session(request: Request, samples: Path = Path("none")) -> Session:
    return profile_session(request, samples, Progress())


def test_a_run_folder_keeps_what_may_be_shared_apart(tmp_path: Path) -> None:
    nsys = fake(tmp_path)
    command = (sys.executable, "-c", "print(1)")
    done = session(Request(command=command, nsys=str(nsys), output=tmp_path / "out"))
    assert done.folder is not None and done.capture is not None and done.recording is None
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["private", "trace.sqlite"]
    assert TOKEN.encode() not in done.trace.read_bytes()
    private = {path.name: path.stat().st_mode & 0o777 for path in done.folder.private.iterdir()}
    assert private == dict.fromkeys(["command.txt", "export.sqlite", "nsys.log", "trace.nsys-rep"], 0o600)
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in (done.folder.path, done.folder.private))
    written = (done.folder.private / "command.txt").read_text()
    assert written.startswith(f"{nsys} profile ") and written.endswith("-c 'print(1)'\n")
    assert "private/ holds" in done.folder.note and "may be shared" in done.folder.note


def test_the_environment_is_kept_on_request(tmp_path: Path) -> None:
    nsys = fake(tmp_path)
    done = session(Request(command=("true",), nsys=str(nsys), output=tmp_path / "out", keep_environment=True))
    assert TOKEN.encode() in done.trace.read_bytes()
    assert done.folder is not None and "do not share" in done.folder.note


def test_a_workload_runs_as_a_module_within_the_capture_range(tmp_path: Path, workload: Workload) -> None:
    nsys = fake(tmp_path, faults=("nothing",))
    with pytest.raises(UsageError, match="toy did not run; its own message stands above"):
        session(Request(workload=workload, arguments=("--batch", "4"), nsys=str(nsys)))
    profile = next(call for call in calls(nsys) if call[0] == "profile" and "-o" in call)
    assert "--capture-range=cudaProfilerApi" in profile
    assert profile[-5:] == [sys.executable, "-m", "json.tool", "--batch", "4"]


@pytest.mark.parametrize(("program", "said"), [("true", "its log is"), ("false", "what nsys said is in")])
def test_a_run_that_failed_without_a_clear_reason_keeps_the_log_and_names_it(
    tmp_path: Path, program: str, said: str
) -> None:
    log = tmp_path / "out/private/nsys.log"
    with pytest.raises(TracelabError, match=f"{said} {log}$"):
        session(Request(command=(program,), nsys=str(fake(tmp_path, faults=("nothing",))), output=tmp_path / "out"))
    assert [path.name for path in log.parent.iterdir()] == ["nsys.log"]


@pytest.mark.parametrize(
    ("options", "fault", "said"),
    [
        (CaptureOptions(capture_range=True), "nothing", "ended without opening the capture range"),
        (CaptureOptions(nsys_args=("--foo",)), "nothing", "unrecognised option '--foo'"),
        (CaptureOptions(), "disk_full", "the disk is full"),
    ],
)
def test_a_run_that_failed_for_a_clear_reason_leaves_nothing(
    tmp_path: Path, options: CaptureOptions, fault: str, said: str
) -> None:
    nsys = str(fake(tmp_path, faults=(fault,)))
    with pytest.raises(TracelabError, match=said):
        session(Request(command=("true",), nsys=nsys, output=tmp_path / "out", options=options))
    assert not (tmp_path / "out").exists()


def test_a_report_that_cannot_be_exported_is_kept_and_named(tmp_path: Path) -> None:
    nsys = str(fake(tmp_path, faults=("export_fails",)))
    with pytest.raises(InputError, match=f"something broke; what was captured is kept in {tmp_path}/out/private"):
        session(Request(command=("true",), nsys=nsys, output=tmp_path / "out"))
    assert (tmp_path / "out/private/trace.nsys-rep").exists()


def test_an_export_that_cannot_be_scrubbed_stays_private(tmp_path: Path) -> None:
    nsys = make_nsys(tmp_path / "nsys", export=tmp_path / "empty.sqlite")
    (tmp_path / "empty.sqlite").write_bytes(b"")
    with pytest.raises(InputError, match=r"no nsys export.*; the capture is kept in .*private, not to be shared"):
        session(Request(command=("true",), nsys=str(nsys), output=tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["private"]


def test_ctrl_c_during_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("not reached")

    monkeypatch.setattr("tracelab.capture.run.export_sqlite", interrupted)
    with pytest.raises(TracelabError, match="stopped by Ctrl-C; what was captured is kept in"):
        session(Request(command=("true",), nsys=str(fake(tmp_path)), output=tmp_path / "out"))
    assert (tmp_path / "out/private/trace.nsys-rep").exists()


def test_no_gpu_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    with pytest.raises(CaptureUnavailableError, match="this machine has no NVIDIA GPU, so nothing can be captured"):
        session(Request(command=("true",)))


def test_a_gpu_without_nsys_is_an_error_never_a_replay(workload: Workload, samples: Path) -> None:
    with pytest.raises(CaptureUnavailableError, match="no nsys was found"):
        session(Request(workload=workload), samples)


def test_unknown_programs_and_options_come_first(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    with pytest.raises(UsageError, match="was not found: no-such"):
        session(Request(command=("no-such",)))
    with pytest.raises(UsageError, match="the option --ctx takes a whole number that is not negative, not 'abc'"):
        session(Request(workload=workload, arguments=("--ctx", "abc")))
    with pytest.raises(UsageError, match="toy has no option --bacth; it has --batch --ctx --graph"):
        session(Request(workload=workload, arguments=("--bacth", "2")))


@pytest.mark.parametrize(
    ("arguments", "file"),
    [((), "eager.sqlite"), (("--batch=1",), "eager.sqlite"), (("--graph", "--ctx", "01024"), "graph.sqlite")],
)
def test_replay_of_the_matching_recording(
    workload: Workload, samples: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], file: str
) -> None:
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    done = session(Request(workload=workload, arguments=arguments), samples)
    assert (done.trace, done.recording, done.capture, done.folder) == (
        samples / file,
        file.removesuffix(".sqlite"),
        None,
        None,
    )


def test_replay_with_a_folder(
    workload: Workload, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    done = session(Request(workload=workload, output=tmp_path / "out"), samples)
    assert done.folder is not None and [path.name for path in done.folder.path.iterdir()] == ["trace.sqlite"]


def test_replay_of_options_that_were_not_recorded(
    workload: Workload, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    wanted = "there are recordings of: tracelab profile toy, tracelab profile toy .*--graph"
    with pytest.raises(CaptureUnavailableError, match=wanted):
        session(Request(workload=workload, arguments=("--batch", "64")), samples)


def test_no_replay(workload: Workload, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    with pytest.raises(CaptureUnavailableError, match="nothing can be captured here"):
        session(Request(workload=workload, replay=False), samples)


def test_a_folder_that_is_not_empty_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").write_text("")
    for path in (tmp_path / "out", tmp_path / "out/old"):
        with pytest.raises(UsageError, match="exists already"):
            make_run_folder("x", path)


def test_default_folders_do_not_collide(tmp_path: Path) -> None:
    first, second = make_run_folder("/usr/bin/python 3", None), make_run_folder("python-3", None)
    assert first.path != second.path and first.path.name.startswith("python-3-")
    assert first.path.resolve().parent == tmp_path / "tracelab-runs"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TracelabError, match="cannot be written: Not a directory; name another with -o"):
        make_run_folder("x", tmp_path / "file/out")


def test_a_full_disk_is_noticed_before_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys = fake(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 10**6))
    with pytest.raises(TracelabError, match="is full: 1 MB free, a capture needs 200 MB"):
        session(Request(command=("true",), nsys=str(nsys), output=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert [call for call in calls(nsys) if call[0] == "profile"] == []


def test_command_line_is_quoted_and_private(tmp_path: Path) -> None:
    folder = make_run_folder("x", tmp_path / "out")
    write_command(folder, ["a b", "$HOME"])
    target = folder.private / "command.txt"
    assert target.read_text() == "'a b' '$HOME'\n" and target.stat().st_mode & 0o777 == 0o600


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_only_on_a_terminal() -> None:
    for stream, expected in ((io.StringIO(), "token\n"), (Terminal(), "\r\x1b[2Kcapturing… 0 s\r\x1b[2Ktoken\n")):
        progress = Progress(stream)
        progress.stage("capturing")
        progress.show(b"token\n")
        progress.done()
        assert stream.getvalue() == expected


def test_the_exported_trace_is_a_database(tmp_path: Path) -> None:
    options = CaptureOptions(graph_mode="graph")
    done = session(Request(command=("true",), nsys=str(fake(tmp_path)), output=tmp_path / "out", options=options))
    with closing(sqlite3.connect(done.trace)) as database:
        assert database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone() == (3,)
