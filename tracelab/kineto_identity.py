"""Processes and threads of a PyTorch profiler trace, from the `pid` and `tid` of its events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelab.trace import I32

_ID_BITS = 24  # of the packed 64-bit ids of the trace model: pid, then tid
_ID_MASK = (1 << _ID_BITS) - 1

_Key = tuple[int, str]  # the number in an id, and the id as text: whole numbers before text, in their order


@dataclass(frozen=True)
class Identities:
    """`thread` is the final code of each provisional one; processes and threads are in the order of their ids."""

    thread: I32
    thread_process: I32
    processes: tuple[int, ...]
    threads: tuple[int, ...]


def identities(threads: Mapping[tuple[Any, Any], int], hosts: Iterable[int]) -> Identities:
    """Final codes of `threads` (pid and tid to provisional code); the codes `hosts` ran calls or held ranges.

    The others are those of overheads, for which Kineto writes process -1: they belong to the first process, to its
    thread of that number, or to the only thread there is. A file without host events has one process, 0.
    """
    keys = {code: (_key(pid), _key(tid)) for (pid, tid), code in threads.items()}
    host_keys = sorted({keys[code] for code in hosts})
    owners = sorted({pid for pid, _ in host_keys}) or [_key(0)]
    known = set(host_keys)
    only = host_keys[0] if len(host_keys) == 1 else None
    final = {code: key if key in known else only or _adopted(key, owners) for code, key in keys.items()}
    ordered = sorted(known.union(final.values()))
    at = {key: i for i, key in enumerate(ordered)}
    return Identities(
        thread=np.array([at[final[code]] for code in range(len(keys))], np.int32),
        thread_process=np.array([owners.index(pid) for pid, _ in ordered], np.int32),
        processes=tuple(_packed(pid) for pid in owners),
        threads=tuple(_packed(pid) | tid[0] & _ID_MASK for pid, tid in ordered),
    )


def _adopted(key: tuple[_Key, _Key], owners: list[_Key]) -> tuple[_Key, _Key]:
    pid, tid = key
    return (pid if pid in owners else owners[0]), tid


def _key(value: object) -> _Key:
    """`7` and `"7"` are one id; so is what old files write as text, `"stream 7"`, among itself."""
    text = str(value)
    digits = "".join(c for c in text if c in "0123456789")[:18]
    return int(digits or 0), text


def _packed(pid: _Key) -> int:
    return (pid[0] & _ID_MASK) << _ID_BITS
