"""Finding nsys, saying what it lacks, and the command line that uses only flags it has."""

import os
from pathlib import Path

import pytest
from fake_nsys import FLAGS, executable, make_nsys, without_nsys

from tracelab.capture import nsys as nsys_module
from tracelab.capture.command import CaptureOptions, profile_command, profile_environment
from tracelab.capture.nsys import all_nsys, find_nsys, require_importer, supports
from tracelab.errors import CaptureUnavailableError

COMPUTE_IMPORTER = "linux-desktop-glibc_2_11_3-x64"


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No nsys anywhere but where a test puts one under tmp_path."""
    monkeypatch.setattr(nsys_module, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", without_nsys(os.environ["PATH"]))
    for name in ("TRACELAB_NSYS", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


def test_no_nsys_is_one_sentence() -> None:
    with pytest.raises(CaptureUnavailableError, match=r"no nsys was found: .*install NVIDIA Nsight Systems") as caught:
        find_nsys(None)
    assert caught.value.exit_code == 5


def test_explicit_path_that_does_not_exist(tmp_path: Path) -> None:
    make_nsys(tmp_path / "opt/nvidia/nsight-systems/2025.3.2")
    with pytest.raises(CaptureUnavailableError, match=r"there is no nsys at /nowhere/nsys \(given by --nsys\)"):
        find_nsys("/nowhere/nsys")


def test_explicit_path_that_is_no_nsys(tmp_path: Path) -> None:
    other = executable(tmp_path / "tool", "#!/bin/sh\necho tool 1.0\n")
    with pytest.raises(CaptureUnavailableError, match="is no nsys: `--version` gives no version"):
        find_nsys(str(other))


def test_explicit_and_environment_win_over_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_nsys(tmp_path / "opt/nvidia/nsight-systems/2026.1", version="2026.1.1")
    old, older = make_nsys(tmp_path / "old", version="2023.4.4"), make_nsys(tmp_path / "older", version="2022.4.2")
    monkeypatch.setenv("TRACELAB_NSYS", str(old))
    assert (find_nsys(None).path, find_nsys(None).source) == (old, "$TRACELAB_NSYS")
    assert (find_nsys(str(older)).path, find_nsys(str(older)).source) == (older, "--nsys")


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("usr/local/cuda-13.0/nsight-systems-2025.3.2", "CUDA folder"),
        ("opt/nvidia/nsight-systems/2025.3.2", "Nsight Systems folder"),
        ("opt/nvidia/nsight-systems-cli", "Nsight Systems folder"),
        ("opt/nvidia/nsight-compute/2025.3.1/host", "inside Nsight Compute"),
        ("usr/local/cuda-13.0/nsight-compute-2025.3.1/host", "inside Nsight Compute"),
    ],
)
def test_known_places(tmp_path: Path, place: str, source: str) -> None:
    path = make_nsys(tmp_path / place)
    found = find_nsys(None)
    assert (found.path, found.source, found.version) == (path, source, "2025.3.2.367")
    assert found.version_tuple == (2025, 3, 2, 367)


def test_path_and_conda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = make_nsys(tmp_path / "conda/nsight")
    (tmp_path / "conda/bin").mkdir()
    (tmp_path / "conda/bin/nsys").symlink_to(real)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    assert find_nsys(None).source == "$CONDA_PREFIX"
    monkeypatch.setenv("PATH", f"{tmp_path / 'conda/bin'}{os.pathsep}{os.environ['PATH']}")
    assert find_nsys(None).source == "PATH"
    assert len(all_nsys()) == 1  # the same file, found twice


def test_complete_before_incomplete_then_newest(tmp_path: Path) -> None:
    base = tmp_path / "opt/nvidia/nsight-systems"
    make_nsys(base / "2026.1", version="2026.1.1", importer=None)
    make_nsys(tmp_path / "opt/nvidia/nsight-compute/x/host", version="2025.9.9", importer=COMPUTE_IMPORTER)
    make_nsys(base / "2025.3", version="2025.3.2")
    make_nsys(base / "2025.10", version="2025.10.1")
    versions = [found.version for found in all_nsys()]
    assert versions == ["2025.10.1", "2025.3.2", "2025.9.9", "2026.1.1"]
    assert find_nsys(None).version == "2025.10.1"


def test_inside_nsight_compute_the_importer_is_run_by_hand(tmp_path: Path) -> None:
    make_nsys(tmp_path / "opt/nvidia/nsight-compute/2025.3.1/host", importer=COMPUTE_IMPORTER)
    found = find_nsys(None)
    require_importer(found)
    assert not found.imports_itself
    assert found.importer is not None and found.importer.path is not None
    assert found.importer.path.parent.name == COMPUTE_IMPORTER


def test_nsys_without_importer_says_so(tmp_path: Path) -> None:
    make_nsys(tmp_path / "opt/nvidia/nsight-systems/2025.3.2", importer=None)
    with pytest.raises(
        CaptureUnavailableError, match=r"can collect but not make a report: its importer .* not installed"
    ):
        require_importer(find_nsys(None))


def test_missing_libraries_are_named_with_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_nsys(tmp_path / "opt/nvidia/nsight-compute/2025.3.1/host", importer=COMPUTE_IMPORTER)
    (tmp_path / "bin").mkdir()
    lines = r"\tlibdw.so.1 => not found\n\tlibelf.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n"
    executable(tmp_path / "bin/ldd", f"#!/bin/sh\nprintf '{lines}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    wanted = r"needs libdw\.so\.1, libelf\.so\.1 \(Debian, Ubuntu: apt install libdw1 libelf1\)"
    with pytest.raises(CaptureUnavailableError, match=wanted):
        require_importer(find_nsys(None))


def test_importer_beside_a_link_to_nsys(tmp_path: Path) -> None:
    """Debian keeps nsys and its importer apart and joins them with links."""
    real = make_nsys(tmp_path / "lib/x86_64/nsight", importer=None)
    make_nsys(tmp_path / "other")  # brings an importer
    linked = tmp_path / "lib/nsight"
    linked.mkdir()
    (linked / "target-linux-x64").symlink_to(real.parent)
    (linked / "host-linux-x64").symlink_to(tmp_path / "other/host-linux-x64")
    (tmp_path / "nsys").symlink_to(linked / "target-linux-x64/nsys")
    found = find_nsys(str(tmp_path / "nsys"))
    assert found.missing is None and not found.imports_itself


def test_a_wrapper_script_is_trusted(tmp_path: Path) -> None:
    real = make_nsys(tmp_path / "somewhere")
    wrapper = executable(tmp_path / "nsys", f'#!/bin/sh\nexec {real} "$@"\n')
    found = find_nsys(str(wrapper))
    assert found.missing is None and found.imports_itself


def test_command_line_of_a_capture(tmp_path: Path) -> None:
    found = find_nsys(str(make_nsys(tmp_path / "n")))
    options = CaptureOptions(capture_range=True)
    assert profile_command(found, ["python", "-x"], options, Path("/out/trace"))[1:] == [
        "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node",
        "--cuda-event-trace=false", "--kill=none", "--wait=primary", "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop", "-f", "true", "-o", "/out/trace", "python", "-x",
    ]  # fmt: skip


def test_flags_that_this_nsys_lacks_are_left_out(tmp_path: Path) -> None:
    old = find_nsys(str(make_nsys(tmp_path / "n", flags=tuple(flag for flag in FLAGS if flag != "cuda-event-trace"))))
    assert not supports(old, "cuda-event-trace") and supports(old, "cuda-graph-trace") and not supports(old, "cuda")
    line = profile_command(old, ["x"], CaptureOptions(delay_s=1.5, duration_s=2, graph_mode="graph"), Path("o"))
    assert not any("cuda-event-trace" in word for word in line)
    assert {"--delay=1.5", "--duration=2", "--cuda-graph-trace=graph"} <= set(line)


def test_the_users_own_options_replace_ours(tmp_path: Path) -> None:
    found = find_nsys(str(make_nsys(tmp_path / "n")))
    options = CaptureOptions(nsys_args=("--trace=cuda,nvtx,osrt", "--capture-range=nvtx"))
    line = profile_command(found, ["x"], options, Path("o"))
    assert [word for word in line if word.startswith("--trace")] == ["--trace=cuda,nvtx,osrt"]
    assert options.waits_for_range
    assert profile_environment(options) == {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}
    assert profile_environment(CaptureOptions()) == {}
