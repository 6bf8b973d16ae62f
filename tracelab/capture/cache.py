"""The cache folder: exports of `.nsys-rep` files and finished reports, which can be made again at any time."""

import os
import shutil
from pathlib import Path

from tracelab.errors import TracelabError


def cache_folder() -> Path:
    """The cache folder, made if missing: `$TRACELAB_CACHE`, else `$XDG_CACHE_HOME/tracelab`, else `~/.cache/tracelab`.

    Raises TracelabError if it cannot be made.
    """
    folder = _location()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise TracelabError(
            f"the cache folder {folder} cannot be made ({error.strerror}); name another with $TRACELAB_CACHE"
        ) from error
    return folder


def clear_cache() -> int:
    """Remove everything in the cache folder; returns the bytes freed."""
    folder = _location()
    if not folder.is_dir():
        return 0
    freed_bytes = 0
    for entry in list(folder.iterdir()):
        freed_bytes += _size_bytes(entry)
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return freed_bytes


def _location() -> Path:
    if own := os.environ.get("TRACELAB_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "tracelab"
    return Path.home() / ".cache" / "tracelab"


def _size_bytes(entry: Path) -> int:
    files = entry.rglob("*") if entry.is_dir() and not entry.is_symlink() else [entry]
    return sum(path.lstat().st_size for path in files if not path.is_dir())
