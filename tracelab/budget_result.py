"""What a budget file demanded and what the trace has, line by line, as every report format receives it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracelab.result import Value


@dataclass(frozen=True)
class BudgetLine:
    """One limit of a budget file: its line number and text there, and what was measured.

    `name` is what is limited (`gaps.gap_share`, `phases.busy_ns of L#/ffn`, `must run mla_split`), `bound` is `max`,
    `min` or `must run`, `limit` and `measured` are in `unit`. `measured` is None where this trace cannot tell; `remark`
    then says why. What cannot be told is not ok.
    """

    line: int
    text: str
    name: str
    bound: str
    limit: Value
    measured: Value
    unit: str
    ok: bool
    remark: str = ""


@dataclass(frozen=True)
class BudgetCheck:
    """A trace against a budget file, in the file's order."""

    trace: str
    recording: str | None
    budget: str
    lines: Sequence[BudgetLine]

    @property
    def failed(self) -> list[BudgetLine]:
        """The lines that fell short."""
        return [line for line in self.lines if not line.ok]
