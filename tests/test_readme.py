"""What the README shows exists: its set-up commands are those that CI runs, its commands and options are the CLI's."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from called import called
from report_fixture import sketch_report
from source_tree import ROOT

from tracelab.capture.recordings import workload_defaults
from tracelab.cli import build_app
from tracelab.compare.compare import compare
from tracelab.compare.load import load_side
from tracelab.compare.options import DiffOptions
from tracelab.difference import LADDER_SCHEMA
from tracelab.difference import SCHEMA as DIFF_SCHEMA
from tracelab.families import classify
from tracelab.options import Facts, Selection
from tracelab.registry import leaves
from tracelab.report import SCHEMA
from tracelab.reports import json_report, terminal
from tracelab.samples import FOLDER

README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = ROOT / ".ci" / "run"
_PLACEHOLDER = re.compile(r"\[?[A-Z]+\]?")


def blocks(language: str, text: str = README) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def shown_commands(text: str) -> list[list[str]]:
    """Every tracelab command line in shell blocks and in code spans, split into words, without what precedes it."""
    lines = [line for block in blocks("sh", text) for line in block.splitlines()]
    spans = re.findall(r"`(tracelab [^`]+)`", text)
    found = [re.search(r"(?:^|[\s/])(tracelab(?:\s.*)?)$", line) for line in lines]
    return [shlex.split(shown) for shown in [*(match[1] for match in found if match), *spans]]


def shown_options(text: str) -> set[str]:
    """Every option that stands in a code span of its own, with or without a value."""
    return {match for match in re.findall(r"`(--?[a-z][a-z-]*)(?:[ =][^`]*)?`", text) if len(match) > 1}


def options_of(name: str) -> set[str]:
    """The options of one command, and of every kernel and workload for those that take theirs."""
    group = typer.main.get_command(build_app([name]))
    command = group.commands[name]  # type: ignore[attr-defined]
    own = {option for parameter in command.params for option in parameter.opts}
    takes_own = name in ("profile", "run")
    workloads = [workload_defaults(leaf.path) for leaf in leaves("kernels").values()] if takes_own else []
    return own | {"--help"} | {option for defaults in workloads for option in defaults}


def command_names() -> set[str]:
    """The commands of the command line."""
    return set(typer.main.get_command(build_app([])).commands)  # type: ignore[attr-defined]


def wrong(words: list[str]) -> list[str]:
    """What a shown command line names that does not exist."""
    if len(words) < 2 or (name := words[1]).startswith("--") or _PLACEHOLDER.fullmatch(name):
        return []
    if name not in command_names():
        return [f"command {name}"]
    own = words[2 : words.index("--")] if "--" in words else words[2:]
    return [word for word in own if word.startswith("-") and word.partition("=")[0] not in options_of(name)]


def readme_command(number: int) -> str:
    """What `.ci/run` runs as the README's command: its own extraction, run by bash."""
    function = next(line for line in CI.read_text(encoding="utf-8").splitlines() if line.startswith("readme_command()"))
    done = subprocess.run(
        ["bash", "-c", f"{function}\nreadme_command {number}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_first_two_commands_are_what_ci_runs() -> None:
    main_job, tests = blocks("sh")[0].splitlines()
    assert (main_job, tests) == (readme_command(1), readme_command(2))
    assert main_job.endswith("tracelab report")
    assert tests.endswith("pytest")
    script = CI.read_text(encoding="utf-8")
    assert re.findall(r'^eval "\$\(readme_command (\d)\)"$', script, flags=re.MULTILINE) == ["1", "2"]
    assert script.rstrip().endswith('eval "$(readme_command 2)"')


def test_ci_script_is_executable() -> None:
    assert CI.stat().st_mode & 0o111


def test_shown_commands_and_their_options_exist() -> None:
    shown = shown_commands(README)
    assert len(shown) > 15
    assert [(words, found) for words in shown if (found := wrong(words))] == []


def test_shown_options_exist_in_some_command() -> None:
    every = {option for name in command_names() - {"cache"} for option in options_of(name)}
    shown = shown_options(README)
    assert len(shown) > 15
    assert shown - every == set()


def test_every_command_is_shown() -> None:
    assert command_names() - {words[1] for words in shown_commands(README) if len(words) > 1} == set()


def test_control_what_does_not_exist_is_seen() -> None:
    block = "```sh\nX=1 .venv/bin/tracelab frobnicate T\ntracelab report --no-such T\n```\n"
    text = block + "`tracelab gaps -- x`, `--wrong N`\n"
    assert [wrong(words) for words in shown_commands(text)] == [["command frobnicate"], ["--no-such"], []]
    assert shown_options(text) == {"--wrong"}


@contextlib.contextmanager
def fake_nvtx() -> Iterator[list[dict[str, Any]]]:
    """Stands in for the package nvtx and keeps the marks that are set."""
    marks: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "nvtx", SimpleNamespace(mark=lambda **given: marks.append(given)))
        yield marks


def test_the_guard_example_runs_and_reports_nothing_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    _, example = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out == "[]\n"


def test_the_workload_record_example_runs() -> None:
    example, _ = blocks("python")
    with fake_nvtx() as marks:
        exec(compile(example, "README.md", "exec"), {})
    ((message, domain),) = [(mark["message"], mark["domain"]) for mark in marks]
    record = json.loads(message)
    assert (domain, record["tracelab.workload"]) == ("tracelab", 1)
    assert all(f"`{key}`" in README for key in record.keys() - {"tracelab.workload"})


def test_the_rules_example_is_a_rules_file(tmp_path: Path) -> None:
    _, example = blocks("toml")
    (rule,) = tomllib.loads(example)["rule"]
    path = tmp_path / "my_rules.toml"
    path.write_text(example, encoding="utf-8")
    found = classify(["my_fused_attention_fwd"], {"TRACELAB_FAMILIES": str(path)})
    assert (found.families[0], found.phases[0]) == (rule["family"], rule["phase"])


def test_the_budget_example_is_a_budget_that_can_be_kept(tmp_path: Path) -> None:
    """llama8b in a CUDA graph keeps every line of it: 293 kernels, 4.14 ms a step, MBU 76 %."""
    example, _ = blocks("toml")
    path = tmp_path / "budgets.toml"
    path.write_text(example, encoding="utf-8")
    answer = called("check", FOLDER / "llama8b_graph_b1_h200.sqlite", "--budget", path, "--format", "json")
    assert answer.code == 0, answer.err
    assert len(json.loads(answer.out)["lines"]) == 9


def test_the_diff_page_is_what_the_command_prints() -> None:
    shown = README.split("<!-- diff: begin -->\n```text\n")[1].split("```\n<!-- diff: end -->")[0]
    sides = [
        load_side([FOLDER / f"llama8b_{name}_32k_h200.sqlite"], Selection(), Facts()) for name in ("graph", "serial")
    ]
    page = terminal.render_diff(compare(sides[0], sides[1], DiffOptions()), full_names=False, width=120, color=False)
    assert shown == page


def test_the_keys_of_the_json_are_named() -> None:
    document = json.loads(json_report.render(sketch_report(), full_names=False, width=None, color=False))
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\| (.*) \|$", README, flags=re.MULTILINE))
    assert document.keys() <= rows.keys()
    for key in ("trace", "capture", "steps"):
        assert set(document[key] or {}) <= set(re.findall(r"\w+", rows[key])), key


def test_schema_and_exit_codes_are_those_of_the_code() -> None:
    from tracelab import errors

    assert all(f"`{schema}`" in README for schema in (SCHEMA, DIFF_SCHEMA, LADDER_SCHEMA))
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TracelabError)
    ]
    listed = {int(code) for code in re.findall(r"^\| (\d) \|", README, flags=re.MULTILINE)}
    assert {kind.exit_code for kind in kinds} | {0} == listed


def test_the_readme_never_sends_to_the_package_of_the_bare_name() -> None:
    assert not re.search(r"pip install (?:-\S+ )*['\"]?tracelab\b", README)
