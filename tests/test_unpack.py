"""Compressed traces are read as what is inside them, whatever they are called."""

import gzip
import json
import lzma
from pathlib import Path

import pytest
from called import called
from directory_export import tables_of, write_streams
from packers import PACKERS
from tiny_programs import eager

from tracelab.unpack import compression


def _said(path: Path) -> str:
    answer = called("report", path, "--format", "json")
    assert answer.code == 0, answer.err
    document = json.loads(answer.out)
    del document["trace"]["path"]
    return json.dumps(document)


@pytest.mark.parametrize("how", PACKERS)
def test_a_compressed_trace_is_analysed_like_the_plain_one(how: str, tmp_path: Path) -> None:
    plain = eager().save(tmp_path)
    packed = tmp_path / f"trace.sqlite.{how}"
    packed.write_bytes(PACKERS[how](plain.read_bytes()))
    assert _said(packed) == _said(plain)
    renamed = packed.rename(tmp_path / "without_an_ending")
    assert _said(renamed) == _said(plain)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([plain.name, "without_an_ending"])


def test_a_compressed_arrow_stream_is_one_too(tmp_path: Path) -> None:
    plain = write_streams(tables_of(eager().save(tmp_path)), tmp_path / "one.arrow")
    packed = tmp_path / "one.arrow.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    assert _said(packed) == _said(plain)


@pytest.mark.parametrize("how", PACKERS)
def test_damaged_archives_get_one_sentence(how: str, tmp_path: Path) -> None:
    whole = PACKERS[how](eager().save(tmp_path).read_bytes())
    path = tmp_path / f"cut.{how}"
    for kept in (6, 40, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:kept])
        answer = called("report", path)
        assert answer.code == 1, kept
        assert len(answer.err.splitlines()) == 1
        assert "damaged" in answer.err


@pytest.mark.parametrize("how", PACKERS)
def test_what_is_inside_must_be_a_trace(how: str, tmp_path: Path) -> None:
    path = tmp_path / f"text.{how}"
    path.write_bytes(PACKERS[how](b"no trace at all" * 100))
    answer = called("report", path)
    assert answer.code == 1
    assert f"{path}: no export of a kind that is known" in answer.err


def test_control_only_the_first_bytes_tell() -> None:
    assert compression(b"SQLite format 3\0") is None
    assert compression(b"") is None
    assert compression(gzip.compress(b"")) == "gzip"
