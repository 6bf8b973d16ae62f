"""Which traces one path names: a file, a run folder, a folder of repeated captures, or something else."""

from pathlib import Path

import pytest

from tracelab.capture.folder import traces_of
from tracelab.errors import InputError
from tracelab.load import load_trace


def files(folder: Path, *names: str) -> list[Path]:
    """Empty files in a folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return [folder / name for name in names]


def test_traces_of_a_file_a_run_folder_and_repeated_captures(tmp_path: Path) -> None:
    (alone,) = files(tmp_path, "some.sqlite")
    assert traces_of(alone) == [alone]
    (run, _) = files(tmp_path / "run", "trace.sqlite", "private/export.sqlite")
    assert traces_of(tmp_path / "run") == [run]
    many = files(tmp_path / "many", *(f"{k}/trace.sqlite" for k in (2, 10, 1)))
    files(tmp_path / "many", "repeat.txt", "3/private/nsys.log", "old/trace.sqlite", "4x/trace.sqlite", "5")
    assert traces_of(tmp_path / "many") == [many[2], many[0], many[1]]  # 1, 2, 10: by number


def test_traces_of_anything_else_is_what_loading_refuses(tmp_path: Path) -> None:
    files(tmp_path / "parquet", "StringIds.parquet")
    files(tmp_path / "named", "first/trace.sqlite")
    (tmp_path / "empty/1").mkdir(parents=True)
    said = {
        "absent": "no such file",
        "parquet": "an incomplete export",
        "named": "a folder, not a trace",
        "empty": "a folder, not a trace",
        "empty/1": "a folder, not a trace",
    }
    for name, sentence in said.items():
        assert traces_of(tmp_path / name) == [tmp_path / name]
        with pytest.raises(InputError, match=sentence):
            load_trace(traces_of(tmp_path / name)[0])
