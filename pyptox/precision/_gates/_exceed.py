"""The elements of a pair beyond a tolerance: how many, the worst, and the sentence that says so."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._chunks import Chunk, Pair
from .._compare import number


@dataclass(frozen=True)
class Exceeding:
    """Elements beyond their tolerance; the worst is the one with the largest ``share`` of it."""

    count: int
    elements: int
    index: tuple[int, ...]
    position: int
    got: float
    expected: float
    allowed: float
    share: float
    ulp: float
    disagree: int
    first: tuple[int, ...] | None
    special: tuple[float, float] = (0.0, 0.0)

    def said(self, pair: Pair, most: float, tolerance: str) -> str:
        """For a finding: how many, how many were allowed, the worst element, the seed."""
        seed = "" if pair.seed is None else f"; seed {pair.seed}"
        if self.disagree:
            return (
                f"{self.disagree:,} of {self.elements:,} elements are NaN or infinite on one side only; the first at "
                f"{self.first}: got {self.special[0]:g}, expected {self.special[1]:.8g}{seed}"
            )
        got, expected = pair.said(self.position, self.got, self.expected)
        error = abs(got - expected)
        worst = (
            f"; worst at {self.index}: got {number(got)}, expected {number(expected)}, error {error:.3g} is "
            f"{self.share:.3g} x the allowed {self.allowed:.3g}, {self.ulp:.3g} ulp of {pair.dtype}"
        )
        return f"{self.count:,} of {self.elements:,} elements beyond {tolerance} (at most {most:,.0f}){worst}{seed}"


def exceeding(pair: Pair, tolerance: Callable[[Chunk], np.ndarray | float]) -> Exceeding:
    """Elements with ``|candidate - reference| > tolerance``; a NaN or infinity on one side is always beyond."""
    count, disagree, best = 0, 0, -1.0
    first: tuple[int, ...] | None = None
    special, worst = (0.0, 0.0), (0, 0.0, 0.0, 0.0, 0.0)
    for chunk in pair.chunks():
        allowed = np.broadcast_to(np.asarray(tolerance(chunk), np.float64), chunk.absolute.shape)
        count += int(np.count_nonzero(chunk.absolute > allowed))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = chunk.absolute / allowed
        if np.isnan(share.max()):
            share[chunk.absolute == 0.0] = 0.0
        at = int(np.argmax(share))
        if share[at] > best:
            best = float(share[at])
            with np.errstate(over="ignore"):  # of float64 itself, at a reference of 0
                ulp = float(chunk.absolute[at] / chunk.ulp[at])
            worst = (chunk.start + at, float(chunk.candidate[at]), float(chunk.reference[at]), float(allowed[at]), ulp)
        if chunk.special is not None and chunk.special.disagree.any():
            disagree += int(np.count_nonzero(chunk.special.disagree))
            if first is None:
                at = int(np.argmax(chunk.special.disagree))
                first = pair.place(chunk.start + at)
                special = (float(chunk.special.candidate[at]), float(chunk.special.reference[at]))
    position, got, expected, limit, ulp = worst
    return Exceeding(
        count + disagree,
        pair.candidate.size,
        pair.place(position),
        position,
        got,
        expected,
        limit,
        best,
        ulp,
        disagree,
        first,
        special,
    )
