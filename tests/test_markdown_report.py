"""Markdown: tables hold together, nothing from a trace becomes markup, and the numbers are those of the page."""

import re
from collections.abc import Callable, Iterator

import pytest
from diff_fixture_odd import DIFFS, HOSTILE, LADDERS, LONG, check, hostile
from markdown_it import MarkdownIt
from markdown_it.token import Token
from report_fixture import NVJET, sketch_report
from report_fixture_odd import REPORTS, odd_report

from tracelab.kernel_names import escape
from tracelab.reports import markdown_report
from tracelab.reports._diff_markdown_text import code, inline, md_table, prose
from tracelab.reports._page_tables import Column

FOREIGN = {"link_open", "image", "em_open", "s_open", "code_block", "fence", "hr"}
OWN_TAGS = {"<code>", "</code>"}
OWN_BLOCKS = re.compile(r"(</?details>|<summary>[^<>]*</summary>|\s)*")
NAMES = (
    HOSTILE,
    LONG,
    "1. x",
    "- y",
    "# z",
    "_a_ b_c __d",
    "https://e.vil www.e.vil",
    "#12 :tada: a::b::c",
    "<b>x</b>",
)


def _text(render: Callable[..., str], *found: object) -> str:
    return render(*found, full_names=False, width=None, color=False)


def _texts() -> Iterator[tuple[str, str]]:
    for name, make in DIFFS.items():
        yield f"diff {name}", _text(markdown_report.render_diff, make())
    for name, make_ladder in LADDERS.items():
        yield f"ladder {name}", _text(markdown_report.render_ladder, make_ladder())
    for name, make_report in REPORTS.items():
        yield f"report {name}", _text(markdown_report.render, make_report())
        for analyzer in make_report().main.results:
            yield f"{analyzer} {name}", _text(markdown_report.render_result, make_report(), analyzer)
    yield "check", _text(markdown_report.render_check, check())


TEXTS = dict(_texts())


def _parsed(text: str) -> list[Token]:
    """All tokens, those inside lines too, as CommonMark with GitHub's tables and strikethrough reads them."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [inner for token in tokens for inner in (token, *(token.children or ()))]


def _read(text: str) -> str:
    """The words that a reader sees."""
    return "".join(token.content for token in _parsed(text) if token.type in ("text", "code_inline"))


@pytest.mark.parametrize("name", TEXTS)
def test_rows_of_a_table_have_the_same_number_of_pipes(name: str) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", TEXTS[name], flags=re.MULTILINE)
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_but_our_own_markup_is_html_or_a_link(name: str) -> None:
    tokens = _parsed(TEXTS[name])
    assert {token.content for token in tokens if token.type == "html_inline"} <= OWN_TAGS
    assert all(OWN_BLOCKS.fullmatch(token.content) for token in tokens if token.type == "html_block")
    assert not {token.type for token in tokens} & {
        "link_open",
        "image",
        "em_open",
        "s_open",
        "code_block",
        "fence",
        "hr",
    }
    assert all(line.isprintable() for line in TEXTS[name].splitlines())


@pytest.mark.parametrize("written", [inline, prose, code])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_read_as_it_was_written(name: str, written: Callable[[str], str]) -> None:
    assert _read(written(name) if written is prose else f"x{written(name)}") == (
        "" if written is prose else "x"
    ) + escape(name)
    cell = "\n".join(md_table("t", [written(name)], [Column("c", [name])]))
    assert _read(cell) == "tc" + escape(name) * 2


@pytest.mark.parametrize("name", NAMES)
def test_no_character_of_a_name_is_left_that_could_be_markup(name: str) -> None:
    in_code = code(name).removeprefix("<code>").removesuffix("</code>").strip("`")
    assert not set("<>|`[]\\@$") & set(inline(name) + prose(name) + in_code)
    assert "*" not in inline(name) + prose(name)


@pytest.mark.parametrize("raw", ["<b>x</b>", "[x](http://e.vil)", "*x*", "https://e.vil", "@you", ":tada:", "#12"])
def test_control_raw_names_would_be_markup(raw: str) -> None:
    # What GitHub alone turns into links is not CommonMark, so there the escape itself is looked for.
    assert _read(f"x {raw}") != f"x {raw}" or inline(raw) != raw


def test_control_a_raw_pipe_would_break_a_row() -> None:
    assert _read("| t | c |\n| --- | --- |\n| a|b | c |") == "tcab"


def test_a_regression() -> None:
    text = TEXTS["diff regression"]
    lines = text.splitlines()
    assert lines[0] == "### tracelab diff: regression"
    assert "Device time 3981.9 → 4219.4 µs a step (+237.5 µs, +6.0 %; 95 % interval +5.8 to +6.2 %)." in text
    assert "| `L#/ffn` | 2689.1 | 2926.4 | +237.3 | +8.8 % | +8.6 to +9.0 % | 67.5 → 69.4 % | slower |" in lines
    seen, folded = text.split("<details>")
    assert "gemv_row_t32 → gemv_row_t16" in seen and "grid 448 → 224; 64 → 96 registers" in seen
    assert "small_3" not in seen and "small_3" in folded
    assert "**Slower than before:** the step, device time of the step, L#/ffn" in seen
    assert "MBU 76.2 % → 72.0 % of the step" in folded
    assert text.rstrip().endswith("</details>")


def test_rows_without_a_verdict_show_no_signed_number() -> None:
    rows = [line for line in TEXTS["diff regression"].splitlines() if "no measurable change |" in line]
    assert len(rows) == 14  # two phases and twelve kernels
    assert [row for row in rows if re.search(r"[+−]\d", row)] == []


def test_what_cannot_be_compared_gives_the_reasons_alone() -> None:
    text = TEXTS["diff not-comparable"]
    assert text.startswith("### tracelab diff: not comparable\n")
    assert "- The GPUs differ: NVIDIA H100 PCIe (114 SMs) and NVIDIA H200 (132 SMs)." in text
    assert "|" not in text


def test_warnings_are_seen_and_a_forced_comparison_warns() -> None:
    seen = TEXTS["diff forced"].split("<details>")[0]
    assert "- warning: not comparable, and compared all the same: The GPUs differ" in seen


def test_a_ladder() -> None:
    lines = TEXTS["ladder four"].splitlines()
    assert lines[0] == "### tracelab diff, 4 traces: improvement"
    assert "| L#/ffn | −237.5 | – | −371.3 | +0.7 | −608.1 |" in lines
    assert "- 2→3: no kernel has a measurable change" in lines


def test_a_check() -> None:
    lines = TEXTS["check"].splitlines()
    assert lines[0] == "### tracelab check: 2 of 7 limits fell short"
    assert "| **FAILED** | gaps.gap_share | 20.04 % | max 20.00 % |" in lines
    assert "- `budgets.toml:7: mbu = { min = 0.5 }` The floor is unknown: give --params." in lines


def test_a_report() -> None:
    lines = TEXTS["report sketch"].splitlines()
    assert lines[0].startswith("### tracelab report: 1167.1 µs a step (median; 1033.5–1299.9) · 48 kernels")
    assert "| launch gaps | 793.9 | 68.4 % |" in lines
    assert "| **in all** | 1160.3 | 100.0 % |" in lines
    assert "| `mlp` | 32 | 158.1 | 53.9 % |" in lines
    assert f"| `{NVJET}` | mlp | 12 | 123.0 | 41.7 % |" in lines
    assert any(line.startswith("1. The host launches too late") for line in lines)


def test_one_analyzer_alone() -> None:
    lines = _text(markdown_report.render_result, sketch_report(), "gaps").splitlines()
    assert "| launch_gap_ns | 790.6 µs |" in lines
    assert "| gap_share | 74.5 % |" in lines
    assert "- ok: span = busy + other + idle" in lines
    assert "This report has no such result." in _text(markdown_report.render_result, sketch_report(), "new")
    several = _text(markdown_report.render_result, odd_report(), "gaps")
    assert [f"#### device {i}" in several for i in range(3)] == [True] * 3


def test_full_names() -> None:
    kernels = [
        _read(markdown_report.render_diff(hostile(), full_names=full, width=None, color=False).split("| kernel")[1])
        for full in (True, False)
    ]
    assert [kernels[0].count(escape(LONG)) > kernels[1].count(escape(LONG)), kernels[0].isprintable()] == [True, True]
