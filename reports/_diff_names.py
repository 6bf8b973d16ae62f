"""Names of compared rows: kernels that took another's place, launch shapes that changed, rows that were folded."""

from collections.abc import Sequence

from tracelab.difference import FUSED, REPLACED, SPLIT
from tracelab.difference import KernelChange as Kernel
from tracelab.kernel_names import cut, escape, shorten_all
from tracelab.reports._diff_values import ARROW, NOTHING
from tracelab.units import percent

_OTHER_NAMES = (REPLACED, SPLIT, FUSED)
_PART_AT_LEAST = 8  # characters of one kernel name


def fold_label(rows: int, neutral: bool, room: int | None) -> str:
    """What a folded row is called, as fully as the room allows."""
    plural = "" if rows == 1 else "s"
    if not neutral:
        return f"… {rows} more row{plural}"
    texts = (f"… {rows} row{plural} with no measurable change", f"… {rows} with no measurable change")
    return next((text for text in texts if room is None or len(text) <= room), f"… {rows} not measurable")


class Names:
    """Short names of all kernels of a comparison, so that different names stay different at any width."""

    def __init__(self, kernels: Sequence[Kernel], *, full: bool = False) -> None:
        """`full`: names are whole, only made printable."""
        self._names = sorted({name for row in kernels for name in (*row.before, *row.after)})
        self._full = full
        self._short: dict[int | None, dict[str, str]] = {}

    def label(self, row: Kernel, room: int | None = None) -> str:
        """`a`, `a → b` where another kernel took its place, `a → b + c` where it was split, `a + b → c` where fused.

        Where that needs more than `room` characters (None: as many as it takes) the kernels before are left away, and
        the names of the others are cut.
        """
        before, after = (" + ".join(self._shown(names, None)) for names in (row.before, row.after))
        label = before + ARROW + after if row.pairing in _OTHER_NAMES else after or before
        if room is None or len(label) <= room or self._full:
            return label
        own = row.after or row.before
        each = max((room - len(" + ") * (len(own) - 1)) // len(own), _PART_AT_LEAST)
        return cut(" + ".join(self._shown(own, each)), room)

    def _shown(self, names: Sequence[str], width: int | None) -> list[str]:
        if width not in self._short:
            short = list(map(escape, self._names)) if self._full else shorten_all(self._names, width)
            self._short[width] = dict(zip(self._names, short, strict=True))
        return [self._short[width][name] or "(unnamed)" for name in names]


def shape_changes(row: Kernel) -> list[str]:
    """How the launch changed: grid, block, registers and the share of the SMs that it reaches."""
    before, after = row.shapes_before, row.shapes_after
    if not before or not after:
        return []
    sides = (
        ("grid ", [" + ".join(shape.grid for shape in side) for side in (before, after)], ""),
        ("block ", [" + ".join(shape.block for shape in side) for side in (before, after)], ""),
        ("", [" + ".join(str(shape.registers) for shape in side) for side in (before, after)], " registers"),
        ("reaches ", [" + ".join(_fill(shape.sm_fill) for shape in side) for side in (before, after)], " of the SMs"),
    )
    return [escape(f"{what}{old}{ARROW}{new}{of}") for what, (old, new), of in sides if old != new]


def _fill(fill: float | None) -> str:
    return NOTHING if fill is None else percent(fill, 0)
