"""Multi-start descent over neighbours: the best method without a model, and the polish after one."""

import dataclasses
from typing import final

import numpy as np

from .._config import Config
from .._space import Index, Space
from ._base import AbstractSearch
from ._descent import descend
from ._run import Batch, Proposals

_TRIES = 16  # shaken points drawn for each one wanted, since constraints reject some


@final
@dataclasses.dataclass(frozen=True)
class Local(AbstractSearch):
    """Screen a spread-out sample, descend from its best, then in turn from the best so far shaken and from
    the next best of a sample.

    `starts` points descend side by side and each tries `width` random neighbours before it moves to the
    best of them if that improves (None: all of them, the steepest step). One start of width one wastes no
    measurement; more of both suit a vectorised model. Shaking changes `shaken` parameters by up to two
    steps. `exchange` also tries one parameter up and another down where no single step improves, which pays
    under tight capacity limits. `seeds` are configurations to score first.

    The defaults were chosen on two recorded spaces (convolution kernels on two GPUs, 128 measurements each).

    >>> from autotune import Multiple, minimise
    >>> space = Space(m=Multiple(16, 512, 16), n=Multiple(16, 512, 16))
    >>> minimise(lambda at: abs(at["m"] - 96) + abs(at["n"] - 64), space, Local(), evaluations=100).config
    Config(m=96, n=64)
    """

    screen: int = 16
    starts: int = 1
    width: int | None = 1
    shaken: int = 3
    exchange: bool = False
    seeds: tuple[Config, ...] = ()

    def proposals(self, space: Space, rng: np.random.Generator, evaluations: int | None) -> Proposals:
        seeds = space.point_index(space.points(self.seeds))
        best_index, best_value = seeds[:0], np.inf
        pool_index, pool_values = seeds, (yield Batch(seeds))
        shake = False
        while True:
            if shake and len(best_index):
                index = shaken(space, best_index.repeat(self.starts), rng, self.shaken)
                values = yield Batch(index)
            else:
                if not len(pool_index) or len(pool_index) == len(seeds):
                    drawn = space.sample_index(rng, self.screen, spread=True)
                    drawn_values = yield Batch(drawn)
                    pool_index = np.concatenate([pool_index, drawn])
                    pool_values = np.concatenate([pool_values, drawn_values])
                order = np.argsort(pool_values, kind="stable")
                pool_index, pool_values = pool_index[order], pool_values[order]
                index, pool_index = pool_index[: self.starts], pool_index[self.starts :]
                values, pool_values = pool_values[: self.starts], pool_values[self.starts :]
            bottoms, lowest = yield from descend(space, index, values, rng, width=self.width, exchange=self.exchange)
            if len(bottoms) and lowest.min() < best_value:
                best_index, best_value = bottoms[[lowest.argmin()]], lowest.min()
            shake = not shake


def shaken(space: Space, index: Index, rng: np.random.Generator, changed: int) -> Index:
    """Each point with `changed` random parameters moved by one or two steps, legal where that was found."""
    tries = np.tile(index, (_TRIES, 1))
    moved = np.argsort(rng.random((len(space.items), *tries.shape)), axis=0) < changed
    out = np.zeros_like(tries)
    for (_, parameter), stride, digit, move in zip(space.items, space.strides, space.digits(tries), moved, strict=True):
        card = parameter.cardinality
        step = rng.choice((-2, -1, 1, 2), size=digit.shape)
        jump = np.clip(digit + step, 0, card - 1) if parameter.ordered else rng.integers(card, size=digit.shape)
        out += np.where(move, jump, digit) * stride
    legal = space.screen(out.ravel())[0].reshape(out.shape) & (out != index)
    return np.unique(out[legal.argmax(axis=0), np.arange(len(index))])
