"""Is there an NVIDIA GPU on this machine? Asked without torch, since analysing and doctoring must not need it."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
_PROBE_TIMEOUT_S = 20.0
# In a subprocess, because a broken driver may crash the process that initialises it.
_CU_INIT = (
    "import ctypes, sys\n"
    "cuda = ctypes.CDLL('libcuda.so.1')\n"
    "count = ctypes.c_int(0)\n"
    "ok = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0\n"
    "sys.exit(0 if ok else 1)\n"
)


@dataclass(frozen=True)
class Gpu:
    """One GPU as its driver names it."""

    name: str
    driver: str


def has_gpu() -> bool:
    """True if this machine has an NVIDIA GPU: a device file, else a row of nvidia-smi, else a successful cuInit."""
    if any(ROOT.glob("dev/nvidia[0-9]*")):
        return True
    return bool(list_gpus()) or _driver_initialises()


def list_gpus() -> tuple[Gpu, ...]:
    """The GPUs that nvidia-smi lists; empty where there is no nvidia-smi or it fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [line.rsplit(",", 1) for line in done.stdout.splitlines() if done.returncode == 0 and "," in line]
    return tuple(Gpu(name=name.strip(), driver=driver.strip()) for name, driver in rows)


def kernel_driver() -> str | None:
    """First line of the kernel driver's version file, None where there is none."""
    try:
        text = (ROOT / "proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.splitlines()[0].strip() if text.strip() else None


def _driver_initialises() -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CU_INIT], capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
