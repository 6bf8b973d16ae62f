"""Names and identities of an nsys export while it is being loaded: from file ids to small, content-ordered codes."""

from collections.abc import Callable, Sequence

import numpy as np

from tracelab import nsys_tables as tables
from tracelab.kernel_names import cut
from tracelab.table_source import NULL, Coded, TableSource
from tracelab.trace import ABSENT, I32, I64

_COUNTABLE = 1 << 24  # ids up to here are counted in a table of at most 128 MB
_LONGEST_NAME = 1 << 14  # characters; C++ kernels have a few thousand, a damaged file megabytes that no rule is for
_UNSIGNED = 0xFFFFFFFFFFFFFFFF
PROCESS_BITS = ~0xFFFFFF  # globalTid without its thread: hw 8 | vm 8 | pid 24 | tid 24


def read_strings(source: TableSource) -> dict[int, str]:
    """StringIds as a dictionary from id to text."""
    ids = source.ints(tables.STRINGS)["id"]
    return dict(zip(ids.tolist(), (v or "" for v in source.texts(tables.STRINGS, "value")), strict=True))


class Names:
    """Collects the strings that events use; `finish` sorts them, so codes do not depend on the order of rows."""

    def __init__(self, strings: dict[int, str]) -> None:
        self._strings = strings
        self._codes: dict[str, int] = {}
        self.final: tuple[str, ...] = ()

    def by_id(self, ids: I64, change: Callable[[str], str] = str) -> I32:
        """Provisional codes of StringIds ids; NULL and unknown ids are the empty name."""
        unique, inverse = _distinct(ids)
        texts = [change(self._strings.get(int(i), "")) for i in unique]
        return self._intern(texts)[inverse]

    def by_text(self, texts: Sequence[str | None]) -> I32:
        """Provisional codes of texts; None is the empty name."""
        seen = dict.fromkeys(texts)
        codes = dict(zip(seen, self._intern([t or "" for t in seen]).tolist(), strict=True))
        return np.fromiter(map(codes.__getitem__, texts), np.int32, count=len(texts))

    def by_coded(self, column: Coded) -> I32:
        """Provisional codes of a text column; None is the empty name."""
        return self._intern([text or "" for text in column.texts])[column.codes]

    def texts(self, codes: I32) -> list[str]:
        """The strings behind provisional codes."""
        pool = list(self._codes)
        return [pool[code] for code in codes.tolist()]

    def finish(self) -> Callable[[I32], I32]:
        """Freeze the pool and return the function from provisional to final codes."""
        texts = [text if len(text) <= _LONGEST_NAME else cut(text, _LONGEST_NAME) for text in self._codes]
        order = sorted(range(len(texts)), key=texts.__getitem__)
        ordered = [texts[i] for i in order]
        # Names that were cut may have become alike: each text has the code of its first.
        fresh = np.array([i == 0 or ordered[i] != ordered[i - 1] for i in range(len(ordered))], bool)
        rank = np.zeros(len(texts) + 1, np.int32)
        rank[order] = np.cumsum(fresh) - 1
        self.final = tuple(text for text, new in zip(ordered, fresh.tolist(), strict=True) if new)
        return lambda codes: rank[codes]

    def _intern(self, texts: Sequence[str]) -> I32:
        return np.array([self._codes.setdefault(t, len(self._codes)) for t in texts], np.int32)


def _distinct(ids: I64) -> tuple[I64, I64]:
    """`np.unique` with its inverse; by counting where ids are small, as the ids of strings are."""
    if len(ids) == 0 or int(ids.max()) >= _COUNTABLE or int(np.where(ids == NULL, 0, ids).min()) < 0:
        unique, inverse = np.unique(ids, return_inverse=True)
        return unique, inverse
    slots = np.where(ids == NULL, 0, ids + 1)
    present = np.flatnonzero(np.bincount(slots))
    rank = np.zeros(int(present[-1]) + 1, np.int64)
    rank[present] = np.arange(len(present))
    return np.where(present == 0, NULL, present - 1), rank[slots]


class Identities:
    """Processes and threads of the file, ordered by their unsigned 64-bit ids."""

    def __init__(self) -> None:
        self._thread_ids = np.zeros(0, np.uint64)
        self._process_ids = np.zeros(0, np.uint64)
        self.thread_process: I32 = np.zeros(0, np.int32)

    def collect(self, threads: Sequence[I64], processes: Sequence[I64]) -> None:
        """Take note of every globalTid and globalPid column before any code is asked for."""
        thread_ids = np.unique(np.concatenate([np.unique(t) for t in threads]))
        process_ids = np.unique(np.concatenate([thread_ids & PROCESS_BITS, *(np.unique(p) for p in processes)]))
        self._thread_ids = np.sort(thread_ids.astype(np.uint64))
        self._process_ids = np.sort(process_ids.astype(np.uint64))
        owners = self._thread_ids & np.uint64(PROCESS_BITS & _UNSIGNED)
        self.thread_process = np.searchsorted(self._process_ids, owners).astype(np.int32)

    def thread_codes(self, ids: I64) -> I32:
        """Code of each globalTid."""
        return np.searchsorted(self._thread_ids, ids.astype(np.uint64)).astype(np.int32)

    def process_codes(self, ids: I64) -> I32:
        """Code of each globalPid."""
        return np.searchsorted(self._process_ids, ids.astype(np.uint64)).astype(np.int32)

    def process_code(self, global_pid: int) -> int:
        """Code of one globalPid, ABSENT if no event names it."""
        found = np.flatnonzero(self._process_ids == np.uint64(global_pid & _UNSIGNED))
        return int(found[0]) if len(found) and global_pid != NULL else ABSENT

    @property
    def threads(self) -> tuple[int, ...]:
        return tuple(int(i) for i in self._thread_ids)

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(int(i) for i in self._process_ids)
