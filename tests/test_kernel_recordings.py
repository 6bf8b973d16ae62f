"""Recordings of the bundled kernels: each starved form gets its finding, its good twin none; the compiler agrees."""

import json
import string
from typing import Any

import pytest
from asking import document
from test_compile_gate import compiled, triton_or_skip

from tracelab.samples import FOLDER

KNOWN = {
    entry["file"].removesuffix("_h200.sqlite"): entry["known"]
    for entry in json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["recordings"]
}


def findings(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(FOLDER / f"{name}_h200.sqlite")["findings"]
    return found


def grids(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = document(FOLDER / f"{name}_h200.sqlite")["results"]["grids"]["tables"]["grids"]
    return rows


# Starved form: code of the finding, and what it must say. The last is its good twin, which must not get the code with
# those words.
STARVED = [
    ("split_kv_serial", "starved-grid", "split_kv_decode reaches 8 of 132 SMs", "split_kv_split"),
    ("llama8b_serial_32k", "starved-grid", "split_kv_decode reaches 8 of 132 SMs", "llama8b_graph_32k"),
    ("mla_unsplit", "starved-grid", "reaches 6 of 132 SMs", "mla_split"),
    ("kimi_mla_unsplit", "starved-grid", "mla_batched reaches 2 of 132 SMs", "kimi_graph"),
    ("mla_perhead_serial", "starved-grid", "mla_per_head reaches 96 of 132 SMs", "mla_split"),
    ("mla_perhead_split", "waves", "768 blocks in 5.8 waves, one block per SM (168 registers", "mla_split"),
    ("kda_warps8", "waves", "one block per SM (238 registers", "kda_fused"),
    ("kda_12_heads", "starved-grid", "reaches 12 of 132 SMs", "kda_fused"),
    ("attention_serial", "starved-grid", "reaches 32 of 132 SMs", "attention_flash"),
    ("grouped_loop", "host-bound", "The host launches too late", "grouped_masked"),
    ("kimi_moe_loop", "host-bound", "The host launches too late", "kimi_graph"),
    ("kda_unfused", "host-bound", "The host launches too late", "kda_unfused_graph"),
    ("kimi_eager", "host-bound", "The host launches too late", "kimi_graph"),
    ("llama8b_eager_b1", "host-bound", "The host launches too late", "llama8b_graph_b1"),
    ("llama8b_fail", "failed-launch", "6 × cudaLaunchKernelExC failed in L#/attn_gqa", "llama8b_eager_b1"),
    ("guard", "failed-launch", "6 × cudaLaunchKernelExC failed in L#/attn_mla", "kimi_graph"),
]


def says(name: str, code: str, words: str) -> bool:
    """Whether a recording gets a finding of that code whose title has those words."""
    return any(found["code"] == code and words in found["title"] for found in findings(name))


@pytest.mark.parametrize(("starved", "code", "words", "good"), STARVED, ids=[row[0] for row in STARVED])
def test_the_starved_form_gets_its_finding_and_the_good_one_does_not(
    starved: str, code: str, words: str, good: str
) -> None:
    assert says(starved, code, words)
    assert not says(good, code, words)
    if code in ("waves", "starved-grid"):
        assert code not in [found["code"] for found in findings(good)]


def test_a_best_form_of_128_blocks_is_not_flagged() -> None:
    (decode,) = [row for row in grids("split_kv_split") if row["kernel"] == "split_kv_decode"]
    assert (decode["blocks"], decode["idle_sms"], decode["underfills"]) == (128, 4, False)
    assert not any("split_kv_decode" in found["title"] for found in findings("split_kv_split"))


def test_serial_depth_says_that_the_cache_is_read_again() -> None:
    (found,) = findings("mla_perhead_serial")
    # two calls a step of 47.8 ms each, 1.4 thousand times the floor of 68 µs
    assert "1400× its floor: every block walks its part alone for up to 47.76 ms" in found["evidence"]
    assert "read once what several blocks share" in found["evidence"]
    assert found["saving_ns"] == pytest.approx(95.5e6 - 68e3, rel=1e-3)


def test_a_launch_for_each_expert_is_to_be_grouped() -> None:
    (found,) = [f for f in findings("kimi_moe_loop") if f["code"] == "starved-grid"]
    assert (
        "1536 launches of it a step; do their work, where there is any, in one that fills the GPU" in found["evidence"]
    )


def test_more_blocks_per_sm_are_never_advice() -> None:
    """The capped form has 2 blocks per SM and takes 2.8 times as long as the good one with 1."""
    (capped,) = [row for row in grids("mla_bh32_maxnreg") if row["kernel"] == "mla_batched"]
    (good,) = [row for row in grids("mla_split") if row["kernel"] == "mla_few_heads"]
    assert (capped["blocks_per_sm"], good["blocks_per_sm"]) == (2, 1)
    assert capped["time_ns_per_step"] > 2.5 * good["time_ns_per_step"]
    for name in ("mla_bh32_maxnreg", "mla_split"):
        assert [found["code"] for found in findings(name)] == ["far-from-floor"]
        assert not any("occupancy" in found["title"] + found["evidence"] for found in findings(name))


def test_a_dependent_launch_that_waits_is_no_starved_grid() -> None:
    """The merge of 12 heads is launched early and waits: 87.5 µs a step by its own clock, 9 of them alone."""
    (merge,) = [row for row in grids("mla_split_12") if row["kernel"] == "mla_merge"]
    (found,) = findings("mla_split_12")
    assert merge["time_ns_per_step"] > 80_000
    assert found["saving_ns"] < 3_000


@pytest.mark.parametrize("name", [name for name, known in KNOWN.items() if "top_kernel" in known])
def test_grid_registers_and_findings_are_the_known_ones(name: str) -> None:
    known = KNOWN[name]
    top = max(grids(name), key=lambda row: row["time_ns_per_step"])
    assert {key: top[key] for key in known["top_kernel"]} == known["top_kernel"]
    assert [found["code"] for found in findings(name)] == known["findings"]


def test_failed_launches_stand_at_their_phase_and_steps() -> None:
    for name, phase in (("llama8b_fail", "L#/attn_gqa"), ("guard", "L#/attn_mla")):
        table = document(FOLDER / f"{name}_h200.sqlite")["results"]["launches"]["tables"]["failed"]
        assert {(row["phase"], row["error"]) for row in table} == {(phase, "cudaErrorInvalidValue")}
        assert sorted(row["step"] for row in table) == [f"decode_step {i}" for i in range(6)]


def test_registers_and_blocks_per_sm_of_the_sweep_are_the_compilers() -> None:
    triton_or_skip()
    rows = {row["phase"]: row for row in grids("mla_sweep")}
    lines = compiled("mla:sweep_specs")
    assert len(rows) == len(lines) == 21
    for letter, line in zip(string.ascii_lowercase, lines, strict=False):
        row = rows[f"form_{letter}"]
        seen = (row["registers"], row["shared_bytes"], row["blocks_per_sm"])
        assert seen == (line["registers"], line["shared_bytes"], line["blocks_per_sm"]), line["name"]
