"""What tells one state of a file from another without reading it."""

from pathlib import Path

Identity = tuple[tuple[str, int, int, int, int, int], ...]


def file_identity(path: Path) -> Identity | None:
    """Place, inode, size and times of a file, or of all files of a folder; None where they cannot be looked at.

    Whoever writes to a file changes its time of change (st_ctime_ns), which no program can set back.
    """
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return tuple(_facts(file) for file in files)
    except OSError:
        return None


def _facts(file: Path) -> tuple[str, int, int, int, int, int]:
    seen = file.stat()
    return (str(file.resolve()), seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
