"""The traces that the benchmark runs on, made from bundled recordings in processes of their own."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from measure import ROOT, measured, own_env

EAGER = ROOT / "sample_traces" / "llama8b_eager_b1_h200.sqlite"
_HERE = Path(__file__).parent
_MAKING_LIMIT_S = 3600.0
_OTHER_MORE = 5_000  # kernels that the second trace of a diff has more, so that there is something to tell
_SETTLED_S = 2.5  # nothing keeps what it read of a file that may still be written to


@dataclass(frozen=True)
class Traces:
    """Where they lie; `ten` has ten times the kernels of `big`, and is None where it was not asked for."""

    big: Path
    other: Path
    nested: Path
    numbered: Path
    kineto: Path
    parquetdir: Path
    ten: Path | None


def make(folder: Path, kernels: int, *, ten: bool) -> Traces:
    """Make what `folder` does not hold yet: traces of `kernels` kernels, and the others by the issue's proportions."""
    folder.mkdir(parents=True, exist_ok=True)
    big = _enlarged(folder, kernels)
    nested = ("--ranges", kernels, "--kernels", kernels // 5)
    traces = Traces(
        big=big,
        other=_enlarged(folder, kernels + _OTHER_MORE),
        nested=_made(folder / f"nested_{kernels}.sqlite", "nested.py", EAGER, after=nested),
        numbered=_made(folder / f"numbered_{kernels}.sqlite", "nested.py", EAGER, after=(*nested, "--numbered")),
        kineto=_made(folder / f"kineto_{kernels // 10}.json", "kineto.py", after=(kernels // 10,)),
        parquetdir=_made(folder / f"kernels_{kernels}.parquetdir", "parquetdir.py", big),
        ten=_enlarged(folder, 10 * kernels) if ten else None,
    )
    newest = max(path.stat().st_mtime for path in folder.iterdir())
    time.sleep(max(0.0, _SETTLED_S - (time.time() - newest)))
    return traces


def _enlarged(folder: Path, kernels: int) -> Path:
    return _made(folder / f"kernels_{kernels}.sqlite", "enlarge.py", EAGER, after=(kernels,))


def _made(target: Path, program: str, *before: Path, after: tuple[str | int, ...] = ()) -> Path:
    """Run a generator unless `target` is there; one that was interrupted leaves nothing of that name."""
    if not target.exists():
        part = target.with_name(f"{target.name}.{time.time_ns()}")
        measured([sys.executable, _HERE / program, *before, part, *map(str, after)], own_env(), _MAKING_LIMIT_S)
        part.rename(target)
    return target
