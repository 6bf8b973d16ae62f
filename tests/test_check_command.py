"""`tracelab check`: what it prints, where it writes, the sentence of a failure and the exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_programs import eager

from tracelab.commands import check
from tracelab.errors import CheckFailedError, InputError, UsageError
from tracelab.samples import FOLDER

EAGER, GRAPH = "llama8b_eager_b1", "llama8b_graph_b1"
ROOT = Path(__file__).parents[1]


def called(tmp_path: Path, text: str, name: str = EAGER, **changed: Any) -> None:
    """The command itself, with the defaults of its options."""
    path = tmp_path / "budgets.toml"
    path.write_text(text, encoding="utf-8")
    values = {p.name: p.default for p in check.PARAMETERS}
    asked = {"trace": FOLDER / f"{name}_h200.sqlite", "budget": path, "format": "json"}
    check.run(**{**values, **asked, **changed})


def test_the_command_writes_the_lines_then_fails_with_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[limits]\nkernels_per_step = { max = 300 }\nlaunch_gap_share = { max = 0.2 } # host\nmbu = { min = 0.7 }\n"
    with pytest.raises(CheckFailedError) as caught:
        called(tmp_path, text)
    assert caught.value.exit_code == 3
    assert str(caught.value) == (
        f"{tmp_path}/budgets.toml:3: launch_gap_share = {{ max = 0.2 }} fell short: "
        "measured 77.3 % for gaps.launch_gap_share (2 of 3 limits)."
    )
    said = json.loads(capsys.readouterr().out)
    assert [line["ok"] for line in said["lines"]] == [True, False, False]


def test_the_command_is_silent_on_stderr_when_all_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called(tmp_path, "[limits]\nlaunch_gap_share = { max = 0.2 }\n", GRAPH)
    out, err = capsys.readouterr()
    assert (json.loads(out)["ok"], err) == (True, "")


SENTENCES = {
    "[limits]\nstep_ns = { max = 17704765 }": "measured 17704766 ns for gaps.step_ns (1 of 1 limit)",
    "[limits]\nmbu = { min = 0.7 }": "measured 17.8 % for mbu.mbu",
    "[limits]\nmbu = { min = 0.17824 }": "measured 17.820304 % for mbu.mbu",
    "[limits]\nbound = { is = 'device' }": "measured host for gaps.bound",
    "[phases.x]\nbusy_ns = { max = 1 }": "not measured for phases.busy_ns of x; this trace has no phase x; it",
    "[kernels]\nmust_run = ['^mla']": "measured 0 per step for must run ^mla; what ran: gemv_row,",
}


@pytest.mark.parametrize("text", SENTENCES)
def test_the_sentence_never_reads_like_its_limit(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CheckFailedError) as caught:
        called(tmp_path, text)
    assert SENTENCES[text] in str(caught.value)
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_options_of_the_selection_and_the_model_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Twice the bandwidth is half the MBU: 76.2 % of 4.8 TB/s is 38.1 % of 9.6 TB/s.
    text = '[limits]\nmbu = { max = "39 %" }\n'
    called(tmp_path, text, GRAPH, bandwidth="9.6TB/s")
    with pytest.raises(CheckFailedError):
        called(tmp_path, text, GRAPH)
    assert capsys.readouterr().out


def test_the_lines_go_to_a_file_that_is_neither_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "[limits]\nkernels_per_step = { max = 1 }\n"
    with pytest.raises(CheckFailedError):
        called(tmp_path, text, output=tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["ok"] is False
    with pytest.raises(UsageError, match="would overwrite the budget"):
        called(tmp_path, text, output=tmp_path / "budgets.toml")
    assert (tmp_path / "budgets.toml").read_text(encoding="utf-8") == text
    assert capsys.readouterr().out == ""


def test_trace_and_budget_are_required_and_the_budget_is_read_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a trace"):
        called(tmp_path, "", trace=None)
    with pytest.raises(UsageError, match="needs --budget FILE"):
        called(tmp_path, "", budget=None)
    with pytest.raises(InputError, match=r"none\.toml cannot be read"):
        called(tmp_path, "", budget=tmp_path / "none.toml", trace=tmp_path / "none.sqlite")


def test_a_name_that_only_the_bundled_sample_knows_falls_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CheckFailedError, match=r"not measured for mbu\.mbu; Floor unknown"):
        called(tmp_path, "[limits]\nmbu = { min = 0.7 }\n", trace=eager().save(tmp_path))
    assert capsys.readouterr().out


def test_exit_codes_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("[limits]\nkernels_per_step = { max = 292 }\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    trace = FOLDER / f"{EAGER}_h200.sqlite"
    command = [sys.executable, "-m", "tracelab", "check", str(trace), "--budget", "b.toml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "kernels_per_step" in done.stdout
    assert done.stderr == (
        "tracelab: b.toml:2: kernels_per_step = { max = 292 } fell short: "
        "measured 293 per step for kernels.kernels_per_step (1 of 1 limit).\n"
    )
