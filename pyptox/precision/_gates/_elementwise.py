"""Gates that ask every element, and allow a share of them to fail."""

from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np

from ..._checks import integer
from ..._errors import PyptoxError
from ..._rounding import cast
from .._chunks import Pair, root_mean_square
from ._base import AbstractLeafGate, Finding, non_negative
from ._exceed import Exceeding, exceeding


def _absolute(pair: Pair, atol: float | str, rtol: float) -> float:
    return rtol * root_mean_square(pair) if isinstance(atol, str) else float(atol)


def _number_or_rms(**values: Any) -> None:
    for name, value in values.items():
        if value is None or (isinstance(value, str) and value != "rms"):
            raise PyptoxError(f"`{name}` of a gate must be a number or 'rms'; got {value!r}")
        if not isinstance(value, str):
            non_negative(**{name: value})


def _share(max_bad: Any, hard: float | None) -> None:
    """Raise where a gate that allows a share of all elements to fail, by any amount, could not fail itself."""
    non_negative(max_bad=max_bad, hard=hard)
    if max_bad is None or max_bad > 1 or (max_bad == 1 and hard is None):
        raise PyptoxError(
            f"`max_bad` of a gate must be a share of the elements below 1, or up to 1 with `hard`; got {max_bad!r}. "
            "Try max_bad=0.005"
        )


def _close(pair: Pair, rtol: float, atol: float | str) -> tuple[Exceeding, str]:
    floor = _absolute(pair, atol, rtol)
    found = exceeding(pair, lambda chunk: floor + rtol * chunk.magnitude)
    return found, f"{rtol:.3g} |reference| + {floor:.3g}"


@final
@dataclass(frozen=True)
class Allclose(AbstractLeafGate):
    """``|candidate - reference| <= rtol |reference| + atol`` in every element.

    ``atol="rms"`` is ``rtol`` times the root mean square of the reference: an output near zero that is the difference
    of large terms is judged by their size, which a fixed ``atol`` cannot know.
    """

    rtol: float
    atol: float | Literal["rms"] = "rms"

    def __post_init__(self) -> None:
        non_negative(rtol=self.rtol)
        _number_or_rms(atol=self.atol)

    def judge_leaf(self, pair: Pair) -> Finding:
        found, tolerance = _close(pair, self.rtol, self.atol)
        return Finding(pair.name, str(self), found.count == 0, found.said(pair, 0, tolerance))


@final
@dataclass(frozen=True)
class Ratio(AbstractLeafGate):
    """As :class:`Allclose`, but a share ``max_bad`` of the elements may exceed it, none by more than ``hard`` times.

    For large tensors: one element of 169 million is no bug.
    """

    rtol: float
    atol: float | Literal["rms"] = "rms"
    max_bad: float = 0.005
    hard: float | None = None

    def __post_init__(self) -> None:
        non_negative(rtol=self.rtol)
        _share(self.max_bad, self.hard)
        _number_or_rms(atol=self.atol)

    def judge_leaf(self, pair: Pair) -> Finding:
        found, tolerance = _close(pair, self.rtol, self.atol)
        return _few(self, pair, found, tolerance, self.max_bad, self.hard)


def _few(
    gate: AbstractLeafGate, pair: Pair, found: Exceeding, tolerance: str, max_bad: float, hard: float | None
) -> Finding:
    most = np.floor(max_bad * found.elements)
    passed = found.count <= most and not found.disagree and (hard is None or found.share <= hard)
    text = found.said(pair, most, tolerance)
    return Finding(
        pair.name, str(gate), bool(passed), text + ("" if hard is None else f"; none may be beyond {hard:g} x")
    )


@final
@dataclass(frozen=True)
class RelDiff(AbstractLeafGate):
    """``|candidate - reference| <= limit max(|reference|, floor)``, but for a share ``max_bad``.

    ``floor="rms"`` is a hundredth of the root mean square of the reference: below it a relative error says nothing.
    """

    limit: float
    floor: float | Literal["rms"] = "rms"
    max_bad: float = 0.05
    hard: float | None = None

    def __post_init__(self) -> None:
        non_negative(limit=self.limit)
        _share(self.max_bad, self.hard)
        _number_or_rms(floor=self.floor)

    def judge_leaf(self, pair: Pair) -> Finding:
        floor = 0.01 * root_mean_square(pair) if isinstance(self.floor, str) else float(self.floor)
        found = exceeding(pair, lambda chunk: self.limit * np.maximum(chunk.magnitude, floor))
        return _few(self, pair, found, f"{self.limit:g} max(|reference|, {floor:.3g})", self.max_bad, self.hard)


def _is_rate(pair: Any) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or any(isinstance(part, bool) for part in pair):
        return False
    depth, rate = pair
    return isinstance(depth, int) and depth >= 1 and isinstance(rate, int | float) and 0 < rate <= 1


@final
@dataclass(frozen=True)
class PassRate(AbstractLeafGate):
    """A share of elements within ``rtol |reference| + atol`` that falls with depth, the number of low-precision layers.

    The least rate is that of the smallest depth in ``rates`` that is not below ``depth``, beyond the last the last.
    Source of the rates: hw-native-sys/pypto-lib docs/debug-and-tune/qwen3-14b-optimization.md (three tiers).
    """

    depth: int
    rtol: float = 5e-3
    atol: float = 5e-3
    rates: tuple[tuple[int, float], ...] = field(default=((1, 1.0), (10, 0.999), (40, 0.98)), repr=False)

    def __post_init__(self) -> None:
        non_negative(rtol=self.rtol, atol=self.atol)
        integer("depth", self.depth, 1)
        if not isinstance(self.rates, list | tuple) or not self.rates or not all(map(_is_rate, self.rates)):
            raise PyptoxError(
                "`rates` of PassRate must be pairs of a depth, 1 or more, and a share of the elements above 0, 1 at "
                f"most; got {self.rates!r}. Try ((1, 1.0), (10, 0.999))"
            )

    def judge_leaf(self, pair: Pair) -> Finding:
        found, tolerance = _close(pair, self.rtol, self.atol)
        rate = next((rate for depth, rate in sorted(self.rates) if depth >= self.depth), sorted(self.rates)[-1][1])
        passed = 1.0 - found.count / found.elements
        most = np.floor((1.0 - rate) * found.elements + 1e-9)
        text = f"pass rate {passed:.6f}, at least {rate:g} for {self.depth} layers; {found.said(pair, most, tolerance)}"
        return Finding(pair.name, str(self), passed >= rate and not found.disagree, text)


@final
@dataclass(frozen=True)
class BitEqual(AbstractLeafGate):
    """Every bit as in the reference, which is first rounded to the candidate's type where it is wider. Not for fp8
    outputs of another order of operations: there one bit is a large step; take :class:`Ulp`."""

    def judge_leaf(self, pair: Pair) -> Finding:
        reference = pair.reference
        if reference.dtype != pair.dtype:
            reference = np.asarray(cast(reference, pair.dtype)) if reference.dtype.itemsize >= 4 else reference
        if reference.dtype != pair.dtype:
            raise PyptoxError(f"`{pair.name}` must have the reference's type {reference.dtype}; got {pair.dtype}")
        word = np.dtype(f"uint{8 * pair.dtype.itemsize}")
        got, expected = (np.ascontiguousarray(a).view(word).reshape(-1) for a in (pair.candidate, reference))
        different = np.flatnonzero(got != expected)
        if not len(different):
            return Finding(pair.name, str(self), True, f"all {got.size:,} elements equal in every bit")
        first, digits = int(different[0]), 2 * word.itemsize
        with np.errstate(invalid="ignore"):
            values = [float(a.reshape(-1)[first].astype(np.float64)) for a in (pair.candidate, reference)]
        text = (
            f"{len(different):,} of {got.size:,} elements differ in some bit; the first at {pair.place(first)}: got "
            f"{values[0]:.8g} (0x{got[first]:0{digits}x}), expected {values[1]:.8g} (0x{expected[first]:0{digits}x})"
        )
        return Finding(pair.name, str(self), False, text + ("" if pair.seed is None else f"; seed {pair.seed}"))


@final
@dataclass(frozen=True)
class FiniteMatch(AbstractLeafGate):
    """NaN and infinities, with their signs, exactly where the reference has them."""

    def judge_leaf(self, pair: Pair) -> Finding:
        found = exceeding(pair, lambda chunk: np.inf)
        text = found.said(pair, 0, "") if found.disagree else "NaN and infinities agree"
        return Finding(pair.name, str(self), not found.disagree, text)
