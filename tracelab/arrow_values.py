"""Integers of Arrow arrays, straight from their memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def values(array: Any, kind: np.dtype[Any], target: NDArray[np.integer[Any]], missing: int) -> None:
    """Put the values of an Arrow array of this type in `target`, and `missing` where there are none."""
    valid, data = array.buffers()
    stop = array.offset + len(array)
    if array.null_count == len(array):
        target[:] = missing
        return
    with np.errstate(over="ignore"):
        target[:] = np.frombuffer(data, kind)[array.offset : stop]  # unsigned values above 2^63 wrap around
    if array.null_count:
        known = np.unpackbits(np.frombuffer(valid, np.uint8), count=stop, bitorder="little")[array.offset :]
        target[known == 0] = missing
