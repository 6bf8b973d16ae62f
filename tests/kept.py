"""Asking the command line with a cache folder, and seeing whether it analysed the trace or took a kept report.

A test file that imports the fixtures writes `import path as path`: else they look unused to the linter.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from called import Answer, called
from tiny_programs import eager

from tracelab import load
from tracelab.commands import kept_reports


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, in which the reports of small and of just written traces are kept too."""
    monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "cache"))
    for name in ("TRACELAB_FAMILIES", "TRACELAB_NSYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(kept_reports, "_LEAST_BYTES", 0)
    monkeypatch.setattr(kept_reports, "_SETTLED_NS", 0)
    return tmp_path / "cache" / "reports"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return eager().save(tmp_path / "t.sqlite")


def entries(reports: Path) -> list[Path]:
    return sorted(reports.iterdir()) if reports.exists() else []


def analysed(ask: Callable[[], Answer]) -> tuple[Answer, bool]:
    """The answer, and whether the trace was loaded for it."""
    with patch.object(load, "load_trace", wraps=load.load_trace) as loaded:
        answer = ask()
    return answer, loaded.called


def anew(*words: object) -> Answer:
    """The answer of a question whose report must not be a kept one."""
    answer, loaded = analysed(lambda: called(*words))
    assert loaded, f"a kept report was taken for {words}"
    return answer


def kept(*words: object) -> Answer:
    """The answer of a question whose report must be the kept one; it is what an analysis would have answered."""
    answer, loaded = analysed(lambda: called(*words))
    assert not loaded, f"no kept report was taken for {words}"
    assert answer == called(*words, "--no-cache")
    return answer


def copy_of(sample: Path, target: Path) -> Path:
    return Path(shutil.copyfile(sample, target))
