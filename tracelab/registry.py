"""Finds the leaves (kernels, analyzers, reports) by folder, without importing them.

A leaf is one file in one of the three folders whose name does not begin with an underscore. Name and one-line help are
read from the source text, so `tracelab --help` and `tracelab list` never pay for an import; `load` imports the one
leaf that is called.
"""

import ast
import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDERS = ("kernels", "analyzers", "reports")
_REPORT_SUFFIX = "_report"  # a leaf must not be named like a standard-library module: json_report.py offers "json"


@dataclass(frozen=True)
class Leaf:
    """One file of a leaf folder: what it is called on the command line and how it is imported."""

    name: str
    module: str
    path: Path

    @property
    def help(self) -> str:
        """First line of the module's docstring, read from its source."""
        doc = ast.get_docstring(ast.parse(self.path.read_text(encoding="utf-8")))
        return doc.splitlines()[0].strip() if doc else ""

    @property
    def variants(self) -> dict[str, str]:
        """A kernel's variants, each with its one-line help; empty for a workload that is no single kernel."""
        return literal(self.path, "VARIANTS") or {}

    @property
    def starved(self) -> dict[str, tuple[str, ...]]:
        """A decode step's kernels that `--starve` can degrade, each with its forms; empty for a single kernel."""
        return literal(self.path, "STARVED") or {}


def leaves(folder: str) -> dict[str, Leaf]:
    """The leaves of `folder` (one of FOLDERS) by name, sorted."""
    root = Path(__file__).parent / folder
    found = sorted(p for p in root.glob("*.py") if not p.name.startswith("_"))
    return {leaf.name: leaf for leaf in (_leaf(folder, path) for path in found)}


def literal(source: Path, name: str) -> Any:
    """The literal that the module assigns to `name`, read from its source without importing it; None if it has none."""
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if node.value is not None and any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return ast.literal_eval(node.value)
    return None


def load(leaf: Leaf) -> ModuleType:
    """Import the leaf's module."""
    return importlib.import_module(leaf.module)


def _leaf(folder: str, path: Path) -> Leaf:
    name = path.stem.removesuffix(_REPORT_SUFFIX) if folder == "reports" else path.stem
    return Leaf(name=name.replace("_", "-"), module=f"tracelab.{folder}.{path.stem}", path=path)
