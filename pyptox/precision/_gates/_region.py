"""Mapped and padded buffers: some rows are judged, and the others must be as they were."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from ..._errors import PyptoxError
from .._chunks import Pair
from ._base import AbstractGate, Finding, a_gate
from ._elementwise import BitEqual


@final
@dataclass(frozen=True)
class Region(AbstractGate):
    """``gate`` on the ``rows`` of each leaf (its first axis), and every other row bit for bit as it was ``before``.

    Attributes:
        gate: of the rows that are mapped.
        rows: how many are valid, from the first on, or the numbers of those that are mapped.
        before: what the buffer held; zeros where left out.
    """

    gate: AbstractGate
    rows: int | tuple[int, ...]
    before: np.ndarray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        a_gate("gate", self.gate)
        try:
            numbers = [*self.rows] if np.iterable(self.rows) else [self.rows]
            right = all(not isinstance(n, bool | np.bool_) and operator.index(n) >= 0 for n in numbers)
        except TypeError:
            right = False
        if not right:
            raise PyptoxError(
                f"`rows` of Region must be an integer of at least 0, or such integers; got {self.rows!r}. Try rows=3 "
                "or rows=(0, 2)"
            )

    def judge(self, leaves: Sequence[Pair]) -> list[Finding]:
        findings = []
        for pair in leaves:
            if pair.candidate.ndim == 0:
                raise PyptoxError(f"`{pair.name}` must have rows to be judged by Region; its shape is ()")
            mapped = self._mapped(pair)
            inside = pair.of_rows(np.flatnonzero(mapped))
            findings += self.gate.judge([inside]) if mapped.any() else []
            findings.append(self._untouched(pair, np.flatnonzero(~mapped)))
        return findings

    def _mapped(self, pair: Pair) -> np.ndarray:
        count = len(pair.candidate)
        mapped = np.zeros(count, bool)
        if isinstance(self.rows, int | np.integer):
            if not 0 <= self.rows <= count:
                raise PyptoxError(f"`rows` must be between 0 and the {count} rows of `{pair.name}`; got {self.rows}")
            mapped[: self.rows] = True
            return mapped
        numbers = np.asarray(self.rows, np.int64)
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < count):
            raise PyptoxError(f"`rows` must name rows of `{pair.name}`, 0 to {count - 1}; got {self.rows}")
        mapped[numbers] = True
        return mapped

    def _untouched(self, pair: Pair, rows: np.ndarray) -> Finding:
        title = "untouched rows"
        if not len(rows):
            return Finding(pair.name, title, True, "there are none")
        got = pair.candidate[rows]
        before = np.zeros_like(got) if self.before is None else np.asarray(self.before)
        if self.before is not None and before.shape != pair.candidate.shape:
            raise PyptoxError(
                f"`before` must have the shape of `{pair.name}`, {pair.candidate.shape}; got {before.shape}"
            )
        before = before if self.before is None else before[rows]
        found = BitEqual().judge_leaf(Pair(pair.name, got, before, pair.seed, rows=rows))
        return Finding(pair.name, title, found.passed, found.text)
