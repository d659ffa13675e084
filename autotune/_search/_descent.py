"""Descent over neighbours, many points side by side."""

from collections.abc import Generator

import numpy as np

from .._space import Index, Space
from ._moves import exchanges, neighbours
from ._run import Batch


def descend(
    space: Space,
    index: Index,
    values: np.ndarray,
    rng: np.random.Generator,
    *,
    width: int | None = None,
    exchange: bool = False,
) -> Generator[Batch, np.ndarray, tuple[Index, np.ndarray]]:
    """Move every point to better neighbours until none of its neighbours is better; return where they end.

    Neighbours are tried in random order, `width` at a time for each point, and a point moves to the best of
    the portion as soon as that improves on it; with None all are tried and the steepest step is taken. With
    `exchange` a point without a better neighbour also tries one parameter up and another down.
    """
    index, values = index.copy(), values.copy()
    active = np.arange(len(index))
    while len(active):
        moved = np.zeros(len(active), bool)
        for portion in _portions(space, index[active], rng, width, exchange):
            rows = np.flatnonzero(~moved)
            if not len(rows):
                break
            tried = (yield Batch(portion[rows].ravel())).reshape(len(rows), -1)
            choice = tried.argmin(axis=1)
            lowest = tried[np.arange(len(rows)), choice]
            better = lowest < values[active[rows]]
            index[active[rows[better]]] = portion[rows[better], choice[better]]
            values[active[rows[better]]] = lowest[better]
            moved[rows[better]] = True
        active = active[moved]
    return index, values


def _portions(
    space: Space, index: Index, rng: np.random.Generator, width: int | None, exchange: bool
) -> list[np.ndarray]:
    """The neighbours of each point in random order, `width` at a time, single steps before exchanges."""
    portions = []
    for around in [neighbours(space, index), exchanges(space, index)][: 2 if exchange else 1]:
        shuffled = rng.permuted(around, axis=1)
        step = width or max(around.shape[1], 1)
        portions += [shuffled[:, start : start + step] for start in range(0, around.shape[1], step)]
    return portions
