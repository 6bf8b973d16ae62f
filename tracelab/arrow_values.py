"""Integers of Arrow arrays, straight from their memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def values(array: Any, kind: np.dtype[Any], target: NDArray[np.integer[Any]], missing: int) -> None:
    """Put the values of an Arrow array of this type in `target`, and `missing` where there are none."""
    if array.null_count < len(array):
        inside = np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]
        with np.errstate(over="ignore"):
            target[:] = inside  # unsigned values above 2^63 wrap around
    mark_missing(array, target, missing)


def mark_missing(array: Any, target: NDArray[Any], missing: object) -> None:
    """Put `missing` in `target` where an Arrow array has no value."""
    if array.null_count == len(array):
        target[:] = missing
    elif array.null_count:
        valid, stop = array.buffers()[0], array.offset + len(array)
        known = np.unpackbits(np.frombuffer(valid, np.uint8), count=stop, bitorder="little")[array.offset :]
        target[known == 0] = missing
