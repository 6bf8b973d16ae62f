"""Finds the secrets of an export: what its environment, arguments, host and users are called, to be sought in names."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tracelab.capture.scrub_values import REMOVED, clean_property, clean_setting

_SHORTEST = 6  # of a credential, a host, a user or a path; what is shorter stands in every file by chance
_SHORTEST_VALUE = 8  # of any other value
_SHORTEST_WORD = 4  # of a host or user that is only looked for as a whole word

_CREDENTIAL = re.compile(
    r"TOKEN(?!S|IZ)|SECRET|PASS(?!ES)|KEY|CREDENTIAL|AUTH|COOKIE|SESSION|LICEN[CS]E|PRIVATE|BEARER|JWT|DSN|WEBHOOK|UUID",
    re.I,
)
_IDENTITY = re.compile(
    r"(^|[\W_])(HOST|HOSTNAME|HOST_NAME|USER|USERNAME|LOGNAME|NODENAME|COMPUTERNAME|USERDOMAIN|ADDR)\Z", re.I
)
_OWN_NAME = re.compile(r"(^|\W)(HOST|HOSTNAME|HOST_NAME|USER|USERNAME|LOGNAME)\Z", re.I)
_ARGUMENT = re.compile(r"ARGUMENT|COMMAND", re.I)
_USER_AT_HOST = re.compile(r"(?:([\w.+~-]+)(?::([^\s:/@]+))?@)([\w.-]+)")
_URL_HOST = re.compile(r"[a-z]://([\w.-]+)", re.I)
_HOME = re.compile(r"/(?:home|Users)/([\w.+-]+)")
_PATH = re.compile(r"/[^/]+/|[A-Za-z]:\\")
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?", re.I)
_WORD = re.compile(r"[A-Za-z][\w-]*")
# What a program may call its code by: `flash_attention_2`, `Model::forward`, `float8_e4m3fn`; no `sk_live_4eC39HqLyj`.
_PART = r"(?:[A-Za-z]{1,24}[0-9]{0,3}|[A-Za-z0-9]{1,6})"
_PLAIN = re.compile(rf"_*{_PART}(?:(?:_+|::){_PART})*")
# Accounts of public containers, and words of every kernel: no secret, whoever is called so.
_COMMON = frozenset(
    {"root", "user", "users", "test", "main", "local", "localhost", "admin", "ubuntu", "nvidia", "triton", "torch",
     "pytorch", "cuda", "docker", "jovyan", "runner", "vscode", "true", "false", "none", "null", "void", "float",
     "half", "bool", "char", "auto", "long"}
)  # fmt: skip


@dataclass(frozen=True)
class Secrets:
    """What must not be shared. A `weak` one may stand in the workload record and in the machine's description.

    `strong`: credentials, hosts, users, paths. `weak`: any other value of the environment or of an argument that no
    program would call its code by. `words`: hosts and users so short that they are secrets as whole words only.
    """

    strong: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()


def find_secrets(pairs: Iterable[tuple[str, str]]) -> Secrets:
    """The secrets among names and values of an export's settings, properties, processes and devices."""
    strong: set[str] = set()
    weak: set[str] = set()
    words: set[str] = set()
    for label, value in _labelled(pairs):
        for part in {value, *_pieces(value)}:
            if _is_strong(label, part):
                strong.add(part)
            elif len(part) >= _SHORTEST_VALUE and not _is_plain(part):
                weak.add(part)
        for name in _own_names(label, value):
            (strong if len(name) >= _SHORTEST else words).add(name)
    harmless = {part for part in strong | weak if part in REMOVED or part in "(path)"}
    return Secrets(frozenset(strong - harmless), frozenset(weak - strong - harmless), frozenset(words))


def _labelled(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each entry of each value with all that says what it is: its row's name, its variable's, the option before it."""
    option = ""
    for name, value in pairs:
        if clean_setting(name, value) is not None or clean_property(name, value) is not None:
            continue
        before, option = option, ""
        for entry in map(str.strip, re.split(r"[\0\n]", value)):  # 2022 parts the variables by NUL
            head, separator, rest = entry.partition("=")
            yield f"{name} {before}", entry
            if separator:
                yield f"{name} {head}", rest.strip()
            elif _ARGUMENT.search(name):
                option = entry if entry.startswith("-") else ""
                yield from _command_line(name, entry)


def _command_line(name: str, line: str) -> Iterator[tuple[str, str]]:
    """The words of a whole command line in one value, each with the option before it."""
    words = line.split()
    for before, word in pairwise(words):
        yield f"{name} {before}" if before.startswith("-") else name, word


def _pieces(value: str) -> Iterator[str]:
    for separators in (":", r"[\s,;]+"):
        yield from (piece.strip("\"' \t") for piece in re.split(separators, value))


def _is_strong(label: str, value: str) -> bool:
    if len(value) < _SHORTEST or _NUMBER.fullmatch(value):
        return False
    named = _IDENTITY.search(label) and value not in _COMMON
    return bool(named or _CREDENTIAL.search(label) or _PATH.match(value))


def _is_plain(value: str) -> bool:
    if _NUMBER.fullmatch(value):
        return len(value) < 2 * _SHORTEST_VALUE
    digits = sum(character.isdigit() for character in value)
    return _PLAIN.fullmatch(value) is not None and 3 * digits <= len(value)


def _own_names(label: str, value: str) -> Iterator[str]:
    """Users and hosts that a value names, each of a length that can be looked for."""
    found = [name for match in _USER_AT_HOST.finditer(value) for name in match.groups() if name]
    found += [*_URL_HOST.findall(value), *_HOME.findall(value)]
    if _OWN_NAME.search(label):
        found += [value, value.partition(".")[0]]
    for name in found:
        if len(name) >= _SHORTEST_WORD and name not in _COMMON and (_WORD.fullmatch(name) or "." in name):
            yield name
