"""The nsys command line for one capture, using only flags that the found nsys has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracelab.capture.nsys import Nsys, supports

GRAPH_MODES = ("node", "graph")


@dataclass(frozen=True)
class CaptureOptions:
    """What to capture. Times in seconds from the start of the program; None = no delay, no end.

    `graph_mode` "node" records the kernels of a CUDA graph one by one, "graph" a replay as a whole (less overhead).
    """

    capture_range: bool = False
    delay_s: float | None = None
    duration_s: float | None = None
    nsys_args: tuple[str, ...] = ()
    graph_mode: str = "node"

    @property
    def waits_for_range(self) -> bool:
        """True if nothing is collected until the program opens a range."""
        return self.capture_range or any(name in ("--capture-range", "-c") for name in map(_name, self.nsys_args))


def profile_command(nsys: Nsys, command: Sequence[str], options: CaptureOptions, output: Path) -> list[str]:
    """The command line that runs `command` under `nsys` and writes `output` + `.nsys-rep`."""
    own = [flag for flag in _flags(options) if supports(nsys, _name(flag).removeprefix("--"))]
    given = {_name(argument) for argument in options.nsys_args}
    kept = [flag for flag in own if _name(flag) not in given]
    # No `--` before the program: nsys 2022.4 takes it for an ambiguous option. It stops at the first word without dash.
    return [str(nsys.path), "profile", *kept, *options.nsys_args, "-f", "true", "-o", str(output), *command]


def profile_environment(options: CaptureOptions) -> dict[str, str]:
    """What the program's environment must hold beside the user's own."""
    wants_nvtx = any(argument.endswith("capture-range=nvtx") for argument in options.nsys_args)
    # Without this, nsys triggers on registered strings only, and torch's ranges are not registered.
    return {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if wants_nvtx else {}


def _flags(options: CaptureOptions) -> list[str]:
    flags = ["--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", f"--cuda-graph-trace={options.graph_mode}"]
    flags.append("--cuda-event-trace=false")  # its device-side events add false dependencies between streams
    # The defaults kill the program at the first cudaProfilerStop (exit code 143 on success) and wait for daemons.
    flags += ["--kill=none", "--wait=primary"]
    if options.capture_range:
        flags += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    if options.delay_s is not None:
        flags.append(f"--delay={options.delay_s:g}")
    if options.duration_s is not None:
        flags.append(f"--duration={options.duration_s:g}")
    return flags


def _name(argument: str) -> str:
    return argument.split("=", 1)[0]
