"""The wheel: one top-level package, every leaf and data file in it, nothing else; and it runs where no checkout is."""

import email
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from source_tree import LEAF_FOLDERS, ROOT

DATA = {".toml", ".json", ".sqlite", ".typed"}
TREE = ("pyproject.toml", "README.md", "LICENSE", "tracelab", "sample_traces", *LEAF_FOLDERS)


def _copy_of_the_tree(target: Path) -> Path:
    """What the wheel is made of, links kept: building in the checkout would leave files that a later build picks up."""
    target.mkdir()
    ignore = shutil.ignore_patterns("__pycache__")
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy2(ROOT / name, target / name)
    return target


def _build(folder: Path) -> Path:
    if find_spec("build") is None or find_spec("setuptools") is None:
        pytest.skip("no TRACELAB_WHEEL, and the package build is not installed to make one: install the extra [dev]")
    tree = _copy_of_the_tree(folder / "tree")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next((folder / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel under test: the one that CI has built, else built here by way of the sdist."""
    given = os.environ.get("TRACELAB_WHEEL")
    return Path(given) if given else _build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def members(wheel: Path) -> set[str]:
    """The files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def expected() -> set[str]:
    """Every file of the package that has to be in the wheel."""
    own = (ROOT / "tracelab").rglob("*")  # does not follow the links
    linked = (path for name in (*LEAF_FOLDERS, "sample_traces") for path in (ROOT / name).iterdir())
    packaged = [path.relative_to(ROOT).as_posix() for path in (*own, *linked) if path.suffix in {".py", *DATA}]
    return {path if path.startswith("tracelab/") else f"tracelab/{path}" for path in packaged}


def test_one_top_level_package(members: set[str]) -> None:
    tops = {name.partition("/")[0] for name in members}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tracelab"}
    assert len(tops) == 2


def test_every_leaf_and_data_file_is_inside_and_nothing_else(members: set[str]) -> None:
    assert {"tracelab/kernels/llama8b.py", "tracelab/families.toml", "tracelab/py.typed"} <= expected()
    assert {name for name in members if name.startswith("tracelab/")} == expected()


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
        entry_points = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert metadata["Name"] == "tracelab-gpu"
    core = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert core
    assert not [line for line in core if line.startswith(("torch", "triton", "nvtx"))]
    assert "tracelab = tracelab.__main__:main" in entry_points


def test_runs_where_no_checkout_is(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = "import tracelab; print(tracelab.__file__); from tracelab.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "list"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    where, listed = done.stdout.split("\n", 1)
    assert Path(where).is_relative_to(site)
    for folder in LEAF_FOLDERS:
        leaves = [path for path in (ROOT / folder).glob("*.py") if not path.name.startswith("_")]
        assert leaves
        assert all(path.stem.removesuffix("_report").replace("_", "-") in listed.split() for path in leaves)
