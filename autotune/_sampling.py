"""Random legal points of a space, without repetition."""

from typing import TYPE_CHECKING

import numpy as np

from ._constraint import EmptySpaceError

if TYPE_CHECKING:
    from ._space import Index, Space

_ROUNDS = 16  # draws before giving up on rejection; at 4 candidates a wanted point, 1 in 60 may be legal
_COUNTABLE = 1 << 22  # the largest grid worth listing to find rare legal points: about a second


def draw(space: "Space", rng: np.random.Generator, n: int) -> "Index":
    """Grid positions of up to `n` distinct legal points, uniform over the legal ones.

    By rejection; a grid where that finds too few is listed instead. Raises `EmptySpaceError` when there is
    none.
    """
    found = np.empty(0, np.int64)
    if space.size > 8 * n:
        for _ in range(_ROUNDS):
            found = _distinct(np.concatenate([found, _legal(space, rng.integers(space.size, size=4 * n + 64))]))
            if len(found) >= n:
                return found[:n]
    if space.size <= _COUNTABLE:
        legal = _legal(space, np.arange(space.size))
        found = rng.permutation(legal)[:n]
    if not len(found):
        raise EmptySpaceError(space.size, space.census().rejected)
    return found


def stratified(space: "Space", rng: np.random.Generator, n: int) -> "Index":
    """Grid positions of up to `n` distinct legal points, spread over every parameter's range.

    Latin hypercubes in the positions of the values (McKay, Beckman, Conover 1979); what constraints reject is
    drawn again, at last uniformly.
    """
    found = np.empty(0, np.int64)
    for _ in range(_ROUNDS):
        cells = rng.permuted(np.tile(np.arange(n), (len(space.items), 1)), axis=1)
        unit = (cells + rng.random(cells.shape)) / n
        digits = [
            (row * parameter.cardinality).astype(np.int64)
            for row, (_, parameter) in zip(unit, space.items, strict=True)
        ]
        index = np.sum([digit * stride for digit, stride in zip(digits, space.strides, strict=True)], axis=0)
        found = _distinct(np.concatenate([found, _legal(space, index)]))
        if len(found) >= n:
            return found[:n]
    return _distinct(np.concatenate([found, draw(space, rng, n)]))[:n]


def _legal(space: "Space", index: "Index") -> "Index":
    return index[space.screen(index)[0]]


def _distinct(index: "Index") -> "Index":
    """`index` without repetitions, in order of first appearance."""
    _, first = np.unique(index, return_index=True)
    return index[np.sort(first)]
