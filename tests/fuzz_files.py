"""Changes to whole files: bytes, what lies beside them, folders of tables, packed files, JSON, and files of nothing."""

import bz2
import gzip
import json
import lzma
import os
import random
import shutil
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from directory_export import tables_of, write_arrowdir, write_parquetdir, write_streams
from fuzz_values import integer, json_value, raw, text
from kineto_fixture import NEW, OLD, ROCM, program

_PAGE = 4096
_MAGIC = b"SQLite format 3\0"


def change_bytes(path: Path, rng: random.Random) -> str:
    """Cut, overwrite, repeat or insert bytes; on a SQLite file also whole pages and fields of the header."""
    data = bytearray(path.read_bytes())
    said = _damaged(data, rng)
    path.write_bytes(data)
    return said


def _damaged(data: bytearray, rng: random.Random) -> str:
    at, kind = rng.randrange(len(data) or 1), rng.randrange(9)
    if kind <= 1:
        at = rng.choice((at, at, at // _PAGE * _PAGE, rng.randrange(120)))
        del data[at:]
        return f"cut at {at}"
    if kind <= 3:
        places = [rng.choice((at + i, rng.randrange(len(data) or 1))) for i in range(rng.choice((1, 2, 8, 200)))]
        for place in places:
            data[place % max(len(data), 1) : place % max(len(data), 1) + 1] = rng.randbytes(1)
        return f"{len(places)} bytes flipped from {places[0]}"
    if kind == 4:
        at = rng.randrange(16, 112)
        data[at : at + 4] = rng.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", rng.randbytes(4)))
        return f"header overwritten at {at}"
    page, other = at // _PAGE * _PAGE, rng.randrange(len(data) or 1) // _PAGE * _PAGE
    if kind == 5:
        data[page : page + _PAGE] = rng.choice((bytes(_PAGE), rng.randbytes(_PAGE), data[other : other + _PAGE]))
        return f"page at {page} overwritten"
    if kind == 6:
        data[at:at] = rng.randbytes(rng.choice((1, 100, _PAGE)))
        return f"bytes inserted at {at}"
    if kind == 7:
        data += rng.choice((rng.randbytes(5000), bytes(5000), data[:_PAGE]))
        return "bytes appended"
    del data[page : page + _PAGE]
    return f"page at {page} removed"


def change_place(path: Path, rng: random.Random) -> tuple[Path, str]:
    """Another name for the file, a link to it, or files beside it that SQLite would take for its own."""
    kind = rng.randrange(7)
    if kind == 0:
        new = path.with_name(
            rng.choice(
                (
                    "a b?c#d%41.sqlite",
                    "é\x1b[31m.sqlite",
                    "x\ny",
                    os.fsdecode(b"\xff.sqlite"),
                    "t.gz",
                    "-o",
                    "t.nsys-rep",
                    "t.json",
                )
            )
        )
        return path.rename(new), f"named {new.name!r}"
    if kind == 1:
        link = path.with_name("link.sqlite")
        link.symlink_to(path.name if rng.random() < 0.8 else link.name)
        return link, "a link"
    if kind == 2:
        (path.parent / "run").mkdir()
        path.rename(path.parent / "run" / "trace.sqlite")
        return path.parent / "run", "in a run folder"
    data = bytearray(path.read_bytes())
    data[18:20] = b"\2\2"
    path.write_bytes(data)
    if kind == 3:
        return path, "flagged as WAL, without one"
    beside = path.with_name(path.name + rng.choice(("-wal", "-wal", "-journal", "-shm")))
    if kind == 4:
        beside.write_bytes(rng.choice((b"", rng.randbytes(3000), bytes.fromhex("377f0682") + rng.randbytes(9000))))
        return path, f"flagged as WAL, garbage in {beside.name}"
    _with_log(path, rng)
    if kind == 6:
        change_bytes(path.with_name(path.name + "-wal"), rng)
    return path, "with a WAL that is pending" + (", damaged" if kind == 6 else "")


def _with_log(path: Path, rng: random.Random) -> None:
    """Leave a change of `path` in its write-ahead log, as a program that was killed does."""
    work = path.with_name("work")
    shutil.copyfile(path, work)
    with closing(sqlite3.connect(work, isolation_level=None)) as db:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA wal_autocheckpoint = 0")
            db.execute(f"DELETE FROM StringIds WHERE rowid % {rng.randint(2, 5)} = 0")
            db.execute("UPDATE NVTX_EVENTS SET end = end + 5")
        except (sqlite3.Error, UnicodeDecodeError):  # damaged before: the log is left as it is
            pass
        shutil.copyfile(work, path)
        log = work.with_name("work-wal")
        path.with_name(path.name + "-wal").write_bytes(log.read_bytes() if log.exists() else b"")
    for ending in ("", "-wal", "-shm"):
        work.with_name(work.name + ending).unlink(missing_ok=True)


def packed(path: Path, rng: random.Random) -> tuple[Path, str]:
    """The file compressed, once or twice, then mostly damaged."""
    hows = {"gzip": lambda data: gzip.compress(data, mtime=0), "xz": lzma.compress, "bz2": bz2.compress, "zstd": _zstd}
    how = rng.choice([*hows])
    data = hows[how](path.read_bytes())
    path.write_bytes(gzip.compress(data, mtime=0) if rng.random() < 0.1 else data)
    return path, f"{how}, {change_bytes(path, rng)}" if rng.random() < 0.8 else how


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


def from_nothing(path: Path, rng: random.Random) -> str:
    """No export at all: empty, garbage with some format's first bytes, SQLite of another kind, a folder."""
    kind = rng.randrange(7)
    heads = (
        b"",
        _MAGIC,
        b"\x1f\x8b",
        b"\xfd7zXZ\0",
        b"\x28\xb5\x2f\xfd",
        b"\xff\xff\xff\xff",
        b"PAR1",
        b"{",
        b"[",
        b"\xff\xfe",
    )
    if kind <= 2:
        path.write_bytes(rng.choice(heads) + rng.randbytes(rng.choice((0, 1, 50, 5000))))
        return "garbage"
    if kind == 3:
        path.write_bytes(rng.choice((b"", b"\0" * 9000, _MAGIC, b"not a trace\n", b"[" * 90_000, b'{"traceEvents": [')))
        return "nothing"
    if kind == 4:
        path.mkdir()
        (path / rng.choice(("StringIds.parquet", "StringIds.arrow", "trace.sqlite", "x"))).write_bytes(
            rng.randbytes(99)
        )
        return "a folder of garbage"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            rng.choice(("CREATE TABLE notes (a)", "CREATE TABLE StringIds (id, value)", "CREATE TABLE stringids (a)"))
        )
        if kind == 6:
            db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)")
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2), (3, 5), (NULL, 'x')")
    return "SQLite of another kind"


def _odd_column(column: Any, rng: random.Random) -> Any:
    """A column of the same length and another type, or with other values."""
    size = len(column)
    types = (
        pa.string(), pa.large_string(), pa.float64(), pa.float16(), pa.int8(), pa.uint64(), pa.bool_(), pa.binary(),
        pa.timestamp("ns"), pa.decimal128(30, 5), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.date32(),
        pa.dictionary(pa.int32(), pa.string()), pa.duration("us"),
    )  # fmt: skip
    kind = rng.randrange(5)
    if kind == 0:
        return pa.nulls(size, rng.choice(types))
    if kind == 1:
        return pa.array([integer(rng) for _ in range(size)], pa.int64())
    if kind == 2:
        return pa.array([integer(rng) % 2**64 for _ in range(size)], pa.uint64())
    if kind == 3:
        return pa.array([rng.choice((text(rng)[:9000], raw(rng))) for _ in range(size)], pa.binary())
    return column.combine_chunks().cast(rng.choice(types))


def _odd_table(table: Any, rng: random.Random) -> Any:
    at, kind = rng.randrange(table.num_columns or 1), rng.randrange(6)
    if table.num_columns == 0 or kind == 0:
        return pa.table({})
    name = table.column_names[at]
    if kind == 1:
        return table.remove_column(at)
    if kind == 2:
        return table.slice(0, rng.randint(0, 3))
    if kind == 3:
        return table.append_column(
            rng.choice((name, "\x1b[31m", text(rng)[:99])), table.column(at)
        )  # the same name twice
    if kind == 4:
        return pa.concat_tables([table, table])
    return table.set_column(at, name, _odd_column(table.column(at), rng))


_READ = ("StringIds", "CUPTI_", "NVTX", "TARGET_", "META_", "DIAGN", "PROFILER", "ANALYSIS")


@cache
def _arrow_tables(base: Path) -> dict[str, Any]:
    return {name: table for name, table in tables_of(base).items() if name.startswith(_READ) and table.num_rows}


def folder(base: Path, path: Path, rng: random.Random) -> str:
    """The export as parquetdir, arrowdir or one arrow file, with tables, files or bytes changed."""
    tables, said = dict(_arrow_tables(base)), []
    for _ in range(rng.randint(0, 2)):
        name = rng.choice([*tables])
        try:
            tables[name] = _odd_table(tables[name], rng)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            said.append(f"no change ({str(error)[:60]})")
        said.append(f"{name} is now {str(tables[name].schema)[:200]!r} × {tables[name].num_rows}")
    writer = rng.choice((write_parquetdir, write_arrowdir, write_streams))
    writer(tables, path)
    return "; ".join([writer.__name__, *said, _changed_files(path, rng)])


def _changed_files(path: Path, rng: random.Random) -> str:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    one, kind = rng.choice(files), rng.randrange(5)
    if kind == 0:
        return f"{one.name}: {change_bytes(one, rng)}"
    if kind == 1 and len(files) > 1:
        one.unlink()
        return f"without {one.name}"
    if kind == 2 and len(files) > 1:
        one.write_bytes(rng.choice(files).read_bytes())
        return f"{one.name} is a copy of another file"
    if kind == 3 and len(files) > 1:
        one.unlink()
        one.symlink_to(rng.choice(("/dev/null", one.name, "nowhere"))) if rng.random() < 0.5 else one.mkdir()
        return f"{one.name} is no file"
    return "files as written"


def kineto(path: Path, rng: random.Random) -> str:
    """A trace of the PyTorch profiler with values of other types, events twice, or its text damaged."""
    trace = program(rng.choice((NEW, OLD, ROCM)))
    for at in range(rng.randint(0, 3)):
        trace.annotation(f"step {at}", at * 50_000, 40_000).launch(
            at * 50_000, text(rng)[:999], at * 50_000 + 9, 30_000
        )
    document = json.loads(trace.text())
    said = [_changed_node(document, rng) for _ in range(rng.randint(0, 4))]
    changed = json.dumps(document)
    for mark in ("@@@0", "@@@1", "@@@2", "@@@3"):
        changed = changed.replace(f'"{mark}"', json_value(rng))
    path.write_bytes(gzip.compress(changed.encode(), mtime=0) if rng.random() < 0.2 else changed.encode())
    said += [change_bytes(path, rng)] if rng.random() < 0.3 else []
    return "Kineto: " + "; ".join(said)


def _changed_node(document: Any, rng: random.Random) -> str:
    """One value somewhere in the document removed, repeated, moved in time or replaced by any JSON."""
    node, way = document, []
    while isinstance(node, dict | list) and node:
        key: Any = rng.choice([*node]) if isinstance(node, dict) else rng.randrange(len(node))
        way.append(key)
        if not isinstance(node[key], dict | list) or not node[key] or rng.random() < 0.15:
            break
        node = node[key]
    if not way:
        return "nothing left to change"
    kind = rng.randrange(4)
    if kind == 0:
        del node[way[-1]]
    elif kind == 1 and isinstance(node, list):
        node.append(node[way[-1]])
    else:
        node[way[-1]] = f"@@@{rng.randrange(4)}" if kind < 3 else integer(rng) / rng.choice((1, 1000))
    return f"{'/'.join(map(str, way))} ({('removed', 'twice', 'any JSON', 'a number')[kind]})"
