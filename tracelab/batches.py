"""Batches of rows that are read on every core while somebody waits for them, and how far that is."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tracelab.pool import pool
from tracelab.reading import tell

_BETWEEN_LOOKS_S = 0.25


class Batch(Protocol):
    """The rows [first, stop) of a table."""

    @property
    def first(self) -> int: ...

    @property
    def stop(self) -> int: ...


Part = TypeVar("Part", bound=Batch)
Found = TypeVar("Found")


@dataclass(frozen=True)
class Batches:
    """Everything that one export has begun to read."""

    _read_rows: list[int] = field(default_factory=list)  # of every batch that came
    _begun_rows: list[int] = field(default_factory=list)  # of every batch that was asked for
    _submitted: list[Future[Any]] = field(default_factory=list)

    def begin(self, read: Callable[[Part], Found], parts: Sequence[Part]) -> list[Future[Found]]:
        """What `read` makes of every part; it runs on other threads and must not wait for others that do."""

        def one(part: Part) -> Found:
            found = read(part)
            self._read_rows.append(part.stop - part.first)
            return found

        self._begun_rows.extend(part.stop - part.first for part in parts)
        submitted = [pool().submit(one, part) for part in parts]
        self._submitted.extend(submitted)
        return submitted

    def waited(self, begun: Sequence[Future[Found]]) -> list[Found]:
        """The results of what was begun, in its order; meanwhile it tells how many rows have come."""
        while wait(begun, timeout=_BETWEEN_LOOKS_S).not_done:
            tell(sum(self._read_rows), sum(self._begun_rows), "rows")
        return [part.result() for part in begun]

    def give_up(self) -> None:
        """Read nothing more of what was begun: nobody will ask for it."""
        for future in self._submitted:
            future.cancel()
