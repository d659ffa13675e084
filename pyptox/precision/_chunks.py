"""Two arrays side by side, a piece at a time: what is measured of 100 million elements takes a few MiB."""

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .._checks import unmasked
from ._norm import Products

_CHUNK = 1 << 16
"""Elements of a piece: its float64 temporaries stay in cache."""


@dataclass(frozen=True)
class Pair:
    """One leaf: what was computed and what it should be.

    Attributes:
        name: its place in the tree.
        candidate, reference: arrays of one shape, in any types.
        seed: of the inputs, where known; failures name it.
        baseline: what another implementation computed, where there is one.
    """

    name: str
    candidate: np.ndarray
    reference: np.ndarray
    seed: int | None = None
    baseline: np.ndarray | None = None
    rows: np.ndarray | None = None
    """Where the rows of ``candidate`` are in the array that it was taken from."""

    @property
    def dtype(self) -> np.dtype:
        """The type that units in the last place are counted in."""
        return self.candidate.dtype

    def of_baseline(self) -> "Pair | None":
        """The baseline in the place of the candidate."""
        if self.baseline is None:
            return None
        return dataclasses.replace(self, candidate=self.baseline, baseline=None)

    def of_rows(self, rows: np.ndarray) -> "Pair":
        """The given rows of the first axis."""
        baseline = None if self.baseline is None else self.baseline[rows]
        return dataclasses.replace(
            self, candidate=self.candidate[rows], reference=self.reference[rows], baseline=baseline, rows=rows
        )

    def chunks(self) -> Iterator["Chunk"]:
        """Pieces in float64; where either is not finite both are 0 there, and ``Chunk.bad`` says where they differ."""
        candidate, reference = self.candidate.reshape(-1), self.reference.reshape(-1)
        for start in range(0, candidate.size, _CHUNK):
            yield _chunk(start, candidate[start : start + _CHUNK], reference[start : start + _CHUNK])

    def place(self, position: int) -> tuple[int, ...]:
        """The index of an element from its place in memory."""
        index = tuple(int(i) for i in np.unravel_index(position, self.candidate.shape))
        return index if self.rows is None else (int(self.rows[index[0]]), *index[1:])

    def said(self, position: int, got: float, expected: float) -> tuple[float | int, float | int]:
        """Both values at a place, integers in full."""
        both = [a.reshape(-1)[position] if a.dtype.kind in "iu" else None for a in (self.candidate, self.reference)]
        one, other = both
        return got if one is None else int(one), expected if other is None else int(other)


@dataclass(frozen=True)
class Spacing:
    """The distance between neighbours of a type: 1 for integers."""

    bits: int | None
    smallest: float = 0.0

    def at(self, magnitude: np.ndarray) -> np.ndarray:
        """The unit in the last place at each magnitude, that of the smallest normal number below it."""
        if self.bits is None:
            return np.ones_like(magnitude)
        power = (magnitude.view(np.uint64) & np.uint64(0x7FF << 52)).view(np.float64)
        np.maximum(power, self.smallest, out=power)
        power *= 2.0**-self.bits
        return power


@functools.lru_cache(maxsize=64)
def spacing_of(dtype: np.dtype) -> Spacing:
    """The spacing of a float or integer type."""
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        return Spacing(None)
    info = ml_dtypes.finfo(dtype)
    return Spacing(int(info.nmant), float(info.smallest_normal))


def wide(array: np.ndarray) -> np.ndarray:
    """Exactly in float64."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return array.astype(np.float64)


@dataclass(frozen=True)
class Chunk:
    """A piece of a pair, float64; ``start`` is where it begins, ``stored`` the candidate as it was."""

    start: int
    stored: np.ndarray
    candidate: np.ndarray
    reference: np.ndarray
    error: np.ndarray
    absolute: np.ndarray
    magnitude: np.ndarray
    special: "Special | None"  # None where everything is finite

    @property
    def ulp(self) -> np.ndarray:
        """The unit in the last place at each reference value."""
        return spacing_of(self.stored.dtype).at(self.magnitude)


@dataclass(frozen=True)
class Special:
    """What is not finite in a piece: counts, and where candidate and reference disagree about it."""

    counts: dict[str, int]
    disagree: np.ndarray
    candidate: np.ndarray
    reference: np.ndarray


def _chunk(start: int, candidate: np.ndarray, reference: np.ndarray) -> Chunk:
    c, r, special = wide(candidate), wide(reference), None
    finite = np.isfinite(c)
    finite &= np.isfinite(r)
    if not finite.all():
        special = _special(c, r)
        c, r = np.where(finite, c, 0.0), np.where(finite, r, 0.0)
    kinds, bytes_ = zip(*((a.dtype.kind, a.dtype.itemsize) for a in (candidate, reference)), strict=True)
    if {*kinds} <= {"i", "u"} and max(bytes_) == 8:
        error = _whole_error(candidate, reference)
    else:
        with np.errstate(over="ignore"):
            error = c - r
    return Chunk(start, candidate, c, r, error, np.abs(error), np.abs(r), special)


def _whole_error(candidate: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The difference of integers of 64 bits, rounded once: both beyond 2^53 have no exact float64."""
    c, r = (a if a.dtype == np.uint64 else a.astype(np.int64) for a in (candidate, reference))
    above = c > r  # NumPy compares signed with unsigned ones by value
    apart = np.where(above, c.view(np.uint64) - r.view(np.uint64), r.view(np.uint64) - c.view(np.uint64))
    return np.where(above, 1.0, -1.0) * apart.astype(np.float64)


def _special(c: np.ndarray, r: np.ndarray) -> Special:
    nan_c, nan_r, inf_c, inf_r = np.isnan(c), np.isnan(r), np.isinf(c), np.isinf(r)
    counts = {"nan_candidate": nan_c, "nan_reference": nan_r, "inf_candidate": inf_c, "inf_reference": inf_r}
    disagree = (nan_c != nan_r) | (inf_c != inf_r) | (inf_c & inf_r & (c != r))
    return Special({name: int(np.count_nonzero(where)) for name, where in counts.items()}, disagree, c, r)


def shaped(name: str, candidate: Any, reference: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays; raises where their shapes differ."""
    for title, given in (("candidate", candidate), ("reference", reference)):
        unmasked(f"{name} of the {title}", given)
    candidate, reference = np.asarray(candidate), np.asarray(reference)
    for title, array in (("candidate", candidate), ("reference", reference)):
        if array.dtype.kind in "OSUMmc" or array.dtype.names:
            advice = "; compare its .real and .imag" if array.dtype.kind == "c" else ""
            raise ValueError(f"`{name}` of the {title} must hold real numbers; got {array.dtype}{advice}")
    if candidate.shape != reference.shape:
        raise ValueError(f"`{name}` must have the reference's shape {reference.shape}; got {candidate.shape}")
    return candidate, reference


def root_mean_square(pair: Pair) -> float:
    """Of the reference, over what is finite."""
    squares = Products()
    for chunk in pair.chunks():
        squares.add(chunk.reference, chunk.reference)
    return squares.root(pair.candidate.size)
