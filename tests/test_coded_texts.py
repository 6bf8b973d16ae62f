"""Texts by their distinct values, against a dictionary of their bytes; also where two texts have one digest."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracelab import coded_texts
from tracelab.arrays import mix_hash
from tracelab.coded_texts import code_texts, joined
from tracelab.sqlite_pages import Texts
from tracelab.table_source import Coded
from tracelab.trace import I64

BOUNDED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_PADDING = 8  # behind the last text, for who looks at eight bytes at a time
TEXT = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from((b"", b"\0", b"\0\0", b"a", b"a\0", b"\0a", b"\xff", b"caf\xc3\xa9", b"caf\xc3")),
    st.integers(7, 18).map(lambda size: b"x" * size),  # around one and two words
)


def column(texts: Sequence[bytes | None], behind: bytes = b"") -> Texts:
    """The texts one behind the other; the bytes `behind` each belong to none of them."""
    sizes = [-1 if text is None else len(text) for text in texts]
    pieces = [(text or b"") + behind for text in texts]
    starts = np.cumsum([0, *map(len, pieces)])[: len(texts)].astype(np.int64)
    data = np.frombuffer(b"".join(pieces) + b"\xaa" * _PADDING, np.uint8)
    return Texts(data, starts, np.array(sizes, np.int64))


def shown(text: bytes | None) -> str | None:
    return None if text is None else text.decode("utf-8", "replace")


def assert_coded(found: Coded, texts: Sequence[bytes | None]) -> None:
    """Every row has its text, and each distinct one stands once (bytes that are shown alike may stand twice)."""
    assert [found.texts[code] for code in found.codes] == [shown(text) for text in texts]
    assert len(found.texts) == len(set(texts))
    assert found.codes.dtype == np.int32


@BOUNDED
@given(st.lists(TEXT, max_size=10), st.binary(max_size=9))
def test_texts_and_their_distinct_values(texts: list[bytes | None], behind: bytes) -> None:
    assert_coded(code_texts(column(texts, behind)), texts)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 300])
@pytest.mark.parametrize("at", [0, -1])
def test_texts_that_differ_in_one_byte(size: int, at: int) -> None:
    texts: list[bytes | None] = []
    for changed in (0, 1, 255):
        text = bytearray(b"q" * size)
        text[at] = changed
        texts += [bytes(text), b"q" * size]
    assert_coded(code_texts(column(texts)), texts)


def _one_for_all(word: I64, _: I64) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint64]]":
    return np.ones(len(word), np.uint64)


def _of_the_word_alone(word: I64, _: I64) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint64]]":
    return mix_hash(word, np.zeros(len(word), np.int64))


@pytest.mark.parametrize("digest", [_one_for_all, _of_the_word_alone])
@BOUNDED
@given(st.lists(TEXT, max_size=10))
def test_texts_with_one_digest_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, digest: object, texts: list[bytes | None]
) -> None:
    """Whatever the digest is: the same for all texts, or that of the last eight bytes alone."""
    monkeypatch.setattr(coded_texts, "mix_hash", digest)
    assert_coded(code_texts(column(texts)), texts)


def test_control_without_the_comparison_a_collision_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of one length and one digest: only the comparison of their bytes tells them apart."""
    texts = [b"first text", b"other text"]
    monkeypatch.setattr(coded_texts, "mix_hash", _one_for_all)
    assert_coded(code_texts(column(texts)), texts)
    monkeypatch.setattr(coded_texts, "_alike", lambda *_: True)
    with pytest.raises(AssertionError):
        assert_coded(code_texts(column(texts)), texts)


def test_control_bytes_behind_a_text_would_tell_it_from_its_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """`abc` stands twice, with other bytes behind: 2 texts if those were looked at. They are masked, so it is 1."""
    data = np.frombuffer(b"abcXXXXXabcYYYYY" + b"\0" * _PADDING, np.uint8)
    twice = Texts(data, np.array([0, 8], np.int64), np.array([3, 3], np.int64))
    assert_coded(code_texts(twice), [b"abc", b"abc"])
    monkeypatch.setattr("tracelab.coded_texts.np.minimum", lambda left, _: np.full(len(left), 8))
    with pytest.raises(AssertionError):
        assert_coded(code_texts(twice), [b"abc", b"abc"])


PARTS = st.lists(st.lists(st.sampled_from((None, "", "a", "b", "c")), max_size=5), min_size=1, max_size=4)


def in_parts(parts: Sequence[Sequence[str | None]]) -> Coded:
    """Each part with a text that none of its rows has, as a source may have."""
    given_parts = []
    for part in parts:
        texts = [*dict.fromkeys(part), "nobody's"]
        given_parts.append(Coded(np.array([texts.index(text) for text in part], np.int32), texts))
    return joined(given_parts)


@BOUNDED
@given(PARTS)
def test_parts_stand_one_behind_the_other(parts: list[list[str | None]]) -> None:
    found = in_parts(parts)
    assert [found.texts[code] for code in found.codes] == [text for part in parts for text in part]
    assert sorted(map(str, found.texts)) == sorted(map(str, {text for part in parts for text in part} | {"nobody's"}))


def test_control_parts_in_another_order_are_seen() -> None:
    one, other = ["a", None], ["b"]
    found = in_parts([other, one])
    assert [found.texts[code] for code in found.codes] != [*one, *other]
