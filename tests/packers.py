"""What makes compressed files of the kinds that tracelab unpacks."""

import gzip
import lzma
from collections.abc import Callable

import pyarrow as pa


def _zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "xz": lzma.compress, "zst": _zstd}
