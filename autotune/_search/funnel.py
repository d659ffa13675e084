"""The manual tuning procedure as a search: rounds of one axis at a time, combine, push to the next wall."""

import dataclasses
import itertools
from collections.abc import Generator
from typing import final

import numpy as np

from .._config import Config
from .._space import Index, Space
from ._base import AbstractSearch
from ._run import Batch, Proposals, simplest


@final
@dataclasses.dataclass(frozen=True)
class Funnel(AbstractSearch):
    """Rounds from a validated baseline, as a person tunes tiles.

    A round changes one parameter at a time (values 1, 2, 4, ... steps away and both ends), applies the
    `combine` best of those changes together, and goes on in the winning direction until a constraint or a
    worse value stops it. The search ends when a round gains no more than `margin` (relative: the noise of a
    measurement), and among values equal within the margin it keeps the simplest. Without a `baseline` it
    starts from the defaults, or where they are not legal from the best of a small sample.

    >>> from autotune import Multiple, minimise
    >>> space = Space(m=Multiple(16, 512, 16), n=Multiple(16, 512, 16))
    >>> minimise(lambda at: abs(at["m"] - 96) + abs(at["n"] - 64) + 10, space, Funnel()).config
    Config(m=96, n=64)
    """

    baseline: Config | None = None
    margin: float = 0.01
    combine: int = 3

    def proposals(self, space: Space, rng: np.random.Generator, evaluations: int | None) -> Proposals:
        base, value = yield from self._baseline(space, rng)
        while np.isfinite(value):
            before = value
            changes, values = yield from self._single(space, base, value)
            if not len(changes):
                return
            together = _combined(base, changes)
            combined_values = yield Batch(together)
            candidates = np.concatenate([changes, together])
            values = np.concatenate([values, combined_values])
            chosen = self._choose(space, candidates, values)
            base, value = yield from self._push(space, base, candidates[chosen], values[chosen])
            if before - value <= self.margin * abs(before):
                return

    def _baseline(self, space: Space, rng: np.random.Generator) -> Generator[Batch, np.ndarray, tuple[np.int64, float]]:
        index = space.point_index(space.points([self.baseline or space.default]))
        values = yield Batch(index)
        if not np.isfinite(values[0]):
            index = space.sample_index(rng, 8, spread=True)
            values = yield Batch(index)
        return index[values.argmin()], float(values.min())

    def _single(
        self, space: Space, base: np.int64, value: float
    ) -> Generator[Batch, np.ndarray, tuple[Index, np.ndarray]]:
        """The best change of each parameter that gains more than the margin, the best few, best first."""
        axes = _axes(space, base)
        values = yield Batch(np.concatenate(axes))
        best, gains = [], []
        for axis, scored in zip(axes, np.split(values, np.cumsum([len(a) for a in axes])[:-1]), strict=True):
            if len(axis) and value - scored.min() > self.margin * abs(value):
                chosen = self._choose(space, axis, scored)
                best.append(axis[chosen])
                gains.append(scored[chosen])
        order = np.argsort(gains, kind="stable")[: self.combine]
        return np.array(best, np.int64)[order], np.array(gains)[order]

    def _choose(self, space: Space, index: Index, values: np.ndarray) -> int:
        """The simplest of those equal to the best within the margin."""
        close = np.flatnonzero(values <= values.min() + self.margin * abs(values.min()))
        return int(close[simplest(space, index[close])[0]])

    def _push(
        self, space: Space, base: np.int64, chosen: np.int64, value: float
    ) -> Generator[Batch, np.ndarray, tuple[np.int64, float]]:
        """Repeat the step from `base` to `chosen` while it gains, then half of it, down to one step."""
        here, last = _digits(space, chosen), _ends(space)
        step = np.where(_ordered(space), here - _digits(space, base), 0)
        while step.any():
            ahead = np.clip(here + step, 0, last)
            index = np.array([ahead @ np.array(space.strides)])
            gained = float((yield Batch(index))[0])
            if value - gained > self.margin * abs(value):
                here, value, chosen = ahead, gained, index[0]
            else:
                step = np.trunc(step / 2).astype(np.int64)
        return chosen, value


def _digits(space: Space, index: np.int64) -> np.ndarray:
    return np.array([int(digit[0]) for digit in space.digits(np.array([index]))])


def _ends(space: Space) -> np.ndarray:
    return np.array([parameter.cardinality - 1 for _, parameter in space.items])


def _ordered(space: Space) -> np.ndarray:
    return np.array([parameter.ordered for _, parameter in space.items])


def _axes(space: Space, base: np.int64) -> list[Index]:
    """For each parameter, the points that differ from `base` in it alone."""
    axes = []
    for (_, parameter), stride, digit in zip(space.items, space.strides, _digits(space, base), strict=True):
        card = parameter.cardinality
        powers = 1 << np.arange(card.bit_length())
        steps = np.concatenate([digit - powers, digit + powers, [0, card - 1]])
        others = np.unique(steps if parameter.ordered else np.arange(card))
        others = others[(others >= 0) & (others < card) & (others != digit)]
        axes.append(base + (others - digit) * stride)
    return axes


def _combined(base: np.int64, changes: Index) -> Index:
    """Two or more of the changes applied together: they touch different parameters, so their steps add up."""
    steps = changes - base
    subsets = [
        subset for size in range(2, len(steps) + 1) for subset in itertools.combinations(range(len(steps)), size)
    ]
    return np.array([base + steps[list(subset)].sum() for subset in subsets], np.int64)
