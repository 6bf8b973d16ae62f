"""The threads that work beside the main one: numpy leaves the interpreter to others while it computes."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache


@cache
def pool() -> ThreadPoolExecutor:
    """One thread for each core. What runs on them must not wait for others that do."""
    return ThreadPoolExecutor(os.cpu_count() or 1)
