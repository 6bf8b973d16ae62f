"""How far the reading of a large trace is, told to whoever wants to show it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watch = Callable[[int, int, str], None]  # how much is read, of how much, and of what: "rows" or "bytes"

_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Tell `watch` of everything that is read inside."""
    before = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(before)


def tell(done: int, total: int, unit: str) -> None:
    """Say that `done` of `total` are read; cheap where nobody listens."""
    watch = _watch.get()
    if watch is not None:
        watch(done, total, unit)
