"""A kept report is the answer to exactly one question: the same files, options and program; else it is made anew."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from called import called
from kept import anew, copy_of, entries, kept
from kept import path as path
from kept import reports as reports
from kineto_fixture import TinyKineto
from rank_programs import two_ranks
from tiny_programs import eager

from tracelab import load
from tracelab.analysis import parameters_of
from tracelab.commands import kept_reports, shared
from tracelab.commands import report as report_command
from tracelab.errors import InputError
from tracelab.options import Facts, Selection
from tracelab.registry import leaves
from tracelab.samples import FOLDER

ANALYZERS = tuple(leaves("analyzers"))
FORMATS = tuple(leaves("reports"))


# The same question


def _refused(*_: object) -> None:
    raise InputError("the trace was loaded")


@pytest.mark.parametrize("command", ["report", "kernels", "grids"])
def test_the_same_question_is_answered_without_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: Path, command: str
) -> None:
    """In every format: how a page is written is no part of the question."""
    path = copy_of(FOLDER / "kimi_graph_h200.sqlite", tmp_path / "t.sqlite")
    plain = {form: called(command, path, "--format", form, "--no-cache") for form in FORMATS}
    assert entries(reports) == []
    anew(command, path)
    monkeypatch.setattr(load, "load_trace", _refused)
    assert {form: called(command, path, "--format", form) for form in FORMATS} == plain
    assert called(command, path, "--full-names", "-o", tmp_path / "page").code == 0
    assert len(entries(reports)) == 1
    assert called(command, path, "--no-cache").err == "tracelab: the trace was loaded\n"


@pytest.mark.parametrize("name", ["failed_launch", "mla_sweep", "llama8b_eager_b1", "k3_graph_12"])
def test_recordings_can_be_kept(tmp_path: Path, name: str) -> None:
    """Whatever an analyzer puts in its result: a value that cannot be written would silently not be kept."""
    path = copy_of(FOLDER / f"{name}_h200.sqlite", tmp_path / "t.sqlite")
    anew("report", path, "--format", "json")
    kept("report", path, "--format", "json")


def test_other_kinds_of_traces(tmp_path: Path) -> None:
    """Several devices, a PyTorch trace, a run folder."""
    folder = tmp_path / "run"
    folder.mkdir()
    eager().save(folder / "trace.sqlite")
    kineto = TinyKineto().launch(0, "k", 10_000, 5_000).launch(20_000, "k", 30_000, 5_000).save(tmp_path / "t.json")
    for trace in (two_ranks(4).save(tmp_path / "two.sqlite"), kineto, folder):
        anew("report", trace, "--format", "json")
        assert kept("report", trace, "--format", "json").code == 0


def test_an_error_is_not_kept(path: Path, reports: Path) -> None:
    for _ in range(2):
        assert anew("report", path, "--device", "7").code == 2
    assert entries(reports) == []


# Another state of the files


def changed_in_place(path: Path) -> None:
    """Another kernel name of the same length; the times of the file set back."""
    before = path.stat()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"attention", b"attentiom"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_changed_content_of_the_same_size_and_time(path: Path) -> None:
    assert "attention" in anew("report", path).out
    changed_in_place(path)
    answer = anew("report", path)
    assert "attentiom" in answer.out and "attention" not in answer.out


def exchanged(path: Path) -> None:
    """Another file under the name, of the same size and time."""
    before = path.stat()
    copy_of(path, path.with_name("other")).replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [exchanged, lambda path: eager(4).save(path), lambda path: path.touch()])
def test_another_file_and_another_time(path: Path, change: Callable[[Path], object]) -> None:
    anew("report", path)
    kept("report", path)
    change(path)
    anew("report", path)


def test_another_name_of_the_file_is_the_one_on_the_page(path: Path, tmp_path: Path) -> None:
    anew("report", path)
    for name, make in (("soft", Path.symlink_to), ("hard", Path.hardlink_to)):
        other = tmp_path / f"{name}.sqlite"
        make(other, path)
        answer = called("report", other, "--format", "json")
        assert f'"{other}"' in answer.out and str(path) not in answer.out
    assert f'"{path}"' in called("report", path, "--format", "json").out


def test_one_relative_name_of_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, steps in (("one", 3), ("two", 5)):
        (tmp_path / name).mkdir()
        eager(steps).save(tmp_path / name / "t.sqlite")
        monkeypatch.chdir(tmp_path / name)
        assert anew("report", "t.sqlite") == called("report", "t.sqlite", "--no-cache")


def test_a_pending_log(path: Path, reports: Path) -> None:
    """Rows in the log belong to the trace: with one, no report is taken and none is kept."""
    anew("report", path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("UPDATE StringIds SET value = 'other_name' WHERE value = 'attention'")
        db.commit()
        assert path.with_name("t.sqlite-wal").stat().st_size
        for _ in range(2):
            assert "other_name" in anew("report", path).out
    assert len(entries(reports)) == 1


@pytest.mark.parametrize("linked", [False, True])
def test_a_log_in_a_run_folder(tmp_path: Path, *, linked: bool) -> None:
    """Of a link the log lies beside the file that it names, outside the folder."""
    folder = tmp_path / "run"
    folder.mkdir()
    path = eager().save(tmp_path / "elsewhere.sqlite" if linked else folder / "trace.sqlite")
    if linked:
        (folder / "trace.sqlite").symlink_to(path)
    anew("report", folder)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        for name in ("other_name", "third_name"):
            db.execute("UPDATE StringIds SET value = ? WHERE value IN ('attention', 'other_name')", (name,))
            db.commit()
            assert name in anew("report", folder).out


# Another option

VALUES = {
    "steps": "step [012]", "skip_steps": 2, "device": 0, "window": "0:2us", "phases": "kernels", "depth": 1,
    "exclude": "mlp", "params": "8B", "active_params": "3B", "dtype": "bf16", "kv_bytes": "134MB", "flops": "16e9",
    "bandwidth": "4TB/s", "gpu": "H100", "nsys": "/opt/nsys",
}  # fmt: skip
OPTIONS = {option.name for option in (*shared.SELECTION, *shared.FACTS, *shared.READING)}


def test_every_declared_option_is_asked_for_here() -> None:
    assert set(VALUES) == OPTIONS, "a new option: say here what else it may be"
    taken = {parameter.name for parameter in report_command.PARAMETERS} - OPTIONS
    assert taken == {"trace", "format", "output", "full_names", "no_cache"}  # these do not change the report of a trace


def test_another_option_is_another_question(path: Path, reports: Path) -> None:
    plain = ("report", path, "--params", "70B")  # which some of the others need
    anew(*plain)
    answers = {}
    for name, value in VALUES.items():
        answers[name] = anew(*plain, f"--{name.replace('_', '-')}", value)
        assert answers[name].code == 0, answers[name].err
    assert len(entries(reports)) == 1 + len(VALUES)
    with patch.object(load, "load_trace", _refused):
        for name, value in VALUES.items():
            assert called(*plain, f"--{name.replace('_', '-')}", value) == answers[name]


def odd(part: Selection | Facts) -> list[dict[str, Any]]:
    """Another value of each field, one at a time."""
    return [{field.name: "x"} for field in fields(part)]


def test_every_field_of_the_options_is_part_of_the_question(path: Path) -> None:
    """Also one that no option of the command line sets yet."""

    def key(**changed: object) -> str:
        parts: dict[str, Any] = {"selection": Selection(), "facts": Facts(), "analyzers": None, "nsys": None} | changed
        question = kept_reports.Question(path, **parts)
        state = question.state()
        assert state is not None
        return question.key(state)

    selections, facts = ([replace(part, **one) for one in odd(part)] for part in (Selection(), Facts()))
    others: list[dict[str, object]] = [{"nsys": "x"}, {"analyzers": {}}, {"analyzers": {"gaps": {}}}]
    keys = [key(), *(key(selection=s) for s in selections), *(key(facts=f) for f in facts), *(key(**o) for o in others)]
    assert len(set(keys)) == len(keys) == 1 + 7 + 7 + 3
    assert key() == keys[0]


@pytest.mark.parametrize(
    ("analyzer", "flag"), [(name, flag) for name, leaf in leaves("analyzers").items() for flag in parameters_of(leaf)]
)
def test_the_flag_of_an_analyzer_is_another_question(path: Path, analyzer: str, flag: str) -> None:
    parameter = parameters_of(leaves("analyzers")[analyzer])[flag]
    assert parameter.default is False  # else say here what else it may be
    words = (analyzer, path, f"--{flag.replace('_', '-')}")
    anew(analyzer, path)
    anew(*words)
    kept(*words)
    kept(analyzer, path)


def test_another_analyzer_is_another_question(path: Path) -> None:
    for command in ("report", *ANALYZERS):
        anew(command, path)
    for command in ("report", *ANALYZERS):
        kept(command, path)


# Negative control


def test_control_a_question_that_forgets_something_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_reports.Question, "key", lambda *_: "always-the-same")
    assert "attention" in anew("report", path).out
    changed_in_place(path)
    with pytest.raises(AssertionError, match="a kept report was taken"):
        anew("report", path)
    with pytest.raises(AssertionError):
        kept("report", path, "--exclude", "mlp")
