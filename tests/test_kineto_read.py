"""Reading the events of a file: recognised by content, streamed, and as far as it goes where it is damaged."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from kineto_fixture import TinyKineto

from tracelab import kineto_read
from tracelab.kineto_read import KinetoFile, is_kineto


def kernels(count: int = 20) -> TinyKineto:
    trace = TinyKineto()
    for i in range(count):
        trace.launch(i * 50_000, f"k{i}", i * 50_000 + 20_000, 5_000)
    return trace


def read(tmp_path: Path, data: str | bytes) -> tuple[list[dict[str, Any]], KinetoFile]:
    path = tmp_path / "damaged.json"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    file = KinetoFile(path)
    return list(file.events()), file


def names(events: list[dict[str, Any]]) -> list[str]:
    return [str(event.get("name")) for event in events if event.get("cat") == "kernel"]


ALL = [f"k{i}" for i in range(20)]


@pytest.mark.parametrize(
    "head",
    [
        b'{"schemaVersion": 1, "traceEvents": [',
        b'\n {\n "traceEvents": [',
        b'{"displayTimeUnit": "ms", "deviceProperties": [',
        b'\xef\xbb\xbf{"traceEvents":[]}',
        b'[\n  {"ph": "X", "cat": "kernel"',
        b'[{"name": "k"',
        gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}'),
        gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}')[:-9],
    ],
)
def test_recognised_by_content(head: bytes) -> None:
    assert is_kineto(head)


@pytest.mark.parametrize(
    "head",
    [b"", b"SQLite format 3\0", b"{}", b"[]", b"[1, 2]", b'{"schema": "tracelab.report/1"}', b"traceEvents",
     b'[{"rows": 1}]', b"\x1f\x8bnot gzip at all", gzip.compress(b"SQLite format 3\0"), b"PK\x03\x04"],
)  # fmt: skip
def test_anything_else_is_not(head: bytes) -> None:
    assert not is_kineto(head)


@pytest.mark.parametrize("chunk", [7, 64, 1000, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_chunks_may_cut_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, packed: bool) -> None:
    monkeypatch.setattr(kineto_read, "_CHUNK_BYTES", chunk)
    data = kernels().text().encode()
    events, file = read(tmp_path, gzip.compress(data) if packed else data)
    assert events == [_as_read(event) for event in json.loads(data)["traceEvents"]]
    assert (file.complete, file.skipped_events, file.unread_bytes, file.replaced) == (True, 0, 0, 0)
    assert file.metadata["deviceProperties"][0]["numSms"] == 132


def _as_read(event: dict[str, Any]) -> dict[str, Any]:
    """Fractions stay text, as they stand in the file."""
    args = {k: str(v) if isinstance(v, float) else v for k, v in event.get("args", {}).items()}
    times: dict[str, Any] = {key: f"{event[key]:.3f}" for key in ("ts", "dur") if key in event}
    return {**event, **times, "args": args} if args else {**event, **times}


def test_metadata_may_stand_behind_the_events(tmp_path: Path) -> None:
    events, file = read(tmp_path, '{"traceEvents": [{"ph": "X"}], "deviceProperties": [{"id": 0}], "other": 1e400}')
    assert (len(events), file.metadata, file.complete) == (1, {"deviceProperties": [{"id": 0}]}, True)


def test_several_members_of_gzip_are_one_file(tmp_path: Path) -> None:
    data = kernels().text().encode()
    packed = gzip.compress(data[:3000]) + gzip.compress(data[3000:]) + b"\0" * 512
    events, file = read(tmp_path, packed)
    assert (names(events), file.complete, file.unread_bytes) == (ALL, True, 0)


def test_arrows_are_passed_over_and_hide_nothing(tmp_path: Path) -> None:
    arrow = '{"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 1.000, "cat": "ac2g", "name": "ac2g"}'
    odd = '{"ph": "s", "name": "ac2g {", "id": 3}'
    events, file = read(tmp_path, f'[{arrow}, {{"ph": "X", "name": "k"}}, {arrow},{arrow}, {odd}, {arrow}]')
    assert ([event["name"] for event in events], file.skipped_events) == (["k", "ac2g {"], 0)


# damage: everything that stands in whole events is read, what is lost is counted


def test_control_characters_and_infinities_are_read(tmp_path: Path) -> None:
    text = (
        kernels().text().replace('"k3"', '"k\x01\n3"').replace("1.0,", "Infinity,").replace('"stream": 7', '"x": NaN')
    )
    events, file = read(tmp_path, text)
    assert names(events) == [*ALL[:3], "k\x01\n3", *ALL[4:]]
    assert (file.skipped_events, file.complete) == (0, True)


@pytest.mark.parametrize(
    "broken",
    ['{"ph": "X", "cat": "kernel" "name": 1}', '{"ph": "X", "name": "a "quoted" name"}', '{"ph": "X", "args": {]}',
     '{"ph": "X", "name": "unended}', "\0\0\0", "nonsense", '{"ph": "X", "ts": 1' + "9" * 5000 + "}"],
)  # fmt: skip
def test_one_broken_event_costs_one_event(tmp_path: Path, broken: str) -> None:
    text = kernels().text()
    at = text.index('"k7"')
    at = text.rindex("{", 0, text.rindex('"ph"', 0, at) + 1)
    events, file = read(tmp_path, f"{text[:at]}{broken},\n{text[at:]}")
    assert names(events) == ALL
    assert (file.skipped_events, file.complete) == (1, True)
    assert 0 < file.unread_bytes <= len(broken) + 2


def test_values_that_are_no_events_are_counted(tmp_path: Path) -> None:
    events, file = read(tmp_path, '[{"ph": "X", "name": "k"}, null, 3, "x", [], {"ph": "X", "name": "l"},,]')
    assert ([event["name"] for event in events], file.skipped_events, file.complete) == (["k", "l"], 4, True)


def test_a_truncated_file_is_read_up_to_its_end(tmp_path: Path) -> None:
    text = kernels().text()
    cut = text.index('"k12"') + 30
    events, file = read(tmp_path, text[:cut])
    assert (names(events), file.complete, file.skipped_events) == (ALL[:12], False, 1)
    assert file.unread_bytes == cut - text.rindex("{\n", 0, text.index('"k12"'))


def test_a_truncated_gzip_is_read_up_to_its_end(tmp_path: Path) -> None:
    packed = gzip.compress(kernels(2000).text().encode())
    events, file = read(tmp_path, packed[: len(packed) // 2])
    assert names(events) == [f"k{i}" for i in range(len(names(events)))]
    assert 100 < len(names(events)) < 1900
    assert not file.complete


@pytest.mark.parametrize("chunk", [4096, 1 << 20])
def test_damaged_compression_is_read_up_to_the_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(kineto_read, "_CHUNK_BYTES", chunk)
    packed = bytearray(gzip.compress(kernels(4000).text().encode()))
    packed[len(packed) // 2 : len(packed) // 2 + 64] = b"\xff" * 64
    events, file = read(tmp_path, bytes(packed))
    assert names(events)[:1500] == [f"k{i}" for i in range(1500)]
    assert not file.complete
    assert file.unread_bytes > len(packed) // 4


def test_an_array_without_its_closing_bracket(tmp_path: Path) -> None:
    events, file = read(tmp_path, '[{"ph": "X", "name": "k"},\n{"ph": "X", "name": "l"}')
    assert ([event["name"] for event in events], file.complete, file.skipped_events) == (["k", "l"], False, 0)
    assert read(tmp_path, '[{"ph": "X", "name": "k"}]')[1].complete


def test_invalid_utf8_is_replaced_and_counted(tmp_path: Path) -> None:
    events, file = read(tmp_path, kernels().text().encode().replace(b'"k5"', b'"k\xff5"'))
    assert (names(events)[5], file.replaced, len(names(events))) == ("k\ufffd5", 1, 20)


def test_bom_duplicate_keys_and_trailing_commas(tmp_path: Path) -> None:
    text = '\ufeff{"traceEvents": [{"ph": "X", "name": "a", "name": "k"},], "schemaVersion": 1, "schemaVersion": 2,}'
    events, file = read(tmp_path, text)
    assert (events, file.metadata, file.complete) == ([{"ph": "X", "name": "k"}], {"schemaVersion": 2}, True)


@pytest.mark.parametrize(
    "deep",
    ["[" * 1_000_000, '{"args":' * 1_000_000, '{"ph": "X", "args": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}"],
)
def test_a_million_brackets(tmp_path: Path, deep: str) -> None:
    events, file = read(tmp_path, f'[{{"ph": "X", "name": "k"}},{deep},{{"ph": "X", "name": "l"}}]')
    assert [event["name"] for event in events if "name" in event] == ["k", "l"]
    assert 1 <= file.skipped_events <= 20
    assert file.unread_bytes >= len(deep) - 2


def test_a_string_longer_than_any_event_is_passed_over(tmp_path: Path) -> None:
    huge = '{"ph": "X", "name": "' + "x" * (9 << 20) + '"}'
    events, file = read(tmp_path, f'[{{"ph": "X", "name": "k"}},{huge},{{"ph": "X", "name": "l"}}]')
    assert [event["name"] for event in events] == ["k", "l"]
    assert file.skipped_events == 1
    assert file.unread_bytes == len(huge) + 1  # and the comma behind it


def test_broken_metadata_costs_only_metadata(tmp_path: Path) -> None:
    events, file = read(tmp_path, '{"distributedInfo": {bad}, "traceEvents": [{"ph": "X", "name": "k"}]}')
    assert ([event["name"] for event in events], file.has_events, file.complete) == (["k"], True, True)
    assert file.unread_bytes > 0


@pytest.mark.parametrize("data", ["", "{}", '{"schemaVersion": 1}', '{"schemaVersion": 1, "trace', "\0" * 100])
def test_files_without_events(tmp_path: Path, data: str) -> None:
    events, file = read(tmp_path, data)
    assert (events, file.has_events) == ([], False)
    assert file.complete == data.endswith("}")


def test_an_error_is_never_looked_for_from_far_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder counts the lines before each error: 10 000 broken events of 27 characters stand in one chunk, and
    none may be looked at more than `_LONGEST_READ` and its own length behind the beginning of the text."""
    places, scan = [], kineto_read._SCAN

    def scanned(text: str, at: int) -> tuple[Any, int]:
        places.append(at)
        return scan(text, at)

    monkeypatch.setattr(kineto_read, "_SCAN", scanned)
    monkeypatch.setattr(kineto_read, "_LONGEST_READ", 5_000)
    events, file = read(tmp_path, '{"traceEvents": [' + '{"ph": "X", "name": broken}' * 10_000 + "]}")
    assert (events, file.skipped_events) == ([], 10_000)
    assert len(places) >= 10_000 and max(places) <= 5_000 + 2 * 27
