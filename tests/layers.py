"""The house rules on imports, as functions from a source to what it breaks: a test can break each on purpose."""

import ast
import re
import sys
from collections.abc import Iterator

from source_tree import LEAF_FOLDERS, Source, imports

# Who may import whom: kernels, capture, trace, steps and phases, analyzers, comparison, reports, command line, in this
# direction.
# A core module that is named nowhere here is of the layer "steps", so a new one needs no entry.
# Errors, results, options, units, names, how far a reading is: imported by all, importing no other layer.
WORDS = "words"
ALLOWED = {
    WORDS: {WORDS},
    "kernels": {WORDS, "kernels"},
    "capture": {WORDS, "capture"},
    "trace": {WORDS, "capture", "trace"},
    "steps": {WORDS, "trace", "steps"},
    "analyzers": {WORDS, "trace", "steps", "analyzers"},
    "reports": {WORDS, "reports"},
    "analysis": {WORDS, "trace", "steps"},
    "comparison": {WORDS, "trace", "steps", "analysis", "comparison"},
    "command line": {WORDS, "capture", "trace", "steps", "analysis", "comparison", "command line"},
}
_LAYERS = (
    (
        WORDS,
        r"budget_result|difference|errors|failures|gpus|kernel_names|no_kernels|occupancy|options|quantities|reading"
        r"|registry|report|report_codec|result|trust_result|units",
    ),
    ("kernels", r"kernels\..*"),
    ("capture", r"capture(\..*)?"),
    (
        "trace",
        r"trace|event_clock|arrays|pool|batches|coded_rows|load|samples|sqlite_read|large_tables|sqlite_pages|coded_texts|arrow_\w+|unpack|table_source|nsys_\w+|kineto_\w+",
    ),
    ("analyzers", r"analyzers\..*"),
    ("reports", r"reports\..*"),
    ("analysis", r"analysis"),
    ("comparison", r"compare(\..*)?"),
    ("command line", r"__main__|cli|commands(\..*)?"),
)
_GPU_PACKAGES = {"torch", "triton", "nvtx"}
_TERMINAL_PACKAGES = {"rich", "typer"}
_READERS = {"sqlite3", "pandas", "pyarrow"}
_LEAF_MODULE = re.compile(rf"tracelab\.({'|'.join(LEAF_FOLDERS)})\.\w+")
_BARE_LEAF = re.compile(rf"({'|'.join(LEAF_FOLDERS)})(\.|$)")


def layer_of(module: str) -> str:
    """The layer of a module of the package; the package itself (its version) is everybody's."""
    inside = module.removeprefix("tracelab").removeprefix(".")
    if not inside:
        return WORDS
    return next((layer for layer, pattern in _LAYERS if re.fullmatch(pattern, inside)), "steps")


def broken_rules(source: Source, modules: frozenset[str]) -> list[str]:
    """One sentence for each rule that the source breaks; `modules` are those of the package."""
    rules = (_relative, _direction, _gpu_packages, _leaf_by_name, _analyzer, _report)
    return [f"{source.module}: {broken}" for rule in rules for broken in rule(source, modules)]


def internal_imports(source: Source, modules: frozenset[str]) -> Iterator[str]:
    """The modules of the package that a source imports."""
    for name in imports(source):
        found = next((module for module in (name, name.rpartition(".")[0]) if module in modules), None)
        if found is not None and found != source.module:
            yield found


def leaf_folder_of(module: str) -> str | None:
    """The leaf folder a module stands in, None for core."""
    match = re.match(r"tracelab\.(\w+)\.", module)
    return match[1] if match and match[1] in LEAF_FOLDERS else None


def _relative(source: Source, _: frozenset[str]) -> Iterator[str]:
    for name in imports(source):
        if name.startswith("."):
            yield f"relative import {name}"
        elif _BARE_LEAF.match(name):
            yield f"imports {name}, which is somebody else's package; ours is tracelab.{name}"


def _direction(source: Source, modules: frozenset[str]) -> Iterator[str]:
    own = layer_of(source.module)
    for module in internal_imports(source, modules):
        if layer_of(module) not in ALLOWED[own]:
            yield f"of the layer {own} imports {module} of the layer {layer_of(module)}"


def _gpu_packages(source: Source, _: frozenset[str]) -> Iterator[str]:
    if leaf_folder_of(source.module) != "kernels":
        yield from (f"imports {name} outside kernels/" for name in imports(source) if _package(name) in _GPU_PACKAGES)


def _leaf_by_name(source: Source, _: frozenset[str]) -> Iterator[str]:
    if leaf_folder_of(source.module) is not None:
        return
    texts = (node.value for node in ast.walk(source.tree) if isinstance(node, ast.Constant))
    named = [*imports(source), *(text for text in texts if isinstance(text, str))]
    yield from (f"names the leaf {name}" for name in named if _LEAF_MODULE.fullmatch(name.rpartition(":")[0] or name))


def _analyzer(source: Source, modules: frozenset[str]) -> Iterator[str]:
    if leaf_folder_of(source.module) != "analyzers":
        return
    yield from _other_leaves(source, modules, "analyzers")
    yield from (f"imports {name}" for name in imports(source) if _package(name) in _TERMINAL_PACKAGES)
    yield from _prints(source)


def _report(source: Source, modules: frozenset[str]) -> Iterator[str]:
    if leaf_folder_of(source.module) != "reports":
        return
    yield from _other_leaves(source, modules, "reports")
    yield from (f"imports {name}, which opens traces" for name in imports(source) if _package(name) in _READERS)
    yield from _prints(source)


def _other_leaves(source: Source, modules: frozenset[str], folder: str) -> Iterator[str]:
    for module in internal_imports(source, modules):
        if leaf_folder_of(module) == folder and not module.rpartition(".")[2].startswith("_"):
            yield f"imports another leaf, {module}"


def _prints(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"prints in line {node.lineno}"
        if isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr"}:
            yield f"uses {node.attr} in line {node.lineno}"


def _package(name: str) -> str:
    return name.partition(".")[0]


def is_standard_library(name: str) -> bool:
    """Whether a leaf of this name would hide a standard module from a sibling that is run as a script."""
    return name in sys.stdlib_module_names
