"""What a gate is: it judges the leaves of a comparison, and gives findings. Gates compose with ``&``."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, final

from ..._errors import PyptoxError
from .._chunks import Pair
from .._compare import pairs


class GateError(AssertionError):
    """A gate failed; the message names leaf, worst index, both values, units in the last place, threshold, seed."""


@dataclass(frozen=True)
class Finding:
    """What one gate says of one leaf."""

    leaf: str
    gate: str
    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{self.leaf}: {'passed' if self.passed else 'FAILED'} {self.gate}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """All findings of a gate; it passed when each of them did."""

    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    @property
    def summary(self) -> str:
        """The first failure, or how many passed."""
        failed = [finding for finding in self.findings if not finding.passed]
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return f"{failed[0]}{more}" if failed else "; ".join(f"{f.leaf} {f.gate}: {f.text}" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "passed": self.passed,
            "summary": self.summary,
            "findings": [dataclasses.asdict(f) for f in self.findings],
        }

    def __str__(self) -> str:
        return "\n".join(map(str, sorted(self.findings, key=lambda finding: finding.passed)))


class AbstractGate(abc.ABC):
    """A condition on a comparison. A new one is a frozen dataclass with :meth:`judge`."""

    @abc.abstractmethod
    def judge(self, leaves: Sequence[Pair]) -> list[Finding]:
        """At least one finding."""

    def __and__(self, other: "AbstractGate") -> "AbstractGate":
        return All((self, other))

    def __str__(self) -> str:
        fields = ", ".join(
            f"{field.name}={_short(value)}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, field.name)) is not None and field.repr
        )
        return f"{type(self).__name__}({fields})"


def non_negative(**values: Any) -> None:
    """Raise where a limit of a gate is given and is not a finite number of at least 0."""
    for name, value in values.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= float(value) < float("inf")):
            raise PyptoxError(f"`{name}` of a gate must be a number of at least 0; got {value!r}. Try {name}=1e-3")


def a_gate(name: str, value: Any) -> None:
    """Raise where ``value`` is no gate."""
    if not isinstance(value, AbstractGate):
        raise PyptoxError(f"`{name}` must be a gate; got {value!r} ({type(value).__name__}). Try Allclose(1e-2)")


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class AbstractLeafGate(AbstractGate):
    """A condition on every leaf by itself."""

    @abc.abstractmethod
    def judge_leaf(self, pair: Pair) -> Finding:
        """The finding on one leaf."""

    def judge(self, leaves: Sequence[Pair]) -> list[Finding]:
        return [self.judge_leaf(pair) for pair in leaves]


@final
@dataclass(frozen=True)
class All(AbstractGate):
    """Every one of ``gates``."""

    gates: tuple[AbstractGate, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.gates, list | tuple) or not self.gates:
            raise PyptoxError(f"`gates` of All must be gates, at least one; got {self.gates!r}. Try BitEqual()")
        for gate in self.gates:
            a_gate("gates", gate)

    def judge(self, leaves: Sequence[Pair]) -> list[Finding]:
        return [finding for gate in self.gates for finding in gate.judge(leaves)]

    def __str__(self) -> str:
        return " & ".join(map(str, self.gates))


@final
@dataclass(frozen=True)
class ByLeaf(AbstractGate):
    """A gate for each leaf by name; ``otherwise`` for those without, which else are an error."""

    gates: Mapping[str, AbstractGate]
    otherwise: AbstractGate | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.gates, Mapping):
            raise PyptoxError(f"`gates` of ByLeaf must be a dictionary of gates by leaf; got {self.gates!r}")
        for name, gate in self.gates.items():
            a_gate(f"gates[{name!r}]", gate)
        if self.otherwise is not None:
            a_gate("otherwise", self.otherwise)

    def judge(self, leaves: Sequence[Pair]) -> list[Finding]:
        names = [pair.name for pair in leaves]
        unknown = [name for name in self.gates if name not in names]
        missing = [name for name in names if name not in self.gates]
        if unknown or (missing and self.otherwise is None):
            raise PyptoxError(
                f"`gates` must name the leaves {', '.join(names)}; "
                + "; ".join(f"{word} {', '.join(n)}" for word, n in (("unknown", unknown), ("missing", missing)) if n)
            )
        gates = {pair.name: self.gates.get(pair.name, self.otherwise) for pair in leaves}
        return [f for pair in leaves if (gate := gates[pair.name]) is not None for f in gate.judge([pair])]


def judge(
    gate: AbstractGate | Mapping[str, AbstractGate],
    candidate: Any,
    reference: Any,
    *,
    baseline: Any = None,
    seed: int | None = None,
) -> Verdict:
    """Whether ``candidate`` passes ``gate``.

    Args:
        gate: a gate, or one for each leaf by name.
        candidate, reference: as in :func:`pyptox.precision.compare`.
        baseline: what another implementation of the same types computed, for :class:`VersusBaseline`.
        seed: of the inputs; failures name it.

    >>> import numpy as np
    >>> from pyptox.precision import Allclose, Ulp, judge
    >>> verdict = judge(Allclose(rtol=1e-3) & Ulp(max=2), np.float32([1, 2.1]), np.float64([1, 2]), seed=3)
    >>> print(verdict.findings[0])
    value: FAILED Allclose(rtol=0.001, atol=rms): 1 of 2 elements beyond 0.001 |reference| + 0.00158 (at most 0); worst
    at (1,): got 2.0999999, expected 2, error 0.1 is 27.9 x the allowed 0.00358, 4.19e+05 ulp of float32; seed 3
    """
    if isinstance(gate, Mapping):
        gate = ByLeaf(gate)
    if not isinstance(gate, AbstractGate):
        raise PyptoxError(f"`gate` must be a gate, or a dictionary of gates by leaf; got {gate!r}. Try Allclose(1e-2)")
    return Verdict(tuple(gate.judge(list(pairs(candidate, reference, seed, baseline)))))


def require(gate: AbstractGate | Mapping[str, AbstractGate], candidate: Any, reference: Any, **options: Any) -> None:
    """Raise :class:`GateError` unless :func:`judge`, of the same arguments, passes."""
    verdict = judge(gate, candidate, reference, **options)
    if not verdict.passed:
        raise GateError(str(verdict))
