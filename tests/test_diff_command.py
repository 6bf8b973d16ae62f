"""`tracelab diff` on the command line: real recordings, exit codes, narrowing, ladders, files of one's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from called import Answer, called
from recorded import PROGRAMS, capture_file
from slowed import slowed

from tracelab.samples import FOLDER, samples

SPLIT = FOLDER / "llama8b_graph_32k_h200.sqlite"
SERIAL = FOLDER / "llama8b_serial_32k_h200.sqlite"


def _diff(*words: str | Path) -> Answer:
    return called("diff", *words)


def _document(*words: str | Path, code: int = 0) -> dict[str, Any]:
    answer = _diff(*words, "--format", "json")
    assert answer.code == code, answer.err
    document: dict[str, Any] = json.loads(answer.out)
    return document


@pytest.mark.parametrize("path", [sample.path for sample in samples()], ids=lambda path: path.stem)
def test_a_trace_against_itself_is_neutral(path: Path) -> None:
    document = _document(path, path)
    assert document["verdict"] == "neutral"
    assert document["comparable"]
    for row in (document["step"], document["device_time"], *document["phases"], *document["kernels"]):
        assert row["before_ns"] == row["after_ns"]
        assert row["verdict"] == "neutral"
    assert all(row["delta_ns"] == 0 for row in (*document["phases"], *document["kernels"]))


def test_starved_attention_is_found_and_everything_else_is_not() -> None:
    """split_kv_decode on 8 blocks: 266.0 → 1716.5 µs; feed-forward and head are the controls that do not move."""
    document = _document(SPLIT, SERIAL, code=3)
    assert document["verdict"] == "regression"
    assert {row["phase"]: row["verdict"] for row in document["phases"]} == {
        "L#/attn_gqa": "regression", "L#/ffn": "neutral", "head": "neutral",
    }  # fmt: skip
    assert [control["phase"] for control in document["controls"]] == ["L#/ffn", "head"]
    kernel = document["kernels"][0]
    assert (kernel["name"], kernel["grid_before"], kernel["grid_after"]) == ("split_kv_decode", "8·16", "8")
    assert (kernel["before_ns"], kernel["after_ns"]) == (265_983, 1_716_479)
    assert document["findings"][0]["code"] == "grid-shrunk"
    shares = {row["phase"]: (row["share_before"], row["share_after"]) for row in document["phases"]}
    assert shares["L#/ffn"][0] > 2 * shares["L#/ffn"][1] - 0.02  # the share halves, the time stays
    assert document["regressed"] == ["the step", "device time of the step", "L#/attn_gqa"]


def test_more_than_one_kernel_for_a_place_and_the_other_way_round() -> None:
    """32 heads in a graph: splitting over the context adds a merge, so one phase has more kernels and less time."""
    document = _document(SERIAL, SPLIT)
    assert document["verdict"] == "improvement"
    assert {row["name"]: row["verdict"] for row in document["kernels"]}["split_kv_merge"] == "new"


def test_ninety_six_heads_against_the_shard_of_twelve() -> None:
    document = _document(FOLDER / "k3_graph_96_h200.sqlite", FOLDER / "k3_graph_12_h200.sqlite")
    verdicts = {row["phase"]: row["verdict"] for row in document["phases"]}
    assert verdicts["L#/attn_kda"] == verdicts["L#/attn_mla"] == "improvement"
    assert verdicts["head"] == "neutral"
    shares = {row["phase"]: (row["share_before"], row["share_after"]) for row in document["phases"]}
    assert shares["head"][1] > 1.5 * shares["head"][0]  # a share that rises though the time does not change
    assert "heads 96 → 12" in document["warnings"][0]["message"]
    assert {"grid-shrunk", "shares-moved"} <= {finding["code"] for finding in document["findings"]}


def test_failed_launches_are_no_improvement() -> None:
    """8 layers, a launch of layer 5 fails in every step: 6 launches, 5 of them in used steps, and attention lacks that
    kernel's time."""
    document = _document(FOLDER / "llama8b_eager_b1_h200.sqlite", FOLDER / "llama8b_fail_h200.sqlite")
    attention = next(row for row in document["phases"] if row["phase"] == "L#/attn_gqa")
    assert attention["verdict"] == "inconclusive"
    assert "5 launches failed after" in attention["remark"]
    assert document["findings"][0]["title"] == "Failed launches: 0 before, 6 after (L#/attn_gqa 6)."
    assert "failed-launches" in {warning["code"] for warning in document["warnings"]}


def test_not_comparable_is_exit_code_4_and_says_why() -> None:
    pair = (FOLDER / "attention_flash_h200.sqlite", FOLDER / "kda_fused_h200.sqlite")
    document = _document(*pair, code=4)
    assert not document["comparable"]
    assert document["verdict"] == "not-comparable"
    assert {reason["code"] for reason in document["reasons"]} == {"other-model", "other-kernels"}
    answer = _diff(*pair)
    assert answer.code == 4
    assert "different models" in answer.err
    forced = _document(*pair, "--force")
    assert forced["verdict"] == "improvement"
    assert not forced["comparable"]


def test_small_regressions_may_pass_and_named_ones_count(tmp_path: Path) -> None:
    """+20 % on split_kv_decode: +2.5 % of the phase; the kernel counts only when named."""
    before = capture_file("llama_graph", 1)
    after = slowed(before, tmp_path / "after.sqlite", 1.2, lambda name, _: name == "split_kv_decode")
    assert _diff(before, after).code == 3
    assert _diff(before, after, "--fail-above", "3%").code == 0
    assert _diff(before, after, "--fail-above", "2%").code == 3
    assert _diff(before, after, "--phase", "head|ffn").code == 0
    assert _diff(before, after, "--phase", "attn").code == 3
    assert _diff(before, after, "--kernel", "gemv").code == 0
    assert _diff(before, after, "--kernel", "split_kv_decode", "--fail-above", "15%").code == 3
    assert _diff(before, after, "--kernel", "split_kv_decode", "--fail-above", "25%").code == 0
    assert _diff(after, before).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((SPLIT,), "Give the trace before and the trace after"),
        ((SPLIT, SERIAL, "--phase", "nothing"), "matches no phase; there are L#/attn_gqa, L#/ffn, head"),
        ((SPLIT, SERIAL, "--kernel", "nothing"), "matches no kernel"),
        ((SPLIT, SERIAL, "--control", "nothing"), "matches no phase"),
        ((SPLIT, SERIAL, "--control", "attn"), "the kernels of L#/attn_gqa differ"),
        ((SPLIT, SERIAL, "--phase", "("), "not a regular expression"),
        ((SPLIT, SERIAL, "--fail-above", "3"), "write it like 3%"),
        ((SPLIT, SERIAL, "--format", "nothing"), "is none of"),
        ((SPLIT, SERIAL, SPLIT, "--aa", SPLIT), "belong to two traces"),
        ((SPLIT, SERIAL, "-o", SPLIT), "would overwrite the trace"),
        ((SPLIT, SERIAL, "--aa"), "--aa"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(words: tuple[str | Path, ...], said: str) -> None:
    answer = _diff(*words)
    assert answer.code == 2
    assert said in " ".join(answer.err.split())


def test_a_file_that_cannot_be_read_is_exit_code_1(tmp_path: Path) -> None:
    answer = _diff(SPLIT, tmp_path / "missing.sqlite")
    assert answer.code == 1
    assert "no such file" in answer.err


def test_more_captures_measure_the_floor_of_the_step_time() -> None:
    """Four captures of one host-bound program: 9.81 and 14.31 ms before, 10.89 and 11.23 after."""
    one, two, three, four = (capture_file("llama_eager", number) for number in range(1, 5))
    assert _document(one, three)["step"]["verdict"] == "inconclusive"
    assert _document(one, three, "--aa", two)["step"]["verdict"] == "inconclusive"
    document = _document(one, three, "--aa", two, "--aa-after", four)
    assert document["step"]["verdict"] == "neutral"
    assert document["noise_floor"]["step_time"] == pytest.approx(0.4587, abs=1e-4)
    assert len(document["before"]["paths"]) == 2
    several = _document(one, three, "--aa", two, four, "--format", "json")
    assert len(several["before"]["paths"]) == 3


def test_the_same_file_twice_is_one_capture() -> None:
    one, three = capture_file("llama_eager", 1), capture_file("llama_eager", 3)
    document = _document(one, three, "--aa", one, "--aa-after", three)
    assert document["step"]["verdict"] == "inconclusive"


def test_a_copy_of_a_capture_is_no_second_capture(tmp_path: Path) -> None:
    one, two = capture_file("llama_eager", 1), capture_file("llama_eager", 2)
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(one.read_bytes())
    answer = _diff(one, two, "--aa", copy)
    assert answer.code == 2
    assert "a copy is no second capture" in answer.err
    assert "capture of both sides" in _diff(one, two, "--aa", two).err


def test_a_second_phase_that_changed_hides_nothing(tmp_path: Path) -> None:
    """Feed-forward, two thirds of the step, 20 % faster and the head 20 % slower: attention alone stood still."""
    before, after = capture_file("llama_graph", 1), tmp_path / "after.sqlite"
    source, between = capture_file("llama_graph", 2), tmp_path / "between.sqlite"
    # Of the 129 gemv_row of a step each layer has two in attention, then two in feed-forward; the last is the head's.
    faster = slowed(source, between, 0.8, lambda name, i: name == "gemv_row" and i % 129 < 128 and i % 129 % 4 > 1)
    slowed(faster, after, 1.2, lambda name, i: name == "gemv_row" and i % 129 == 128)
    document = _document(before, after, code=3)
    assert {row["phase"]: row["verdict"] for row in document["phases"]} == {
        "L#/ffn": "improvement", "head": "regression", "L#/attn_gqa": "neutral",
    }  # fmt: skip


def test_what_was_let_pass_or_not_looked_at_is_said() -> None:
    assert _document(SPLIT, SERIAL, "--fail-above", "500%")["notes"] == [
        "--fail-above lets pass: the step (+98.4 %), device time of the step (+101.4 %), L#/attn_gqa (+288.4 %)."
    ]
    assert _document(SPLIT, SERIAL, "--phase", "head")["notes"] == [
        "Only what --phase and --kernel name was looked at. Not looked at, though slower: the step and its device time."
    ]


def test_folders_of_repeated_captures_are_sides(tmp_path: Path) -> None:
    for side, numbers in (("before", (1, 2)), ("after", (3, 4))):
        for place, number in enumerate(numbers, 1):
            folder = tmp_path / side / str(place)
            folder.mkdir(parents=True)
            (folder / "trace.sqlite").write_bytes(capture_file("llama_eager", number).read_bytes())
    document = _document(tmp_path / "before", tmp_path / "after")
    assert len(document["before"]["paths"]) == len(document["after"]["paths"]) == 2
    assert document["verdict"] == "neutral"


def test_another_program_among_the_captures_is_no_capture_of_it() -> None:
    document = _document(
        capture_file("llama_graph", 1), capture_file("llama_graph", 2), "--aa", capture_file("kimi_graph", 1), code=4
    )
    assert "other-program" in {reason["code"] for reason in document["reasons"]}


def test_a_ladder_adds_up() -> None:
    """Three forms of one kernel, whose increments are those of the whole."""
    rungs = [FOLDER / f"mla_{name}_h200.sqlite" for name in ("perhead_serial", "perhead_split", "split")]
    document = _document(*rungs)
    assert document["schema"] == "tracelab.ladder/1"
    steps = [rung["device_time"] for rung in document["rungs"]]
    whole = document["whole"]["device_time"]
    assert steps[0]["before_ns"] == whole["before_ns"]
    assert steps[-1]["after_ns"] == whole["after_ns"]
    assert sum(s["after_ns"] - s["before_ns"] for s in steps) == whole["after_ns"] - whole["before_ns"]
    assert [rung["verdict"] for rung in document["rungs"]] == ["improvement", "improvement"]
    assert _diff(*reversed(rungs)).code == 3


def test_other_steps_on_each_side() -> None:
    """Both sides may come from one file: two of a program's own patterns of steps."""
    path = capture_file("llama_graph", 1)
    answer = _diff(path, path, "--steps", "decode_step", "--steps-after", "no_such_step")
    assert answer.code == 1
    assert "no_such_step" in answer.err


def test_nothing_is_written_beside_the_traces(tmp_path: Path) -> None:
    copies = []
    for number in (1, 2):
        copy = tmp_path / f"{number}.sqlite"
        copy.write_bytes(capture_file("grouped", number).read_bytes())
        copies.append(copy)
    assert _diff(*copies).code == 0
    assert sorted(tmp_path.iterdir()) == copies


@pytest.mark.parametrize("program", PROGRAMS)
def test_two_captures_of_one_program_pass_in_ci(program: str) -> None:
    assert _diff(capture_file(program, 1), capture_file(program, 2)).code == 0


@pytest.mark.parametrize("name", ["terminal", "markdown"])
def test_formats_for_people(name: str, tmp_path: Path) -> None:
    target = tmp_path / "diff.txt"
    answer = _diff(SPLIT, SERIAL, "--format", name, "-o", target)
    assert answer.code == 3
    assert answer.out == ""
    assert "split_kv_decode" in target.read_text(encoding="utf-8")
