"""Leaves are found by folder and read without being imported; what they offer is what the rest relies on."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tracelab import cli, registry
from tracelab.registry import FOLDERS, Leaf, leaves, load
from tracelab.result import Result

# The words of the contract, whether they exist yet or not: a leaf must not take one.
RESERVED = {
    "profile", "report", "diff", "check", "sweep", "run", "list", "doctor", "scrub", "export", "explain", "cache",
}  # fmt: skip
HEAVY = ("numpy", "pandas", "pyarrow", "torch", *(f"tracelab.{folder}" for folder in FOLDERS))


def plain_commands(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the commands that are no analyzers."""
    with monkeypatch.context() as patch:
        patch.setattr(cli, "leaves", lambda _: {})
        app = cli.build_app([])
    names = [command.name for command in app.registered_commands] + [group.name for group in app.registered_groups]
    return {name for name in names if name is not None}


def clashes(names: set[str], commands: set[str]) -> set[str]:
    """Leaf names that are the name of a command too."""
    return names & (commands | RESERVED)


def loaded_after(code: str) -> list[str]:
    """Which heavy modules a fresh interpreter holds after running `code`."""
    probe = f"{code}\nimport sys\nprint(*[m for m in sys.modules if m.startswith({HEAVY!r})], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stderr.split()


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry of its own, with empty leaf folders, to be filled."""
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    return tmp_path


def every_leaf() -> list[Leaf]:
    """All leaves of all folders."""
    return [leaf for folder in FOLDERS for leaf in leaves(folder).values()]


def test_bundled_leaves_are_found() -> None:
    assert {"gaps", "grids", "kernels", "launches", "mbu", "phases", "waterfall"} <= leaves("analyzers").keys()
    assert {"json", "terminal"} <= leaves("reports").keys()
    assert "llama8b" in leaves("kernels")


def test_every_leaf_says_what_it_is_in_one_line() -> None:
    helps = {leaf.module: leaf.help for leaf in every_leaf()}
    assert [module for module, text in helps.items() if not text.endswith(".")] == []
    assert len(set(helps.values())) == len(helps)


def test_every_leaf_has_its_tests() -> None:
    tests = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    assert {f"test_{leaf.path.name}" for leaf in every_leaf()} - tests == set()


def test_a_new_file_is_a_new_leaf(folders: Path) -> None:
    (folders / "analyzers" / "token_rate.py").write_text(
        '"""Rate of tokens.\n\nMore."""\nraise RuntimeError("imported")\n'
    )
    (folders / "analyzers" / "_shared.py").write_text('"""Shared by leaves."""\n')
    (folders / "analyzers" / "notes.txt").write_text("no leaf")
    (folders / "reports" / "json_report.py").write_text("")
    assert {name: leaf.module for name, leaf in leaves("analyzers").items()} == {
        "token-rate": "tracelab.analyzers.token_rate"
    }
    assert leaves("analyzers")["token-rate"].help == "Rate of tokens."
    assert leaves("reports")["json"].module == "tracelab.reports.json_report"
    assert leaves("reports")["json"].help == ""
    assert leaves("kernels") == {}


def test_help_and_list_import_nothing_heavy() -> None:
    assert loaded_after("from tracelab.registry import *; [x.help for f in FOLDERS for x in leaves(f).values()]") == []
    assert (
        loaded_after("from tracelab.cli import build_app; build_app(['--help'])(['--help'], standalone_mode=False)")
        == []
    )
    assert (
        loaded_after("from tracelab.cli import build_app; build_app(['list'])(['list'], standalone_mode=False)") == []
    )


def test_control_an_import_would_be_seen() -> None:
    assert "tracelab.analyzers.gaps" in loaded_after("import tracelab.analyzers.gaps")


def test_no_leaf_has_the_name_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = plain_commands(monkeypatch)
    assert {"report", "list", "cache"} <= commands
    assert commands <= RESERVED
    assert clashes(set(leaves("analyzers")), commands) == set()
    assert clashes(set(leaves("kernels")), commands) == set()


def test_control_a_leaf_named_like_a_command_is_seen(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folders / "analyzers" / "report.py").write_text("")
    (folders / "analyzers" / "gaps.py").write_text("")
    assert clashes(set(leaves("analyzers")), plain_commands(monkeypatch)) == {"report"}


@pytest.mark.parametrize("name", leaves("analyzers"))
def test_analyzers_take_a_view_and_keywords_with_defaults(name: str) -> None:
    signature = inspect.signature(load(leaves("analyzers")[name]).analyze)
    first, *others = signature.parameters.values()
    assert first.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is not p.empty for p in others)
    assert signature.return_annotation is Result


@pytest.mark.parametrize("name", leaves("reports"))
def test_reports_render_whatever_there_is_to_say(name: str) -> None:
    module = load(leaves("reports")[name])
    style = {"full_names", "width", "color"}
    functions = {"render": 1, "render_result": 2, "render_diff": 1, "render_ladder": 1, "render_check": 1,
                 "render_trust": 1}  # fmt: skip
    for function, before in ((getattr(module, name), before) for name, before in functions.items()):
        parameters = list(inspect.signature(function).parameters.values())
        assert {p.name for p in parameters[before:]} == style
        assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters[before:])


@pytest.mark.parametrize("name", [leaf.name for leaf in leaves("kernels").values() if not leaf.variants])
def test_workloads_have_a_main_and_import_without_torch(name: str) -> None:
    leaf = leaves("kernels")[name]
    assert "torch" not in loaded_after(f"import {leaf.module}")
    assert callable(load(leaf).main)


@pytest.mark.parametrize("name", [leaf.name for leaf in leaves("kernels").values() if leaf.variants])
def test_kernels_say_their_variants_and_options_in_literals(name: str) -> None:
    leaf = leaves("kernels")[name]
    defaults = registry.literal(leaf.path, "DEFAULTS")
    assert next(iter(leaf.variants)) == defaults["variant"], "the good form comes first and is the default"
    assert {"steps", "graph"} <= defaults.keys()
    assert all(text and len(text) <= 110 for text in leaf.variants.values())
