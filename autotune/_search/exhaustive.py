"""Every legal point, in grid order."""

import dataclasses
from typing import final

import numpy as np

from .._space import Space
from ._base import AbstractSearch
from ._run import Batch, Proposals


@final
@dataclasses.dataclass(frozen=True)
class Exhaustive(AbstractSearch):
    """Score every legal point; the right choice for up to millions of points of a vectorised model.

    `first` is the grid position to begin at, where an earlier run stopped.

    >>> from autotune import Integer, minimise
    >>> minimise(lambda point: (point["x"] - 3) ** 2, Space(x=Integer(0, 9)), Exhaustive()).config
    Config(x=3)
    """

    chunk: int = 1 << 16
    first: int = 0

    def proposals(self, space: Space, rng: np.random.Generator, evaluations: int | None) -> Proposals:
        for start in range(self.first, space.size, self.chunk):
            yield Batch(np.arange(start, min(start + self.chunk, space.size)))
