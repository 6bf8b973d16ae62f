"""From the events of a PyTorch profiler trace to rows of integers, event by event, in the order of the file.

Rows stand in flat int64 arrays, a fixed number of values each; what an event lacks is NULL. Names, and pairs of process
and thread, are codes in order of first appearance.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from typing import Any

import numpy as np

from tracelab.table_source import NULL
from tracelab.trace import I64, KERNEL, MEMCPY, MEMSET

OPS = (
    "kind", "start", "dur", "device", "stream", "correlation", "name", "graph", "node", "bytes", "registers", "shared",
    "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
)  # fmt: skip
CALLS = ("start", "dur", "thread", "correlation", "name", "driver")
RANGES = ("start", "dur", "thread", "name", "domain")
OVERHEADS = ("start", "dur", "thread", "name")
USER, FRAMEWORK = range(2)  # Ranges: the user's annotations, and the operators of torch

_LONGEST_NAME = 1 << 16  # characters
_TIME_LIMIT_US = 4_000_000_000_000_000  # 127 years, so that ns fit an int64
_TIME_LIMIT_NS = _TIME_LIMIT_US * 1000
_NO_ARGS: Mapping[str, Any] = {}
_STEP = "ProfilerStep#"  # torch 1.8 writes its steps among the operators
_WORK = {"kernel": KERNEL, "gpu_memcpy": MEMCPY, "memcpy": MEMCPY, "gpu_memset": MEMSET, "memset": MEMSET}
_RUNTIME, _DRIVER = ("cuda_runtime", "hip_runtime", "runtime"), ("cuda_driver", "hip_driver", "driver")
_ANNOTATIONS, _OPERATORS = ("user_annotation",), ("cpu_op", "operator")

# What a dictionary raises that looks like an event but has lists for names, or no dictionary for arguments.
_NO_EVENT = (TypeError, ValueError, AttributeError)

Event = Mapping[str, Any]
_Take = Callable[[Event], None]


def to_ns(us: object) -> int:
    """A time in µs, an integer or the text of a number, as whole ns; NULL for what is no time. Exact to the digit.

    Digits below 1 ns (a tool wrote the file anew from doubles) are rounded half to even.
    """
    if type(us) is int:
        return us * 1000 if -_TIME_LIMIT_US < us < _TIME_LIMIT_US else NULL
    if type(us) is not str:
        return NULL
    if us[-4:-3] != ".":  # Kineto writes three digits; anything else is read with more care
        return _rounded(us)
    try:
        ns = int(us[:-4] + us[-3:])
    except ValueError:
        return _rounded(us)
    return ns if -_TIME_LIMIT_NS < ns < _TIME_LIMIT_NS else NULL


def _rounded(us: str) -> int:
    try:
        if not abs(float(us)) < _TIME_LIMIT_US:  # NaN, too; 1e999999999 would be an integer of that many digits
            return NULL
        return int((Decimal(us) * 1000).to_integral_value(ROUND_HALF_EVEN))
    except (ValueError, ArithmeticError):
        return NULL


@dataclass(frozen=True)
class RawTables:
    """Everything that was read: columns by name (OPS, CALLS, RANGES, OVERHEADS), `dur` in ns, `shared` in bytes.

    `names` and `threads` (pid and tid) give the codes of the columns `name` and `thread`. The `dur` of a range is NULL
    where it never ended. `unusable` counts what has the category of an event but is none.
    """

    ops: dict[str, I64]
    calls: dict[str, I64]
    ranges: dict[str, I64]
    overheads: dict[str, I64]
    names: Mapping[str, int]
    threads: Mapping[tuple[Any, Any], int]
    unusable: int


def read_rows(events: Iterable[Event]) -> RawTables:
    """Take every event; those that only begin (`B`) and end (`E`) are paired."""
    rows = _Rows()
    rows.read(events)
    return RawTables(
        ops=_columns(rows.ops, OPS),
        calls=_columns(rows.calls, CALLS),
        ranges=_columns(rows.ranges, RANGES),
        overheads=_columns(rows.overheads, OVERHEADS),
        names=rows.names,
        threads=rows.threads,
        unusable=rows.unusable,
    )


class _Rows:
    """Rows under construction, a fixed number of values each."""

    def __init__(self) -> None:
        self.ops, self.calls, self.ranges, self.overheads = (array("q") for _ in range(4))
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[Any, Any], int] = {}
        self.unusable = 0
        self._seen: dict[Any, int] = {}
        self._begun: list[tuple[int, Event]] = []
        self._takers = _Takers(self)

    def read(self, events: Iterable[Event]) -> None:
        takers = self._takers
        for event in events:
            try:
                phase = event.get("ph", "X")
                if phase == "X":
                    take = takers[event.get("cat")]
                    if take is not None:
                        take(event)
                elif phase == "B" or phase == "E":
                    self._begun.append((to_ns(event.get("ts")), event))
            except _NO_EVENT:
                self.unusable += 1
        self._pair()

    def _pair(self) -> None:
        """Events that begin and end are nested by thread; of equal times the order of the file counts."""
        self._begun.sort(key=lambda pair: pair[0])
        stacks: dict[int, list[tuple[int, Event]]] = {}
        for at, event in self._begun:
            try:
                stack = stacks.setdefault(self._thread(event), [])
            except TypeError:
                self.unusable += 1
                continue
            if event.get("ph") == "B":
                stack.append((at, event))
            elif stack:
                start, begun = stack.pop()
                self._take_pair(begun, at - start if NULL not in (at, start) else None)
            else:
                self.unusable += 1
        for _, begun in (pair for stack in stacks.values() for pair in stack):
            self._take_pair(begun, None)
        self._begun.clear()

    def _take_pair(self, begun: Event, dur_ns: int | None) -> None:
        took = f"{dur_ns // 1000}.{dur_ns % 1000:03d}" if dur_ns is not None and dur_ns >= 0 else None
        try:
            take = self._takers[begun.get("cat")]
            if take is not None:
                take({**begun, "dur": took})
        except _NO_EVENT:
            self.unusable += 1

    # one row of each kind

    def take_kernel(self, event: Event) -> None:
        args = event.get("args") or _NO_ARGS
        grid, block = args.get("grid"), args.get("block")
        row = (
            KERNEL, to_ns(event.get("ts")), to_ns(event.get("dur")), args.get("device", NULL), args.get("stream", NULL),
            args.get("correlation", NULL), self._name(event), args.get("graph id", 0), args.get("graph node id", 0), 0,
            args.get("registers per thread", NULL), args.get("shared memory", 0),
            *(grid if type(grid) is list and len(grid) == 3 else (NULL, NULL, NULL)),
            *(block if type(block) is list and len(block) == 3 else (NULL, NULL, NULL)),
        )  # fmt: skip
        self._add_work(row, event)

    def take_transfer(self, event: Event, kind: int) -> None:
        args = event.get("args") or _NO_ARGS
        device = args.get("device", args.get("inDevice", NULL))  # copies between devices name three
        row = (
            kind, to_ns(event.get("ts")), to_ns(event.get("dur")), device, args.get("stream", NULL),
            args.get("correlation", NULL), self._name(event), args.get("graph id", 0), args.get("graph node id", 0),
            args.get("bytes", 0), 0, 0, 0, 0, 0, 0, 0, 0,
        )  # fmt: skip
        self._add_work(row, event)

    def take_call(self, event: Event, driver: int) -> None:
        args = event.get("args") or _NO_ARGS
        _append(self.calls, (to_ns(event.get("ts")), to_ns(event.get("dur")), self._thread(event),
                              args.get("correlation", NULL), self._name(event), driver))  # fmt: skip

    def take_range(self, event: Event, domain: int) -> None:
        if domain == FRAMEWORK and str(event.get("name")).startswith(_STEP):
            domain = USER
        _append(self.ranges, (to_ns(event.get("ts")), to_ns(event.get("dur")), self._thread(event),
                               self._name(event), domain))  # fmt: skip

    def take_overhead(self, event: Event) -> None:
        _append(self.overheads, (to_ns(event.get("ts")), to_ns(event.get("dur")), self._thread(event),
                                  self._name(event)))  # fmt: skip

    def _add_work(self, row: tuple[Any, ...], event: Event) -> None:
        if row[3] == NULL or row[4] == NULL:  # its process is the device then, its thread the stream
            device = _digits(event.get("pid")) if row[3] == NULL else row[3]
            stream = _digits(event.get("tid")) if row[4] == NULL else row[4]
            row = (*row[:3], device, stream, *row[5:])
        _append(self.ops, row)

    def _name(self, event: Event) -> int:
        name = event.get("name")
        try:
            return self._seen[name]
        except (KeyError, TypeError):
            return self._new_name(name)

    def _new_name(self, name: object) -> int:
        """Code of a name not met before: text that can be written as UTF-8, of a bounded length."""
        clean = ("" if name is None else str(name))[:_LONGEST_NAME].encode("utf-8", "replace").decode()
        code = self.names.setdefault(clean, len(self.names))
        if isinstance(name, str) and len(name) <= _LONGEST_NAME:
            self._seen[name] = code
        return code

    def _thread(self, event: Event) -> int:
        key = (event.get("pid"), event.get("tid"))
        code = self.threads.get(key)
        if code is None:
            code = self.threads[key] = len(self.threads)
        return code


class _Takers(dict[Any, _Take | None]):
    """What takes the events of each category, by the category as written: in any case, None for those not wanted."""

    def __init__(self, rows: _Rows) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, category: Any) -> _Take | None:
        self[category] = found = self._find(str(category).lower())
        return found

    def _find(self, category: str) -> _Take | None:
        rows = self._rows
        kind = _WORK.get(category)
        if kind is not None:
            return rows.take_kernel if kind == KERNEL else partial(rows.take_transfer, kind=kind)
        if category in _RUNTIME or category in _DRIVER:
            return partial(rows.take_call, driver=int(category in _DRIVER))
        if category in _ANNOTATIONS or category in _OPERATORS:
            return partial(rows.take_range, domain=FRAMEWORK if category in _OPERATORS else USER)
        return rows.take_overhead if category == "overhead" else None


def _append(column: "array[int]", row: tuple[Any, ...]) -> None:
    """Append whole numbers; values of another type, which only a damaged file has, are read as far as they are one."""
    before = len(column)
    try:
        column.extend(row)
    except (TypeError, OverflowError):
        del column[before:]
        column.extend(map(_whole, row))


def _whole(value: object) -> int:
    if isinstance(value, str):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return NULL
    return value if isinstance(value, int) and -(1 << 63) < value < 1 << 63 else NULL


def _digits(value: object) -> int:
    """The number in `7` or `stream 7`, else NULL."""
    text = "".join(c for c in str(value) if c in "0123456789")
    return int(text) if 0 < len(text) < 19 else NULL


def _columns(rows: "array[int]", names: tuple[str, ...]) -> dict[str, I64]:
    table = np.frombuffer(rows, np.int64).reshape(-1, len(names)) if len(rows) else np.zeros((0, len(names)), np.int64)
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)}
