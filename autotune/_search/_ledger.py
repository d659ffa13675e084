"""What a search knows: the scored grid positions and their values, as sorted arrays."""

from typing import final

import numpy as np

from .._space import Index


@final
class Ledger:
    """Scored positions with their values; all operations take whole batches.

    >>> ledger = Ledger()
    >>> ledger.add(np.array([7, 3]), np.array([1.0, 2.0]))
    >>> ledger.values(np.array([3, 4])).tolist(), ledger.known(np.array([3, 4])).tolist()
    ([2.0, inf], [True, False])
    """

    def __init__(self) -> None:
        self._index = np.empty(0, np.int64)
        self._values = np.empty(0)

    def __len__(self) -> int:
        return len(self._index)

    def _find(self, index: Index) -> tuple[np.ndarray, np.ndarray]:
        """Whether each position is known, and where."""
        if not len(self) or not len(index):
            return np.zeros(len(index), bool), np.zeros(len(index), np.int64)
        at = np.minimum(np.searchsorted(self._index, index), len(self) - 1)
        return self._index[at] == index, at

    def known(self, index: Index) -> np.ndarray:
        """Whether each position has been scored."""
        return self._find(index)[0]

    def values(self, index: Index) -> np.ndarray:
        """The value of each position, infinite where unknown."""
        found, at = self._find(index)
        return np.where(found, self._values[at], np.inf) if len(self) else np.full(len(index), np.inf)

    def add(self, index: Index, values: np.ndarray) -> None:
        """Record positions that are new and distinct."""
        ascending = bool(np.all(index[1:] > index[:-1]))
        in_order = ascending and (not len(self) or not len(index) or index[0] > self._index[-1])
        self._index = np.concatenate([self._index, index])
        self._values = np.concatenate([self._values, values])
        if not in_order:
            order = np.argsort(self._index, kind="stable")
            self._index, self._values = self._index[order], self._values[order]


def distinct(index: Index) -> Index:
    """`index` without repetitions, in order of first appearance.

    >>> distinct(np.array([5, 2, 5, 9])).tolist()
    [5, 2, 9]
    """
    if bool(np.all(index[1:] > index[:-1])):
        return index
    _, first = np.unique(index, return_index=True)
    return index[np.sort(first)]
