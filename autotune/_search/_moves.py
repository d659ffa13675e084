"""The points next to points, as grid positions; legality is left to the run."""

import itertools

import numpy as np

from .._space import Index, Space


def neighbours(space: Space, index: Index) -> np.ndarray:
    """The positions that differ in one parameter by one neighbour, one row a point, -1 for none."""
    moved = [np.empty((len(index), 0), np.int64)]
    for (_, parameter), stride, digit in zip(space.items, space.strides, space.digits(index), strict=True):
        card = parameter.cardinality
        others = digit[:, None] + np.array([-1, 1] if parameter.ordered else range(1, card), np.int64)
        others = others if parameter.ordered else others % card
        inside = (others >= 0) & (others < card)
        moved.append(np.where(inside, index[:, None] + (others - digit[:, None]) * stride, -1))
    return np.concatenate(moved, axis=1)


def exchanges(space: Space, index: Index) -> np.ndarray:
    """The positions where one ordered parameter goes up a step and another down, as in `neighbours`.

    They are the way along a capacity limit, where no single step up is legal and no step down is better.
    """
    steps = []
    for (_, parameter), stride, digit in zip(space.items, space.strides, space.digits(index), strict=True):
        if parameter.ordered:
            steps.append((stride, digit < parameter.cardinality - 1, digit > 0))
    moved = [np.empty((len(index), 0), np.int64)]
    for (up, has_above, _), (down, _, has_below) in itertools.permutations(steps, 2):
        moved.append(np.where(has_above & has_below, index + up - down, -1)[:, None])
    return np.concatenate(moved, axis=1)


def around(space: Space, index: Index) -> Index:
    """The wider surroundings of points: every value of one parameter, or two of them moved by one or two steps.

    A cost made of whole blocks and whole waves has its next valley a few steps away, often in two tiles at once.
    """
    axes = [
        (stride, digit[:, None], parameter)
        for (_, parameter), stride, digit in zip(space.items, space.strides, space.digits(index), strict=True)
    ]
    moved = [index[:, None] + (np.arange(parameter.cardinality) - digit) * stride for stride, digit, parameter in axes]
    one, other = np.array(list(itertools.product((-2, -1, 1, 2), repeat=2))).T
    for (s, d, p), (t, e, q) in itertools.combinations(axes, 2):
        inside = (d + one >= 0) & (d + one < p.cardinality) & (e + other >= 0) & (e + other < q.cardinality)
        moved.append(np.where(inside, index[:, None] + one * s + other * t, -1))
    found = np.unique(np.concatenate(moved, axis=1))
    return found[found >= 0]
