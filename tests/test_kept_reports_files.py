"""The folder of kept reports: what is kept and what not, faults that are no errors, its size, and its end."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import pyarrow as pa
import pytest
from called import called
from kept import analysed, anew, entries, kept
from kept import path as path
from kept import reports as reports
from source_tree import LEAF_FOLDERS, ROOT
from tiny_programs import eager

from tracelab import analysis, load
from tracelab.commands import kept_reports
from tracelab.samples import FOLDER

RULES = '[[rule]]\npattern = "attention"\nfamily = "{}"\n'


# What else the answer depends on


def test_kernel_rules_of_ones_own(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, one file, the same file with other rules of the same length and time, another file."""
    rules = tmp_path / "rules.toml"
    anew("kernels", path)
    rules.write_text(RULES.format("norm"))
    monkeypatch.setenv("TRACELAB_FAMILIES", str(rules))
    assert "norm" in anew("kernels", path).out
    kept("kernels", path)
    before = rules.stat()
    rules.write_text(RULES.format("copy"))
    os.utime(rules, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "copy" in anew("kernels", path).out
    other = rules.with_name("other.toml")
    other.write_bytes(rules.read_bytes())
    monkeypatch.setenv("TRACELAB_FAMILIES", str(other))
    anew("kernels", path)
    monkeypatch.delenv("TRACELAB_FAMILIES")
    kept("kernels", path)


def test_kernel_rules_that_are_missing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anew("kernels", path)
    monkeypatch.setenv("TRACELAB_FAMILIES", str(tmp_path / "missing.toml"))
    assert called("kernels", path, "--no-cache").code == 1
    assert called("kernels", path).code == 1


def test_another_nsys_of_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anew("report", path)
    monkeypatch.setenv("TRACELAB_NSYS", "/opt/other/nsys")
    anew("report", path)


def test_another_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One source file with another time, as an edit in a checkout leaves it."""
    anew("report", path)
    (name, size, time_ns), *others = kept_reports._program()
    monkeypatch.setattr(kept_reports, "_program", lambda: [(name, size, time_ns + 1), *others])
    anew("report", path)
    kept("report", path)


def test_the_program_is_all_its_sources_and_tables() -> None:
    """Also those behind the links to the leaves; each with its size and time."""
    found = {Path(name).resolve(): (size, time_ns) for name, size, time_ns in kept_reports._program()}
    data = [ROOT / "tracelab" / name for name in ("families.toml", "gpus.toml", "sample_traces/manifest.json")]
    sources = [file for name in ("tracelab", *LEAF_FOLDERS) for file in (ROOT / name).rglob("*.py")]
    assert len(sources) > 100
    for file in (*sources, *data):
        seen = file.stat()
        assert found.get(file.resolve()) == (seen.st_size, seen.st_mtime_ns), file


def then(whole: Callable[..., Any], act: Callable[[], object]) -> Callable[..., Any]:
    """The function, and behind it something else that happens."""

    def called_with(*words: Any, **named: Any) -> Any:
        found = whole(*words, **named)
        act()
        return found

    return called_with


def test_a_trace_that_changes_while_it_is_read_is_not_kept(path: Path, reports: Path) -> None:
    with patch.object(load, "load_trace", then(load.load_trace, path.touch)):
        assert called("kernels", path).code == 0
    assert entries(reports) == []


@pytest.mark.parametrize("what", ["rules", "program"])
def test_rules_or_sources_that_change_meanwhile(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The report is one of the old ones: it is no answer to the question asked of the new ones."""
    rules, sources = tmp_path / "rules.toml", [("a.py", 1, 1)]
    rules.write_text(RULES.format("norm"))
    monkeypatch.setenv("TRACELAB_FAMILIES", str(rules))
    monkeypatch.setattr(kept_reports, "_program", lambda: list(sources))

    def change() -> None:
        if what == "rules":
            rules.write_text(RULES.format("copy"))
        else:
            sources[0] = ("a.py", 1, 2)

    with patch.object(analysis, "report", then(analysis.report, change)):
        assert "norm" in called("kernels", path).out
    anew("kernels", path)


# What is not kept


@pytest.mark.parametrize(
    ("name", "value"), [("_LEAST_BYTES", 1_000_000), ("_SETTLED_NS", 60 * 10**9), ("_MOST_BYTES", 10)]
)
def test_small_and_just_written_traces_and_large_reports(
    path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    monkeypatch.setattr(kept_reports, name, value)
    for _ in range(2):
        assert anew("report", path).code == 0
    assert entries(reports) == []


def test_the_size_of_a_folder_counts_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    size = eager().save(folder / "trace.sqlite").stat().st_size
    (folder / "beside").write_bytes(b"x" * 100)
    for limit, large in ((size + 100, True), (size + 101, False)):
        monkeypatch.setattr(kept_reports, "_LEAST_BYTES", limit)
        anew("report", folder, "--depth", limit)
        assert (analysed(lambda limit=limit: called("report", folder, "--depth", limit))[1]) is not large  # type: ignore[misc]


def test_without_the_cache_nothing_is_taken_or_kept(path: Path, reports: Path) -> None:
    anew("report", path, "--no-cache")
    assert entries(reports) == []
    anew("report", path)
    (entry,) = entries(reports)
    before = entry.stat()
    anew("report", path, "--no-cache")
    assert entry.stat() == before


def test_the_bundled_sample_is_never_kept(reports: Path) -> None:
    """Without a trace the page says that it is a recording; that of its file by name does not."""
    assert anew("report").out != anew("report", FOLDER / "kimi_graph_h200.sqlite").out
    anew("report")
    assert len(entries(reports)) == 1


# Faults


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda entry: entry.write_bytes(b""),
    "cut": lambda entry: entry.write_bytes(entry.read_bytes()[:-200]),
    "cut in half": lambda entry: entry.write_bytes(entry.read_bytes()[: entry.stat().st_size // 2]),
    "zeros": lambda entry: entry.write_bytes(bytes(entry.stat().st_size)),
    "text": lambda entry: entry.write_text("no Arrow file"),
    "another name in it": lambda entry: entry.write_bytes(entry.read_bytes().replace(b"TraceFacts", b"TraceFalse")),
    "another table": lambda entry: _table(entry, pa.table({"other": [1]})),
    "no report in it": lambda entry: _table(entry, pa.table({"samples": [[1.0]]})),
    "half a text": lambda entry: _table(entry, pa.table({"samples": [[1.0]]}).replace_schema_metadata({"report": "{"})),
}


def _table(entry: Path, table: "pa.Table") -> None:
    with pa.OSFile(os.fsencode(entry), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_report_is_made_anew(path: Path, reports: Path, what: str) -> None:
    expected = anew("report", path)
    (entry,) = entries(reports)
    kept("report", path)
    DAMAGE[what](entry)
    assert anew("report", path) == expected
    kept("report", path)
    assert entries(reports) == [entry]


def test_an_entry_that_is_a_folder(path: Path, reports: Path) -> None:
    expected = anew("report", path)
    (entry,) = entries(reports)
    entry.unlink()
    entry.mkdir()
    assert anew("report", path) == expected
    assert [one.name for one in entries(reports)] == [entry.name]


@pytest.mark.parametrize("what", ["a file for the cache", "a file for the folder", "a link to nowhere"])
def test_a_folder_that_cannot_be_used(path: Path, reports: Path, what: str) -> None:
    expected = anew("report", path, "--no-cache")
    at = reports.parent if what == "a file for the cache" else reports
    at.parent.mkdir(exist_ok=True)
    if what == "a link to nowhere":
        at.symlink_to(path.with_name("nowhere"))
    else:
        at.write_text("not a folder")
    for _ in range(2):
        assert anew("report", path) == expected


def _no_space(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["pyarrow.ipc.new_file", "pathlib.Path.chmod", "pathlib.Path.replace"])
def test_a_full_disk(path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Wherever it is noticed: the page is printed, and no part of an entry is left."""
    expected = anew("report", path, "--no-cache")
    with monkeypatch.context() as full:
        full.setattr(where, _no_space)
        assert [anew("report", path) for _ in range(2)] == [expected] * 2
    assert entries(reports) == []


def test_a_kept_report_is_given_where_its_time_cannot_be_set(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = anew("report", path)
    monkeypatch.setattr("os.utime", _no_space)
    assert kept("report", path) == expected
