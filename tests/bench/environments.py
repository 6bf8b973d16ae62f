"""Virtual environments for what the benchmark compares tracelab with, each in a folder of its own and made once."""

import subprocess
import venv
from pathlib import Path

from measure import NoResultError

_INSTALL_LIMIT_S = 600.0
_DONE = "installed.txt"


def environment(folder: Path, packages: tuple[str, ...]) -> Path:
    """The Python of the environment in `folder`, with `packages` from PyPI. Raises NoResultError where pip fails."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    done = folder / _DONE
    missing = set(packages) - set(done.read_text().splitlines() if done.exists() else ())
    if missing:
        _install(python, sorted(missing))
        with done.open("a") as file:
            file.writelines(f"{name}\n" for name in sorted(missing))
    return python


def installed(folder: Path) -> str:
    """Name and version of the packages that were asked for in the environment in `folder`, if there is one."""
    if not (folder / _DONE).exists():
        return ""
    names = [name.partition("=")[0] for name in (folder / _DONE).read_text().splitlines()]
    code = "import sys, importlib.metadata as m\nprint(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    command: list[str | Path] = [folder / "bin" / "python", "-c", code, *names]
    return str(subprocess.run(command, capture_output=True, text=True, check=True).stdout).strip()


def _install(python: Path, packages: list[str]) -> None:
    command: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoResultError(f"pip gave no answer in {_INSTALL_LIMIT_S:.0f} s") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NoResultError(f"pip: {errors[-1] if errors else f'ended with {done.returncode}'}")
