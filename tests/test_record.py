"""Where the workload record is emitted: our NVTX domain, or the default one where that is off or out of reach."""

import sys
from types import SimpleNamespace

import pytest

from tracelab.kernels import _record


def fake_nvtx(marks: list[str], *, domain_is_on: bool | None) -> SimpleNamespace:
    """An nvtx package that notes marks as "domain message"; None stands for a version without `get_domain`."""
    domain = SimpleNamespace(get_event_attributes=lambda message: message if domain_is_on else None)
    fake = SimpleNamespace(mark=lambda message, domain: marks.append(f"{domain} {message}"))
    return fake if domain_is_on is None else SimpleNamespace(**vars(fake), get_domain=lambda _: domain)


@pytest.mark.parametrize(("domain_is_on", "want"), [(None, "tracelab"), (True, "tracelab"), (False, "default")])
def test_record_goes_to_our_domain_else_to_the_default_one(
    domain_is_on: bool | None, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[str] = []
    monkeypatch.setitem(sys.modules, "nvtx", fake_nvtx(marks, domain_is_on=domain_is_on))
    monkeypatch.setattr(_record, "_mark_in_default_domain", lambda text: marks.append(f"default {text}"))
    _record.emit({"a": 1})
    assert marks == [f'{want} {{"a":1}}']


def test_record_needs_no_nvtx_package(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[str] = []
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(_record, "_mark_in_default_domain", marks.append)
    _record.emit({"a": 1})
    assert marks == ['{"a":1}']
