"""The command line as scripts meet it: exit codes, one sentence on stderr, plain output in a pipe."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from called import called
from tiny_programs import eager

from tracelab import load
from tracelab.__main__ import main
from tracelab.registry import leaves

ROOT = Path(__file__).parents[1]
ANALYZERS = sorted(leaves("analyzers"))


def tracelab(*arguments: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    kept = {k: v for k, v in os.environ.items() if k != "TRACELAB_DEBUG"}
    environment = {**kept, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "tracelab", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_report_as_json(tmp_path: Path) -> None:
    path = eager().save(tmp_path)
    done = tracelab("report", path, "--format", "json", "--skip-steps", "0", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert said["schema"] == "tracelab.report/1"
    assert list(said["results"]) == ANALYZERS
    assert said["results"]["gaps"]["metrics"]["busy_ns"]["value"] == 290
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_page_in_a_pipe_has_no_colour(tmp_path: Path) -> None:
    done = tracelab("report", eager().save(tmp_path), cwd=tmp_path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "attention" in done.stdout


def test_help_lists_the_analyzers_and_one_shows_its_own_flag(tmp_path: Path) -> None:
    done = tracelab("--help", cwd=tmp_path)
    assert done.returncode == 0
    for name in ANALYZERS:
        assert name in done.stdout
    assert "--inclusive" not in done.stdout
    assert "--inclusive" in tracelab("phases", "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("name", ["mistyped.sqlite", "notes.txt", "."])
def test_input_that_cannot_be_read_exits_1_with_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("no trace")
    done = tracelab("report", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


SENSELESS = (
    ("phases",),
    ("nonsense",),
    ("report", "tiny.sqlite", "--window", "9:2"),
    ("report", "tiny.sqlite", "--format", "pdf"),
    ("gaps", "tiny.sqlite", "--steps", "("),
    ("kernels", "tiny.sqlite", "--inclusive"),
)


@pytest.mark.parametrize("arguments", SENSELESS)
def test_a_command_line_that_makes_no_sense_exits_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    eager().save(tmp_path)
    done = tracelab(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr


def test_one_analyzer_alone(tmp_path: Path) -> None:
    path = eager().save(tmp_path)
    done = tracelab("phases", path, "--inclusive", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0
    ranges = json.loads(done.stdout)["results"]["phases"]["tables"]["ranges"]
    assert {r["range"]: r["sum_ns"] for r in ranges}["mlp"] == 600


@pytest.mark.parametrize("name", ["x.sqlite", "link.sqlite", "./x.sqlite"])
def test_the_input_is_never_overwritten(tmp_path: Path, name: str) -> None:
    path = eager().save(tmp_path / "x.sqlite")
    (tmp_path / "link.sqlite").symlink_to(path)
    before = path.read_bytes()
    done = tracelab("report", "x.sqlite", "-o", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "overwrite the trace" in done.stderr
    assert path.read_bytes() == before


def test_a_full_disk_behind_stdout_is_one_sentence(tmp_path: Path) -> None:
    path = eager().save(tmp_path)
    command = f"{sys.executable} -m tracelab report {path} > /dev/full"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("tracelab: stdout: cannot be written") and len(done.stderr.splitlines()) == 1


def test_a_window_without_a_whole_step_says_when_they_run(tmp_path: Path) -> None:
    path = eager().save(tmp_path)
    done = tracelab("report", path, "--steps", "step", "--window", "0:120ns", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "inside --window" in done.stderr


def test_a_log_beside_the_file_behind_a_link_is_read_and_kept(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    path = eager().save(real / "t.sqlite")
    (real / "t.sqlite-wal").write_bytes(b"log")
    (tmp_path / "link.sqlite").symlink_to(path)
    done = tracelab("report", "link.sqlite", "-o", "real/t.sqlite-wal", cwd=tmp_path)
    assert done.returncode == 2 and "overwrite the trace" in done.stderr
    assert (real / "t.sqlite-wal").read_bytes() == b"log"


@pytest.mark.parametrize("words", ["list", "--help"])
def test_a_full_disk_is_no_internal_error_for_any_command(words: str) -> None:
    command = f"{sys.executable} -m tracelab {words} > /dev/full"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "internal error" not in done.stderr and "cannot be written" in done.stderr


def test_too_little_memory_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def load_trace(*_: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(load, "load_trace", load_trace)
    answer = called("report", eager().save(tmp_path))
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("tracelab: there is not enough memory; ") and answer.err.count("\n") == 1


def test_a_reader_that_had_enough_is_no_error(tmp_path: Path) -> None:
    path = eager().save(tmp_path)
    command = f"{sys.executable} -m tracelab report {path} --format json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_does_not_wait_for_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would join them at its end, which of ten million kernels takes seconds; any other end is left to it."""
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    for code in (130, 2):
        monkeypatch.setattr("tracelab.cli.build_app", partial(_app_that_ends, code))
        with pytest.raises(SystemExit):
            main()
    assert ended == [130]


def _app_that_ends(code: int, _: object) -> "partial[NoReturn]":
    return partial(sys.exit, code)
