"""The kernels of a step with their grids, one row per kernel name over all phases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracelab.kernel_names import cut, escape, shorten_all
from tracelab.report import DeviceReport
from tracelab.reports._page_tables import Column, Line, View, table
from tracelab.reports._page_values import NO_PHASE, as_number, rows_of, total
from tracelab.result import Row
from tracelab.units import count, round_column, round_shares, time_unit

_PHASE_WIDTH = 14
_NO_GRID: Mapping[str, Any] = {}


@dataclass(frozen=True)
class _Merged:
    """One kernel name over the phases it runs in; `grid` is the grids row that takes the most time."""

    name: str
    phases: tuple[str, ...]
    calls: float
    time_ns: float
    share: float
    grid: Mapping[str, Any]


def kernels_table(device: DeviceReport, view: View) -> list[Line]:
    """The kernels that take the most time: calls, time, share, and how well their grids fill the GPU."""
    rows = rows_of(device, "kernels")
    if not rows:
        return []
    merged = _merged(rows, rows_of(device, "grids"))
    shown, rest = merged[: view.shown(len(merged))], merged[view.shown(len(merged)) :]
    lines = [*shown, _rest(rest)] if rest else shown
    phases = len({row.get("phase") for row in rows})
    columns = [*_columns(lines, phases, view), *(_grid_columns(lines) if any(k.grid for k in lines) else [])]
    return table("kernel", lambda room: _names(shown, rest, room, view), columns, view, names_last=view.full_names)


def _names(shown: Sequence[_Merged], rest: Sequence[_Merged], room: int, view: View) -> list[str]:
    names = [kernel.name for kernel in shown]
    short = [escape(name) for name in names] if view.full_names else shorten_all(names, max(room, 8))
    return [*(name or "(unnamed)" for name in short), *([f"… {len(rest)} more"] if rest else [])]


def _columns(lines: Sequence[_Merged], phases: int, view: View) -> list[Column]:
    times = [line.time_ns for line in lines]
    unit = time_unit(times)
    wide = _PHASE_WIDTH if view.width <= 120 else None
    columns = [
        Column("calls", [count(line.calls) for line in lines]),
        Column(unit.symbol, round_column(times, unit)),
        Column("share", [f"{s} %" for s in round_shares([line.share for line in lines])], drop=4),
    ]
    if {phase for line in lines for phase in line.phases} - {NO_PHASE}:
        labels = [cut(_phase_label(line.phases, phases), wide) for line in lines]
        columns.insert(0, Column("phase", labels, right=False, drop=2))
    return columns


def _grid_columns(lines: Sequence[_Merged]) -> list[Column]:
    grids = [line.grid for line in lines]
    lacking = ["bold yellow" if grid.get("underfills") else "" for grid in grids]
    return [
        Column("grid × block", [_grid_text(grid) for grid in grids], drop=3),
        Column("blocks/SM", [_cell(grid, "blocks_per_sm") for grid in grids], drop=6),
        Column("waves", [_cell(grid, "waves", 2) for grid in grids], drop=5),
        Column("idle SMs", [_cell(grid, "idle_sms") for grid in grids], drop=1, styles=lacking),
    ]


def _merged(rows: Sequence[Row], grids: Sequence[Row]) -> list[_Merged]:
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(str(row.get("name", "")), []).append(row)
    largest: dict[str, Row] = {}
    for grid in sorted(grids, key=lambda g: as_number(g.get("time_ns_per_step")) or 0.0):
        largest[str(grid.get("kernel", ""))] = grid
    merged = [_merge(name, found, largest.get(name, _NO_GRID)) for name, found in by_name.items()]
    return sorted(merged, key=lambda kernel: (-kernel.time_ns, kernel.name))


def _merge(name: str, rows: Sequence[Row], grid: Mapping[str, Any]) -> _Merged:
    return _Merged(
        name=name,
        phases=tuple(sorted({str(row.get("phase", "")) for row in rows})),
        calls=total(rows, "calls_per_step"),
        time_ns=total(rows, "time_ns_per_step"),
        share=total(rows, "share"),
        grid=grid,
    )


def _rest(rest: Sequence[_Merged]) -> _Merged:
    return _Merged(
        name="",
        phases=(),
        calls=sum(kernel.calls for kernel in rest),
        time_ns=sum(kernel.time_ns for kernel in rest),
        share=sum(kernel.share for kernel in rest),
        grid=_NO_GRID,
    )


def _phase_label(phases: Sequence[str], of: int) -> str:
    if len(phases) < 2:
        return _leaf(escape(phases[0])) if phases else ""
    return "both" if len(phases) == of == 2 else f"{len(phases)} phases"


def _leaf(phase: str) -> str:
    """The phase, or where its path is long the innermost range, which tells more than a cut path."""
    return phase if len(phase) <= _PHASE_WIDTH else phase.rpartition("/")[2] or phase


def _grid_text(grid: Mapping[str, Any]) -> str:
    return escape(f"{grid['grid']} × {grid['block']}") if {"grid", "block"} <= set(grid) else ""


def _cell(grid: Mapping[str, Any], key: str, decimals: int = 0) -> str:
    if not grid:
        return ""
    value = as_number(grid.get(key))
    return "–" if value is None or value != value else f"{value:.{decimals}f}"
