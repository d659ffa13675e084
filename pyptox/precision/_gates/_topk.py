"""Pairs of scores and indices: the order of equal scores is no error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from ..._checks import text as checked_text
from ..._errors import PyptoxError
from ..._rounding import cast
from .._chunks import Pair, wide
from ._base import AbstractGate, Finding, non_negative
from ._elementwise import Allclose


@final
@dataclass(frozen=True)
class TopK(AbstractGate):
    """The ``k`` largest of each row: scores close rank by rank, and the indices those of the reference.

    An index may stand at another rank of its row, where the reference's scores of both ranks agree within ``rtol
    |score| + atol``. One that the reference's row does not have may have pushed out the last rank in a tie: its own
    score, which the candidate says at its place, must be that of the reference's last rank, to the last bit. No index
    may come twice.

    Attributes:
        values, indices: the names of the two leaves, ``(..., k)``.
    """

    values: str
    indices: str
    rtol: float = 1e-3
    atol: float = 0.0

    def __post_init__(self) -> None:
        non_negative(rtol=self.rtol, atol=self.atol)
        for name in ("values", "indices"):
            checked_text(name, getattr(self, name), name)
        if self.values == self.indices:
            raise PyptoxError(f"`indices` of TopK must be another leaf than `values`; got {self.values!r} for both")

    def judge(self, leaves: Sequence[Pair]) -> list[Finding]:
        by_name = {pair.name: pair for pair in leaves}
        for name in (self.values, self.indices):
            if name not in by_name:
                raise PyptoxError(f"`TopK` names the leaf {name}; there are {', '.join(by_name)}")
        scores, indices = by_name[self.values], by_name[self.indices]
        for title, array in (("candidate", indices.candidate), ("reference", indices.reference)):
            if not np.issubdtype(array.dtype, np.integer) or array.ndim == 0:
                raise PyptoxError(
                    f"`{self.indices}` of the {title} must be rows of integers, which TopK takes for places; got "
                    f"{array.dtype}{list(array.shape)}"
                )
        if scores.candidate.shape != indices.candidate.shape:
            raise PyptoxError(
                f"`{self.indices}` must have the shape of `{self.values}`, {scores.candidate.shape}; got "
                f"{indices.candidate.shape}"
            )
        return [Allclose(self.rtol, self.atol).judge_leaf(scores), self._order(scores, indices)]

    def _order(self, scores: Pair, indices: Pair) -> Finding:
        k = scores.reference.shape[-1]
        truth = wide(scores.reference).reshape(-1, k)
        got, expected = (a.reshape(-1, k).astype(np.int64) for a in (indices.candidate, indices.reference))
        rows, ranks = np.nonzero(got != expected)
        found = _ranks(got, expected, rows, ranks)
        foreign = found < 0
        own = wide(scores.candidate).reshape(-1, k)[rows, ranks]
        last = np.asarray(cast(truth[rows, k - 1], scores.candidate.dtype)).astype(np.float64)
        here, there = truth[rows, ranks], np.where(foreign, own, truth[rows, found])
        wrong = np.abs(here - there) > self.rtol * np.abs(here) + self.atol
        wrong |= foreign & (own != last)
        twice = _repeated(got)
        count, seed = int(wrong.sum()), "" if indices.seed is None else f"; seed {indices.seed}"
        text = f"{len(rows):,} of {got.size:,} indices at another rank, {count:,} of them where scores do not tie"
        if count:
            n = int(np.argmax(np.where(wrong, np.abs(here - there), -1.0)))
            place = indices.place(int(rows[n] * k + ranks[n]))
            text += (
                f"; worst at {place}: got index {got[rows[n], ranks[n]]}, expected {expected[rows[n], ranks[n]]}, "
                f"scores {here[n]:.8g} and {there[n]:.8g}, a tie is within {self.rtol * abs(here[n]) + self.atol:.3g}"
            )
        if twice is not None:
            text += f"; row {twice} has an index twice"
        return Finding(indices.name, str(self), count == 0 and twice is None, text + seed)


def _ranks(got: np.ndarray, expected: np.ndarray, rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """The reference's rank of each index that stands elsewhere; -1 for those it does not have."""
    k = got.shape[1]
    low = int(min(got.min(), expected.min()))
    width = int(max(got.max(), expected.max())) - low + 1
    keys = (expected - low + np.arange(len(expected))[:, None] * width).reshape(-1)
    order = np.argsort(keys)
    wanted = got[rows, ranks] - low + rows * width
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
    return np.where(keys[at] == wanted, at % k, -1)


def _repeated(got: np.ndarray) -> int | None:
    ordered = np.sort(got, axis=1)
    rows = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    return int(rows[0]) if len(rows) else None
