"""Finds what must not be shared in names: absolute paths, and values that the source holds in its environment."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tracelab.capture.scrub_schema import keeps_setting

_MIN_LENGTH = 6  # shorter values (`1`, `true`, `bash`) stand in every file and tell nothing
# Two or more components, at the start of a word: `/home/me`, not `attn/ffn` and not `a / b`.
_PATH = re.compile(r"(?<![\w.)\]])/(?:[\w.+@~%-]+/)+[\w.+@~%-]*|\b[A-Za-z]:\\[\w.+@~%\\ -]+")
# ONNX names its nodes like paths (`/layers.0/attn/MatMul`): last an operator, first no folder of an operating system.
_ONNX_NODE = re.compile(
    r"/(?!(?:home|Users|root|usr|opt|tmp|var|mnt|media|srv|data|etc|nfs|proc|dev|run|lib|work)\w*/)"
    r"(?:[\w.]+/)*[A-Z][A-Za-z]*(?:_\d+)?(?:_output_\d+)?"
)
_CREDENTIAL = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH|COOKIE|SESSION", re.I)
_OF_THE_USER = re.compile(r"ENVIRONMENT|COMMAND|ARGUMENT", re.I)
_IDENTITY = re.compile(
    r"(^|\W)(HOST|HOSTNAME|HOST_NAME|USER|USERNAME|LOGNAME|NODENAME|COMPUTERNAME|USERDOMAIN)\Z", re.I
)


@dataclass(frozen=True)
class Secrets:
    """Values of the source. A `strong` one stays nowhere; a `weak` one may be part of a kernel's or range's name."""

    strong: frozenset[str]
    weak: frozenset[str]


def collect_secrets(source: sqlite3.Connection, tables: Iterable[str]) -> Secrets:
    """Every environment value, argument, path, host, user and process name that the export `source` holds."""
    strong: set[str] = set()
    weak: set[str] = set()
    for name, value in _pairs(source, set(tables)):
        for part_name, part in _parts(name, value):
            if len(part) < _MIN_LENGTH:
                continue
            if _is_strong(part_name, part):
                strong.add(part)
            elif _OF_THE_USER.search(part_name):
                weak.add(part)
    return Secrets(frozenset(strong), frozenset(weak - strong))


class Redactor:
    """Makes names safe to share."""

    def __init__(self, secrets: Secrets) -> None:
        longest_first = sorted(secrets.strong, key=len, reverse=True)
        self._strong = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self.name = lru_cache(maxsize=1 << 16)(self._name)
        self.overhead = lru_cache(maxsize=1 << 16)(self._overhead)

    def _name(self, value: bytes | None) -> str | None:
        return None if value is None else self._clean(value, lambda _: "(path)")

    def _overhead(self, value: bytes | None) -> str | None:
        # dlopen(/…/libcuda.so.1) still says which library was loaded
        return None if value is None else self._clean(value, lambda path: "/…/" + re.split(r"[/\\]", path)[-1])

    def _clean(self, value: bytes, short: Callable[[str], str]) -> str:
        text = value.decode("utf-8", "replace")
        clean = _PATH.sub(lambda match: match[0] if _ONNX_NODE.fullmatch(match[0]) else short(match[0]), text)
        if self._strong is not None:
            clean = self._strong.sub("(removed)", clean)
        return clean


def _pairs(source: sqlite3.Connection, tables: set[str]) -> Iterator[tuple[str, str]]:
    queries = {
        "META_DATA_CAPTURE": "SELECT name, value FROM src.META_DATA_CAPTURE",
        "TARGET_INFO_SYSTEM_ENV": "SELECT name, value FROM src.TARGET_INFO_SYSTEM_ENV",
        "PROCESSES": "SELECT 'COMMAND', name FROM src.PROCESSES",
    }
    for table, query in queries.items():
        if table in tables:
            for name, value in source.execute(query):
                if value is not None and not keeps_setting(str(name), str(value)):
                    yield str(name), str(value)


def _parts(name: str, value: str) -> Iterator[tuple[str, str]]:
    """The value itself and what it is made of: a list of `NAME=VALUE` (split by NUL in 2022), a list of paths."""
    for entry in re.split(r"[\0\n]", value):
        yield name, entry
        head, separator, rest = entry.partition("=")
        label = f"{name} {head}" if separator else name
        for part in (rest or entry, *(rest or entry).split(":")):
            yield label, part


def _is_strong(name: str, value: str) -> bool:
    if _CREDENTIAL.search(name) or _IDENTITY.search(name):
        return True
    return value.startswith("/") and value.count("/") > 1
