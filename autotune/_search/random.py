"""Uniform random points without repetition: the baseline for every other method."""

import dataclasses
from typing import final

import numpy as np

from .._space import Space
from ._base import AbstractSearch
from ._run import Batch, Proposals


@final
@dataclasses.dataclass(frozen=True)
class Random(AbstractSearch):
    """Draw legal points uniformly, `batch` at a time, until the budget or the space is used up.

    >>> from autotune import Integer, minimise
    >>> minimise(lambda point: (point["x"] - 3) ** 2, Space(x=Integer(0, 9)), Random()).evaluations
    10
    """

    batch: int = 64

    def proposals(self, space: Space, rng: np.random.Generator, evaluations: int | None) -> Proposals:
        while True:
            yield Batch(space.sample_index(rng, self.batch if evaluations is None else evaluations))
