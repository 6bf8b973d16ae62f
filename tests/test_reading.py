"""How far the reading of a trace is: who is told what, and the line on a terminal, by a clock that tests turn."""

import gzip
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from drawn_line import ERASE, Clock, Terminal, Told, drawn
from drawn_line import clock as clock
from kineto_fixture import TinyKineto
from two_readers import SPEC, filled, made, written

from tracelab import batches, kineto_read, large_tables
from tracelab.__main__ import main
from tracelab.commands import reading_line as line_module
from tracelab.commands.reading_line import reading_line, reading_text
from tracelab.kineto_load import load_kineto
from tracelab.large_tables import LargeTables
from tracelab.nsys_tables import TableSpec
from tracelab.reading import tell, watched
from tracelab.sqlite_read import open_readonly

# The line


@pytest.mark.parametrize(
    ("done", "total", "elapsed_s", "expected"),
    [
        # 3 million in 2 s are 1.5 million/s: 9 million more take 6 s.
        (3_000_000, 12_000_000, 2.0, "reading: 3.0 of 12.0 million rows, 1.5 million/s, 6 s left"),
        (12_000_000, 12_000_000, 4.0, "reading: 12.0 of 12.0 million rows, 3.0 million/s, 0 s left"),
        # 40 000 in 0.5 s are 0.08 million/s: 60 000 more take 0.75 s.
        (40_000, 100_000, 0.5, "reading: 0.0 of 0.1 million rows, 0.1 million/s, 1 s left"),
    ],
)
def test_what_the_line_says(done: int, total: int, elapsed_s: float, expected: str) -> None:
    assert reading_text(done, total, "rows", elapsed_s) == expected


def test_the_line_is_drawn_after_a_second_and_four_times_a_second(clock: Clock) -> None:
    """At 0.9 s it is too soon; then at 1.1 s, not at 1.2 s, and at 1.35 s."""
    told = [(0.0, 0, 4_000_000), (0.9, 900_000, 4_000_000), (0.2, 1_100_000, 4_000_000), (0.1, 1_200_000, 4_000_000),
            (0.15, 1_350_000, 4_000_000)]  # fmt: skip
    assert drawn(clock, *told) == [
        "reading: 1.1 of 4.0 million rows, 1.0 million/s, 3 s left",  # 2.9 s
        "reading: 1.4 of 4.0 million rows, 1.0 million/s, 3 s left",  # 2.65 s
    ]


def test_another_file_has_a_rate_of_its_own(clock: Clock) -> None:
    """Two seconds of one, then 0.5 million of 2 million in the first second of another: 3 s left."""
    assert drawn(
        clock, (0.0, 0, 8_000_000), (2.0, 8_000_000, 8_000_000), (5.0, 0, 2_000_000), (1.0, 500_000, 2_000_000)
    ) == [
        "reading: 8.0 of 8.0 million rows, 4.0 million/s, 0 s left",
        "reading: 0.5 of 2.0 million rows, 0.5 million/s, 3 s left",
    ]


def test_a_total_that_grows_keeps_the_rate(clock: Clock) -> None:
    """Ten million in 10 s, then one million in 1 s of a table more: 1 million/s all along, 1 million and 1 s left."""
    told = (
        (0.0, 0, 10_000_000),
        (10.0, 10_000_000, 10_000_000),
        (0.0, 10_000_000, 12_000_000),
        (1.0, 11_000_000, 12_000_000),
    )
    assert drawn(clock, *told)[-1] == "reading: 11.0 of 12.0 million rows, 1.0 million/s, 1 s left"


def test_another_file_with_the_same_total_has_a_rate_of_its_own(clock: Clock) -> None:
    """As two captures of one program have. The second begins 10 s after the first; 1 million of it takes 1 s."""
    total = 10_000_000
    told = (0.0, 0, total), (10.0, total, total), (0.0, 0, total), (1.0, 1_000_000, total)
    assert drawn(clock, *told)[-1] == "reading: 1.0 of 10.0 million rows, 1.0 million/s, 9 s left"


def test_control_another_clock_gives_another_rate(clock: Clock) -> None:
    one = drawn(clock, (0.0, 0, 4_000_000), (2.0, 2_000_000, 4_000_000))
    other = drawn(clock, (0.0, 0, 4_000_000), (4.0, 2_000_000, 4_000_000))
    assert one == ["reading: 2.0 of 4.0 million rows, 1.0 million/s, 2 s left"] != other


# Who listens


def test_nobody_listens_where_stderr_is_no_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with reading_line():
            clock.now_s += 9
            tell(1, 2, "rows")
        assert stream is None or stream.getvalue() == ""


@pytest.mark.parametrize("error", [None, ValueError("x"), KeyboardInterrupt()])
def test_the_line_is_erased_at_the_end(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, error: BaseException | None
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(type(error)) if error else _nothing(), reading_line():
        tell(0, 2_000_000, "bytes")
        clock.now_s += 2
        tell(1_000_000, 2_000_000, "bytes")
        assert terminal.getvalue() == f"{ERASE}reading: 1.0 of 2.0 million bytes, 0.5 million/s, 2 s left"
        if error:
            raise error
    assert terminal.getvalue().endswith(f"2 s left{ERASE}")
    tell(2_000_000, 2_000_000, "bytes")  # nobody listens any more
    assert terminal.getvalue().endswith(f"2 s left{ERASE}")


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def test_nothing_is_erased_where_nothing_was_drawn(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with reading_line():
        clock.now_s += 0.5
        tell(1, 2, "rows")
    assert terminal.getvalue() == ""


def test_the_inner_one_listens_and_then_the_outer_again() -> None:
    outer, inner = list[Told](), list[Told]()
    with watched(lambda *told: outer.append(told)):
        tell(1, 9, "rows")
        with pytest.raises(ValueError), watched(lambda *told: inner.append(told)):
            tell(2, 9, "rows")
            raise ValueError
        tell(3, 9, "rows")
    tell(4, 9, "rows")
    assert outer == [(1, 9, "rows", "reading"), (3, 9, "rows", "reading")]
    assert inner == [(2, 9, "rows", "reading")]


# What the readers tell


@pytest.mark.parametrize("packed", [False, True])
def test_pytorch_traces_tell_the_bytes_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """Of a packed file those that are packed: 100 at a time, from 0 to all."""
    monkeypatch.setattr(kineto_read, "_CHUNK_BYTES", 100)
    path = TinyKineto().launch(0, "k", 10_000, 5_000).save(tmp_path / "t.json")
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    size, told = path.stat().st_size, list[Told]()
    with watched(lambda *one: told.append(one)):
        load_kineto(path)
    expected = [(min(done, size), size, "bytes", "reading") for done in (*range(0, size + 100, 100), size)]
    assert told == expected[: len(told)]
    assert told[-1] == (size, size, "bytes", "reading") and len(told) > size // 100


class Watch:
    """Keeps what is told, and lets the workers that wait for `go` begin when something was."""

    def __init__(self) -> None:
        self.told, self.go = list[Told](), Event()

    def __call__(self, *told: Any) -> None:
        self.told.append(told)
        self.go.set()

    def held(self, whole: Callable[..., Any]) -> Callable[..., Any]:
        def later(*words: Any) -> Any:
            assert self.go.wait(20)
            return whole(*words)

        return later


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Nothing is read before the first look, so there is one."""
    watch = Watch()
    for name in ("_integers", "_texts"):
        monkeypatch.setattr(large_tables, name, watch.held(getattr(large_tables, name)))
    for name, value in (("_LARGE_ROWS", 1), ("_BATCH_ROWS", 20)):
        monkeypatch.setattr(large_tables, name, value)
    monkeypatch.setattr(batches, "_BETWEEN_LOOKS_S", 0.0)
    return watch


def assert_counts_up(told: list[Told], total: int) -> None:
    assert told[0] == (0, total, "rows", "reading")
    assert {one[1:] for one in told} == {(total, "rows", "reading")}
    assert [one[0] for one in told] == sorted(one[0] for one in told) and told[-1][0] <= total


def test_sqlite_tells_the_rows_of_the_table(tmp_path: Path, watch: Watch) -> None:
    path = made(tmp_path / "t.sqlite", [(i, i, "t") for i in range(300)], "page_size = 512")
    with open_readonly(path) as connection, watched(watch):
        assert len(LargeTables(connection).ints(SPEC)["a"]) == 300
    assert_counts_up(watch.told, 300)


def test_sqlite_tells_the_rows_of_all_tables_that_are_read_ahead(tmp_path: Path, watch: Watch) -> None:
    """300 and 200 rows; and 300 once more for the texts, which are read for themselves."""
    path, other = tmp_path / "t.sqlite", TableSpec("U", ("a",))
    with written(path, "page_size = 512") as db:
        for name, rows in (("T", 300), ("U", 200)):
            db.execute(f"CREATE TABLE {name} (a, b, text)")
            filled(db, name, [(i, i, "t") for i in range(rows)])
    with open_readonly(path) as connection, watched(watch):
        tables = LargeTables(connection)
        tables.ahead((SPEC, ("a",), ("b",)), (other, ("a",), ("a",)))
        tables.ahead_texts(SPEC, "text")
        assert len(tables.coded_ints(other, ("a",), ("a",))[1]) == 200
        assert len(tables.coded_ints(SPEC, ("a",), ("b",))[1]) == 300
    assert_counts_up(watch.told, 300 + 200 + 300)


def test_control_a_table_that_is_forgotten_is_seen() -> None:
    def told(*counts: tuple[int, int]) -> list[Told]:
        return [(done, total, "rows", "reading") for done, total in counts]

    assert_counts_up(told((0, 500), (20, 500)), 500)
    for wrong in (told((0, 300)), told((0, 500), (20, 300)), told((0, 500), (9, 500), (8, 500))):
        with pytest.raises(AssertionError):
            assert_counts_up(wrong, 500)


# The command


@pytest.mark.parametrize("whole", [True, False])
def test_the_command_shows_and_erases_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """On a terminal, and whether the trace can be read or not: then its sentence stands alone on the line."""
    path = TinyKineto().launch(0, "k", 10_000, 5_000).save(tmp_path / "t.json")
    if not whole:
        path.write_text('{"schemaVersion": 1, "other": [' + "1, " * 400 + "1]}")
    terminal, clock = Terminal(), SimpleNamespace(monotonic=iter(range(0, 10**6, 2)).__next__)
    monkeypatch.setattr(line_module, "time", clock)
    monkeypatch.setattr(kineto_read, "_CHUNK_BYTES", 100)
    words = ["tracelab", "report", str(path), "--no-cache", "-o", str(tmp_path / "page")]
    with patch.object(sys, "argv", words), patch.object(sys, "stderr", terminal), pytest.raises(SystemExit) as ended:
        main()
    said = terminal.getvalue()
    assert said.startswith(f"{ERASE}reading: 0.0 of 0.0 million bytes, ")
    after = said.rpartition(ERASE)[2]
    assert (ended.value.code in (0, None), after == "") == (whole, whole)
    assert whole or (after.startswith("tracelab: ") and after.count("\n") == 1)
