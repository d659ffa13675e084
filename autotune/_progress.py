"""How far a tuning run is."""

import dataclasses
import math
from typing import final


@final
@dataclasses.dataclass(frozen=True)
class Progress:
    """Candidates scored, how many at most, and the best time so far (µs, infinite while none is legal).

    >>> str(Progress(scored=500, total=2000, best_us=12.5))
    '500 of 2,000 scored, best 12.5 µs'
    """

    scored: int
    total: int
    best_us: float

    def __str__(self) -> str:
        best = f"best {self.best_us:.1f} µs" if math.isfinite(self.best_us) else "none legal yet"
        return f"{self.scored:,} of {self.total:,} scored, {best}"
