"""Running a program under nsys: what is kept, how everything ends, and one sentence for each way it can fail."""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_nsys import alive, calls, make_export, make_nsys

from tracelab.capture import processes, run
from tracelab.capture.chatter import Chatter
from tracelab.capture.command import CaptureOptions
from tracelab.capture.nsys import find_nsys
from tracelab.capture.outcome import NothingCapturedError, describe_exit
from tracelab.capture.progress import Progress
from tracelab.capture.run import Capture, capture
from tracelab.errors import CaptureUnavailableError, InputError, TracelabError, UsageError

STUBBORN = """
import os, signal, sys, time
for number in {ignored}:
    signal.signal(number, signal.SIG_IGN)
open({pid!r}, "w").write(str(os.getpid()))
try:
    time.sleep(30)
except KeyboardInterrupt:
    print("stopping"); sys.exit(7)
"""


@dataclass
class Bench:
    """Captures with a fake nsys in a folder of the test."""

    tmp_path: Path

    def run(
        self,
        *command: str,
        options: CaptureOptions | None = None,
        faults: tuple[str, ...] = (),
        importer: str | None = "host-linux-x64",
    ) -> Capture:
        self.nsys = make_nsys(
            self.tmp_path / "nsys", faults=faults, importer=importer, export=make_export(self.tmp_path / "export")
        )
        self.folder.mkdir()
        nsys = find_nsys(str(self.nsys))
        return capture(nsys, command or python("pass"), options or CaptureOptions(), self.folder, Progress())

    def stubborn(self, *ignored: int) -> tuple[str, ...]:
        """A program that does not end by itself."""
        return python(STUBBORN.format(ignored=[int(number) for number in ignored], pid=str(self.pid_file)))

    @property
    def folder(self) -> Path:
        return self.tmp_path / "private"

    @property
    def pid_file(self) -> Path:
        return self.tmp_path / "pid"

    @property
    def pid(self) -> int:
        return int(self.pid_file.read_text())

    def interrupt(self, times: int = 1) -> threading.Thread:
        """Press Ctrl-C once the program runs."""

        def press() -> None:
            while not (self.pid_file.exists() and self.pid_file.read_text()):
                time.sleep(0.02)
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.4)

        thread = threading.Thread(target=press)
        thread.start()
        return thread


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(processes, "GRACE_S", dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGKILL), 0.5))
    monkeypatch.setattr(run, "_AFTER_REPORT_S", 0.2)
    return Bench(tmp_path)


def python(source: str) -> tuple[str, ...]:
    return (sys.executable, "-c", source)


def test_a_capture_keeps_report_export_and_log(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    done = bench.run(*python("import sys; print('token 1', flush=True); sys.stderr.write('warming up'); sys.exit(3)"))
    assert (done.program_exit_code, done.interrupted, done.notes) == (3, False, ())
    assert (done.report, done.sqlite) == (bench.folder / "trace.nsys-rep", bench.folder / "export.sqlite")
    assert (done.nsys, done.nsys_version) == (bench.nsys, "2025.3.2.367")
    assert done.command_line[:2] == (str(bench.nsys), "profile")
    out, err = capfd.readouterr()
    assert out == ""  # stdout belongs to the page
    assert err == "token 1\nwarming up"
    log = (bench.folder / "nsys.log").read_text()
    assert "Generating" in log and "[====100%]" in log and "token" not in log


def test_export_is_a_step_of_its_own(bench: Bench) -> None:
    bench.run()
    export = [call for call in calls(bench.nsys) if call[0] == "export"]
    target, report = str(bench.folder / "export.sqlite"), str(bench.folder / "trace.nsys-rep")
    assert export == [["export", "-t", "sqlite", "-f", "true", "-o", target, report]]


def test_a_report_that_went_elsewhere_is_fetched(bench: Bench) -> None:
    done = bench.run(faults=("elsewhere",))
    assert done.report == bench.folder / "trace.nsys-rep" and done.report.read_text() == "report"
    assert list((bench.tmp_path / "tmp").glob("*.nsys-rep")) == []


def test_a_stream_is_imported_by_hand(bench: Bench) -> None:
    done = bench.run(faults=("stream_only",), importer="linux-desktop-glibc_2_11_3-x64")
    assert done.report.read_text() == "report"
    assert not (bench.folder / "trace.qdstrm").exists()


@pytest.mark.parametrize(("failures", "succeeds"), [(1, True), (2, False)])
def test_wrong_event_order_is_retried_once(bench: Bench, failures: int, succeeds: bool) -> None:
    folder = bench.tmp_path / "nsys" / "linux-desktop-x"
    nsys_folder = make_nsys(bench.tmp_path / "nsys", faults=("stream_only",), importer="linux-desktop-x")
    settings = json.loads((nsys_folder.parent / "settings.json").read_text())
    settings["export"] = str(make_export(bench.tmp_path / "export"))
    (nsys_folder.parent / "settings.json").write_text(json.dumps(settings))
    (folder / "failures").write_text(str(failures))
    bench.folder.mkdir()
    arguments = (find_nsys(str(nsys_folder)), python("pass"), CaptureOptions(), bench.folder, Progress())
    if succeeds:
        assert capture(*arguments).report.read_text() == "report"
    else:
        with pytest.raises(TracelabError, match=r"its importer failed: Wrong event order .* is kept"):
            capture(*arguments)
        assert (bench.folder / "trace.qdstrm").exists()


def test_a_stream_without_any_importer(bench: Bench) -> None:
    with pytest.raises(CaptureUnavailableError, match="can collect but not make a report"):
        bench.run(faults=("no_importer",), importer=None)


@pytest.mark.parametrize(
    ("source", "options", "faults", "message"),
    [
        ("import sys; sys.exit(4)", CaptureOptions(), ("nothing",), "ended with exit code 4 before nsys could collect"),
        (
            "import os; os.kill(os.getpid(), 9)",
            CaptureOptions(capture_range=True),
            ("range_not_hit",),
            r"ended with SIGKILL \(exit code 137\) before it called cudaProfilerStart",
        ),
        ("pass", CaptureOptions(capture_range=True), ("range_not_hit",), "ended without opening the capture range"),
        ("pass", CaptureOptions(delay_s=60), ("nothing",), "ended before the delay of 60 s was over"),
        ("pass", CaptureOptions(), ("nothing",), "made no report and named no reason"),
        ("pass", CaptureOptions(), ("disk_full",), "the disk is full"),
    ],
)
def test_nothing_captured_has_a_reason(
    bench: Bench, source: str, options: CaptureOptions, faults: tuple[str, ...], message: str
) -> None:
    with pytest.raises(NothingCapturedError, match=message) as caught:
        bench.run(*python(source), options=options, faults=faults)
    assert caught.value.exit_code == 1


def test_program_that_does_not_exist(bench: Bench) -> None:
    with pytest.raises(UsageError, match="the program to profile was not found: no-such-program"):
        bench.run("no-such-program")
    assert [call for call in calls(bench.nsys) if call[0] == "profile" and "--help" not in call] == []


def test_an_option_that_nsys_refuses(bench: Bench) -> None:
    with pytest.raises(UsageError, match="did not run the program: unrecognised option '--foo'"):
        bench.run(options=CaptureOptions(nsys_args=("--foo",)))


@pytest.mark.parametrize(
    ("fault", "message"),
    [("too_old", "was written by a newer nsys than the one found here"), ("export_fails", "something broke")],
)
def test_export_that_fails_leaves_no_half_export(bench: Bench, fault: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bench.run(faults=(fault,))
    assert sorted(path.name for path in bench.folder.iterdir()) == ["nsys.log", "trace.nsys-rep"]


@pytest.mark.parametrize(
    ("ignored", "faults", "code", "note"),
    [
        ((), ("leaves_program",), 130, "SIGINT"),
        ((), (), 7, "SIGINT"),
        ((signal.SIGINT,), ("leaves_program",), 143, "SIGTERM"),
        ((signal.SIGINT, signal.SIGTERM), ("leaves_program",), 137, "SIGKILL"),
    ],
)
def test_after_the_duration_the_program_is_ended_and_the_capture_kept(
    bench: Bench, ignored: tuple[int, ...], faults: tuple[str, ...], code: int, note: str
) -> None:
    done = bench.run(*bench.stubborn(*ignored), options=CaptureOptions(duration_s=0.6), faults=faults)
    assert done.report.exists() and not done.interrupted
    assert (done.program_exit_code, done.notes) == (code, (f"tracelab ended the program with {note}",))
    assert not alive(bench.pid)


def test_exit_code_that_nsys_left_behind(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """nsys 2022.4 ends before the program, whose own code its launcher writes to a file."""
    monkeypatch.setattr("tempfile.tempdir", None)
    source = (
        "import os; open(os.environ['TMPDIR'] + f'/nsys_termination_status_{os.getpid()}', 'w').write('0\\n7\\n')\n"
    )
    command = python(source + STUBBORN.format(ignored=[], pid=str(bench.pid_file)))
    done = bench.run(*command, options=CaptureOptions(duration_s=0.6), faults=("leaves_program",))
    assert done.program_exit_code == 7
    assert list((bench.tmp_path / "tmp").iterdir()) == []


def test_children_of_the_program_are_ended_too(bench: Bench) -> None:
    worker = STUBBORN.format(ignored=[int(signal.SIGINT)], pid=str(bench.pid_file))
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}], start_new_session=True)"
    bench.run(*python(parent), options=CaptureOptions(duration_s=0.8), faults=("leaves_program",))
    assert not alive(bench.pid)


def test_ctrl_c_keeps_what_was_captured_and_ends_everything(bench: Bench) -> None:
    presser = bench.interrupt()
    done = bench.run(*bench.stubborn())
    presser.join()
    assert done.interrupted and done.report.exists()
    assert done.notes[0] == "stopped from outside; what was captured until then is kept"
    assert not alive(bench.pid)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_ends_a_program_that_ignores_it(bench: Bench) -> None:
    presser = bench.interrupt()
    done = bench.run(*bench.stubborn(signal.SIGINT), faults=("ignores_program", "leaves_program"))
    presser.join()
    assert done.interrupted and done.report.exists()
    assert not alive(bench.pid)


def test_a_second_ctrl_c_ends_everything_at_once(bench: Bench) -> None:
    presser = bench.interrupt(times=2)
    done = bench.run(*bench.stubborn(signal.SIGINT, signal.SIGTERM))
    presser.join()
    assert done.interrupted and done.program_exit_code != 0
    assert not alive(bench.pid)


def test_ctrl_c_before_anything_was_captured(bench: Bench) -> None:
    presser = bench.interrupt()
    with pytest.raises(NothingCapturedError, match="stopped before anything was captured"):
        bench.run(*bench.stubborn(), faults=("range_not_hit",), options=CaptureOptions(capture_range=True))
    presser.join()
    assert not alive(bench.pid)


def test_output_of_nsys_and_program_on_one_line_is_told_apart() -> None:
    log: list[bytes] = []
    shown: list[bytes] = []
    chatter = Chatter(log.append, shown.append)
    chatter.feed(b"[1/1] [0%                          ] d1.nsys-reptick 3 553.8\n[1/1] [==24%   ] d1.nsys-rep\r")
    chatter.feed(b"\nGenerated:\n    /tmp/a b/d1.nsys-rep\nload 50%")
    chatter.flush()
    chatter.feed(b"\rload 100%\n    indented line of the program\n")
    assert b"".join(shown) == b"tick 3 553.8\nload 50%\rload 100%\n    indented line of the program\n"
    assert chatter.generated and chatter.produced == [Path("/tmp/a b/d1.nsys-rep")]
    assert len(log) == 4


@pytest.mark.parametrize(
    ("code", "text"), [(0, "exit code 0"), (137, "SIGKILL (exit code 137)"), (255, "exit code 255")]
)
def test_exit_codes_in_words(code: int, text: str) -> None:
    assert describe_exit(code) == text
