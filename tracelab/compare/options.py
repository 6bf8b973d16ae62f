"""What the user may say about a comparison."""

import re
from dataclasses import dataclass, field

from tracelab.compare.noise import Floors


@dataclass(frozen=True)
class DiffOptions:
    """`controls`: phases named by hand that nothing touched. `phase` and `kernel` narrow the look, and what counts, to
    names in which they are found. `fail_above` lets regressions up to that relative change pass. `force` compares what
    is not comparable."""

    controls: re.Pattern[str] | None = None
    phase: re.Pattern[str] | None = None
    kernel: re.Pattern[str] | None = None
    fail_above: float = 0.0
    force: bool = False
    floors: Floors = field(default_factory=Floors)

    @property
    def narrowed(self) -> bool:
        """Whether only named phases or kernels count."""
        return self.phase is not None or self.kernel is not None
