"""A report as text and arrays, and back: equal in every value and every type, for every bundled recording."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from rank_programs import two_ranks
from tiny_programs import eager

from tracelab import analysis, report_codec
from tracelab import report as report_types
from tracelab import result as result_types
from tracelab.options import Facts
from tracelab.registry import leaves, load
from tracelab.report import CaptureFacts, Report
from tracelab.report_codec import decode, encode
from tracelab.result import Check, Finding, Metric, Result
from tracelab.samples import samples

FORMATS = tuple(leaves("reports"))


def told(path: Path, capture: CaptureFacts | None = None) -> Report:
    return analysis.report(ask(path, Facts(params=8e9, dtype="bf16")), capture=capture)


def through(report: Report) -> Report:
    """What is left of a report after it was written and read, its samples with their own memory."""
    text, arrays = encode(report)
    return decode(text, [array.copy() for array in arrays])


def assert_same(one: object, other: object, where: str = "report") -> None:
    """Equal values of equal types, part by part."""
    if isinstance(one, Mapping):
        assert isinstance(other, Mapping) and list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
        return
    assert type(one) is type(other), (where, one, other)
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray) and one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, err_msg=where)
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name), f"{where}.{field.name}")
    elif isinstance(one, list | tuple):
        assert isinstance(other, list | tuple) and len(one) == len(other), where
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{where}[{number}]")
    else:
        assert repr(one) == repr(other), where  # of floats every digit; -0.0 is not 0.0, and nan is nan


def pages(report: Report) -> dict[str, str]:
    style = {"full_names": True, "width": 100, "color": True}
    return {name: load(leaves("reports")[name]).render(report, **style) for name in FORMATS}


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.path.name)
def test_recordings(sample: Any) -> None:
    report = told(sample.path)
    assert_same(through(report), report)
    assert pages(through(report)) == pages(report)


def test_several_devices_and_a_capture(tmp_path: Path) -> None:
    report = told(two_ranks(5).save(tmp_path), CaptureFacts(3, "/opt/nsys", "2025.3.2"))
    assert len(report.devices) == 2 and any(len(encode(report)[1]) for _ in report.devices)
    assert_same(through(report), report)
    assert pages(through(report)) == pages(report)


def with_result(report: Report, result: Result) -> Report:
    main = dataclasses.replace(report.main, results={"one": result})
    return dataclasses.replace(report, main=main)


ODD = {
    "numbers": Result(metrics={n: Metric(v, "ns") for n, v in {"nan": float("nan"), "inf": float("-inf"), "zero": -0.0,
                      "tiny": 5e-324, "third": 1 / 3, "big": 2**70, "none": None, "true": True}.items()}),
    "samples": Result(metrics={"a": Metric(1, "ns", np.array([np.nan, -0.0, np.inf, 1 / 3])),
                               "b": Metric(1, "ns", np.zeros(0)), "c": Metric(1, "ns", None)}),
    "texts": Result(skipped="", tables={"": [{"": "\0\n\x1b[1m\u2028🙂", "quote": '"\\', "kind": "tuple",
                                              "items": []}]}),
    "sequences": Result(tables={"t": ({"row": (1, [2, (3,)], [], ())},)}, findings=[Finding("c", "t", "e")]),
    "mappings": Result(tables={"t": [{"kind": {"kind": "Report", "items": [{"number": 0, "kind": "samples"}]}}]}),
    "types": Result(checks=(Check("n", False, 1, 2.5, "ns"),), findings=(Finding("c", "t", "e", 5),)),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_odd_values(tmp_path: Path, what: str) -> None:
    """Also a text or a key that the codec itself could have written."""
    report = with_result(told(eager().save(tmp_path)), ODD[what])
    assert_same(through(report), report)


@pytest.mark.parametrize("value", [np.int64(3), np.float64(3), np.zeros(3, np.int64), {1: 2}, {3}, b"x", Path("x"), 1j])
def test_what_no_report_holds_is_an_error(tmp_path: Path, value: object) -> None:
    report = with_result(told(eager().save(tmp_path)), Result(tables={"t": [{"value": value}]}))
    with pytest.raises(TypeError, match="a report holds no"):
        encode(report)


def test_a_class_of_the_name_of_a_known_one_is_an_error(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Finding:
        code: str

    report = with_result(told(eager().save(tmp_path)), Result(tables={"t": [{"value": Finding("x")}]}))
    with pytest.raises(TypeError, match="no Finding"):
        encode(report)


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "3", '{"kind": "mapping", "items": {}}', '{"kind": "Report", "items": []}',
             '{"kind": "Nothing", "items": []}', '{"kind": "tuple", "items": []}'],
)  # fmt: skip
def test_a_text_that_was_not_written_here_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text, [])


def test_every_type_of_a_report_is_known() -> None:
    """Also one that nobody has thought of yet, as long as it stands with the others."""
    declared = [
        cls for module in (report_types, result_types) for cls in vars(module).values()
        if isinstance(cls, type) and dataclasses.is_dataclass(cls)
    ]  # fmt: skip
    assert {Report, Result, Metric, CaptureFacts} <= set(declared)
    assert set(report_codec._TYPES.values()) == set(declared)
    assert len({cls.__name__ for cls in declared}) == len(set(declared))  # a name stands for one of them


# Negative controls


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"kind": "tuple"', '"kind": "mapping"', 1),
        lambda text: text.replace("attention", "attentiom"),
        lambda text: text.replace('"number": 0}', '"number": 1}'),
    ],
)
def test_control_a_changed_text_is_seen(tmp_path: Path, change: Any) -> None:
    report = told(eager(6).save(tmp_path))
    text, arrays = encode(report)
    assert change(text) != text
    with pytest.raises((AssertionError, AttributeError)):
        assert_same(decode(change(text), arrays), report)


def test_control_other_samples_are_seen(tmp_path: Path) -> None:
    report = told(eager(6).save(tmp_path))
    text, arrays = encode(report)
    assert_same(decode(text, arrays), report)
    with pytest.raises(AssertionError):
        assert_same(decode(text, [array + 1e-9 for array in arrays]), report)
    with pytest.raises(IndexError):
        decode(text, arrays[:-1])


def test_control_a_list_for_a_tuple_is_seen() -> None:
    for one, other in (((1,), [1]), (1, 1.0), (True, 1), (0.0, -0.0), ("1", 1)):
        with pytest.raises(AssertionError):
            assert_same(one, other)


def test_samples_are_numbered_in_the_order_of_the_text(tmp_path: Path) -> None:
    text, arrays = encode(told(eager(6).save(tmp_path)))
    numbers = list[int]()

    def seen(value: dict[str, Any]) -> dict[str, Any]:
        if value.get("kind") == "samples":
            numbers.append(value["number"])
        return value

    json.loads(text, object_hook=seen)
    assert numbers == list(range(len(arrays)))
