"""Finished reports of large traces, kept in the cache folder: the same question of the same file is answered at once.

A report is kept, not the columns of its trace: it has a hundredth of their size, and reading is less than half of the
time. It is found by everything that it depends on: the state of every file of the trace, the version of tracelab down
to its source files, and all options. Each is one Arrow file, written aside and renamed, so two processes never see half
of one; the least recently used are removed beyond a size. A cache that cannot be used is no error.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelab.capture.cache import cache_folder
from tracelab.capture.folder import TRACE
from tracelab.capture.identity import Identity, file_identity
from tracelab.capture.settled import has_pending_log
from tracelab.errors import TracelabError
from tracelab.options import Facts, Selection

if TYPE_CHECKING:
    from tracelab.report import Report

_FOLDER = "reports"
_LEAST_BYTES = 4_000_000  # a smaller trace is analysed in less time than a kept report is worth
_MOST_BYTES = 256_000_000  # of all kept reports; one of a million kernels has about 0.5 MB
# A file that was written this shortly before it was looked at could be written again without a change of its times, on
# file systems that count whole seconds (FAT: two).
_SETTLED_NS = 2_000_000_000
_PACKAGE = Path(__file__).parents[1]
_SUFFIX = ".arrow"


@dataclasses.dataclass(frozen=True)
class Question:
    """What a report is an answer to; `analyzers` None: all of them."""

    trace: Path
    selection: Selection
    facts: Facts
    analyzers: Mapping[str, Mapping[str, Any]] | None
    nsys: str | None

    def state(self) -> Identity | None:
        """The state of the trace's files; None where no report of them may be kept."""
        if has_pending_log(self.trace) or has_pending_log(self.trace / TRACE):
            return None
        state = file_identity(self.trace)
        large = state is not None and sum(size for _, _, _, size, _, _ in state) >= _LEAST_BYTES
        return state if large else None

    def key(self, state: Identity) -> str:
        """A name for the question, asked of files in this state."""
        own_families = os.environ.get("TRACELAB_FAMILIES")
        facts = [
            str(self.trace), state, dataclasses.asdict(self.selection), dataclasses.asdict(self.facts), self.nsys,
            self.analyzers, own_families, own_families and file_identity(Path(own_families)),
            os.environ.get("TRACELAB_NSYS"),
            _program(),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(facts, default=str, sort_keys=True).encode(errors="surrogatepass")).hexdigest()


def find(question: Question) -> "tuple[Report | None, str | None]":
    """The kept answer, if there is one, and the key of the question as it is asked now."""
    state = question.state()
    if state is None:
        return None, None
    key = question.key(state)
    with contextlib.suppress(Exception):  # damaged, of another version, or gone meanwhile: analysed anew
        entry = cache_folder() / _FOLDER / (key + _SUFFIX)
        if entry.is_file():
            found = _read(entry)
            with contextlib.suppress(OSError):
                os.utime(entry)
            return found, key
    return None, key


def keep(question: Question, key: str | None, report: "Report") -> None:
    """Keep `report`; `key` is from before anything was read for it, and must still be that of the question."""
    state = question.state()
    if key is None or state is None or _just_written(state) or question.key(state) != key:
        return
    with contextlib.suppress(OSError, TracelabError, TypeError, ValueError):
        folder = cache_folder() / _FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        _write(report, folder / (key + _SUFFIX))
        _make_room(folder)


def _just_written(state: Identity) -> bool:
    newest_ns = max(max(modified_ns, changed_ns) for *_, modified_ns, changed_ns in state)
    return time.time_ns() - newest_ns < _SETTLED_NS


def _read(entry: Path) -> "Report":
    import numpy as np
    import pyarrow as pa

    from tracelab.report_codec import decode

    with pa.OSFile(os.fsencode(entry)) as file, pa.ipc.open_file(file) as reader:
        batch, text = reader.get_batch(0), reader.schema.metadata[b"report"]
    _, offsets, _, values = batch.column(0).buffers()
    flat = np.frombuffer(values, np.float64) if values is not None else np.zeros(0)
    edges = np.frombuffer(offsets, np.int32)[: len(batch) + 1].tolist() if offsets is not None else [0]
    return decode(text.decode(), [flat[a:b] for a, b in pairwise(edges)])


def _write(report: "Report", entry: Path) -> None:
    import numpy as np
    import pyarrow as pa

    from tracelab.report_codec import encode

    text, samples = encode(report)
    # From memory to memory: pyarrow's own ways from numpy import pandas, which takes longer than all the rest.
    flat = np.concatenate([np.zeros(0), *samples])
    edges = np.cumsum([0, *map(len, samples)], dtype=np.int32)
    values = pa.Array.from_buffers(pa.float64(), len(flat), [None, pa.py_buffer(flat)])
    kind = pa.list_(pa.float64())
    column = pa.Array.from_buffers(kind, len(samples), [None, pa.py_buffer(edges)], children=[values])
    schema = pa.schema([pa.field("samples", kind)], metadata={"report": text})
    aside = entry.with_name(f"{entry.name}.{os.getpid()}.part")
    try:
        with pa.OSFile(os.fsencode(aside), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays([column], schema=schema))
        aside.chmod(0o600)  # it holds names of the profiled program
        aside.replace(entry)
    finally:
        aside.unlink(missing_ok=True)


def _make_room(folder: Path) -> None:
    """Remove what was used longest ago until the rest fits."""
    entries = sorted(((entry.stat(), entry) for entry in folder.iterdir()), key=lambda one: one[0].st_mtime_ns)
    total = sum(seen.st_size for seen, _ in entries)
    for seen, entry in entries:
        if total <= _MOST_BYTES:
            return
        entry.unlink(missing_ok=True)
        total -= seen.st_size


def _program() -> list[tuple[str, int, int]]:
    """Every source and data file of tracelab with its size and time: a checkout changes without a new version."""
    found = []
    for folder, _, files in os.walk(_PACKAGE, followlinks=True):  # the leaf folders are links in a checkout
        for file in (Path(folder, name) for name in files if name.endswith((".py", ".toml", ".json"))):
            seen = file.stat()
            found.append((str(file), seen.st_size, seen.st_mtime_ns))
    return sorted(found)
