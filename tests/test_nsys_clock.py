"""Exports with UTC times give the numbers of the same export with times from the start of the collection."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from asking import document, shifted
from directory_export import tables_of, write_arrowdir, write_parquetdir
from source_tree import ROOT
from tiny_trace import KERNEL, TinyTrace

from tracelab.load import load_trace

# 2026-11-29, added to every time of an event as `nsys export --ts-normalize=true` does.
UTC_NS = 1_795_980_920_040_556_149


def plain() -> TinyTrace:
    """Two steps of one kernel: called at 0 and 100, running 20 … 30 and 120 … 135."""
    trace = TinyTrace().range("step 0", 0, 50).launch(0, "a", 20, 30)
    return trace.range("step 1", 100, 150).launch(100, "a", 120, 135)


def test_times_count_from_the_first_event(tmp_path: Path) -> None:
    trace = load_trace(shifted(plain().save(tmp_path), tmp_path / "utc.sqlite", UTC_NS))
    assert trace.ops.start.tolist() == [20, 120]
    assert trace.ops.end.tolist() == [30, 135]
    assert trace.calls.start.tolist() == [0, 100]
    assert trace.ranges.start.tolist() == [0, 100]


@pytest.mark.parametrize("name", ["llama8b_eager_b1", "llama8b_graph_32k", "llama8b_fail"])
def test_a_recording_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    original = ROOT / "sample_traces" / f"{name}_h200.sqlite"
    assert document(original) == document(shifted(original, tmp_path / "utc.sqlite", UTC_NS))


def test_folders_are_read_alike(tmp_path: Path) -> None:
    path = shifted(plain().save(tmp_path), tmp_path / "utc.sqlite", UTC_NS)
    for number, write in enumerate((write_parquetdir, write_arrowdir)):
        folder = tmp_path / str(number)
        write(tables_of(path), folder)
        assert load_trace(folder).ops.start.tolist() == [20, 120]


def test_one_damaged_time_is_no_first_event(tmp_path: Path) -> None:
    # 1.1e18 is 2004: UTC too, but 22 years before all others.
    path = shifted(plain().save(tmp_path), tmp_path / "utc.sqlite", UTC_NS)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE {KERNEL} SET start = 1100000000000000000 WHERE rowid = 1")
    trace = load_trace(path)
    assert trace.ops.start.tolist() == [120]
    assert trace.loss.untimed == 1


@pytest.mark.parametrize("by_ns", [10**17, 4 * 10**18])
def test_control_times_of_no_day_are_damage(by_ns: int, tmp_path: Path) -> None:
    trace = load_trace(shifted(plain().save(tmp_path), tmp_path / "odd.sqlite", by_ns))
    assert (len(trace.ops), trace.loss.untimed) == (0, 2)
