"""Bundled recordings of bundled workloads, and which of them answers a given command line."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracelab.errors import InputError, UsageError
from tracelab.registry import literal

Options = Mapping[str, str | bool]


@dataclass(frozen=True)
class Recording:
    """One recording. `options` is the full set that it was made with, as `normalised` gives it."""

    file: Path
    title: str
    workload: str
    options: Options

    def command(self, defaults: Options) -> str:
        """How to ask for it: what differs from the workload's defaults, the number of steps excepted."""
        own = {name: v for name, v in self.options.items() if name != "--steps" and v != defaults.get(name)}
        return " ".join(["tracelab profile", self.workload, *as_arguments(own)])


def recordings(folder: Path) -> tuple[Recording, ...]:
    """The recordings that `folder`/manifest.json lists, as far as they are of a workload.

    Raises InputError if the manifest cannot be read.
    """
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return ()
    try:
        listed = json.loads(manifest.read_text(encoding="utf-8"))
        entries = listed["recordings"] if isinstance(listed, dict) else listed
        return tuple(
            Recording(folder / entry["file"], entry["title"], entry["workload"], normalised(entry["options"]))
            for entry in entries
            if entry.get("workload") and "options" in entry
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the list of recordings {manifest} is damaged: {error!r}") from error


def find_recording(folder: Path, workload: str, options: Options) -> Recording | None:
    """The recording of `workload` made with `options`, None if there is none.

    It may have another number of steps: each is like the others, so nobody misses some.
    """
    for recording in recordings(folder):
        if recording.workload == workload and _but_steps(recording.options) == _but_steps(options):
            return recording
    return None


def _but_steps(options: Options) -> dict[str, str | bool]:
    return {name: value for name, value in options.items() if name != "--steps"}


def workload_defaults(module: Path) -> dict[str, str | bool]:
    """The options of a workload with their defaults: the literal dict DEFAULTS in its source, which is not imported."""
    return normalised(literal(module, "DEFAULTS") or {})


def normalised(options: Mapping[str, object]) -> dict[str, str | bool]:
    """Options by `--name`; a flag is a bool, every other value its text, whole numbers without leading zeros."""
    return {f"--{name.lstrip('-').replace('_', '-')}": _value(value) for name, value in options.items()}


def resolve(arguments: Sequence[str], defaults: Options, workload: str) -> dict[str, str | bool]:
    """The full option set that `arguments` ask for.

    Raises UsageError for an option that the workload has not, and for a value that is no whole number where the default
    is one.
    """
    resolved = dict(defaults)
    rest = list(arguments)
    while rest:
        name, separator, value = rest.pop(0).partition("=")
        if name not in defaults:
            raise UsageError(f"{workload} has no option {name}; it has {' '.join(sorted(defaults))}")
        default = defaults[name]
        if isinstance(default, bool):
            if separator:
                raise UsageError(f"{workload}: the option {name} takes no value")
            resolved[name] = True
            continue
        if not separator and not rest:
            raise UsageError(f"{workload}: the option {name} needs a value")
        given = value if separator else rest.pop(0)
        if _is_whole(default) and not _is_whole(given):
            raise UsageError(f"{workload}: the option {name} takes a whole number that is not negative, not {given!r}")
        resolved[name] = _value(given)
    return resolved


def split_arguments(arguments: Sequence[str], defaults: Options) -> tuple[list[str], list[str]]:
    """Words after a workload's name, split into the workload's own options and all others, each in order."""
    own: list[str] = []
    others: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, separator, _ = word.partition("=")
        if name not in defaults:
            others.append(word)
            continue
        own.append(word)
        if not separator and not isinstance(defaults[name], bool) and rest:
            own.append(rest.pop(0))
    return own, others


def as_arguments(options: Options) -> list[str]:
    """Options as words of a command line; flags that are off are left out."""
    words: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            words += [name] if value else []
        elif value:  # an empty text is what a workload's default for "nothing" looks like
            words += [name, value]
    return words


def _value(value: object) -> str | bool:
    if isinstance(value, bool):
        return value
    text = str(value)
    return str(int(text)) if _is_whole(text) else text


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit()
