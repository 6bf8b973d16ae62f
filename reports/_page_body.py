"""Middle of the page: the waterfall, the floor, and the phases."""

from collections.abc import Sequence

from rich.text import Text

from tracelab.kernel_names import escape
from tracelab.report import DeviceReport, GpuFacts, StepsFacts
from tracelab.reports._page_tables import Column, Line, View, fitted, in_a_row, sentence, table
from tracelab.reports._page_values import (
    NO_PHASE,
    as_number,
    is_whole_trace,
    mbu_text,
    number_of,
    representative,
    rows_of,
    total,
    word_of,
)
from tracelab.result import Row
from tracelab.units import TimeUnit, bandwidth, count, data, number, round_column, round_shares, time, time_unit

_BAR_OF_WHOLE = 32  # columns of a bar that is the whole step
_METHODS = {
    "nvtx": "by NVTX ranges",
    "graph-node": "by graph nodes",
    "aligned": "by alignment",
    "rules": "by kernel names",
    "cross-thread": "across threads",
    "none": "none",
}
_LEAST_SHARE = 0.0005  # prints as 0.1 % at least


def waterfall(device: DeviceReport, view: View) -> list[Line]:
    """Where the representative step's time went, largest unit for all, adding up to the step."""
    rows = [row for row in rows_of(device, "waterfall") if as_number(row.get("ns"))]
    if not rows:
        return []
    times = [as_number(row.get("ns")) or 0.0 for row in rows]
    whole = sum(times)
    unit = time_unit([whole])
    shares = [t / whole if whole else 0.0 for t in times]
    names = [str(row.get("component", "")) for row in rows]
    step = representative(device.steps)
    title = f"where it goes in {escape(step.name)}" if step else "where it goes"
    columns = [
        Column(unit.symbol, [*round_column(times, unit, whole), number(whole, unit)]),
        Column(
            "share" if is_whole_trace(device.steps) else "of step",
            [f"{s} %" for s in [*round_shares(shares, 1.0 if whole else 0.0), "100.0"]],
        ),
        Column("", [*map(_bar, shares), ""], right=False, drop=1, styles=[*_bar_styles(names), ""]),
    ]
    return table(title, fitted([*names, ""]), columns, view)


def floor_line(device: DeviceReport, gpus: Sequence[GpuFacts], view: View) -> list[Line]:
    """The least the step must take, what binds it, and how close the step comes."""
    floor_ns = number_of(device, "mbu", "floor_ns")
    if floor_ns is None:
        why = floor_unknown(device)
        if not why:
            return []
        unknown = why if why.lower().startswith("floor unknown") else f"floor unknown: {why}"
        return sentence(unknown, view, indent="  ", first="", style="dim")
    moved = number_of(device, "mbu", "bytes_per_step")
    flops = number_of(device, "mbu", "flops_per_step")
    if word_of(device, "mbu", "floor_kind") == "flops":
        what = f"bound by compute{f': {flops / 1e12:.2f} TFLOP' if flops is not None else ''}"
    else:
        what = f"{f'{data(moved)} ' if moved is not None else ''}{_at_bandwidth(device, gpus)}"
    mbu, busy = number_of(device, "mbu", "mbu"), number_of(device, "mbu", "mbu_busy")
    whole = "in all" if is_whole_trace(device.steps) else "of the step"
    said = [f"{mbu_text(v)} {of}" for v, of in ((mbu, whole), (busy, "while busy")) if v is not None]
    style = "bold red" if any(v is not None and v > 1 for v in (mbu, busy)) else ""
    parts = [Text(f"floor {time(floor_ns)} ({what.strip()})"), Text(f"MBU {', '.join(said)}" if said else "", style)]
    return in_a_row(parts, view)


def floor_unknown(device: DeviceReport) -> str | None:
    """Why there is no floor, where that is worth a line beside the waterfall."""
    mbu = device.results.get("mbu")
    return mbu.skipped if mbu is not None and rows_of(device, "waterfall") else None


def phases_table(device: DeviceReport, view: View) -> list[Line]:
    """Phases with absolute times beside shares, marked where NVTX is not what attributed them."""
    rows = rows_of(device, "phases")
    if not [row for row in rows if row.get("phase") != NO_PHASE]:
        where = "" if is_whole_trace(device.steps) else " in these steps"
        return [Text(f"phases: none found{where}", "dim")] if rows else []
    ordered = sorted(rows, key=lambda row: -(as_number(row.get("busy_ns")) or 0.0))
    shown = view.shown(len(ordered))
    lines = [*ordered[:shown], *_rest_row(ordered[shown:])]
    marks = [_mark(row, device.steps) for row in lines]
    common = _common_mark(lines, marks)
    title = f"phase {common}" if common else "phase"
    columns = [*_phase_columns(lines, device), Column("", [] if common else marks, right=False)]
    names = fitted([str(row.get("phase", "")) for row in lines])
    found = table(title, names, columns[:-1] if common or not any(marks) else columns, view)
    return [*found, *_methods(device, view)]


def _phase_columns(lines: Sequence[Row], device: DeviceReport) -> list[Column]:
    times = [as_number(row.get("busy_ns")) or 0.0 for row in lines]
    shares = [as_number(row.get("share")) or 0.0 for row in lines]
    unit = time_unit(times)
    mbu = {row.get("phase"): as_number(row.get("mbu")) for row in rows_of(device, "mbu", "phases")}
    near = [mbu.get(row.get("phase")) for row in lines]
    columns = [
        Column("kernels", [count(as_number(row.get("kernels_per_step")) or 0.0) for row in lines]),
        Column(unit.symbol, round_column(times, unit)),
        Column("of GPU time", [f"{s} %" for s in round_shares(shares)]),
    ]
    if any(m is not None for m in near):
        columns.append(Column("MBU", ["" if m is None else mbu_text(m) for m in near], drop=1))
    spread = [_spread(row, unit) for row in lines] if device.steps.used > 1 else []
    if any(spread):
        columns.append(Column("median (min–max)", spread, drop=2))
    return columns


def _spread(row: Row, unit: TimeUnit) -> str:
    """Median and extremes of a phase over the steps; the column before it is the mean, which adds up."""
    middle, low, high = (as_number(row.get(key)) for key in ("median_ns", "min_ns", "max_ns"))
    if middle is None or low is None or high is None:
        return ""
    return f"{number(middle, unit)} ({number(low, unit)}–{number(high, unit)})"


def _mark(row: Row, steps: StepsFacts) -> str:
    method = row.get("attribution")
    if method == "aligned":
        return f"(aligned with {escape(steps.others[0].pattern) if len(steps.others) == 1 else 'an eager step'})"
    return {"graph-node": "(graph nodes)", "rules": "(kernel names)", "cross-thread": "(cross-thread)"}.get(
        str(method), ""
    )


def _common_mark(lines: Sequence[Row], marks: Sequence[str]) -> str:
    """The mark of all phases, if they share one: it then stands in the heading once."""
    of_phases = {mark for row, mark in zip(lines, marks, strict=True) if row.get("attribution") not in (None, "none")}
    return of_phases.pop() if len(of_phases) == 1 else ""


def _methods(device: DeviceReport, view: View) -> list[Line]:
    """Which method attributed what share, where it is not all NVTX."""
    rows = [r for r in rows_of(device, "phases", "attribution") if (as_number(r.get("share")) or 0.0) >= _LEAST_SHARE]
    if not rows or [row.get("method") for row in rows] == ["nvtx"]:
        return []
    shares = round_shares([as_number(row.get("share")) or 0.0 for row in rows])
    parts = [f"{_METHODS.get(str(r.get('method')), r.get('method'))} {s} %" for r, s in zip(rows, shares, strict=True)]
    return sentence(f"attributed: {', '.join(parts)}", view, indent="  ", first="", style="dim")


def _rest_row(rest: Sequence[Row]) -> list[Row]:
    if not rest:
        return []
    summed = {key: total(rest, key) for key in ("kernels_per_step", "busy_ns", "sum_ns", "share")}
    return [{"phase": f"… {len(rest)} more", "attribution": None, **summed}]


def _at_bandwidth(device: DeviceReport, gpus: Sequence[GpuFacts]) -> str:
    gpu = next((g for g in gpus if g.id == device.device), None)
    if gpu is None or not gpu.memory_bandwidth_bytes_per_s:
        return ""
    source = f", {gpu.bandwidth_source}" if gpu.bandwidth_source else ""
    return f"at {bandwidth(gpu.memory_bandwidth_bytes_per_s)}{source}"


def _bar(share: float) -> str:
    return "█" * round(max(share, 0.0) * _BAR_OF_WHOLE)


def _bar_styles(names: Sequence[str]) -> list[str]:
    """Idle time stands out from work."""
    return ["yellow" if "gap" in name or "between" in name else "cyan" for name in names]
