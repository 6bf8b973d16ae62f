"""The period of a symbol sequence, on sequences whose loop is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelab.periods import boundaries, find_loop, find_sequence
from tracelab.trace import I64

NO_MARKS = np.zeros(0, np.int64)


def symbols(text: str) -> I64:
    return np.array([ord(c) for c in text], np.int64)


def length_of(text: str, marks: I64 = NO_MARKS) -> int | None:
    loop = find_loop(symbols(text), marks)
    return loop.length if loop else None


def test_the_shortest_exact_period() -> None:
    assert length_of("abcabcabcabc") == 3
    assert length_of("abab" * 4) == 2


def test_a_prologue_and_an_epilogue_are_outside() -> None:
    loop = find_loop(symbols("xyz" + "abc" * 5 + "w"), NO_MARKS)
    assert loop is not None
    assert (loop.length, loop.starts.tolist(), loop.stops.tolist(), loop.covered) == (3, [3], [18], 15)


@pytest.mark.parametrize("text", ["", "a", "abc", "abcabc", "abcdefgh", "aabbccddee"])
def test_no_loop_without_three_repetitions(text: str) -> None:
    assert length_of(text) is None


def test_a_loop_that_covers_too_little_is_none() -> None:
    assert length_of("ababab" + "cdefghijklmnopqrstuvwxyz") is None


TOKEN = "n" + "qkv" * 4 + "h"  # 4 equal layers inside a token


def test_where_the_host_takes_each_token_the_token_is_the_period() -> None:
    text = TOKEN * 8
    marks = np.arange(1, 9) * len(TOKEN)
    assert length_of(text, marks) == len(TOKEN) == 14
    assert length_of(text) == 14  # the layers alone do not cover the heads


def test_layers_win_only_where_the_host_takes_each() -> None:
    text = "ab" * 24
    assert length_of(text, np.arange(1, 25) * 2) == 2
    assert length_of(text, np.arange(1, 7) * 8) == 8  # the host waits after each fourth repetition


def test_boundaries_fall_where_the_host_pauses() -> None:
    text = "abc" * 5
    loop = find_loop(symbols(text), NO_MARKS)
    assert loop is not None
    pause = np.array([9 if c == "b" else 1 for c in text], np.int64)
    assert boundaries(symbols(text), loop, pause, NO_MARKS).tolist() == [1, 4, 7, 10]


def test_a_wait_of_the_host_begins_a_step_wherever_the_longest_pause_is() -> None:
    text = "abc" * 5
    loop = find_loop(symbols(text), NO_MARKS)
    assert loop is not None
    pause = np.array([9 if c == "b" else 1 for c in text], np.int64)
    marks = np.array([2, 5, 8, 11], np.int64)  # the host took a result before each c: 4 of 5 periods
    assert boundaries(symbols(text), loop, pause, marks).tolist() == [2, 5, 8, 11]
    assert boundaries(symbols(text), loop, pause, marks[:3]).tolist() == [1, 4, 7, 10]  # 3 of 5 are too few


def test_boundaries_of_several_runs_begin_at_the_same_symbol() -> None:
    text = "abc" * 5 + "x" + "cab" * 5
    loop = find_loop(symbols(text), NO_MARKS)
    assert loop is not None
    pause = np.array([9 if c == "a" else 1 for c in text], np.int64)
    found = boundaries(symbols(text), loop, pause, NO_MARKS).tolist()
    assert {text[at] for at in found} == {"a"}
    assert found == [0, 3, 6, 9, 12, 17, 20, 23, 26]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(3, 6), st.integers(0, 3))
def test_a_repeated_block_has_a_period_that_divides_it(block: list[int], repeats: int, prologue: int) -> None:
    sequence = np.array([100 + i for i in range(prologue)] + block * repeats, np.int64)
    loop = find_loop(sequence, NO_MARKS)
    if len(block) * repeats >= max(prologue, 12):  # a loop of fewer symbols is no evidence
        assert loop is not None
        assert (sequence[loop.starts[0] : loop.stops[0] - loop.length] == sequence[loop.starts[0] + loop.length : loop.stops[0]]).all()  # noqa: E501  # fmt: skip
        assert loop.covered >= len(sequence) / 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_a_sequence_is_found_where_it_first_occurs(haystack: list[int], needle: list[int]) -> None:
    at = [i for i in range(len(haystack) - len(needle) + 1) if haystack[i : i + len(needle)] == needle]
    found = find_sequence(np.array(haystack, np.int64), np.array(needle, np.int64))
    assert found == (at[0] if at else -1)


def test_a_sequence_is_no_bytes_that_only_look_alike() -> None:
    # 256 is the byte pattern 00 01 00 …: it stands inside (0, 65536 …) at an offset that is no whole number.
    assert find_sequence(np.array([1 << 8, 1], np.int64), np.array([1 << 56], np.int64)) == -1
    assert find_sequence(np.array([1 << 16, 1 << 8], np.int64), np.array([1 << 8], np.int64)) == 1


def test_a_few_equal_symbols_are_no_loop() -> None:
    assert find_loop(np.zeros(11, np.int64), NO_MARKS) is None
    loop = find_loop(np.zeros(12, np.int64), NO_MARKS)
    assert loop is not None and (loop.length, loop.covered) == (1, 12)
