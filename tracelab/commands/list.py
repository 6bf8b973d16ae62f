"""`tracelab list`: workloads and kernels with their starved forms and variants, analyzers, reports, bundled traces.

With the name of a kernel or decode step: that one alone, and its options.
"""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import typer

from tracelab.capture.recordings import workload_defaults
from tracelab.commands.kernel_command import PROFILE_ONLY, known_kernel
from tracelab.errors import UsageError
from tracelab.registry import Leaf, leaves
from tracelab.samples import samples

HELP = "Workloads, kernels and variants, analyzers, report formats, bundled traces."
Row = tuple[str, str]
_NARROWEST = 30  # columns in which a sentence can still be read


def run(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A kernel or decode step: only this, with its options.")
    ] = None,
) -> None:
    """Print every leaf with its one-line help, or one leaf with its options, read without importing any."""
    blocks = _everything() if name is None else _one(name)
    for number, (title, rows) in enumerate(blocks.items()):
        if number:
            print()
        print("\n".join(_block(title, rows, _terminal_width())))


def _everything() -> Mapping[str, Sequence[Row]]:
    known = leaves("kernels").values()
    return {
        "decode steps (tracelab profile NAME)": list(_with_starved(known)),
        "kernels (tracelab run NAME; tracelab profile NAME --variant VARIANT)": list(_with_variants(known)),
        "analyzers (tracelab NAME TRACE)": _named(leaves("analyzers").values()),
        "report formats (--format NAME)": _named(leaves("reports").values()),
        "bundled traces (tracelab report PATH)": [(str(s.path), s.title) for s in samples()],
    }


def _one(name: str) -> Mapping[str, Sequence[Row]]:
    """One kernel or decode step: its help, its variants or starved forms, its options."""
    leaf = known_kernel(name)
    if leaf is None:
        raise UsageError(f"There is no kernel or decode step {name!r}; there are {', '.join(leaves('kernels'))}.")
    forms = {"variants (--variant VARIANT)": list(leaf.variants.items())} if leaf.variants else {}
    if leaf.starved:
        forms["starved forms (tracelab profile --starve KERNEL=FORM)"] = _starved(leaf)
    return {f"{leaf.name}: {leaf.help}": [], **forms, "options and their defaults": _options(leaf)}


def _options(leaf: Leaf) -> list[Row]:
    """A flag is off unless it is given."""
    defaults = workload_defaults(leaf.path)
    only = " (tracelab profile only)" if leaf.variants else ""  # a decode step can only be profiled
    return [
        (name, ("off" if value is False else str(value)) + (only if name in PROFILE_ONLY else ""))
        for name, value in defaults.items()
    ]


def _starved(leaf: Leaf) -> list[Row]:
    return [("--starve", f"{kernel}={'|'.join(forms)}") for kernel, forms in leaf.starved.items()]


def _terminal_width() -> int | None:
    """Columns to fit into; None for a pipe, where every row is one line."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _block(title: str, rows: Sequence[Row], columns: int | None) -> list[str]:
    """A title and its rows, the texts side by side; in a terminal they are wrapped, under long names if need be."""
    width = max((len(name) for name, _ in rows), default=0) + 4
    if columns is None:
        return [title, *(f"  {name:<{width - 2}}{text}".rstrip() for name, text in rows)]
    lines = textwrap.wrap(title, columns)
    for name, text in rows:
        beside = columns - width >= _NARROWEST
        indent = " " * (width if beside else 6)
        wrapped = textwrap.wrap(text, max(_NARROWEST, columns - len(indent))) or [""]
        lines += [f"  {name:<{width - 2}}{wrapped.pop(0)}".rstrip()] if beside else [f"  {name}"]
        lines += [indent + line for line in wrapped]
    return lines


def _named(found: Iterable[Leaf]) -> list[Row]:
    return [(leaf.name, leaf.help) for leaf in found]


def _with_starved(known: Iterable[Leaf]) -> Iterator[Row]:
    for leaf in known:
        if not leaf.variants:
            yield leaf.name, leaf.help
            yield from ((f"  {option}", forms) for option, forms in _starved(leaf))


def _with_variants(known: Iterable[Leaf]) -> Iterator[Row]:
    for leaf in known:
        if leaf.variants:
            yield leaf.name, leaf.help
            yield from ((f"  {name}", text) for name, text in leaf.variants.items())
