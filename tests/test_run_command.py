"""`tracelab run`: figures from what a kernel measured, the page, exit codes, and variants read from source."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tracelab import registry
from tracelab.cli import build_app
from tracelab.commands import kernel_command, run
from tracelab.commands.run_page import as_json, as_page
from tracelab.errors import CaptureUnavailableError, CheckFailedError, TracelabError, UsageError
from tracelab.kernel_run import KernelRun, kernel_run
from tracelab.registry import Leaf

H200 = {"name": "NVIDIA H200", "sm_count": 132, "memory_bytes": 150_000_000_000}
HEAD = {"tracelab.run": 1, "kernel": "toy", "dtype": "bfloat16", "options": {"ctx": 8}, "variants": ["good", "slow"]}


def row(variant: str, **changed: Any) -> dict[str, Any]:
    """One variant of 480 MB and 1 GFLOP a call, right, 125 µs."""
    facts = {
        "variant": variant, "help": "", "error": 2e-3, "tolerance": 1e-2, "ok": True, "bytes": 480_000_000,
        "flops": 10**9, "executed_flops": 4 * 10**9, "kernels": 2, "remark": "", "ns": 125_000.0, "spread": 0.004,
    }  # fmt: skip
    return {**facts, **changed}


def measured(*rows: dict[str, Any], gpu: dict[str, Any] | None = H200) -> KernelRun:
    return kernel_run([{**HEAD, "gpu": gpu}, *rows])


def test_floor_mbu_and_rates_by_hand() -> None:
    done = measured(row("good"), row("slow", ns=1_250_000.0))
    good, slow = done.variants
    # 480e6 B ÷ 4.8e12 B/s = 100 µs; 1e9 ÷ 989e12 = 1.01 µs: memory binds. 100 ÷ 125 = 80 %, 100 ÷ 1250 = 8 %
    assert done.floor_ns(good) == pytest.approx(100_000)
    assert done.mbu(good) == pytest.approx(0.8)
    assert done.mbu(slow) == pytest.approx(0.08)
    # 1e9 FLOPs in 125 µs are 8 TFLOP/s
    assert good.flops_per_s == pytest.approx(8e12)


def test_flops_bind_where_they_take_longer() -> None:
    # 989e9 FLOPs ÷ 989e12 FLOP/s = 1 ms, above the 100 µs of the bytes
    done = measured(row("good", flops=989 * 10**9))
    assert done.floor_ns(done.variants[0]) == pytest.approx(1_000_000)


def test_page_is_aligned_and_shows_ratio_floor_and_spread() -> None:
    page = as_page(measured(row("good"), row("much_slower", ns=1_250_000.0, remark="8 blocks")))
    lines = page.splitlines()
    assert lines[0] == "toy · NVIDIA H200 · bfloat16"
    assert "floor 100.0 µs (memory; 4.80 TB/s, datasheet)" in lines[2]
    head, good, slow = lines[4:7]
    assert [head.index(word) for word in ("µs", "A/A", "MBU")] == sorted(head.index(w) for w in ("µs", "A/A", "MBU"))
    assert " ".join(good.split()) == "good 2.0e-03 ok 125.0 0.4 % 80.0 % 80.0 % 8.0 1.00 2"
    assert " ".join(slow.split()) == "much_slower 2.0e-03 ok 1250.0 0.4 % 8.0 % 8.0 % 0.8 10.00 2 8 blocks"
    assert good.index("125.0") + len("125.0") == slow.index("1250.0") + len("1250.0")


def test_short_kernels_keep_two_decimals() -> None:
    assert " 4.12 " in as_page(measured(row("good", ns=4_120.0), row("slow", ns=48_552_000.0)))


def test_without_gpu_nothing_is_timed_and_the_page_says_so() -> None:
    untimed = {key: value for key, value in row("good").items() if key not in ("ns", "spread")}
    page = as_page(measured(untimed, gpu=None))
    assert "interpreter" in page and "Not timed" in page
    assert "MBU" not in page and "µs" not in page


def test_a_kernels_own_table_follows_the_variants() -> None:
    table = {"title": "sweep", "columns": ["BH", "µs", "note"], "rows": [["16", "161.6", ""], ["64", "42.4", "best"]],
             "note": "96 heads"}  # fmt: skip
    page = as_page(kernel_run([{**HEAD, "gpu": H200}, row("good"), {"table": table}]))
    assert page.splitlines()[-5:] == ["sweep", "BH     µs  note", "16  161.6", "64   42.4  best", "96 heads"]


def test_checks_of_a_kernels_own_are_lines_and_a_failed_one_says_what_must_be() -> None:
    lines = [{"check": "poll", "ok": True, "measured": "210 ns", "limit": "≤ 300 ns"},
             {"check": "stale output", "ok": False, "measured": "new", "limit": "old"}]  # fmt: skip
    done = kernel_run([{**HEAD, "options": {}, "variants": [], "gpu": H200}, *lines])
    assert as_page(done).splitlines() == [
        "toy · NVIDIA H200 · bfloat16", "", "ok     poll          210 ns", "WRONG  stale output  new  (must be: old)",
    ]  # fmt: skip
    assert done.failed == ("stale output",)


def test_json_keeps_units_and_an_infinite_error_is_null() -> None:
    read = json.loads(as_json(measured(row("good", error=float("inf"), ok=False))))
    (variant,) = read["variants"]
    assert read["schema"] == "tracelab.run/1"
    assert variant["check"] == {
        "name": "relative L2 error against float64", "ok": False, "measured": None, "limit": 1e-2,
    }  # fmt: skip
    assert (variant["time_ns"], variant["floor_ns"]) == (125_000.0, pytest.approx(100_000))


KERNEL = '''"""A toy."""
import json, sys
VARIANTS = {"good": "fine", "slow": "starved"}
DEFAULTS = {"variant": "good", "ctx": 8, "steps": 12, "graph": False}
if __name__ == "__main__":
    ROWS
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a kernel `toy` whose module runs the given statements."""

    def install(statements: str) -> None:
        path = tmp_path / "toy_kernel.py"
        path.write_text(KERNEL.replace("ROWS", statements))
        leaf = Leaf("toy", "toy_kernel", path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(run, "require_packages", lambda _: None)
        for module in (kernel_command, run):
            monkeypatch.setattr(module, "leaves", lambda _: {"toy": leaf})

    return install


def call(*words: str) -> None:
    build_app(list(words))(list(words), standalone_mode=False)


def printing(*rows: dict[str, Any]) -> str:
    said = "\n".join(json.dumps(line) for line in ({**HEAD, "gpu": None}, *rows))
    return f"print({said!r})"


def test_the_kernels_options_reach_it_and_the_page_is_printed(toy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    toy(f"assert sys.argv[1:] == ['--run', '--ctx', '99', '--variant', 'slow'], sys.argv\n    {printing(row('slow'))}")
    call("run", "toy", "--ctx", "99", "--variant", "slow")
    assert "slow" in capsys.readouterr().out


def test_a_wrong_result_is_printed_and_ends_with_code_3(toy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    toy(printing(row("good"), row("slow", error=0.3, ok=False)))
    with pytest.raises(CheckFailedError, match="the check failed for slow"):
        call("run", "toy")
    assert "WRONG: slow: error 3.0e-01 against float64, limit 0.01." in capsys.readouterr().out
    assert CheckFailedError.exit_code == 3


@pytest.mark.parametrize(("code", "kind"), [(2, UsageError), (5, CaptureUnavailableError), (1, TracelabError)])
def test_a_kernel_that_cannot_run_keeps_its_exit_code(toy: Any, code: int, kind: type[TracelabError]) -> None:
    toy(f"sys.exit({code})")
    with pytest.raises(kind, match="its own message stands above") as caught:
        call("run", "toy")
    assert caught.value.exit_code == code


def test_a_killed_kernel_points_at_the_memory(toy: Any) -> None:
    toy("import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(UsageError, match="was killed, most likely for want of memory"):
        call("run", "toy")


def test_what_was_measured_is_shown_when_the_kernel_dies_later(toy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    toy(f"{printing(row('good'))}\n    sys.stdout.flush()\n    sys.exit(1)")
    with pytest.raises(TracelabError, match="its own message stands above"):
        call("run", "toy")
    assert "good" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["toy", "--variant", "nope"], "has no variant 'nope'; it has good, slow"),
        (["toy", "--ctx", "x"], "takes a whole number"),
        (["toy", "--graph"], "--graph and --steps belong to `tracelab profile`"),
        (["toy", "--ctx", "9", "--steps=12"], "--graph and --steps belong to `tracelab profile`"),
        (["toy", "extra"], "'extra' is no option"),
        (["nope"], "There is no kernel 'nope'. Kernels: toy."),
        ([], "Give a kernel: toy."),
        (["toy", "--format", "xml"], "none of terminal, json"),
    ],
)
def test_usage_errors_name_what_there_is(toy: Any, words: list[str], said: str) -> None:
    toy("sys.exit('must not run')")
    with pytest.raises(UsageError, match=said):
        call("run", *words)


def test_without_torch_the_sentence_names_what_is_missing(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    toy("sys.exit('must not run')")
    monkeypatch.setattr(run, "require_packages", kernel_command.require_packages)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(CaptureUnavailableError, match=r"needs torch and triton, .* install the extra \[gpu\]"):
        call("run", "toy")


def test_variants_are_read_without_import(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text('import no_such_module\nVARIANTS: dict[str, str] = {"a": "x"}\nX: int\n')
    assert Leaf("k", "k", path).variants == {"a": "x"}
    assert registry.literal(path, "DEFAULTS") is None
    assert "no_such_module" not in sys.modules
