"""Finds the secrets of an export: what its environment, arguments, host and users are called, to be sought in names."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tracelab.capture.scrub_values import REMOVED, clean_property, clean_setting, is_own_word

_SHORTEST = 6  # of a credential, a host, a user or a path; what is shorter stands in every file by chance
_SHORTEST_VALUE = 8  # of any other value
_SHORTEST_WORD = 4  # of what is only looked for as a whole word
_SHORTEST_IN_MESSAGE = 3  # of any value in nsys's own messages, of which a number of two digits is a plain count

_CREDENTIAL = re.compile(
    r"TOKEN(?!S|IZ)|SECRET|PASS(?!ES)|KEY|CREDENTIAL|AUTH|COOKIE|SESSION|LICEN[CS]E|PRIVATE|BEARER|JWT|DSN|WEBHOOK|UUID",
    re.I,
)
_IDENTITY = re.compile(
    r"(^|[\W_])(HOST|HOSTNAME|HOST_NAME|USER|USERNAME|LOGNAME|NODENAME|COMPUTERNAME|USERDOMAIN|ADDR)\Z", re.I
)
_OWN_NAME = re.compile(r"(^|\W)(HOST|HOSTNAME|HOST_NAME|USER|USERNAME|LOGNAME)\Z", re.I)
# Variables that say whose work it is. No `XORG`, `STEAM` or `PROJECTION`.
_WHOSE = re.compile(
    r"CUSTOMER|CLIENT|TENANT|PROJECT(?!ION|OR)|JOB|ACCOUNT|(?<![A-Z])(ORG|TEAM)|EXPERIMENT|RUN_?NAME", re.I
)
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
# Words of kernels, ranges and machines: as the name of a job they tell nothing, and the analysis needs them.
_EVERYDAY_WORDS = """
activation async attention base baseline batch bench benchmark bfloat16 block cache capture compute config copy cublas
cudnn custom cutlass data debug decode decoder default demo dense device disabled double dummy dynamic eager
elementwise embedding enabled encoder engine eval evaluation example expert experts fast flash float16 float32 float64
forward backward fused gather gemm generate generation global graph host index inference input int32 int64 iteration
iterations kernel kernels kimi latency layer layernorm linear llama load loop loss master matmul memcpy memory memset
model moe nccl none norm normal normalize offline online optimizer output pack packed paged perf performance permute
phase pool prefill private process prod production profile profiling public qwen range reduce request residual rmsnorm
rope rotary router routing sample sampler sampling scan scatter schedule scheduler sequence serve server serving
session sglang shared silu single slow small softmax sort split standard static step steps store stream sync task
tensor tensorrt test testing tests throughput tile token tokens topk trace train training transformer transpose tune
tuning unknown update vector vectorized vllm wait warmup weight weights work worker
"""
_EVERYDAY = _COMMON.union(_EVERYDAY_WORDS.split())


@dataclass(frozen=True)
class Secrets:
    """What must not be shared. A `weak` one may stand in the workload record and in the machine's description.

    `strong`: credentials, hosts, users, paths. `weak`: any other value of the environment or of an argument that no
    program would call its code by. `words`: hosts and users so short that they are secrets as whole words only.
    `owners`: the same of customers, projects and jobs, which may stand wherever a weak one may. `values`: any value of
    three characters or more that nsys's messages must not hold as a word or a number of theirs.
    """

    strong: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    owners: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()


def find_secrets(pairs: Iterable[tuple[str, str]]) -> Secrets:
    """The secrets among names and values of an export's settings, properties, processes and devices."""
    strong: set[str] = set()
    weak: set[str] = set()
    words: set[str] = set()
    owners: set[str] = set()
    values: set[str] = set()
    for label, value in _labelled(pairs):
        for part in {value, *_pieces(value)}:
            if _is_strong(label, part):
                strong.add(part)
            elif len(part) >= _SHORTEST_VALUE and not _is_plain(part):
                weak.add(part)
            if _names_owner(label, part):
                owners.add(part)
            if _is_value(label, part):
                values.add(part)
        for name in _own_names(label, value):
            (strong if len(name) >= _SHORTEST else words).add(name)
    found = (strong, weak - strong, words, owners - words, values)
    return Secrets(*(frozenset(part for part in parts if not _is_mark(part)) for parts in found))


def _is_mark(part: str) -> bool:
    """True for what stands in the marks that take the place of a secret."""
    return part in REMOVED or part in "(path)"


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


def _names_owner(label: str, value: str) -> bool:
    """True for the name of a customer, a project or a job that is no word of every trace."""
    named = len(value) >= _SHORTEST_WORD and _WHOSE.search(label) and any(map(str.isalpha, value))
    return bool(named) and value.lower() not in _EVERYDAY and not _NUMBER.fullmatch(value)


def _is_value(label: str, value: str) -> bool:
    """True for what a message of nsys must lose; its own words only where the label says that one is a secret."""
    if len(value) < _SHORTEST_IN_MESSAGE or value.lower() in _COMMON:
        return False
    return not is_own_word(value) or _CREDENTIAL.search(label) is not None


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
