"""`tracelab list`: workloads, kernels with their variants, analyzers, reports, and the bundled traces."""

from collections.abc import Iterable, Iterator

from tracelab.registry import Leaf, leaves
from tracelab.samples import samples

HELP = "Workloads, kernels and variants, analyzers, report formats, bundled traces."
Row = tuple[str, str]


def run() -> None:
    """Print every leaf with its one-line help, read without importing any."""
    known = leaves("kernels").values()
    blocks = {
        "decode steps (tracelab profile NAME)": _named(leaf for leaf in known if not leaf.variants),
        "kernels (tracelab run NAME; tracelab profile NAME --variant VARIANT)": list(_with_variants(known)),
        "analyzers (tracelab NAME TRACE)": _named(leaves("analyzers").values()),
        "report formats (--format NAME)": _named(leaves("reports").values()),
        "bundled traces (tracelab report PATH)": [(str(s.path), s.title) for s in samples()],
    }
    for number, (title, rows) in enumerate(blocks.items()):
        if number:
            print()
        print(title)
        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            print(f"  {name:<{width}}  {text}".rstrip())


def _named(found: Iterable[Leaf]) -> list[Row]:
    return [(leaf.name, leaf.help) for leaf in found]


def _with_variants(known: Iterable[Leaf]) -> Iterator[Row]:
    for leaf in known:
        if leaf.variants:
            yield leaf.name, leaf.help
            yield from ((f"  {name}", text) for name, text in leaf.variants.items())
