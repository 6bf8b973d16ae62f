"""How far the reading of a large trace is, and what comes before it, told to whoever wants to show it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# How much is done, of how much (0: nobody knows), of what ("rows" or "bytes"), and what is done: "reading".
Watch = Callable[[int, int, str, str], None]

_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Tell `watch` of everything that is read inside."""
    before = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(before)


def tell(done: int, total: int, unit: str, doing: str = "reading") -> None:
    """Say that `done` of `total` are read, or whatever is done with them; cheap where nobody listens."""
    watch = _watch.get()
    if watch is not None:
        watch(done, total, unit, doing)
