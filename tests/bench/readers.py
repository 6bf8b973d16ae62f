"""The readers that tracelab could use for the two large tables of an nsys export, side by side.

python tests/bench/readers.py FILE.sqlite [--folder FOLDER] [--repeat 3]

Each reads the columns of kernels and API calls to arrays of int64, in a process of its own and with packages of PyPI in
an environment under FOLDER (else a temporary one). `s` is the whole process, `reading` without the start of Python;
memory is that of the largest process. By itself DuckDB downloads its SQLite extension at run time, so that fails where
there is no network.
"""

import argparse
import tempfile
from pathlib import Path

from environments import environment, installed
from measure import NoResultError, Run, best, measured, own_env

_READ_WITH = Path(__file__).with_name("read_with.py")
_ALL = ("numpy", "pyarrow", "pandas")  # pyarrow imports pandas where it is there, which is part of what it costs
_ADBC = ("adbc-driver-manager", "adbc-driver-sqlite")
_DUCKDB = ("duckdb==1.5.5",)  # the newest version whose SQLite extension is on PyPI
_DUCKDB_EXTENSION = ("duckdb-extensions==1.5.5", "duckdb-extension-sqlite-scanner==1.5.5")
PACKAGES: dict[str, tuple[str, ...]] = {
    "sqlite3 fetchall": (),
    "sqlite3 numpy.fromiter": (),
    "the same, 2 processes": (),
    "ADBC": _ADBC,
    "ADBC, 4 ranges, 2 threads": _ADBC,
    "the same without pandas": _ADBC,
    "DuckDB, its own download": _DUCKDB,
    "DuckDB, extension of PyPI": (*_DUCKDB, *_DUCKDB_EXTENSION),
    "ConnectorX": ("connectorx",),
    "ConnectorX, 4 partitions": ("connectorx",),
    "Polars with ADBC": ("polars", *_ADBC),
    "Polars with ConnectorX": ("polars", "connectorx"),
    "pandas": (),
    "tracelab, from the pages": (),
}


def compare(file: Path, folder: Path, repeat: int) -> None:
    """Print one line for every reader, then the versions of the packages."""
    print(f"{'reader':28}{'s':>8}{'reading':>9}{'peak MB':>9}")
    agreed = ""
    for name, packages in PACKAGES.items():
        try:
            run = _read(name, packages, file, folder, repeat)
        except NoResultError as error:
            print(f"{name:28}  {error}", flush=True)
            continue
        reading, _, found = run.last_line.partition(" ")
        agreed = agreed or found
        differs = "" if found == agreed else f"  reads something else: {found}"
        print(f"{name:28}{run.seconds:8.2f}{reading:>9}{run.peak_mb:9.0f}{differs}", flush=True)
    print(installed(folder))


def _read(name: str, packages: tuple[str, ...], file: Path, folder: Path, repeat: int) -> Run:
    python = environment(folder, (*_ALL, *packages))
    home = folder / "home" / name.replace(" ", "-")  # where DuckDB keeps its extensions
    home.mkdir(parents=True, exist_ok=True)
    return best([measured([python, _READ_WITH, name, file], own_env() | {"HOME": str(home)}) for _ in range(repeat)])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--folder", type=Path, help="where the environment is made and kept, else a temporary folder")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        compare(options.file, (options.folder or Path(temporary)).absolute(), options.repeat)


if __name__ == "__main__":
    main()
