"""``compare``: a candidate beside a reference, as a value. It measures and does not judge; gates judge."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from .._errors import PyptoxError
from ._chunks import Chunk, Pair, shaped
from ._histogram import PERCENTILES, Histogram

THRESHOLDS = (1e-1, 1e-2, 1e-3, 1e-4)
"""Relative errors of which a report gives the share of elements beyond."""


@dataclass(frozen=True)
class LeafReport:
    """How far one array is from its reference. Errors are of the elements that are finite in both.

    Where a NaN or an infinity is on one side only, or of the other sign, the figures of the whole (``max_abs``, at the
    first such element, ``max_relative``, ``relative_l2``, ``rmse``, ``ulp["max"]``) are infinite, and ``cosine`` NaN.

    Attributes:
        max_abs: the largest absolute error, at ``index``, where ``got`` is and ``expected`` should be.
        max_relative: the largest relative error; infinite where a reference of zero is missed.
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
    got: float
    expected: float
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

    def __str__(self) -> str:
        ulp = self.ulp
        lines = [
            f"{self.name} {self.dtype}[{','.join(map(str, self.shape))}]",
            f"  max abs     {self.max_abs:.3g} at {self.index}: got {self.got:.8g}, expected {self.expected:.8g}",
            f"  relative L2 {self.relative_l2:.3g}, RMSE {self.rmse:.3g} of RMS {self.rms:.3g}, bias {self.bias:+.2g}, "
            f"cosine {self.cosine:.9f}",
            f"  ulp         max {ulp['max']:.3g}, mean {ulp['mean']:.3g}, p50 {ulp['p50']:.3g}, p99 {ulp['p99']:.3g}, "
            f"p99.9 {ulp['p99.9']:.3g}",
            f"  equal       {self.equal:.2%} to the reference rounded to {self.dtype}",
            "  beyond      " + ", ".join(f"{t:g}: {share:.3%}" for t, share in self.beyond.items()) + " (relative)",
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
) -> Report:
    """Measure how far ``candidate`` is from ``reference``, leaf by leaf, in float64.

    Two arrays of 100 million elements take a few seconds and no memory worth mentioning: they are read in pieces.

    Args:
        candidate: an array or a tree of arrays, in their stored types.
        reference: the same tree, of the same shapes; float64 as :func:`pyptox.reference` gives it, or any type.
        seed: of the inputs, for the record.
        thresholds: of the relative error.

    Raises:
        PyptoxError: the trees or shapes differ, or a leaf is empty.

    >>> report = compare(np.float32([1, 2, 4]), np.float64([1, 2, 4.000001]))
    >>> report.leaves[0].index, round(report.leaves[0].ulp["max"], 2), round(report.leaves[0].equal, 2)
    ((2,), 2.1, 0.67)
    """
    return Report(tuple(leaf_report(pair, thresholds) for pair in pairs(candidate, reference, seed)), seed)


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


class _Sums:
    """What is added up over the pieces of one leaf."""

    def __init__(self, thresholds: Sequence[float]):
        self.square = self.reference = self.candidate = self.product = self.signed = self.ulp = 0.0
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
        self.square += _dot(chunk.error, chunk.error)
        self.reference += _dot(r, r)
        self.candidate += _dot(c, c)
        self.product += _dot(c, r)
        self.signed += float(np.sum(chunk.error))
        at = int(np.argmax(absolute))
        if absolute[at] > self.max_abs:
            self.max_abs, self.worst = float(absolute[at]), chunk.start + at
            self.got, self.expected = float(c[at]), float(r[at])
        unit = chunk.ulp
        ulps = absolute / unit
        self.equal += _equal(chunk.stored, ulps)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            relative = absolute / chunk.magnitude
        if chunk.magnitude.min() == 0.0:
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


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.einsum("i,i->", a, b))  # np.dot would start threads for every piece


def _equal(stored: np.ndarray, ulps: np.ndarray) -> int:
    """How many candidates are the reference rounded to their type: within half a unit; of a tie, the even one."""
    near, ties = int(np.count_nonzero(ulps < 0.5)), np.flatnonzero(ulps == 0.5)
    word = stored[ties].view(f"uint{8 * stored.dtype.itemsize}")
    return near + int(np.count_nonzero(word % word.dtype.type(2) == 0))


def leaf_report(pair: Pair, thresholds: Sequence[float]) -> LeafReport:
    """All figures of one leaf, in one pass."""
    sums, size = _Sums(thresholds), pair.candidate.size
    for chunk in pair.chunks():
        sums.add(chunk)
    norm = np.sqrt(sums.reference)
    error = np.sqrt(sums.square)
    counted = max(sums.finite, 1)
    ulp = {"max": sums.max_ulp, "mean": sums.ulp / counted}
    ulp |= sums.histograms["ulp"].percentiles((50.0, 99.0, 99.9))
    length = np.sqrt(sums.candidate) * norm
    cosine = float(min(sums.product / length, 1.0)) if length else float(sums.square == 0.0)
    if sums.first is not None:
        sums.worst, sums.got, sums.expected = sums.first
        sums.max_abs = sums.max_relative = ulp["max"] = error = np.inf
        cosine = np.nan
    return LeafReport(
        name=pair.name,
        shape=pair.candidate.shape,
        dtype=str(pair.dtype),
        elements=size,
        max_abs=sums.max_abs,
        index=pair.place(sums.worst),
        got=sums.got,
        expected=sums.expected,
        max_relative=sums.max_relative,
        relative_l2=float(error / norm) if norm else float(error and np.inf),
        rmse=float(error / np.sqrt(counted)),
        bias=sums.signed / counted,
        rms=float(norm / np.sqrt(counted)),
        cosine=cosine,
        ulp=ulp,
        equal=sums.equal / size,
        beyond={float(t): int(n) / size for t, n in zip(thresholds, sums.beyond, strict=True)},
        absolute=sums.histograms["absolute"].percentiles(PERCENTILES),
        relative=sums.histograms["relative"].percentiles(PERCENTILES),
        magnitude=sums.histograms["magnitude"].percentiles(PERCENTILES),
        special=sums.special,
    )
