"""One search under way: batches go out by `ask`, values come back by `tell`, in any order and any portions.

A search method is a generator that yields batches of grid positions and is sent their values, so it reads
like straight-line code. The run stands between it and the world: it drops what is illegal (value infinite,
not an evaluation), answers what is already known (not an evaluation either), cuts batches to what was asked
for, and ends at the budget. Values told before they are asked for are kept; so a run that is told an
earlier run's trials repeats its steps without evaluating anything twice, and goes on from where that one
stopped.
"""

import dataclasses
from collections.abc import Generator, Mapping
from typing import Any, TypeAlias, final

import numpy as np

from .._config import Config
from .._constraint import Points
from .._space import Index, Space
from ._ledger import Ledger, distinct

_PATIENCE = 1000  # batches without a position not seen before: the method has nothing left to propose


@final
@dataclasses.dataclass(frozen=True)
class Batch:
    """Grid positions to score, the most promising first.

    `relaxed` counts the value-and-gradient evaluations of relaxed points that were spent on finding them.
    """

    index: Index
    relaxed: int = 0


Proposals: TypeAlias = Generator[Batch, np.ndarray, None]


@final
@dataclasses.dataclass(frozen=True)
class Best:
    """The best configuration so far."""

    config: Config
    value: float


@final
class Run:
    """A search of one space, made by `AbstractSearch.start`."""

    def __init__(self, space: Space, proposals: Proposals, *, evaluations: int | None = None):
        if evaluations is not None and evaluations < 1:
            raise ValueError(f"`evaluations` must be at least 1, got {evaluations}; None is no limit")
        self.space = space
        self.relaxed = 0
        self._budget = evaluations
        self._proposals = proposals
        self._ledger = Ledger()
        self._told: list[tuple[Index, np.ndarray]] = []
        self._proposed: Index | None = None  # the batch whose values the method waits for
        self._queue = self._waiting = np.empty(0, np.int64)
        self._finished = False

    @property
    def evaluations(self) -> int:
        """Distinct points scored so far."""
        return len(self._ledger)

    @property
    def done(self) -> bool:
        """Whether there is nothing more to ask, now or after what is still out."""
        self._advance()
        return self._finished and not len(self._waiting)

    @property
    def history(self) -> tuple[Index, np.ndarray]:
        """Grid positions and their values in the order they were told."""
        told = [*self._told, (np.empty(0, np.int64), np.empty(0))]
        return np.concatenate([index for index, _ in told]), np.concatenate([value for _, value in told])

    def ask(self, n: int = 1) -> Points:
        """The next points to score, at most `n`; none while earlier ones must be told first, or at the
        end."""
        return self.space.at(self.ask_index(n))

    def tell(self, points: Mapping[str, Any], values: Any) -> None:
        """Take the values of points, asked or not; not-a-number counts as infinite, a repetition is
        ignored."""
        self.tell_index(self.space.point_index(points), values)

    def ask_index(self, n: int = 1) -> Index:
        """`ask` as grid positions."""
        self._advance()
        out, self._queue = self._queue[:n], self._queue[n:]
        self._waiting = np.concatenate([self._waiting, out])
        return out

    def tell_index(self, index: Index, values: Any) -> None:
        """`tell` for grid positions."""
        values = np.asarray(values, np.float64)
        index = np.asarray(index, np.int64)
        if values.shape != index.shape:
            raise ValueError(f"`values` must be one for each of {len(index)} points, got shape {values.shape}")
        if len(index) and index.min() < 0:
            raise ValueError(
                f"`points` must lie on the grid of the space, got {int((index < 0).sum())} that do not; "
                "check them with `space.legal(points)`"
            )
        values = np.where(np.isnan(values), np.inf, values)
        if np.array_equal(index, self._waiting):
            self._waiting = index[:0]
        else:
            _, first = np.unique(index, return_index=True)
            keep = np.sort(first)[~self._ledger.known(index[np.sort(first)])]
            index, values = index[keep], values[keep]
            self._waiting = self._waiting[~np.isin(self._waiting, index)]
            self._queue = self._queue[~np.isin(self._queue, index)]
        self._ledger.add(index, values)
        self._told.append((index, values))

    def best(self, margin: float = 0.0) -> Best | None:
        """The best configuration so far, None without a finite value.

        Among those within `margin` (relative) of the best value the simplest is taken: fewest parameters away
        from their default, then fewest steps away, then the better value, then the grid order.
        """
        index, values = self.history
        if not len(values) or not np.isfinite(values.min()):
            return None
        close = np.flatnonzero(values <= values.min() + margin * abs(values.min()))
        order = simplest(self.space, index[close], values[close] if margin else None)
        chosen = close[order[0]]
        return Best(self.space.configs(self.space.at(index[chosen : chosen + 1]))[0], float(values[chosen]))

    def _advance(self) -> None:
        """Let the method propose until there is something to ask or to wait for."""
        fruitless = 0
        while not self._finished and not len(self._queue) and not len(self._waiting):
            left = np.inf if self._budget is None else self._budget - len(self._ledger)
            if left <= 0 or fruitless >= _PATIENCE:
                self._finish()
                return
            try:
                batch = self._step()
            except StopIteration:
                self._finished = True
                return
            self.relaxed += batch.relaxed
            self._proposed = batch.index
            fresh = distinct(batch.index)
            fresh = fresh[(fresh >= 0) & ~self._ledger.known(fresh)]
            legal = fresh[self.space.screen(fresh)[0]]
            self._queue = legal if left > len(legal) else legal[: int(left)]
            fruitless += not len(fresh)

    def _step(self) -> Batch:
        if self._proposed is None:
            return next(self._proposals)
        return self._proposals.send(self._ledger.values(self._proposed))

    def _finish(self) -> None:
        self._finished = True
        self._proposals.close()


def simplest(space: Space, index: Index, values: np.ndarray | None = None) -> np.ndarray:
    """The order of points from the simplest: closest to the defaults in parameters, then in steps."""
    away = np.zeros(len(index), np.int64)
    steps = np.zeros(len(index), np.int64)
    for (_, parameter), digit in zip(space.items, space.digits(index), strict=True):
        distance = np.abs(digit - int(parameter.digits(parameter.default)))
        away += distance > 0
        steps += distance if parameter.ordered else distance > 0
    return np.lexsort((index, np.zeros(len(index)) if values is None else values, steps, away))
