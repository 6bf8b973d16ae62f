"""Reports given by the user: exported into the cache, never beside the report; and the cache itself."""

import os
from pathlib import Path

import pytest
from fake_nsys import calls, make_export, make_nsys, without_nsys

from tracelab.capture import nsys as nsys_module
from tracelab.capture.cache import cache_folder, clear_cache
from tracelab.capture.export import export_report
from tracelab.errors import InputError, TracelabError


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nsys_module, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", without_nsys(os.environ["PATH"]))
    monkeypatch.delenv("TRACELAB_NSYS", raising=False)
    (tmp_path / "given").mkdir()
    path = tmp_path / "given" / "run.nsys-rep"
    path.write_bytes(b"report of a run")
    return path


def test_a_report_is_exported_once_into_the_cache(report: Path, tmp_path: Path) -> None:
    nsys = make_nsys(tmp_path / "n", export=make_export(tmp_path / "export"))
    first = export_report(report, str(nsys))
    assert first.parent == tmp_path / "cache" and first.stat().st_mode & 0o777 == 0o600
    assert export_report(report, str(nsys)) == first
    assert len([call for call in calls(nsys) if call[0] == "export"]) == 1
    assert list(report.parent.iterdir()) == [report]
    assert list(first.parent.iterdir()) == [first]


def test_a_changed_report_is_exported_again(report: Path, tmp_path: Path) -> None:
    nsys = make_nsys(tmp_path / "n", export=make_export(tmp_path / "export"))
    first = export_report(report, str(nsys))
    times = (report.stat().st_atime_ns, report.stat().st_mtime_ns)
    report.write_bytes(b"report of b run")
    os.utime(report, ns=times)
    assert export_report(report, str(nsys)) != first


def test_a_stream_is_imported_before_it_is_exported(report: Path, tmp_path: Path) -> None:
    stream = report.rename(report.with_suffix(".qdstrm"))
    nsys = make_nsys(tmp_path / "n", export=make_export(tmp_path / "export"))
    made = export_report(stream, str(nsys))
    assert made.parent == tmp_path / "cache"
    assert [call[-1].rpartition("/")[2] for call in calls(nsys) if call[0] == "export"] == ["run.nsys-rep"]
    assert list(stream.parent.iterdir()) == [stream]


def test_no_report(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no report at"):
        export_report(tmp_path / "missing.nsys-rep")


def test_no_nsys(report: Path) -> None:
    with pytest.raises(
        InputError, match=r"run\.nsys-rep can only be read by nsys itself, and no nsys was found"
    ) as caught:
        export_report(report)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "said", ["Exportation error: Version not supported: 36398880", "Importation failed: ProtobufParseException"]
)
def test_nsys_older_than_the_writer(report: Path, tmp_path: Path, said: str) -> None:
    nsys = make_nsys(tmp_path / "n", version="2022.4.2", faults=("too_old",), too_new=said)
    wanted = r"by a newer nsys than the one found here \(2022\.4\.2 at .*\); a newer one is needed: .* --nsys PATH"
    with pytest.raises(InputError, match=wanted):
        export_report(report, str(nsys))
    assert list((tmp_path / "cache").iterdir()) == []


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("TRACELAB_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "tracelab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "tracelab"
    assert cache_folder().stat().st_mode & 0o777 == 0o700


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(TracelabError, match="name another with \\$TRACELAB_CACHE"):
        cache_folder()


def test_clearing_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAB_CACHE", str(tmp_path / "cache"))
    assert clear_cache() == 0
    (cache_folder() / "a.sqlite").write_bytes(b"x" * 100)
    (cache_folder() / "folder").mkdir()
    (cache_folder() / "folder" / "b").write_bytes(b"x" * 11)
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    (cache_folder() / "link").symlink_to(outside)
    assert clear_cache() == 111 + len(str(outside))
    assert list(cache_folder().iterdir()) == [] and outside.exists()
