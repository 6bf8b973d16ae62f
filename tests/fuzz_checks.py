"""What must hold whatever a file holds: one sentence or a sound answer, nothing written or changed, little memory.

`problems` asks tracelab everything about one file, in this process, and says what did not hold.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from unittest.mock import patch

from asking import assert_plausible, assert_sound, numbers

from tracelab import large_tables
from tracelab.__main__ import sentence_of
from tracelab.analysis import Analysis, attribute, device_views, main_device, report
from tracelab.budget_check import check_budget
from tracelab.budgets import read_budget
from tracelab.capture.scrub import scrub
from tracelab.compare.compare import compare
from tracelab.compare.load import load_side
from tracelab.compare.options import DiffOptions
from tracelab.compare.side import Side
from tracelab.errors import NoGpuWorkError, TracelabError
from tracelab.load import load_trace
from tracelab.options import PHASE_MODES, Facts, Selection
from tracelab.registry import leaves, load
from tracelab.report import Report
from tracelab.trust import judge, judge_nothing

_MOST_MEMORY_KB = 300 << 10
_LONGEST_SENTENCE = 1200
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OWN_MARKUP = re.compile(r"`[^`]*`|</?(code|details|summary|br)>")
_PARTS = ("share", "share_before", "share_after", "sm_fill", "tail_efficiency", "occupancy")  # of a whole: 1 at most
_AMOUNTS = ("before_ns", "after_ns", "share_", "calls_")  # of a comparison, whose changes may be negative
_EXIT_CODES = (0, 1, 2, 3, 4, 5)
_BUDGET = """[limits]
kernels_per_step = { max = 300 }
gaps.gap_share = { max = "20 %" }
bound = { is = "device" }
[phases.attn]
busy_ns = { max = "3 ms" }
[kernels]
must_run = ["mla_(few|many)"]
"""
_COMMANDS = (
    ("report",), ("report", "--format", "json"), ("gaps",), ("kernels", "--format", "markdown"), ("doctor",),
    ("launches", "--format", "json"), ("grids",),
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One file to ask about, an unchanged file to compare it with, and a folder for what is written."""

    path: Path
    original: Path
    scratch: Path


def problems(question: Question, rng: random.Random) -> list[str]:
    """What did not hold, each with its traceback; empty where all did."""
    before, memory_kb = _everything_in(question.path.parent), _memory_reset_kb()
    found = [problem for name, ask in _asked(question, rng) if (problem := _tried(name, ask))]
    peak_kb = _memory_kb("VmHWM")
    if peak_kb - memory_kb > _MOST_MEMORY_KB:
        found.append(f"memory: {(peak_kb - memory_kb) >> 10} MB for this file")
    after = _everything_in(question.path.parent)
    if after != before:
        names = sorted(str(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        found.append(f"files: changed, written or removed: {names}")
    return found


def _tried(name: str, ask: Callable[[], None]) -> str | None:
    try:
        try:
            ask()
        except TracelabError as error:
            _check_sentence(error)
    except Exception:
        return f"{name}: {traceback.format_exc(limit=-6)}"
    return None


def _asked(question: Question, rng: random.Random) -> Iterator[tuple[str, Callable[[], None]]]:
    """Always the report; of what takes longer a part, chosen by `rng`."""
    yield "report", lambda: _check_report(question, rng)
    if rng.random() < 0.25:
        yield "diff", lambda: _check_diff(question, rng)
    if rng.random() < 0.25:
        yield "scrub", lambda: _check_scrub(question)
    if rng.random() < 0.01:
        yield "command", lambda: _check_command(question, rng.choice(_COMMANDS))


def _check_report(question: Question, rng: random.Random) -> None:
    with patch.object(large_tables, "_LARGE_ROWS", rng.choice((1, 10**6, 10**6))):  # by either reader of SQLite
        trace = load_trace(question.path)
    assert (trace.ops.duration_ns >= 0).all(), "a kernel of negative time"
    try:
        analysis = attribute(trace, _facts(rng), _selection(rng))
    except NoGpuWorkError:
        trust = judge_nothing(trace, tuple(leaves("analyzers")))
        _check_pages(lambda form, **style: load(leaves("reports")[form]).render_trust(trust, **style), rng)
        raise
    _check_analysis(analysis, question, rng)


def _check_analysis(analysis: Analysis, question: Question, rng: random.Random) -> None:
    views = device_views(analysis)
    told = report(analysis, views=views)
    formats = leaves("reports")
    view = views[main_device(analysis, views)]
    _check_pages(lambda form, **style: load(formats[form]).render(told, **style), rng)
    said = json_document(load(formats["json"]).render(told, full_names=True, width=None, color=False))
    assert_plausible(said)
    if view.steps_used:
        assert_sound(view, said)
    if rng.random() < 0.4:
        one = rng.choice([*told.main.results])
        _check_pages(lambda form, **style: load(formats[form]).render_result(told, one, **style), rng)
    if rng.random() < 0.4:
        trust = judge(view, told.main.results)
        _check_pages(lambda form, **style: load(formats[form]).render_trust(trust, **style), rng)
    if rng.random() < 0.3:
        _check_budget(told, question, rng)


def _check_budget(told: Report, question: Question, rng: random.Random) -> None:
    budget = question.scratch / "budget.toml"
    budget.write_text(_BUDGET, encoding="utf-8")
    done = check_budget(told, read_budget(budget), lambda: _whole(question.original))
    _check_pages(lambda form, **style: load(leaves("reports")[form]).render_check(done, **style), rng)


def _check_diff(question: Question, rng: random.Random) -> None:
    before, after = load_side([question.path], Selection(), Facts()), _side(question.original)
    if rng.random() < 0.5:
        before, after = after, before
    diff = compare(before, after, DiffOptions(force=rng.random() < 0.5))
    _check_pages(lambda form, **style: load(leaves("reports")[form]).render_diff(diff, **style), rng)


def _check_scrub(question: Question) -> None:
    with TemporaryDirectory(dir=question.scratch) as folder:
        scrub(question.path, Path(folder) / "copy")
        load_trace(Path(folder) / "copy")


@cache
def _side(path: Path) -> Side:
    return load_side([path], Selection(), Facts())


@cache
def _whole(path: Path) -> Report:
    return report(attribute(load_trace(path), Facts(), Selection()))


def _facts(rng: random.Random) -> Facts:
    if rng.random() < 0.7:
        return Facts()
    return Facts(
        params=rng.choice((8e9, 1.0, 1e300)),
        dtype=rng.choice((None, "bf16", "int4")),
        flops=rng.choice((None, 1e15)),
        kv_bytes=rng.choice((None, 0.0, 1e12)),
        gpu=rng.choice((None, "H200")),
    )


def _selection(rng: random.Random) -> Selection:
    if rng.random() < 0.6:
        return Selection()
    return Selection(
        steps=rng.choice((None, None, None, "step", "decode", ".", "L#/", "nowhere")),
        skip_steps=rng.choice((0, 1, 5, 10**9)),
        device=rng.choice((None,) * 8 + (0, 1)),
        window_ns=rng.choice((None,) * 6 + ((0, 10**9), (0, 2**62), (5, 5), (10**7, 3 * 10**7))),
        phases=rng.choice(PHASE_MODES),
        depth=rng.choice((None, 1, 2)),
    )


def _check_pages(render: Callable[..., str], rng: random.Random) -> None:
    """One page in the terminal's format; by chance in colour, and in another format."""
    style = {"full_names": rng.random() < 0.3, "width": rng.choice((None, None, 20, 60, 100, 250))}
    page = render("terminal", color=False, **style)
    check_printable(page)
    if rng.random() < 0.2:
        assert _COLOUR.sub("", render("terminal", color=True, **style)) == page, "colour changes the page"
    other = rng.choice(("", "", "json", "markdown"))
    if other == "json":
        json_document(render("json", color=False, **style))
    elif other:
        markdown = render("markdown", color=False, **style)
        check_printable(markdown)
        assert "<" not in _OWN_MARKUP.sub("", markdown), "HTML in Markdown"


def check_printable(text: str) -> None:
    odd = sorted({char for char in text if not char.isprintable() and char != "\n"})
    assert not odd, f"characters that are not printable: {odd}"
    text.encode()


def _check_sentence(error: TracelabError) -> None:
    said = sentence_of(error)
    check_printable(said)
    assert said.strip(), "no sentence"
    assert "\n" not in said, f"more than one line: {said!r}"
    assert len(said) <= _LONGEST_SENTENCE, f"a sentence of {len(said)} characters: {said[:200]!r}"
    assert error.exit_code in _EXIT_CODES, error.exit_code


def json_document(text: str) -> dict[str, Any]:
    """The document, whose numbers are all finite and whose text can be written."""

    def no_number(name: str) -> NoReturn:
        raise AssertionError(f"{name} in JSON")

    text.encode()
    found: dict[str, Any] = json.loads(text, parse_constant=no_number)
    for told in found.values():  # a record is as the program wrote it, whatever its numbers
        if isinstance(told, dict):
            told.pop("workload", None)
    for where, value in numbers(found):
        name = where.removesuffix("/value").rpartition("/")[2]
        assert math.isfinite(value), f"{where} is not finite"
        assert value <= 1 + 1e-12 or not name.endswith(_PARTS), f"{where} is {value}"
        assert value >= 0 or not name.startswith(_AMOUNTS), f"{where} is {value}"
    return found


def _check_command(question: Question, command: tuple[str, ...]) -> None:
    """The same through the command line: an exit code, and at most one line on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "tracelab", *command, "--", str(question.path)],
        capture_output=True,
        cwd=question.scratch,
        env={**os.environ, "PYTHONPATH": same_packages()},
        check=False,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode in _EXIT_CODES, (done.returncode, err)
    assert "Traceback" not in err and "internal error" not in err, err
    if "json" in command and done.returncode == 0:
        json_document(out)
    else:
        check_printable(out)
    check_printable(err)
    assert len(err) <= 2 * _LONGEST_SENTENCE, err
    assert bool(err) == (done.returncode != 0), (done.returncode, err)


def same_packages() -> str:
    """PYTHONPATH for another process that is to find what this one found, wherever it runs."""
    return os.pathsep.join(map(os.path.abspath, sys.path))


def _everything_in(folder: Path) -> dict[str, tuple[str, bytes, int]]:
    """What each entry of a folder is and holds, without following links."""
    return {str(path.relative_to(folder)): _entry(path) for path in [folder, *folder.rglob("*")]}


def _entry(path: Path) -> tuple[str, bytes, int]:
    changed_ns = path.lstat().st_mtime_ns
    if path.is_symlink():
        return "link", os.fsencode(path.readlink()), changed_ns
    return ("folder", b"", changed_ns) if path.is_dir() else ("file", path.read_bytes(), changed_ns)


def _memory_reset_kb() -> int:
    """Memory in use, in KiB, from which the peak is measured anew; 0 where the system does not say."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM (proc(5))
    except OSError:
        return _memory_kb("VmHWM")
    return _memory_kb("VmRSS")


def _memory_kb(field: str) -> int:
    try:
        said = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(said[1]) if said else 0
