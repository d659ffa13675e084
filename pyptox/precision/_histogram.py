"""Percentiles of many non-negative numbers in one pass: counts by the leading bits of float32."""

from collections.abc import Sequence

import numpy as np

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)
_DROPPED = 14
"""Of 23 mantissa bits: 9 are left, so that a bin is 1/512 of its value wide."""


class Histogram:
    """Counts of non-negative numbers; infinities count, NaN must not come."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, np.int64)
        self._largest = 0.0

    def add(self, values: np.ndarray) -> None:
        """Count float64 ``values``."""
        with np.errstate(over="ignore", under="ignore"):
            bins = values.astype(np.float32).view(np.int32)
        bins >>= _DROPPED
        counts = np.bincount(bins)
        if len(counts) > len(self._counts):
            counts[: len(self._counts)] += self._counts
            self._counts = counts
        else:
            self._counts[: len(counts)] += counts
        self._largest = max(self._largest, float(values.max(initial=0.0)))

    def percentiles(self, which: Sequence[float] = PERCENTILES) -> dict[str, float]:
        """The value that a share of the numbers does not exceed: the lower end of its bin; the largest is exact.

        >>> histogram = Histogram()
        >>> histogram.add(np.arange(1.0, 101.0))
        >>> histogram.percentiles()
        {'p50': 50.0, 'p90': 90.0, 'p99': 99.0, 'p99.9': 100.0, 'p100': 100.0}
        """
        total = int(self._counts.sum())
        if not total:
            return {f"p{p:g}": float("nan") for p in which}
        reached = np.cumsum(self._counts)
        result = {}
        for p in which:
            rank = max(int(np.ceil(p / 100.0 * total - 1e-9)), 1)
            lower = np.int32(int(np.searchsorted(reached, rank)) << _DROPPED).view(np.float32)
            result[f"p{p:g}"] = self._largest if p == 100.0 else float(lower)
        return result
