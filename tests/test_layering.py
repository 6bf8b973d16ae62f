"""The house: imports go one way, leaves stand alone, files and functions stay short. Each rule has a control."""

import graphlib
from pathlib import Path

import pytest
from layers import broken_rules, internal_imports, is_standard_library
from source_tree import LEAF_FOLDERS, ROOT, Source, all_sources, functions, gpu_functions, package_sources, parse

PACKAGE = package_sources()
MODULES = frozenset(source.module for source in PACKAGE)
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
# A GPU kernel is one program, its parameters one a line: cutting it up hides what stays in registers between stages.
MAX_GPU_FUNCTION_LINES = 90
LINKS = (*LEAF_FOLDERS, "sample_traces")


def too_long(source: Source) -> list[str]:
    """What is longer in this source than one reading takes."""
    files = [f"{source.path}: {source.lines} lines"] if source.lines > MAX_FILE_LINES else []
    gpu = gpu_functions(source)
    return files + [
        f"{source.path}: {name} has {lines} lines"
        for name, lines in functions(source)
        if lines > (MAX_GPU_FUNCTION_LINES if name in gpu else MAX_FUNCTION_LINES)
    ]


def cycle(sources: list[Source]) -> list[str]:
    """The modules of an import cycle, empty if there is none."""
    graph = {source.module: set(internal_imports(source, MODULES)) for source in sources}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [str(module) for module in error.args[1]]
    return []


def test_the_walk_sees_core_and_leaves() -> None:
    seen = {
        "tracelab.cli",
        "tracelab.capture.run",
        "tracelab.trace",
        "tracelab.analyzers.gaps",
        "tracelab.kernels.llama8b",
    }
    assert seen <= MODULES
    assert len(MODULES) == len(PACKAGE)


def test_imports_keep_the_rules() -> None:
    assert [broken for source in PACKAGE for broken in broken_rules(source, MODULES)] == []


def test_no_module_imports_itself_through_others() -> None:
    assert cycle(PACKAGE) == []


def test_files_and_functions_are_short() -> None:
    assert [long for source in all_sources() for long in too_long(source)] == []


BROKEN = {
    "from . import trace": ("tracelab.steps", "relative import"),
    "import kernels.llama8b": ("tracelab.cli", "somebody else's package"),
    "from tracelab.steps import find_steps": ("tracelab.trace", "layer trace imports tracelab.steps"),
    "import tracelab.analysis": ("tracelab.phases", "layer steps imports tracelab.analysis"),
    "from tracelab import load": ("tracelab.reports.page", "layer reports imports tracelab.load"),
    "from tracelab.trace import Trace": ("tracelab.capture.run", "layer capture imports tracelab.trace"),
    "from tracelab.capture import nsys": ("tracelab.analyzers.gaps", "layer analyzers imports tracelab.capture.nsys"),
    "from tracelab.cli import build_app": ("tracelab.units", "layer words imports tracelab.cli"),
    "from tracelab.view import View": ("tracelab.kernels.llama8b", "layer kernels imports tracelab.view"),
    "def f():\n    import torch.nn": ("tracelab.floor", "torch.nn outside kernels/"),
    "import nvtx": ("tracelab.analyzers.gaps", "nvtx outside kernels/"),
    "from triton import language": ("tracelab.capture.run", "triton.language outside kernels/"),
    "from tracelab.analyzers import gaps": ("tracelab.analysis", "names the leaf tracelab.analyzers.gaps"),
    "name = 'tracelab.reports.terminal'": ("tracelab.commands.report", "names the leaf tracelab.reports.terminal"),
    "from tracelab.analyzers.mbu import analyze": ("tracelab.analyzers.gaps", "imports another leaf"),
    "from tracelab.reports.terminal import render": ("tracelab.reports.page", "imports another leaf"),
    "print(1)": ("tracelab.analyzers.gaps", "prints in line 1"),
    "import sys\nsys.stderr.write('')": ("tracelab.analyzers.gaps", "uses stderr in line 2"),
    "import typer": ("tracelab.analyzers.gaps", "imports typer"),
    "import sqlite3": ("tracelab.reports.page", "which opens traces"),
}  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_control_each_rule_is_seen_when_broken(text: str) -> None:
    module, said = BROKEN[text]
    found = broken_rules(parse(Path("synthetic.py"), module, text + "\n"), MODULES)
    assert any(said in sentence for sentence in found), found


def test_control_what_is_allowed_passes() -> None:
    text = "from tracelab.view import View\nfrom tracelab.analyzers._shared import table\nimport numpy\n"
    assert broken_rules(parse(Path("synthetic.py"), "tracelab.analyzers.gaps", text), MODULES) == []


def test_control_lengths_and_cycles_are_seen() -> None:
    long_function = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
    assert len(too_long(parse(Path("long.py"), "tracelab.long", long_function))) == 1
    assert too_long(parse(Path("long.py"), "tracelab.long", f"@triton.jit\n{long_function}")) == []
    assert len(too_long(parse(Path("long.py"), "tracelab.long", "x = 1\n" * (MAX_FILE_LINES + 1)))) == 1
    pair = {"tracelab.units": "import tracelab.errors", "tracelab.errors": "import tracelab.units"}
    assert set(cycle([parse(Path("a.py"), *item) for item in pair.items()])) == set(pair)


@pytest.mark.parametrize("name", LINKS)
def test_leaf_folders_are_reached_by_relative_links(name: str) -> None:
    # Where this runs in a fresh clone, as CI's checkout is, the links were committed as links.
    link = ROOT / "tracelab" / name
    assert link.is_symlink(), f"{link} is no symbolic link: clone with core.symlinks=true"
    assert link.readlink() == Path("..") / name


@pytest.mark.parametrize("folder", LEAF_FOLDERS)
def test_leaf_folders_hold_leaf_files_only(folder: str) -> None:
    files = list((ROOT / folder).glob("*.py"))
    assert files
    assert not (ROOT / folder / "__init__.py").exists()
    assert [path.name for path in files if is_standard_library(path.stem)] == []


def test_control_a_standard_module_name_is_seen() -> None:
    assert is_standard_library("json")
    assert not is_standard_library("json_report")
