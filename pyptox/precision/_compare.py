"""``compare``: a candidate beside a reference, as a value. It measures and does not judge; gates judge."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Literal

import jax
import numpy as np

from .._errors import PyptoxError
from ._chunks import Chunk, Pair, root_mean_square, shaped
from ._histogram import PERCENTILES, Histogram
from ._norm import Products, cosine

_SHARE_OF_RMS = 0.01

THRESHOLDS = (1e-1, 1e-2, 1e-3, 1e-4)
"""Relative errors of which a report gives the share of elements beyond."""


@dataclass(frozen=True)
class LeafReport:
    """How far one array is from its reference. Errors are of the elements that are finite in both.

    Where a NaN or an infinity is on one side only, or of the other sign, the figures of the whole (``max_abs``, at the
    first such element, ``max_relative``, ``relative_l2``, ``rmse``, ``ulp["max"]``) are infinite, and ``cosine`` NaN.

    Attributes:
        max_abs: the largest absolute error, at ``index``, where ``got`` is and ``expected`` should be.
        max_relative: the largest relative error, ``|candidate - reference| / max(|reference|, floor)``.
        floor: of that and of the figures below. Near zero a relative error says nothing: a hundredth of ``rms``, unless
            another was asked for. With a floor of 0 a missed zero is infinitely wrong.
        relative_l2: ``|candidate - reference| / |reference|`` in the 2-norm.
        rmse, bias: root of the mean squared error, and the signed mean error.
        rms: root mean square of the reference.
        cosine: of the angle between both. It hides errors of scale and of a few elements: no gate is made of it.
        ulp: max, mean and percentiles of the error in units in the last place of ``dtype`` at the reference.
        equal: the share that equals the reference rounded to ``dtype``.
        beyond: the share with a larger relative error, by threshold.
        absolute, relative, magnitude: percentiles of both errors and of ``|reference|``, within 1/512 of their value.
        special: counts of NaN and infinities on both sides, and of the elements where these ``disagree``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    elements: int
    max_abs: float
    index: tuple[int, ...]
    got: float | int
    expected: float | int
    max_relative: float
    relative_l2: float
    rmse: float
    bias: float
    rms: float
    cosine: float
    ulp: dict[str, float]
    equal: float
    beyond: dict[float, float]
    absolute: dict[str, float]
    relative: dict[str, float]
    magnitude: dict[str, float]
    special: dict[str, int]
    floor: float = 0.0

    def __str__(self) -> str:
        ulp = self.ulp
        lines = [
            f"{self.name} {self.dtype}[{','.join(map(str, self.shape))}]",
            f"  max abs     {self.max_abs:.3g} at {self.index}: got {number(self.got)}, "
            f"expected {number(self.expected)}",
            f"  relative L2 {self.relative_l2:.3g}, RMSE {self.rmse:.3g} of RMS {self.rms:.3g}, bias {self.bias:+.2g}, "
            f"cosine {self.cosine:.9f}",
            f"  ulp         max {ulp['max']:.3g}, mean {ulp['mean']:.3g}, p50 {ulp['p50']:.3g}, p99 {ulp['p99']:.3g}, "
            f"p99.9 {ulp['p99.9']:.3g}",
            f"  equal       {self.equal:.2%} to the reference rounded to {self.dtype}",
            "  beyond      "
            + ", ".join(f"{t:g}: {share:.3%}" for t, share in self.beyond.items())
            + f" (relative, of at least {self.floor:.2g})",
        ]
        for name in ("relative", "absolute", "magnitude"):
            row = ", ".join(f"{p} {value:.3g}" for p, value in getattr(self, name).items())
            lines.append(f"  {name:<11} {row}")
        if any(self.special.values()):
            lines.append("  not finite  " + ", ".join(f"{n.replace('_', ' ')} {k:,}" for n, k in self.special.items()))
        return "\n".join(lines)


@dataclass(frozen=True)
class Report:
    """The leaves of a comparison, and the seed of its inputs where known."""

    leaves: tuple[LeafReport, ...]
    seed: int | None = None

    def __getitem__(self, name: str) -> LeafReport:
        for leaf in self.leaves:
            if leaf.name == name:
                return leaf
        raise KeyError(f"`name` must be one of {', '.join(leaf.name for leaf in self.leaves)}; got {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {"seed": self.seed, "leaves": [asdict(leaf) for leaf in self.leaves]}

    def table(self) -> str:
        """One line a leaf."""
        head = f"{'leaf':<16}{'dtype':>12}{'elements':>14}{'max abs':>11}{'rel L2':>11}{'max ulp':>10}{'equal':>9}"
        rows = [
            f"{leaf.name:<16}{leaf.dtype:>12}{leaf.elements:>14,}{leaf.max_abs:>11.2e}{leaf.relative_l2:>11.2e}"
            f"{leaf.ulp['max']:>10.3g}{leaf.equal:>9.2%}"
            for leaf in self.leaves
        ]
        return "\n".join([head, *rows])

    def __str__(self) -> str:
        seed = [] if self.seed is None else [f"seed {self.seed}"]
        return "\n".join([*(str(leaf) for leaf in self.leaves), *seed])


def compare(
    candidate: Any,
    reference: Any,
    *,
    seed: int | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    floor: float | Literal["rms"] = "rms",
) -> Report:
    """Measure how far ``candidate`` is from ``reference``, leaf by leaf, in float64.

    Two arrays of 100 million elements take a few seconds and no memory worth mentioning: they are read in pieces.

    Args:
        candidate: an array or a tree of arrays, in their stored types.
        reference: the same tree, of the same shapes; float64 as :func:`pyptox.reference` gives it, or any type.
        seed: of the inputs, for the record.
        thresholds: of the relative error.
        floor: the least size that a relative error is taken of; ``rms`` is a hundredth of the reference's RMS.

    Integers on both sides are compared exactly. Norms are scaled, so that they do not overflow before the errors do.

    Raises:
        PyptoxError: the trees or shapes differ, or a leaf is empty or holds no real numbers.

    >>> report = compare(np.float32([1, 2, 4]), np.float64([1, 2, 4.000001]))
    >>> report.leaves[0].index, round(report.leaves[0].ulp["max"], 2), round(report.leaves[0].equal, 2)
    ((2,), 2.1, 0.67)
    """
    if not (floor == "rms" or (isinstance(floor, int | float) and 0 <= floor < math.inf)):
        raise PyptoxError(f"`floor` must be 'rms' or a number of at least 0; got {floor!r}")
    if not isinstance(thresholds, Sequence) or isinstance(thresholds, str) or not all(map(_is_threshold, thresholds)):
        raise PyptoxError(f"`thresholds` must be finite numbers of at least 0; got {thresholds!r}. Try (1e-2, 1e-3)")
    return Report(tuple(leaf_report(pair, thresholds, floor) for pair in pairs(candidate, reference, seed)), seed)


def _is_threshold(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf


def pairs(candidate: Any, reference: Any, seed: int | None = None, baseline: Any = None) -> Iterator[Pair]:
    """The leaves of both trees (and of a baseline's), matched by name."""
    got, expected = _leaves(candidate), _leaves(reference)
    other = _leaves(baseline) if baseline is not None else dict.fromkeys(expected)
    for title, tree in (("candidate", got), ("baseline", other)):
        if tree.keys() != expected.keys():
            missing = [name for name in expected if name not in tree]
            extra = [name for name in tree if name not in expected]
            raise PyptoxError(
                f"`{title}` must have the leaves of `reference`; "
                + "; ".join(f"{word} {', '.join(n)}" for word, n in (("missing", missing), ("extra", extra)) if n)
            )
    if not expected:
        raise PyptoxError("`reference` must hold an array; got an empty tree")
    for name, right in expected.items():
        try:
            one, two = shaped(name, got[name], right)
            third = None if baseline is None else shaped(name, other[name], right)[0]
        except ValueError as error:
            raise PyptoxError(str(error)) from None
        if one.size == 0:
            raise PyptoxError(f"`{name}` must hold at least one element; its shape is {one.shape}")
        yield Pair(name, one, two, seed, third)


def _leaves(tree: Any) -> dict[str, Any]:
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator=".") or "value": leaf for path, leaf in found}


def number(value: float | int) -> str:
    """For a message: an integer in full."""
    return str(value) if isinstance(value, int) else f"{value:.8g}"


class _Sums:
    """What is added up over the pieces of one leaf."""

    def __init__(self, thresholds: Sequence[float], floor: float, size: int):
        self.floor, self.size = floor, size
        self.square, self.reference, self.candidate, self.product = (Products() for _ in range(4))
        self.signed = self.ulp = 0.0
        self.max_abs = self.max_relative = self.max_ulp = -1.0
        self.worst, self.got, self.expected = 0, 0.0, 0.0
        self.equal = self.finite = 0
        self.beyond = np.zeros(len(thresholds), np.int64)
        self.thresholds = thresholds
        self.special: dict[str, int] = dict.fromkeys(
            ("nan_candidate", "nan_reference", "inf_candidate", "inf_reference", "disagree"), 0
        )
        self.first: tuple[int, float, float] | None = None  # disagreement about what is not finite
        self.histograms = {name: Histogram() for name in ("absolute", "relative", "magnitude", "ulp")}

    def add(self, chunk: Chunk) -> None:
        c, r, absolute = chunk.candidate, chunk.reference, chunk.absolute
        for sums, one, other in (
            (self.square, chunk.error, chunk.error),
            (self.reference, r, r),
            (self.candidate, c, c),
            (self.product, c, r),
        ):
            sums.add(one, other)
        self.signed += float(np.mean(chunk.error)) * (len(r) / self.size)
        at = int(np.argmax(absolute))
        if absolute[at] > self.max_abs:
            self.max_abs, self.worst = float(absolute[at]), chunk.start + at
            self.got, self.expected = float(c[at]), float(r[at])
        unit = chunk.ulp
        with np.errstate(over="ignore"):  # of float64 itself, at a reference of 0
            ulps = absolute / unit
        self.equal += _equal(chunk.stored, ulps)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            relative = absolute / (np.maximum(chunk.magnitude, self.floor) if self.floor else chunk.magnitude)
        if not self.floor and chunk.magnitude.min() == 0.0:
            relative[absolute == 0.0] = 0.0
        self.beyond += [np.count_nonzero(relative > threshold) for threshold in self.thresholds]
        columns = {"absolute": absolute, "relative": relative, "magnitude": chunk.magnitude, "ulp": ulps}
        if chunk.special is not None:
            columns = self._without_special(chunk, columns)
        self.finite += len(columns["ulp"])
        self.ulp += float(np.sum(columns["ulp"]))
        self.max_ulp = max(self.max_ulp, float(columns["ulp"].max(initial=0.0)))
        self.max_relative = max(self.max_relative, float(columns["relative"].max(initial=0.0)))
        for name, values in columns.items():
            self.histograms[name].add(values)

    def _without_special(self, chunk: Chunk, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        special = chunk.special
        assert special is not None
        for name, count in special.counts.items():
            self.special[name] += count
        disagree = int(np.count_nonzero(special.disagree))
        self.special["disagree"] += disagree
        if disagree and self.first is None:
            at = int(np.argmax(special.disagree))
            self.first = chunk.start + at, float(special.candidate[at]), float(special.reference[at])
        both = np.isfinite(special.candidate) & np.isfinite(special.reference)
        self.equal -= disagree  # they stand as zeros on both sides
        return {name: values[both] for name, values in columns.items()}


def _equal(stored: np.ndarray, ulps: np.ndarray) -> int:
    """How many candidates are the reference rounded to their type: within half a unit; of a tie, the even one."""
    near, ties = int(np.count_nonzero(ulps < 0.5)), np.flatnonzero(ulps == 0.5)
    word = stored[ties].view(f"uint{8 * stored.dtype.itemsize}")
    return near + int(np.count_nonzero(word % word.dtype.type(2) == 0))


def leaf_report(pair: Pair, thresholds: Sequence[float], floor: float | str = "rms") -> LeafReport:
    """All figures of one leaf."""
    least = _SHARE_OF_RMS * root_mean_square(pair) if isinstance(floor, str) else float(floor)
    size = pair.candidate.size
    sums = _Sums(thresholds, least, size)
    for chunk in pair.chunks():
        sums.add(chunk)
    counted = max(sums.finite, 1)
    ulp = {"max": sums.max_ulp, "mean": sums.ulp / counted}
    ulp |= sums.histograms["ulp"].percentiles((50.0, 99.0, 99.9))
    angle = cosine(sums.product, sums.candidate, sums.reference)
    relative_l2, rmse = sums.square.root_over(sums.reference), sums.square.root(counted)
    if math.isnan(angle):
        angle = float(sums.square.total == 0.0)
    if sums.first is not None:
        sums.worst, sums.got, sums.expected = sums.first
        sums.max_abs = sums.max_relative = ulp["max"] = relative_l2 = rmse = math.inf
        angle = math.nan
    got, expected = pair.said(sums.worst, sums.got, sums.expected)
    return LeafReport(
        name=pair.name,
        shape=pair.candidate.shape,
        dtype=str(pair.dtype),
        elements=size,
        max_abs=sums.max_abs,
        index=pair.place(sums.worst),
        got=got,
        expected=expected,
        max_relative=sums.max_relative,
        relative_l2=relative_l2,
        rmse=rmse,
        bias=sums.signed * (size / counted),
        rms=sums.reference.root(counted),
        cosine=angle,
        ulp=ulp,
        equal=sums.equal / size,
        beyond={float(t): int(n) / size for t, n in zip(thresholds, sums.beyond, strict=True)},
        absolute=sums.histograms["absolute"].percentiles(PERCENTILES),
        relative=sums.histograms["relative"].percentiles(PERCENTILES),
        magnitude=sums.histograms["magnitude"].percentiles(PERCENTILES),
        special=sums.special,
        floor=least,
    )
