"""Compressed traces: unpacked into the cache folder for as long as they are read."""

import contextlib
import gzip
import lzma
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tracelab.capture.cache import cache_folder
from tracelab.errors import InputError
from tracelab.reading import tell

_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"  # RFC 1952; .xz file format; RFC 8878
_COPY_BYTES = 1 << 22
_DAMAGE = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)  # pyarrow's errors are values or OS errors


def compression(head: bytes) -> str | None:
    """`gzip`, `xz` or `zstd` by the first bytes of a file; None for anything else."""
    for mark, name in ((_GZIP, "gzip"), (_XZ, "xz"), (_ZSTD, "zstd")):
        if head.startswith(mark):
            return name
    return None


def unpacked_head(path: Path, how: str, size: int) -> bytes:
    """The first `size` bytes inside a compressed file, fewer if it ends or is damaged before."""
    found = b""
    with contextlib.suppress(*_DAMAGE), path.open("rb") as packed, _inside(packed, how) as file:
        while len(found) < size and (more := file.read(size - len(found))):
            found += more
    return found


@contextlib.contextmanager
def unpacked(path: Path, how: str) -> Iterator[Path]:
    """The content of a compressed file, as a file of its own that is removed afterwards.

    Raises InputError where the file is damaged or the disk is full.
    """
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="unpacked-") as folder:
        target = Path(folder) / "trace"
        try:
            _unpack(path, how, target)
        except OSError as error:
            if error.errno is not None:  # the disk, not the data
                raise InputError(f"{path}: cannot be unpacked ({error.strerror or error}).") from error
            raise InputError(f"{path}: damaged {how} data ({error}).") from error
        except _DAMAGE as error:
            raise InputError(f"{path}: damaged {how} data ({error}).") from error
        yield target


def _unpack(path: Path, how: str, target: Path) -> None:
    """Of how much there is only the packed size is known, so that is what is told."""
    size = path.stat().st_size
    with path.open("rb") as packed, _inside(packed, how) as source, target.open("wb") as file:
        tell(0, size, "bytes", "unpacking")
        while piece := source.read(_COPY_BYTES):
            file.write(piece)
            tell(packed.tell(), size, "bytes", "unpacking")


def _inside(packed: IO[bytes], how: str) -> "contextlib.AbstractContextManager[IO[bytes] | Any]":
    if how == "gzip":
        return gzip.open(packed)
    if how == "xz":
        return lzma.open(packed)
    import pyarrow as pa  # which no other compression needs

    return contextlib.closing(pa.input_stream(packed, compression="zstd"))
