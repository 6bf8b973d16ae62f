"""`tracelab list`: what it names, one row a line in a pipe, wrapped in a terminal."""

from pathlib import Path
from types import ModuleType

import pytest

from tracelab.capture.recordings import workload_defaults
from tracelab.cli import build_app
from tracelab.commands import list as list_command
from tracelab.errors import UsageError
from tracelab.kernels import k3_rank, kimi_linear_mini, llama8b
from tracelab.registry import Leaf, leaves

TEXT = "one block walks the whole context, eight blocks on all the multiprocessors of the GPU"


def test_every_leaf_and_variant_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    list_command.run()
    words = capsys.readouterr().out.split()
    for folder in ("kernels", "analyzers", "reports"):
        for leaf in leaves(folder).values():
            assert leaf.name in words
            assert leaf.variants.keys() <= set(words)


@pytest.mark.parametrize("module", [k3_rank, kimi_linear_mini, llama8b], ids=lambda module: module.__name__)
def test_a_decode_step_has_a_line_for_each_kernel_it_can_starve(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    starved = module.workload().starved
    assert Leaf("", "", Path(module.__file__ or "")).starved == starved
    list_command.run()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    first = next(at for at, words in enumerate(lines) if words[:1] == [module.workload().name]) + 1
    assert lines[first : first + len(starved)] == [
        ["--starve", f"{kernel}={'|'.join(forms)}"] for kernel, forms in starved.items()
    ]
    assert lines[first + len(starved)][:1] != ["--starve"]


def call(*words: str) -> None:
    build_app(["list", *words])(["list", *words], standalone_mode=False)


def test_a_kernel_by_name_shows_help_variants_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    leaf = leaves("kernels")["split-kv"]
    call("split_kv")
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["split-kv:", leaf.help]
    assert [[name, text] for name, text in leaf.variants.items()] == lines[3 : 3 + len(leaf.variants)]
    for row in (["--ctx", "131072"], ["--kv-heads", "8"], ["--graph", "off (tracelab profile only)"]):
        assert row in lines


def test_a_decode_step_by_name_shows_its_starved_forms_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    call("k3-rank")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["--starve", "moe=loop|bm128"] in lines
    for row in (["--heads", "96"], ["--graph", "off"], ["--fail", "none"]):
        assert row in lines


@pytest.mark.parametrize("name", leaves("kernels"))
def test_every_option_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    call(name)
    words = capsys.readouterr().out.split()
    assert workload_defaults(leaves("kernels")[name].path).keys() <= set(words)


def test_an_unknown_name_is_told_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"no kernel or decode step 'nope'; there are attention, .*split-kv"):
        call("nope")


def test_a_single_kernel_starves_none() -> None:
    known = leaves("kernels").values()
    assert all(bool(leaf.starved) != bool(leaf.variants) for leaf in known)


def test_in_a_pipe_each_row_is_one_line() -> None:
    assert list_command._block("kernels", [("serial", TEXT), ("k", "x")], None) == [
        "kernels", f"  serial  {TEXT}", "  k       x",
    ]  # fmt: skip


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("name", ["serial", "/a/long/path/to/some/trace/that/leaves/no/room.sqlite"])
def test_in_a_terminal_texts_are_wrapped_beside_or_under_the_name(name: str, columns: int) -> None:
    lines = list_command._block("kernels", [(name, TEXT)], columns)
    assert all(len(line) <= columns for line in lines if name not in line)
    assert " ".join(" ".join(lines[1:]).split()) == f"{name} {TEXT}"
