"""`tracelab scrub`: a copy of an export that can be shared, and a list of what it lacks."""

import inspect
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracelab.commands.reading_line import reading_line
from tracelab.commands.shared import READING, keep_input, write
from tracelab.errors import InputError, UsageError
from tracelab.kernel_names import escape
from tracelab.units import data

if TYPE_CHECKING:
    from tracelab.capture.scrub_plan import Scrubbed, TableRows

HELP = "A copy safe to share: no environment, arguments, paths, hosts or users; the analysis of it is the same."
SCHEMA = "tracelab.scrub/1"
_FORMATS = ("terminal", "json")
_MOST_NAMES = 6
_MOST_LINES = 10  # of each list on the terminal; the JSON has them all


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


PARAMETERS = (
    _parameter(
        "trace",
        None,
        Annotated[Path | None, typer.Argument(help="SQLite export, parquetdir, arrowdir or .nsys-rep.")],
    ),
    _parameter(
        "output",
        None,
        Annotated[
            Path | None,
            typer.Option("-o", "--output", metavar="OUT", help="The copy, a new file or folder.", show_default=False),
        ],
    ),
    _parameter("slim", False, Annotated[bool, typer.Option("--slim", help="Keep only what tracelab reads.")]),
    _parameter(
        "format",
        "terminal",
        Annotated[str, typer.Option("--format", metavar="NAME", help="The list of what is gone: terminal or json.")],
    ),
    *READING,
)


def run(trace: Path | None, output: Path | None, slim: bool, format: str, nsys: str | None) -> None:
    """Write a shareable copy of `trace` to `output` and print what it lacks; raises UsageError if `output` exists."""
    from tracelab.capture.scrub import scrub

    if trace is None or output is None:
        raise UsageError("tracelab scrub needs a trace and the name of its copy: tracelab scrub TRACE -o OUT.")
    if format not in _FORMATS:
        raise UsageError(f"--format {format!r} is none of {', '.join(_FORMATS)}.")
    _keep_apart(trace, output)
    done = scrub(_export_of(trace, nsys), output, _read_columns() if slim else None)
    write(_json(trace, output, slim, done) if format == "json" else _page(output, slim, done), None)


def _keep_apart(trace: Path, output: Path) -> None:
    keep_input(trace, output)
    if trace.is_dir() and trace.resolve() in output.resolve().parents:
        raise UsageError(f"-o {output} lies inside the trace; give a place outside of it.")
    if os.path.lexists(output):
        raise UsageError(f"-o {output} exists already and is never overwritten; give another name or remove it.")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"-o {output}: there is no folder {output.absolute().parent}; make it first.")


def _export_of(trace: Path, nsys: str | None) -> Path:
    """The trace itself; of a report its SQLite export, in the private cache folder."""
    from tracelab.capture.export import REPORT_SUFFIXES, export_report

    if trace.is_dir() and (trace / "trace.sqlite").is_file():
        raise InputError(f"{trace} is a run folder; give the export in it, {trace / 'trace.sqlite'}.")
    with reading_line():
        return export_report(trace, nsys) if trace.name.endswith(REPORT_SUFFIXES) and trace.is_file() else trace


def _read_columns() -> Mapping[str, Sequence[str]]:
    """The columns that tracelab reads, by table, as the loader declares them."""
    from tracelab import nsys_gpus, nsys_tables

    declared = (value for module in (nsys_tables, nsys_gpus) for value in vars(module).values())
    return {spec.name: (*spec.ints, *spec.texts) for spec in declared if isinstance(spec, nsys_tables.TableSpec)}


def _json(trace: Path, output: Path, slim: bool, done: "Scrubbed") -> str:
    def named(tables: Sequence["TableRows"]) -> list[dict[str, Any]]:
        return [{"name": table.name, "removed_rows": table.left_out, "rows": table.rows} for table in tables]

    document = {
        "schema": SCHEMA,
        "source": {"path": str(trace), "size_bytes": done.source_bytes},
        "copy": {"path": str(output), "size_bytes": done.copy_bytes, "slim": slim},
        "removed": {"tables": named(done.tables), "rows": named(done.rows), "columns": list(done.columns)},
        "redacted_texts": done.redacted_texts,
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _page(output: Path, slim: bool, done: "Scrubbed") -> str:
    kept = "what tracelab reads" if slim else "all that is known to be harmless"
    lines = [f"{output}: {kept}, {data(done.copy_bytes)} of {data(done.source_bytes)}"]
    lines += _listed("tables left out", _tables(done.tables))
    lines += _listed("rows left out", [(t.name, f"{t.left_out} of {t.rows}") for t in done.rows])
    lines += _listed("columns left out or blanked", _columns(done.columns))
    changed = _counted(done.redacted_texts, "text") if done.redacted_texts else "no text"
    lines += ["", f"{changed} kept with a path, a secret or the user's words in a message taken out"]
    lines += ["ranges and kernels keep their names: read them through before you share the copy"]
    return "\n".join(lines)


def _tables(tables: Sequence["TableRows"]) -> list[tuple[str, str]]:
    """Tables with rows by name; lists of constants, and those without rows, by their number."""
    enums = [table for table in tables if table.name.startswith("ENUM_")]
    shown = [table for table in tables if table.left_out != 0 and table not in enums]
    empty = [table for table in tables if table.left_out == 0 and table not in enums]
    rows = [(t.name, "not counted" if t.left_out is None else _counted(t.left_out, "row")) for t in shown]
    rows += [(_counted(len(empty), "table"), "without rows")] if empty else []
    return rows + ([(_counted(len(enums), "table"), "named ENUM_…")] if enums else [])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _columns(columns: Sequence[str]) -> list[tuple[str, str]]:
    """Tables with the most columns first, each with the names of its first columns."""
    by_table: dict[str, list[str]] = {}
    for column in columns:
        table, _, name = column.partition(".")
        by_table.setdefault(table, []).append(name)
    largest = sorted(by_table.items(), key=lambda item: -len(item[1]))
    return [(table, ", ".join([*names[:_MOST_NAMES], *_rest(names)])) for table, names in largest]


def _rest(names: Sequence[str]) -> list[str]:
    return [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []


def _listed(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A title and its first rows, side by side."""
    if not rows:
        return
    yield from ("", title)
    shown = [(escape(name), escape(text)) for name, text in rows[:_MOST_LINES]]
    width = max(len(name) for name, _ in shown)
    yield from (f"  {name:<{width}}  {text}".rstrip() for name, text in shown)
    if len(rows) > _MOST_LINES:
        yield f"  and {len(rows) - _MOST_LINES} more: --format json names them"
