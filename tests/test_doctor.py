"""`tracelab doctor`: a few lines and a verdict."""

import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import typer
from fake_nsys import executable, make_nsys, without_nsys
from typer.testing import CliRunner

from tracelab.capture import gpu
from tracelab.capture import nsys as nsys_module
from tracelab.capture.doctor import diagnose
from tracelab.commands.doctor import doctor

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither GPU nor nsys but what a test puts under tmp_path."""
    for module in (gpu, nsys_module):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "_CU_INIT", "import sys; sys.exit(1)")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), without_nsys(os.environ["PATH"])]))
    monkeypatch.delenv("TRACELAB_NSYS", raising=False)
    monkeypatch.chdir(tmp_path)


def add_gpu(tmp_path: Path) -> None:
    executable(tmp_path / "bin/nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 580.159.04'\n")


def test_a_machine_that_can(tmp_path: Path) -> None:
    add_gpu(tmp_path)
    make_nsys(tmp_path / "opt/nvidia/nsight-systems/2025.3.2")
    make_nsys(tmp_path / "opt/nvidia/nsight-compute/x/host", version="2025.1.1", importer="linux-desktop-glibc")
    done = diagnose()
    assert done.can_capture and done.lines[-1] == "this machine can capture"
    assert done.lines[0] == "GPU     NVIDIA H200, driver 580.159.04"
    assert "2025.3.2.367" in done.lines[1] and done.lines[1].endswith("(Nsight Systems folder, used): complete")
    assert done.lines[2].endswith("(inside Nsight Compute): complete; tracelab runs its importer by hand")


def test_a_machine_without_anything() -> None:
    result = CliRunner().invoke(app(), [])
    assert result.exit_code == 5
    assert result.output.splitlines()[-1] == "cannot capture: no NVIDIA GPU; no nsys"


def test_an_nsys_that_cannot_make_reports(tmp_path: Path) -> None:
    add_gpu(tmp_path)
    make_nsys(tmp_path / "opt/nvidia/nsight-systems/2025.3.2", importer=None)
    done = diagnose()
    assert not done.can_capture and done.lines[-1] == "cannot capture: nsys cannot make reports"
    assert "its importer (QdstrmImporter) is not installed" in done.lines[1]


def test_an_old_nsys_is_said_to_lack_graphs(tmp_path: Path) -> None:
    add_gpu(tmp_path)
    found = make_nsys(tmp_path / "n", version="2021.1.1", flags=("trace",))
    assert "cannot trace CUDA graphs by node" in diagnose(str(found)).lines[1]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_gpu(tmp_path)
    make_nsys(tmp_path / "opt/nvidia/nsight-systems/2025.3.2")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 10**6))
    done = diagnose()
    assert not done.can_capture and "has less than 200 MB free" in done.lines[-1]


def test_gpu_without_nvidia_smi(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").write_text("")
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: 580.1\nGCC\n")
    assert diagnose().lines[0] == "GPU     present; NVRM version: 580.1"


def test_nvidia_smi_that_fails_is_no_gpu(tmp_path: Path) -> None:
    executable(tmp_path / "bin/nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed, no driver'\nexit 9\n")
    assert gpu.list_gpus() == () and not gpu.has_gpu()


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(doctor)
    return made
