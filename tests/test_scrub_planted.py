"""Secrets planted in a real recording are in no byte of its scrubbed copy, of any kind of export."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from asking import document
from directory_export import tables_of, write_arrowdir, write_parquetdir
from planted_secrets import ODD_TABLE, SECRETS, TOKEN, left_in, plant, table_of

from tracelab.capture.scrub import scrub
from tracelab.commands.scrub import _read_columns
from tracelab.samples import FOLDER

SAMPLE = FOLDER / "failed_launch_h200.sqlite"
KINDS = ("sqlite", "parquetdir", "arrowdir")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same planted recording as each kind of export."""
    folder = tmp_path_factory.mktemp("planted")
    quoted = ODD_TABLE.replace('"', '""')
    with closing(sqlite3.connect(plant(SAMPLE, folder / "other.sqlite"))) as database:
        database.execute(f'DROP TABLE "{quoted}"')
    tables = tables_of(folder / "other.sqlite") | {ODD_TABLE: pa.table({"a": ["odd-table-secret"]})}
    return {
        "sqlite": plant(SAMPLE, folder / "full.sqlite"),
        "parquetdir": write_parquetdir(tables, folder / "full.parquetdir"),
        "arrowdir": write_arrowdir(tables, folder / "full.arrowdir"),
    }


# What no directory export has: definitions, freed pages, and what is no table.
ONLY_SQLITE = {
    "freed-page-secret", "comment-secret", "index_secret", "view-secret", "trigger-secret", "default-secret",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_control_every_secret_stands_in_the_source(sources: dict[str, Path], kind: str) -> None:
    missing = set(SECRETS) - set(left_in(sources[kind]))
    assert missing - (set() if kind == "sqlite" else ONLY_SQLITE) == set()


@pytest.mark.parametrize("slim", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_is_left_in_any_byte(sources: dict[str, Path], tmp_path: Path, kind: str, slim: bool) -> None:
    copy = tmp_path / "copy"
    scrub(sources[kind], copy, _read_columns() if slim else None)
    assert left_in(copy) == []
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def names_of(copy: Path) -> list[str | None]:
    """The texts of the planted ranges in a copy, by text or by id."""
    query = (
        "SELECT coalesce(s.value, n.text) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId "
        "WHERE n.start = 1 ORDER BY n.rowid"
    )
    if copy.is_file():
        with closing(sqlite3.connect(copy)) as database:
            return [text for (text,) in database.execute(query)]
    suffix = next(copy.glob("StringIds.*")).suffix
    strings = {row["id"]: row["value"] for row in table_of(copy / f"StringIds{suffix}").to_pylist()}
    rows = table_of(copy / f"NVTX_EVENTS{suffix}").to_pylist()
    return [strings.get(row["textId"], row["text"]) for row in rows if row["start"] == 1]


@pytest.mark.parametrize("kind", KINDS)
def test_of_the_names_only_the_secrets_are_taken_out(sources: dict[str, Path], tmp_path: Path, kind: str) -> None:
    scrub(sources[kind], tmp_path / "copy")
    assert names_of(tmp_path / "copy") == [
        "prefill for (removed)",
        "(removed)/decode by (removed)",
        "load (path) on (removed) as (removed)",
        "range of (removed) and (removed) and (removed)",
        None,  # the name of a thread
    ]


def without_planted(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key != "trace"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_analysis_is_that_of_the_recording(sources: dict[str, Path], tmp_path: Path, kind: str) -> None:
    # The planted ranges hold no GPU work, so every number is that of the recording before.
    scrub(sources[kind], tmp_path / "copy", _read_columns())
    assert without_planted(document(tmp_path / "copy")) == without_planted(document(SAMPLE))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_removed_is_told_without_any_value(sources: dict[str, Path], tmp_path: Path, kind: str) -> None:
    done = scrub(sources[kind], tmp_path / "copy")
    said = repr(done)
    names = {"ENUM_UNKNOWN_SECRET", "odd_column_secret"}  # of a table and a column, which no environment holds
    assert [secret for secret in SECRETS if secret in said] == [s for s in SECRETS if s in names]
    rows = {table.name: table.left_out for table in done.tables}
    assert (rows["PROCESSES"], rows["customers"], rows["ENUM_UNKNOWN_SECRET"]) == (1, 1, 1)
    assert {"CUPTI_ACTIVITY_KIND_KERNEL.futureColumn", "NVTX_EVENTS.jsonText"} <= set(done.columns)


def test_a_secret_in_the_name_of_a_table_is_not_told(tmp_path: Path) -> None:
    source = plant(SAMPLE, tmp_path / "full.sqlite")
    with closing(sqlite3.connect(source)) as database:
        database.execute(f'CREATE TABLE "notes of {TOKEN}" (a)')
        database.execute(f'ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN "{TOKEN}" TEXT')
    done = scrub(source, tmp_path / "copy")
    assert TOKEN not in repr(done)
    assert "notes of (removed)" in [table.name for table in done.tables]
    assert "CUPTI_ACTIVITY_KIND_KERNEL.(removed)" in done.columns


def test_numbers_at_the_edge_of_64_bits_are_kept(sources: dict[str, Path], tmp_path: Path) -> None:
    scrub(sources["sqlite"], tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy")) as database:
        query = "SELECT DISTINCT gridId, localMemoryTotal FROM CUPTI_ACTIVITY_KIND_KERNEL"
        assert database.execute(query).fetchall() == [(2**63 - 1, -(2**63))]
        objects = {row[0] for row in database.execute("SELECT type FROM sqlite_master")}
    assert objects == {"table"}
