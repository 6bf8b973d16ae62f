"""The list of recordings, and the options of a workload: their defaults, their values, whose they are."""

import json
from pathlib import Path

import pytest

from tracelab.capture.recordings import (
    find_recording,
    normalised,
    recordings,
    resolve,
    split_arguments,
    workload_defaults,
)
from tracelab.errors import InputError, UsageError
from tracelab.registry import leaves

DEFAULTS: dict[str, str | bool] = {"--batch": "1", "--ctx": "1024", "--graph": False}


def test_damaged_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"manifest\.json is damaged"):
        recordings(tmp_path)
    assert recordings(tmp_path / "nowhere") == ()


def test_defaults_are_read_without_importing(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(
        'DEFAULTS: dict[str, object] = {"batch": 1, "ctx": 1024, "graph": False}\nimport no_such_module\n'
    )
    assert workload_defaults(tmp_path / "toy.py") == DEFAULTS
    (tmp_path / "plain.py").write_text("x = 1\n")
    assert workload_defaults(tmp_path / "plain.py") == {}


def test_defaults_of_a_bundled_workload() -> None:
    defaults = workload_defaults(leaves("kernels")["llama8b"].path)
    assert defaults["--batch"] == "1" and defaults["--graph"] is False


def test_a_recording_answers_for_any_number_of_steps(tmp_path: Path) -> None:
    entry = {"file": "a.sqlite", "title": "a", "workload": "toy", "options": {"steps": 6, "ctx": 1024, "graph": True}}
    (tmp_path / "manifest.json").write_text(json.dumps({"recordings": [entry]}))
    asked: dict[str, str | bool] = {"--steps": "12", "--ctx": "1024", "--graph": True}
    found = find_recording(tmp_path, "toy", asked)
    assert found is not None and found.command({"--steps": "12", "--ctx": "1024"}) == "tracelab profile toy --graph"
    assert find_recording(tmp_path, "toy", asked | {"--ctx": "512"}) is None


def test_options_of_workload_and_tracelab_are_split() -> None:
    words = ["--batch", "4", "--format", "json", "--graph", "--ctx=512", "-o", "x"]
    assert split_arguments(words, DEFAULTS) == (
        ["--batch", "4", "--graph", "--ctx=512"],
        ["--format", "json", "-o", "x"],
    )
    assert resolve(["--batch", "4", "--graph"], DEFAULTS, "toy") == {"--batch": "4", "--ctx": "1024", "--graph": True}
    assert normalised({"top_k": 8, "--x": "a"}) == {"--top-k": "8", "--x": "a"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch"], "the option --batch needs a value"),
        (["--batch", "-4"], "takes a whole number that is not negative, not '-4'"),
        (["--batch=1.5"], "takes a whole number that is not negative, not '1.5'"),
        (["--batch", "²"], "takes a whole number that is not negative, not '²'"),
        (["--batch", "--graph"], "takes a whole number that is not negative, not '--graph'"),
        (["--graph=yes"], "the option --graph takes no value"),
    ],
)
def test_values_of_the_wrong_kind(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(arguments, DEFAULTS, "toy")
    assert resolve(["--dtype", "abc"], {"--dtype": "bf16"}, "toy") == {"--dtype": "abc"}
