"""Sums of products that neither overflow nor vanish, for norms of what fills all of float64's range."""

import math

import numpy as np

_TINY = 1e-280
"""Sums below may have lost terms to underflow."""


class Products:
    """``sum(a b)`` as ``total 2^exponent``; scaled, like LAPACK's ``lassq``, only where a plain sum would not do.

    >>> squares = Products()
    >>> squares.add(np.full(4, 1e200), np.full(4, 1e200))
    >>> squares.root(), squares.root(4)
    (2e+200, 1e+200)
    """

    def __init__(self) -> None:
        self.total, self.exponent = 0.0, 0

    def add(self, a: np.ndarray, b: np.ndarray) -> None:
        """Add the products of two float64 arrays of one axis."""
        with np.errstate(over="ignore", invalid="ignore"):
            total, exponent = _dot(a, b), 0
        if not _TINY < abs(total) < math.inf:
            first, second = _exponent(a), _exponent(b)
            exponent = first + second
            total = _dot(np.ldexp(a, -first), np.ldexp(b, -second)) if exponent else total
        if total:
            self._merge(total, exponent)

    def _merge(self, total: float, exponent: int) -> None:
        top = exponent if not self.total else max(exponent, self.exponent)
        self.total = math.ldexp(self.total, self.exponent - top) + math.ldexp(total, exponent - top)
        self.exponent = top

    def root(self, count: int = 1) -> float:
        """The square root of the sum of squares over ``count``; infinite where it is beyond float64."""
        half = self.exponent // 2
        root = math.sqrt(self.total * 2.0 ** (self.exponent - 2 * half) / count)
        try:
            return math.ldexp(root, half)
        except OverflowError:
            return math.inf

    def root_over(self, other: "Products") -> float:
        """The root of this sum over that of another: a relative norm, right where neither norm is representable."""
        if not other.total:
            return math.inf if self.total else 0.0
        exponent = self.exponent - other.exponent
        half = exponent // 2
        try:
            return math.ldexp(math.sqrt(self.total / other.total * 2.0 ** (exponent - 2 * half)), half)
        except OverflowError:
            return math.inf


def cosine(product: Products, one: Products, other: Products) -> float:
    """``product / (|one| |other|)``; NaN where a norm is 0."""
    if not (one.total and other.total):
        return math.nan
    exponent = product.exponent - (one.exponent + other.exponent) / 2
    return min(product.total / math.sqrt(one.total) / math.sqrt(other.total) * 2.0**exponent, 1.0)


def norm(array: np.ndarray) -> float:
    """The 2-norm of an array."""
    squares, flat = Products(), np.asarray(array, np.float64).reshape(-1)
    squares.add(flat, flat)
    return squares.root() if np.isfinite(flat).all() else float(np.linalg.norm(flat))


def relative_norm(error: np.ndarray, reference: np.ndarray) -> float:
    """``|error| / |reference|``; ``|error|`` where the reference is 0."""
    sums = []
    for array in (error, reference):
        squares, flat = Products(), np.asarray(array, np.float64).reshape(-1)
        squares.add(flat, flat)
        sums.append(squares)
    if not np.isfinite(error).all():
        return math.inf
    return sums[0].root_over(sums[1]) if sums[1].total else sums[0].root()


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.einsum("i,i->", a, b))  # np.dot would start threads for every piece


def _exponent(array: np.ndarray) -> int:
    """Of the largest magnitude; 0 for no number."""
    largest = float(np.abs(array).max(initial=0.0))
    return math.frexp(largest)[1] if 0.0 < largest < math.inf else 0
