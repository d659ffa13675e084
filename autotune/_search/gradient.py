"""Gradient descent on relaxed parameters, from many starts at once, with every rounded point scored
exactly."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, final

import numpy as np

from .._space import Index, Space
from ._base import AbstractSearch
from ._descent import descend
from ._moves import around
from ._run import Batch, Proposals

_CORNERS = 4  # up to this many relaxed parameters all 2^n roundings are candidates, above it n + 1


@final
@dataclasses.dataclass(frozen=True)
class Gradient(AbstractSearch):
    """Adam on relaxed parameters.

    `value_and_grad` maps relaxed points (name to float32 array [B]) to values [B] and gradients (name to [B]);
    wrap a JAX function in `jax.jit`. It should equal the score at legal points, be smooth or straight-through
    in between, and grow where a constraint is violated, in proportion to the value, so that a start can find
    its way back. Sizes arrive as they are (their logarithm is what is varied); a parameter without a scale
    keeps the value of its start, given as a number where it is one, otherwise as its position.

    The steps: `screen` spread-out points are scored, the best `starts` descend for `steps` steps side by side,
    the legal neighbours below and above each iterate are candidates, of which the `scored` most promising are
    scored, and the best `polish` points known go down to a point better than all its neighbours. Without a
    budget this is all. What is left of a budget goes to the wider surroundings of the best points, in turn of
    the best one and of the best one more than `apart` steps from all those widened before; when nothing is
    left there, to a new sample. The first sample takes at most a quarter of a budget and the roundings half.

    `learning_rate` is a fraction of a parameter's (logarithmic) range. Method: DOSA (MICRO'23) and Felix
    (ASPLOS'24) with logarithmic sizes and all roundings scored. The defaults were chosen on 200 random
    matrix products (`benchmarks/tuning_quality.py`, seeds 0 and 1). Below about 300 evaluations a local search
    does better.

    >>> from autotune import Multiple, minimise
    >>> def value_and_grad(at):
    ...     return (at["m"] - 90) ** 2 + 9, {"m": 2 * (at["m"] - 90)}
    >>> space = Space(m=Multiple(16, 512, 16))
    >>> minimise(lambda at: (at["m"] - 90) ** 2 + 9, space, Gradient(value_and_grad)).config
    Config(m=96)
    """

    value_and_grad: Callable[[dict[str, Any]], tuple[Any, dict[str, Any]]]
    screen: int = 192
    starts: int = 64
    steps: int = 8
    scored: int = 128
    polish: int = 12
    apart: int = 4
    learning_rate: float = 0.1

    def proposals(self, space: Space, rng: np.random.Generator, evaluations: int | None) -> Proposals:
        from ._adam import trajectories

        if not any(parameter.relaxable for _, parameter in space.items):
            raise ValueError(
                "`space` must have a parameter with a continuous relaxation, got none; use Local for choices"
            )
        limit = 1 << 62 if evaluations is None else evaluations
        rounds = itertools.count() if evaluations is not None else range(1)
        for _ in rounds:
            known = space.sample_index(rng, max(min(self.screen, limit // 4), 1), spread=True)
            values = yield Batch(known)
            count = min(self.starts, max(len(known) // 3, 1))
            starts = known[np.argsort(values, kind="stable")[:count]]
            points, relaxed = trajectories(
                self.value_and_grad, space.items, space.at(starts), self.steps, self.learning_rate
            )
            candidates = roundings(space, points, relaxed)
            candidates = candidates[space.screen(candidates)[0]]
            new = candidates[~np.isin(candidates, known)][: max(min(self.scored, limit // 2), 1)]
            known = np.concatenate([known, new])
            values = np.concatenate([values, (yield Batch(new, relaxed=relaxed.size))])
            best = apart(space, known, values, self.polish)
            bottoms, lowest = yield from descend(space, known[best], values[best], rng, exchange=True)
            if evaluations is not None:
                known, first = np.unique(np.concatenate([known, bottoms]), return_index=True)
                yield from self._widen(space, known, np.concatenate([values, lowest])[first])

    def _widen(self, space: Space, known: Index, values: np.ndarray) -> Proposals:
        """Score what is around the best points, until nothing finite is left to widen."""
        digits, widened = np.stack(space.digits(known), axis=1), np.zeros(len(known), bool)
        distance = np.full(len(known), np.iinfo(np.int64).max)  # to the nearest widened point, largest over axes
        for turn in itertools.count():
            free = np.isfinite(values) & ~widened
            far = free & (distance > self.apart)
            free = far if turn % 2 and far.any() else free
            if not free.any():
                return
            chosen = np.flatnonzero(free)[values[free].argmin()]
            widened[chosen] = True
            new = around(space, known[[chosen]])
            new = new[~np.isin(new, known)]
            new_digits = np.stack(space.digits(new), axis=1)
            nearest = np.abs(new_digits[:, None] - digits[widened]).max(axis=-1).min(axis=-1, initial=2**62)
            distance = np.concatenate([np.minimum(distance, np.abs(digits - digits[chosen]).max(axis=1)), nearest])
            digits, known = np.concatenate([digits, new_digits]), np.concatenate([known, new])
            widened = np.concatenate([widened, np.zeros(len(new), bool)])
            values = np.concatenate([values, (yield Batch(new))])


def roundings(space: Space, points: dict[str, np.ndarray], relaxed: np.ndarray) -> Index:
    """The distinct grid positions around every iterate, the most promising first.

    `points` and `relaxed` are [steps, starts]. The order goes by rank within a start, then by relaxed
    value, so that every start has its best iterates rounded before any start has its second best.
    """
    below, above = np.zeros((2, len(space.items), *relaxed.shape), np.int64)
    nearer_above = np.zeros(below.shape, bool)
    free = []
    for axis, (name, parameter) in enumerate(space.items):
        if not parameter.relaxable:
            below[axis] = above[axis] = parameter.digits(points[name])
            continue
        free.append(axis)
        below[axis], above[axis] = parameter.snap_digits(points[name])
        low, high = parameter.values[below[axis]], parameter.values[above[axis]]
        nearer_above[axis] = np.abs(high - points[name]) < np.abs(points[name] - low)
    rank = np.argsort(np.argsort(relaxed, axis=0, kind="stable"), axis=0)
    order = np.lexsort((relaxed.ravel(), rank.ravel()))
    strides = np.array(space.strides)[:, None]
    corners = []
    for flip in _flips(len(free)):
        up = nearer_above.copy()
        up[free] ^= np.array(flip, bool).reshape(-1, 1, 1)
        digits = np.where(up, above, below).reshape(len(space.items), -1)
        corners.append((digits * strides).sum(axis=0)[order])
    index = np.stack(corners, axis=1).ravel()
    _, first = np.unique(index, return_index=True)
    return index[np.sort(first)]


def apart(space: Space, index: Index, values: np.ndarray, count: int) -> np.ndarray:
    """Which points to polish: the best ones that are more than one step apart in some parameter.

    Neighbouring points would go down to the same place.
    """
    digits = np.stack(space.digits(index), axis=1)
    left = np.isfinite(values)
    chosen = []
    while left.any() and len(chosen) < count:
        best = np.flatnonzero(left)[values[left].argmin()]
        chosen.append(best)
        left &= (np.abs(digits - digits[best]) > 1).any(axis=1)
    return np.array(chosen, np.int64)


def _flips(count: int) -> list[tuple[bool, ...]]:
    """Which parameters are rounded away from the nearer value: none first, then one, then more."""
    if count <= _CORNERS:
        return sorted(itertools.product((False, True), repeat=count), key=sum)
    return [tuple(axis == flipped for axis in range(count)) for flipped in range(-1, count)]
