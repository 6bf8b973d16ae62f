"""The threads that work beside the main one: numpy leaves the interpreter to others while it computes."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

_MOST_THREADS = 4  # of 16 on 16 cores a report took twice the memory, and was no faster: `tests/bench/README.md`


@cache
def pool() -> ThreadPoolExecutor:
    """One thread for each core, up to a few. What runs on them must not wait for others that do."""
    return ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS))
