"""What an analyzer returns. Reports and diffs know only these types, so they work for analyzers not yet written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = int | float | str | None
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Metric:
    """One number of a step. `samples` holds its value in each used step where it has one per step."""

    value: Value
    unit: str
    samples: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Check:
    """An invariant that was tested on this trace: `measured` against `limit`."""

    name: str
    ok: bool
    measured: float
    limit: float
    unit: str


@dataclass(frozen=True)
class Finding:
    """Something worth doing. `saving_ns` is an upper bound per step; None where no time can be promised."""

    code: str
    title: str
    evidence: str
    saving_ns: int | None = None


@dataclass(frozen=True)
class Result:
    """Frozen outcome of one analyzer; `skipped` is None or one sentence that says why there is nothing."""

    skipped: str | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    checks: Sequence[Check] = ()
    findings: Sequence[Finding] = ()

    def to_json(self) -> dict[str, Any]:
        """The analyzer's part of the JSON contract."""
        return {
            "skipped": self.skipped,
            "metrics": {name: {"value": m.value, "unit": m.unit} for name, m in self.metrics.items()},
            "tables": {name: [dict(row) for row in rows] for name, rows in self.tables.items()},
            "checks": [
                {"name": c.name, "ok": c.ok, "measured": c.measured, "limit": c.limit, "unit": c.unit}
                for c in self.checks
            ],
        }
