"""A report as JSON text and sample arrays, and back: every type, and tuples apart from lists, as they were."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab import report as report_types
from tracelab import result as result_types
from tracelab.report import Report

Samples = NDArray[np.float64]

_TYPES = {
    cls.__name__: cls
    for module in (report_types, result_types)
    for cls in vars(module).values()
    if isinstance(cls, type) and dataclasses.is_dataclass(cls)
}
_KIND = "kind"  # of an object of the JSON text: one of the types, or one of these
_SAMPLES, _TUPLE, _MAPPING = "samples", "tuple", "mapping"


def encode(report: Report) -> tuple[str, list[Samples]]:
    """The text, and the arrays it numbers. Raises TypeError for a value of another type than a report may hold."""
    samples: list[Samples] = []
    return json.dumps(_encoded(report, samples), ensure_ascii=False), samples


def decode(text: str, samples: Sequence[Samples]) -> Report:
    """The report. Raises ValueError for a text that `encode` did not write."""
    found = _decoded(json.loads(text), samples)
    if not isinstance(found, Report):
        raise ValueError("not a report")
    return found


def _encoded(value: object, samples: list[Samples]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == 1:
        samples.append(value)
        return {_KIND: _SAMPLES, "number": len(samples) - 1}
    if isinstance(value, list):
        return [_encoded(item, samples) for item in value]
    if isinstance(value, tuple):
        return {_KIND: _TUPLE, "items": [_encoded(item, samples) for item in value]}
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {_KIND: _MAPPING, "items": {key: _encoded(item, samples) for key, item in value.items()}}
    name = type(value).__name__
    if _TYPES.get(name) is not type(value):
        raise TypeError(f"a report holds no {name}")
    fields = [getattr(value, name) for name in _fields(name)]
    return {_KIND: name, "items": [_encoded(item, samples) for item in fields]}


def _fields(name: str) -> list[str]:
    return [field.name for field in dataclasses.fields(_TYPES[name])]


def _decoded(value: Any, samples: Sequence[Samples]) -> Any:
    if isinstance(value, list):
        return [_decoded(item, samples) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    if kind == _SAMPLES:
        return samples[value["number"]]
    if kind == _MAPPING:
        return {key: _decoded(item, samples) for key, item in value["items"].items()}
    items = [_decoded(item, samples) for item in value["items"]]
    if kind == _TUPLE:
        return tuple(items)
    if kind not in _TYPES:
        raise ValueError(f"unknown kind {kind}")
    return _TYPES[kind](**dict(zip(_fields(kind), items, strict=True)))
