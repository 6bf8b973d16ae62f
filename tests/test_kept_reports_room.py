"""How many reports are kept, who may read them, who writes them at once, and how they end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from called import called
from kept import anew, entries, kept
from kept import path as path
from kept import reports as reports
from source_tree import ROOT

from tracelab.commands import kept_reports


def ask(path: Path, depth: int) -> Path:
    """One of many questions; the entry of its report."""
    reports = Path(os.environ["TRACELAB_CACHE"]) / "reports"
    before = set(entries(reports))
    anew("gaps", path, "--depth", depth)
    (new,) = set(entries(reports)) - before
    return new


def used_at(entry: Path, second: int) -> None:
    os.utime(entry, ns=(second * 10**9, second * 10**9))


def test_what_was_used_longest_ago_goes_first(path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for three. The first is used again, so the second goes when a fourth comes; then the third, for a fifth."""
    first, second, third = (ask(path, depth) for depth in (1, 2, 3))
    for second_of_use, entry in enumerate((first, second, third)):
        used_at(entry, second_of_use)
    largest = max(entry.stat().st_size for entry in entries(reports))
    monkeypatch.setattr(kept_reports, "_MOST_BYTES", 3 * largest + 100)
    kept("gaps", path, "--depth", 1)  # now the latest
    fourth = ask(path, 4)
    assert set(entries(reports)) == {first, third, fourth}
    fifth = ask(path, 5)
    assert set(entries(reports)) == {first, fourth, fifth}


def test_parts_that_a_killed_process_left_go_too(path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(path, 1)
    left = reports / "abc.arrow.123.part"
    left.write_bytes(b"x" * 10_000)
    used_at(left, 0)
    monkeypatch.setattr(kept_reports, "_MOST_BYTES", sum(entry.stat().st_size for entry in entries(reports)))
    ask(path, 2)
    assert left not in entries(reports) and len(entries(reports)) == 2


def test_control_without_the_time_of_use_the_first_would_go(
    path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (ask(path, depth) for depth in (1, 2))
    used_at(first, 1)
    used_at(second, 2)
    monkeypatch.setattr(kept_reports, "_MOST_BYTES", sum(entry.stat().st_size for entry in entries(reports)))
    monkeypatch.setattr("os.utime", lambda *_: None)
    kept("gaps", path, "--depth", 1)
    ask(path, 3)
    assert first not in entries(reports)


def test_only_the_user_may_read_them(path: Path, reports: Path) -> None:
    old = os.umask(0)
    try:
        anew("report", path)
    finally:
        os.umask(old)
    (entry,) = entries(reports)
    assert entry.stat().st_mode & 0o777 == 0o600
    assert [folder.stat().st_mode & 0o777 for folder in (reports, reports.parent)] == [0o700, 0o700]


def test_clearing_the_cache_removes_them(path: Path, reports: Path) -> None:
    anew("report", path)
    (entry,) = entries(reports)
    size = entry.stat().st_size
    done = called("cache", "clear")
    assert (done.code, done.err) == (0, "")
    assert f"{size / 1000:.0f} kB" in done.out or f"{size / 1000:.1f} kB" in done.out, (done.out, size)
    assert entries(reports) == [] and not reports.exists()
    anew("report", path)


_ASKING = """
import sys
from tracelab.commands import kept_reports
kept_reports._LEAST_BYTES = kept_reports._SETTLED_NS = 0
from tracelab import __main__
sys.stdin.readline()
__main__.main()
"""


def asking(path: Path) -> "subprocess.Popen[str]":
    """A process of its own that asks when it is told to."""
    words = [sys.executable, "-c", _ASKING, "report", str(path), "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        words, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_two_processes_at_once(path: Path, reports: Path) -> None:
    """Both ask before either has an answer: both are right, and one entry is left."""
    expected = called("report", path, "--format", "json", "--no-cache").out
    both = [asking(path) for _ in range(2)]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in both:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert json.loads(out) == json.loads(expected) and out == expected
    assert [entry.suffix for entry in entries(reports)] == [".arrow"]
    kept("report", path, "--format", "json")


def test_an_entry_that_another_process_removes_meanwhile(
    path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between being listed and being looked at: no error, and the report is there."""
    ask(path, 1)
    listed = Path.iterdir

    def with_one_that_is_gone(folder: Path) -> list[Path]:
        return [*listed(folder), folder / "gone.arrow"] if folder == reports else list(listed(folder))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", with_one_that_is_gone)
        answer = called("gaps", path, "--depth", 2)
    assert answer == called("gaps", path, "--depth", 2, "--no-cache")
    assert len(entries(reports)) == 2
