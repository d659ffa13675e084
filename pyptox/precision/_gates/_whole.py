"""Gates on one number of a whole leaf."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

from ..._errors import PyptoxError
from .._chunks import Pair
from .._compare import THRESHOLDS, LeafReport, leaf_report, number
from ._base import AbstractGate, AbstractLeafGate, Finding, non_negative
from ._exceed import exceeding


def _where(leaf: LeafReport, pair: Pair) -> str:
    seed = "" if pair.seed is None else f"; seed {pair.seed}"
    if leaf.special["disagree"]:
        return f"; {leaf.special['disagree']:,} elements are NaN or infinite on one side only{seed}"
    got, expected = number(leaf.got), number(leaf.expected)
    return f"; largest error {leaf.max_abs:.3g} at {leaf.index}: got {got}, expected {expected}{seed}"


@final
@dataclass(frozen=True)
class Ulp(AbstractLeafGate):
    """Limits on the error in units in the last place of the candidate's type, at the reference.

    Where a reference is 0 the unit is that of the smallest numbers, and any error is many units: combine with
    :class:`Allclose`, or give percentiles only.
    """

    max: float | None = None
    mean: float | None = None
    p99: float | None = None
    p999: float | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in (self.max, self.mean, self.p99, self.p999)):
            raise PyptoxError("`Ulp` needs a limit: max, mean, p99 or p999. Try Ulp(max=1)")
        non_negative(max=self.max, mean=self.mean, p99=self.p99, p999=self.p999)

    def judge_leaf(self, pair: Pair) -> Finding:
        leaf = leaf_report(pair, THRESHOLDS)
        if self.max is not None:  # the worst in units in the last place, not the largest error
            most = self.max
            found = exceeding(pair, lambda chunk: most * chunk.ulp)
            where = found.said(pair, 0, f"{most:g} ulp")
        else:
            where = _where(leaf, pair)[2:]
        limits = {"max": self.max, "mean": self.mean, "p99": self.p99, "p99.9": self.p999}
        stated = {name: limit for name, limit in limits.items() if limit is not None}
        passed = all(leaf.ulp[name] <= limit for name, limit in stated.items()) and not leaf.special["disagree"]
        text = ", ".join(f"{name} {leaf.ulp[name]:.3g} (at most {limit:g})" for name, limit in stated.items())
        return Finding(pair.name, str(self), passed, f"{text} ulp of {leaf.dtype}; {where}")


@final
@dataclass(frozen=True)
class RelL2(AbstractLeafGate):
    """``|candidate - reference| <= limit |reference|`` in the 2-norm of the whole leaf."""

    limit: float

    def __post_init__(self) -> None:
        non_negative(limit=self.limit)

    def judge_leaf(self, pair: Pair) -> Finding:
        leaf = leaf_report(pair, THRESHOLDS)
        passed = leaf.relative_l2 <= self.limit and not leaf.special["disagree"]
        text = f"relative L2 {leaf.relative_l2:.3g} (at most {self.limit:g}){_where(leaf, pair)}"
        return Finding(pair.name, str(self), passed, text)


@final
@dataclass(frozen=True)
class VersusBaseline(AbstractLeafGate):
    """An error of at most ``k`` times that of a plain implementation in the same types.

    Both are measured against the same float64 reference, so that a hard problem is no one's fault. An error within
    half a unit in the last place of the output, which rounding alone may cost, always passes. A baseline whose own
    error is not finite is no measure: nothing else passes beside it.
    """

    k: float = 2.0
    of: Literal["relative_l2", "max_abs", "rmse"] = "relative_l2"

    def __post_init__(self) -> None:
        non_negative(k=self.k)
        if self.of not in ("relative_l2", "max_abs", "rmse"):
            raise PyptoxError(f"`of` of VersusBaseline must be relative_l2, max_abs or rmse; got {self.of!r}")

    def judge_leaf(self, pair: Pair) -> Finding:
        plain = pair.of_baseline()
        if plain is None:
            raise PyptoxError("`baseline` is needed by VersusBaseline; give the outputs of a plain implementation")
        leaf, other = leaf_report(pair, THRESHOLDS), leaf_report(plain, THRESHOLDS)
        got, measure = getattr(leaf, self.of), getattr(other, self.of)
        limit, rounded = self.k * measure, leaf.ulp["max"] <= 0.5
        within = math.isfinite(limit) and got <= limit
        passed = (within or rounded) and not leaf.special["disagree"]
        text = f"{self.of} {got:.3g}, at most {self.k:g} x {measure:.3g} of the baseline"
        if not math.isfinite(limit):
            lost = other.special["disagree"]
            why = f": {lost:,} of its elements are NaN or infinite where the reference is not" if lost else ""
            text += f", which is no measure{why}"
        return Finding(pair.name, str(self), passed, text + _where(leaf, pair))


def without_baseline(gate: Any, where: str) -> None:
    """Refuse a gate that holds :class:`VersusBaseline`, itself or in a part, where there is no baseline to give it."""
    if isinstance(gate, VersusBaseline):
        raise PyptoxError(
            f"`gate` of {where} must judge without a baseline, which {where} has none of; got {gate}. Try RelL2(1e-2), "
            "or judge(gate, ..., baseline=...) on the outputs"
        )
    if isinstance(gate, AbstractGate):
        gate = [getattr(gate, field.name) for field in dataclasses.fields(gate)]  # type: ignore[arg-type]
    parts = gate.values() if isinstance(gate, Mapping) else gate if isinstance(gate, list | tuple) else ()
    for part in parts:
        without_baseline(part, where)
