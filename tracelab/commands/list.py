"""`tracelab list`: workloads, analyzers, reports, and the bundled traces."""

from tracelab.registry import leaves
from tracelab.samples import samples

HELP = "Workloads and kernels, analyzers, report formats, bundled traces."
_TITLES = {"kernels": "workloads (tracelab profile NAME)", "analyzers": "analyzers (tracelab NAME TRACE)",
           "reports": "report formats (--format NAME)"}  # fmt: skip


def run() -> None:
    """Print every leaf with its one-line help, read without importing any."""
    blocks = [
        (title, [(leaf.name, leaf.help) for leaf in leaves(folder).values()]) for folder, title in _TITLES.items()
    ]
    blocks.append(("bundled traces (tracelab report PATH)", [(str(s.path), s.title) for s in samples()]))
    for number, (title, rows) in enumerate(blocks):
        if number:
            print()
        print(title)
        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            print(f"  {name:<{width}}  {text}".rstrip())
