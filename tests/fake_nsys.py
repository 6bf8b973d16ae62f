"""An nsys that behaves as the real one was seen to behave, without a GPU; its faults are switched on by name."""

import json
import os
import sqlite3
import stat
import sys
from pathlib import Path

TOKEN = "sk-very-secret-token-0123"
HOME = "/home/alice/project"

_NSYS = """#!{python}
import json, os, shutil, signal, subprocess, sys, time
from pathlib import Path

here = Path(__file__).resolve().parent
settings = json.loads((here / "settings.json").read_text())
faults = settings["faults"]
with (here / "calls.jsonl").open("a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")


def option(arguments, name, default=None):
    for index, word in enumerate(arguments):
        if word == name:
            return arguments[index + 1]
        if word.startswith(name + "="):
            return word.split("=", 1)[1]
    return default


def split(arguments):
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        if arguments[index] == "--":
            print("option is ambiguous and matches 'capture-range-end', 'kill'")
            sys.exit(1)
        index += 2 if arguments[index] in ("-o", "-f") else 1
    return arguments[:index], arguments[index:]


def say(text):
    print(text, flush=True)


def write_report(output):
    say("Generating '/nonexistent/nsys-report-1234.qdstrm'")
    report = Path(output + ".nsys-rep")
    if "no_importer" in faults or "stream_only" in faults:
        report = Path(output + ".qdstrm")
        say("Importer error status: The importer binary and its dependencies were not found.")
    if "elsewhere" in faults:
        say(f"Failed to create '{{report}}': Permission denied.")
        report = Path(os.environ["TMPDIR"]) / "nsys-report-1234.nsys-rep"
    report.write_text("report")
    say("[1/1] [=====24%         ] trace.nsys-rep\\r[1/1] [====100%] trace.nsys-rep")
    say("Generated:")
    say(f"    {{report}}")


def profile(arguments):
    own, command = split(arguments)
    unknown = [word for word in own if word.startswith("--foo")]
    if unknown:
        say(f"unrecognised option '{{unknown[0]}}'")
        say("usage: nsys profile [<args>] [application] [<application args>]")
        sys.exit(1)
    output = option(own, "-o")
    program = subprocess.Popen(command, start_new_session=True)
    told = []
    signal.signal(signal.SIGINT, lambda *_: (told.append(1), os.killpg(program.pid, signal.SIGINT)))
    duration = option(own, "--duration")
    end = time.monotonic() + float(duration or 1e9)
    while program.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
        if told and "ignores_program" in faults:
            break
    if "disk_full" in faults:
        say("Failed to write '/x/trace.qdstrm': No space left on device")
        sys.exit(program.wait())
    if "range_not_hit" in faults or "nothing" in faults:
        code = program.wait()
        say("Generated:")
        sys.exit(code if code >= 0 else 128 - code)
    write_report(output)
    if duration and "leaves_program" in faults:
        sys.exit(0)
    code = program.wait()
    sys.exit(130 if told else code if code >= 0 else 128 - code)


def export(arguments):
    target = Path(option(arguments, "-o"))
    say("Exporting 10 events: [==100%]")
    if "too_old" in faults:
        target.write_text("half")
        say(settings["too_new"])
        sys.exit(1)
    if "export_fails" in faults:
        target.write_text("half")
        print("Exportation error: something broke", file=sys.stderr)
        sys.exit(1)
    shutil.copyfile(settings["export"], target)


if sys.argv[1:] == ["--version"]:
    print("NVIDIA Nsight Systems version " + settings["version"] + "-abcdef")
elif sys.argv[1:] == ["profile", "--help"]:
    print("\\n".join(f"\\t--{{flag}}=" for flag in settings["flags"]))
elif sys.argv[1] == "profile":
    profile(sys.argv[2:])
else:
    export(sys.argv[2:])
"""

_IMPORTER = """#!{python}
import sys
from pathlib import Path

failures = Path(__file__).parent / "failures"
left = int(failures.read_text()) if failures.exists() else 0
if left:
    failures.write_text(str(left - 1))
    print("Processing [==50%]\\nWrong event order has been detected")
    sys.exit(1)
target = Path(sys.argv[sys.argv.index("-o") + 1])
target.write_text(Path(sys.argv[sys.argv.index("-i") + 1]).read_text())
"""

FLAGS = (
    "trace", "sample", "cpuctxsw", "cuda-graph-trace", "cuda-event-trace", "kill", "wait", "capture-range",
    "capture-range-end", "delay", "duration",
)  # fmt: skip


def make_nsys(
    root: Path,
    *,
    version: str = "2025.3.2.367",
    faults: tuple[str, ...] = (),
    importer: str | None = "host-linux-x64",
    export: Path | None = None,
    flags: tuple[str, ...] = FLAGS,
    too_new: str = "Exportation error: Version not supported: 36398880",
) -> Path:
    """Install a fake nsys under `root`; `importer` names the folder of its importer, None = shipped without one.

    `too_new` is what it says, with the fault "too_old", of a report that a newer one wrote.
    """
    folder = root / "target-linux-x64"
    folder.mkdir(parents=True)
    settings = {"version": version, "faults": faults, "export": str(export), "flags": flags, "too_new": too_new}
    (folder / "settings.json").write_text(json.dumps(settings))
    if importer is not None:
        (root / importer).mkdir()
        executable(root / importer / "QdstrmImporter", _IMPORTER.format(python=sys.executable))
    return executable(folder / "nsys", _NSYS.format(python=sys.executable))


def executable(path: Path, text: str) -> Path:
    """Write a script that can be run."""
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def calls(nsys: Path) -> list[list[str]]:
    """The command lines with which a fake nsys was called."""
    return [json.loads(line) for line in (nsys.parent / "calls.jsonl").read_text().splitlines()]


def make_export(path: Path) -> Path:
    """A small export with two kernels, whose environment, arguments, paths and process names must not be shared."""
    with sqlite3.connect(path) as database:
        database.executescript(_EXPORT)
        environment = f"HOME={HOME}\0API_TOKEN={TOKEN}\0HOSTNAME=gpu-node-17\0MODE=decode_fast"
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', ?)", (environment,))
    return path


def alive(pid: int) -> bool:
    """True if the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def without_nsys(path: str) -> str:
    """A PATH without the folders that hold a real nsys or nvidia-smi."""
    folders = path.split(os.pathsep)
    return os.pathsep.join(f for f in folders if not any((Path(f) / name).exists() for name in ("nsys", "nvidia-smi")))


_EXPORT = f"""
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO StringIds VALUES
    (1, 'gemm_kernel'), (2, 'cudaLaunchKernel_v7000'), (3, 'dlopen({HOME}/lib/libfoo.so)'),
    (4, 'void run<lambda at {HOME}/main.cu:12>'), (5, '{HOME}/unused'), (6, '{TOKEN}'), (7, 'worker of alice'),
    (8, 'TensorRT:/conv1/Conv + /relu/Relu'), (9, 'open file {HOME}/data.bin');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER, futureColumn TEXT);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 1, 16777216, 1, 1, 1, '{TOKEN}'),
    (30, 45, 0, 2, 16777216, 4, 1, 4, NULL), (50, '{TOKEN}', 0, 3, 16777216, 1, 1, 1, NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 0, 16777217, 1, 2, 0, NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER,
    domainId INTEGER, jsonText TEXT);
INSERT INTO NVTX_EVENTS VALUES
    (0, 60, 59, 'decode_fast step 1', 16777217, NULL, 0, '{{"key": "{TOKEN}"}}'),
    (0, NULL, 75, 'tracelab', 16777217, NULL, 9, NULL),
    (1, NULL, 34, '{{"tracelab.workload":1,"name":"x","model":"org/model-8b","params":8e9}}', 16777217, NULL, 9, NULL),
    (2, 3, 59, 'load {HOME}/weights and {TOKEN}', 16777217, NULL, 0, NULL),
    (4, 5, 59, NULL, 16777217, 8, 0, NULL),
    (0, NULL, 39, 'worker of alice', 16777217, 7, 0, NULL);
CREATE TABLE PROFILER_OVERHEAD (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);
INSERT INTO PROFILER_OVERHEAD VALUES (0, 1, 16777217, 3);
CREATE TABLE OSRT_API (start INTEGER, nameId INTEGER);
INSERT INTO OSRT_API VALUES (0, 9);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, busLocation TEXT, uuid TEXT, smCount INTEGER, ctrlDevPath TEXT);
INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200', '0000:1b:00.0', 'GPU-1234-5678', 132, '/dev/nvidia0');
CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
INSERT INTO PROCESSES VALUES (16777216, 1, 'my_private_server');
CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE', 'Node'),
    ('PROCESS_0:COMMAND', '{HOME}/serve.py'), ('PROCESS_0:ARGUMENT_0', '--user=alice@example.org'),
    ('START_TRIGGER', '{HOME}/x');
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.3'), ('EXPORT_FILE', '{HOME}/x.sqlite');
CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT);
INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 1, 'Number of CUDA events collected: \t3.'), (1, 2, 'Cannot read {HOME}/y');
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_OPER_HTOD', 'Host-to-Device');
"""
