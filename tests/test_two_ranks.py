"""The program `gpu/two_ranks.py` as far as it goes without GPUs: its options, and two ranks on the CPU."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "gpu" / "two_ranks.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("two_ranks", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_options(program: ModuleType) -> None:
    options = program.parse([])
    assert (options.steps, options.fail, options.cpu) == (12, None, False)
    assert program.parse(["--fail", "1:11"]).fail == (1, 11)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fail", "2:4"], "'2:4' is not RANK:STEP"),
        (["--fail", "1"], "'1' is not RANK:STEP"),
        (["--fail", "1:12"], "the steps are 0 to 11"),
        (["--fail", "-1:0"], "RANK:STEP"),
        (["--steps", "0"], "--steps must be 1 or more"),
    ],
)
def test_wrong_options_are_named(
    program: ModuleType, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        program.parse(words)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_without_two_gpus_it_says_what_it_needs(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SystemExit, match="needs 2 GPUs and sees 1"):
        program.main([])


def test_a_launch_that_fails_changes_nothing(program: ModuleType) -> None:
    values = torch.ones(4)
    scale = program.scaler(values)
    assert (scale(program.TOO_MANY_THREADS), values.tolist()) == (9, [1.0] * 4)
    assert (scale(program.THREADS), values.tolist()) == (0, [0.5] * 4)


def test_two_ranks_on_the_cpu(tmp_path: Path) -> None:
    """Rank 1's launch of step 2 fails, the program goes on, and both ranks end with the same numbers."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "GLOO_SOCKET_IFNAME": "lo"}
    run = subprocess.run(
        [sys.executable, PROGRAM, "--cpu", "--steps", "3", "--fail", "1:2"],
        capture_output=True, text=True, env=environment, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = dict(re.findall(r"rank (\d): (.*) launches failed", run.stderr))
    assert found == {"0": "0 of 3", "1": "1 of 3"}
    assert "codes [9]" in run.stderr
    assert len(set(re.findall(r"sum (\S+)", run.stderr))) == 1
    assert list(tmp_path.iterdir()) == []
