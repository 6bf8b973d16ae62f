"""The repository's own source, parsed: files, functions and imports, for the tests that hold the house rules."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEAF_FOLDERS = ("kernels", "analyzers", "reports")


@dataclass(frozen=True)
class Source:
    """One Python file: where it stands and what it is imported as (tests have no package)."""

    path: Path
    module: str
    tree: ast.Module
    lines: int


def parse(path: Path, module: str, text: str) -> Source:
    """A source from its text."""
    return Source(path, module, ast.parse(text, str(path)), text.count("\n"))


def package_sources() -> list[Source]:
    """Every file of the package, the leaves under the names they are imported by."""
    core = sorted((ROOT / "tracelab").rglob("*.py"))  # does not follow the links
    leaves = [path for folder in LEAF_FOLDERS for path in sorted((ROOT / folder).glob("*.py"))]
    return [_read(path) for path in core + leaves]


def all_sources() -> list[Source]:
    """The package and its tests."""
    return package_sources() + [_read(path) for path in sorted((ROOT / "tests").rglob("*.py"))]


def imports(source: Source) -> Iterator[str]:
    """What a file imports anywhere in it, as dotted names; a relative import keeps its dots."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def functions(source: Source) -> Iterator[tuple[str, int]]:
    """Name and length in lines of every function."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def gpu_functions(source: Source) -> set[str]:
    """Names of the functions that Triton or Gluon compiles (decorated `….jit`, with or without arguments)."""
    found = (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef))
    return {node.name for node in found if any(re.search(r"\bjit\b", ast.unparse(d)) for d in node.decorator_list)}


def _read(path: Path) -> Source:
    inside = path.relative_to(ROOT).with_suffix("")
    parts = ("tracelab", *inside.parts) if inside.parts[0] in LEAF_FOLDERS else inside.parts
    return parse(path, ".".join(parts).removesuffix(".__init__"), path.read_text(encoding="utf-8"))
