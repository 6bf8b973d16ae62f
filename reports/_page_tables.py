"""Lines and tables of the terminal page: alignment, dropping columns, wrapping, colour."""

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tracelab.kernel_names import cut, escape

Line = Text
Names = Callable[[int], Sequence[str]]

_ROWS_SHOWN = 8
_FINDINGS_SHOWN, _FINDINGS_SHOWN_NARROW = 4, 3
_NARROW = 100  # below this many columns a finding takes three lines or more
_UNLIMITED = 100_000  # wider than any row: nothing is cut or wrapped
_GAP = "  "
_LONGEST_SENTENCE = 4000  # characters; a name in it may be a megabyte, and wrapping that takes minutes
_NO_BREAK = "\x00"  # cannot stand in an escaped text
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:µs|ms|%|[kMGT]?B)(?:\W|$))")  # a number stays with its unit
_WIDE_GAP = "      "
_NAME_AT_LEAST = 22  # below this a kernel name says too little, so columns go instead


@dataclass(frozen=True)
class View:
    """How the page is to look. `width` in columns; `rows`, `findings`: the most that the page shows of them;
    `per_step`: whether headings say that a number is per step."""

    width: int
    full_names: bool
    rows: int
    findings: int
    per_step: bool = True

    @classmethod
    def of(cls, width: int | None, full_names: bool) -> "View":
        """`width` None: unlimited, as for a pipe, and nothing is left away."""
        if width is None:
            return cls(_UNLIMITED, full_names, rows=_UNLIMITED, findings=_UNLIMITED)
        findings = _FINDINGS_SHOWN_NARROW if width < _NARROW else _FINDINGS_SHOWN
        return cls(width, full_names, rows=_ROWS_SHOWN, findings=findings)

    @property
    def uncut(self) -> bool:
        """True for a pipe."""
        return self.rows == _UNLIMITED

    def shown(self, rows: int) -> int:
        """How many of so many rows are shown; a rest of one row is no shorter than the line that names it."""
        return rows if rows <= self.rows + 1 else self.rows


@dataclass(frozen=True)
class Column:
    """A column of finished texts. Where space is short those with a low `drop` come first; 0 always stays."""

    title: str
    cells: Sequence[str]
    right: bool = True
    drop: int = 0
    styles: Sequence[str] = ()

    @cached_property
    def width(self) -> int:
        return max(map(cell_len, (self.title, *self.cells)))


def table(title: str, names: Names, columns: Sequence[Column], view: View, *, names_last: bool = False) -> list[Line]:
    """A table whose first column takes the room that the others leave; `names` gives its texts for a width.

    `names_last` puts that column, uncut, behind the numbers: full kernel names fit no screen.
    """
    shown = kept(columns, view, names, title)
    room = _UNLIMITED if names_last else view.width - sum(c.width + len(_GAP) for c in shown)
    first = Column(title if names_last else cut(title, max(room, 1)), names(max(room, 1)), right=False)
    ordered = [*shown, first] if names_last else [first, *shown]
    head = _row([_pad(c.title, c) for c in ordered], ["bold"] * len(ordered))
    rows = range(len(first.cells))
    return [head, *(_row([_pad(c.cells[i], c) for c in ordered], [_style(c, i) for c in ordered]) for i in rows)]


def kept(columns: Sequence[Column], view: View, names: Names, title: str) -> list[Column]:
    """The columns that fit beside the first one, which needs its own width but gives way down to a limit."""
    room = view.width - min(_NAME_AT_LEAST, max(map(cell_len, (title, *names(_UNLIMITED)))))
    chosen: set[int] = set()
    for i, column in sorted(enumerate(columns), key=lambda entry: entry[1].drop):
        space = column.width + len(_GAP)
        if not column.drop or space <= room:
            chosen.add(i)
            room -= space
    return [column for i, column in enumerate(columns) if i in chosen]


def fitted(texts: Sequence[str]) -> Names:
    """Texts from the trace as a first column: made printable and cut to the room."""
    return lambda room: [cut(escape(text), room) for text in texts]


def sentence(text: str, view: View, *, indent: str = "", first: str | None = None, style: str = "") -> list[Line]:
    """A sentence broken at the width; `first` begins its first line, `indent` the others."""
    first = indent if first is None else first
    said = cut(escape(text), None if view.uncut else _LONGEST_SENTENCE)
    kept_together = _BEFORE_UNIT.sub(_NO_BREAK, said)
    lines = textwrap.wrap(
        kept_together, view.width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
    )
    return [Text(line.replace(_NO_BREAK, " "), style) for line in lines]


def two_sides(left: Line, right: Line, view: View, *, least: int = 4) -> list[Line]:
    """Two texts on one line, the second at the right edge (of 120 columns at most); on two lines if they do not fit."""
    if not right.plain:
        return [left]
    space = min(view.width, max(120, left.cell_len + right.cell_len + least)) - left.cell_len - right.cell_len
    return [left, right] if space < least else [Text.assemble(left, " " * space, right)]


def in_a_row(parts: Iterable[Line], view: View) -> list[Line]:
    """Texts side by side, on as few lines as they fit."""
    lines: list[Line] = []
    for part in (p for p in parts if p.plain):
        if lines and lines[-1].cell_len + len(_WIDE_GAP) + part.cell_len <= view.width:
            lines[-1] = Text.assemble(lines[-1], _WIDE_GAP, part)
        else:
            lines.append(part)
    return lines


def text_of(lines: Iterable[Line], *, color: bool) -> str:
    """The lines as one string, with terminal colours or plain."""
    if not color:
        return "".join(f"{line.plain.rstrip()}\n" for line in lines)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", no_color=False, legacy_windows=False)
    for line in lines:
        line.rstrip()
        console.print(line, soft_wrap=True, highlight=False)
    return out.getvalue()


def _pad(text: str, column: Column) -> str:
    space = " " * (column.width - cell_len(text))
    return space + text if column.right else text + space


def _style(column: Column, row: int) -> str:
    return column.styles[row] if column.styles else ""


def _row(cells: Sequence[str], styles: Sequence[str]) -> Line:
    return Text(_GAP).join(Text(cell, style) for cell, style in zip(cells, styles, strict=True))
