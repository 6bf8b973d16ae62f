"""The bundled recordings: real captures with their known numbers, for `report` without a trace and for tests."""

import json
from dataclasses import dataclass
from pathlib import Path

from tracelab.errors import InputError

FOLDER = Path(__file__).parent / "sample_traces"


@dataclass(frozen=True)
class Sample:
    """One bundled trace: its file and what was recorded, in one line."""

    path: Path
    title: str


def samples() -> list[Sample]:
    """All bundled traces in the order of the manifest; the first is the default."""
    try:
        manifest = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The bundled samples cannot be read ({error.strerror or error}).") from error
    return [Sample(FOLDER / entry["file"], entry["title"]) for entry in manifest["recordings"]]


def default_sample() -> Sample:
    """The sample that `tracelab report` shows when no trace is named."""
    return samples()[0]
