"""The contract of a search method, and the loop that runs one on a vectorised score."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, final

import numpy as np

from .._config import Config
from .._constraint import EmptySpaceError, Points
from .._space import Space
from ._run import Proposals, Run


class AbstractSearch(abc.ABC):
    """The settings of a search method; `start` makes a run with `ask` and `tell`.

    A member implements `proposals`, a generator that yields a `Batch` of grid positions, the most promising
    first, and is sent their values (infinite for what failed or is illegal). It may propose illegal, repeated
    or already known points: the run sorts that out and counts only what is really evaluated. It never sees
    the clock, draws only from `rng`, and treats `evaluations` as a hint for dividing its effort; the run ends
    it at the budget.
    """

    @abc.abstractmethod
    def proposals(self, space: Space, rng: np.random.Generator, evaluations: int | None) -> Proposals:
        """Batches of grid positions to score."""

    def start(self, space: Space, *, seed: int = 0, evaluations: int | None = None) -> Run:
        """A run of this method: the same seed and the same values give the same points."""
        proposals = self.proposals(space, np.random.default_rng(seed), evaluations)
        return Run(space, proposals, evaluations=evaluations)


@final
@dataclasses.dataclass(frozen=True)
class Found:
    """What `minimise` found.

    `evaluations` counts every point scored, `relaxed` the value-and-gradient evaluations of relaxed points
    beside them, `curve` is the best value after each evaluation.
    """

    config: Config
    value: float
    evaluations: int
    relaxed: int
    curve: np.ndarray

    def __str__(self) -> str:
        gradients = f" and {self.relaxed} gradients" if self.relaxed else ""
        return f"{self.config}: {self.value:.6g} after {self.evaluations} evaluations{gradients}"

    def to_dict(self) -> dict[str, Any]:
        """A dictionary that JSON carries."""
        return {
            "config": self.config.to_dict(),
            "value": self.value,
            "evaluations": self.evaluations,
            "relaxed": self.relaxed,
        }


def minimise(
    score: Callable[[Points], Any],
    space: Space,
    search: AbstractSearch,
    *,
    seed: int = 0,
    evaluations: int | None = None,
    margin: float = 0.0,
    chunk: int = 1 << 16,
) -> Found:
    """Search for the point with the smallest score, which is computed for whole batches at a time.

    `score` takes points (parameter name to array) and returns one value each, infinite where illegal. Among
    points within `margin` (relative) of the best the simplest is returned. Raises `EmptySpaceError` when the
    constraints leave nothing, ValueError when every score is infinite.

    >>> from autotune import Exhaustive, Multiple
    >>> space = Space(tile=Multiple(16, 512, 16))
    >>> str(minimise(lambda point: abs(point["tile"] - 100), space, Exhaustive()))
    'Config(tile=96): 4 after 32 evaluations'
    """
    run = search.start(space, seed=seed, evaluations=evaluations)
    while not run.done:
        index = run.ask_index(chunk)
        run.tell_index(index, score(space.at(index)))
    best = run.best(margin)
    if best is None:
        raise _nothing_found(space, run)
    curve = np.minimum.accumulate(run.history[1])
    return Found(best.config, best.value, run.evaluations, run.relaxed, curve)


def _nothing_found(space: Space, run: Run) -> ValueError:
    census = space.census() if not run.evaluations else None
    if census is not None and not census.legal:
        return EmptySpaceError(census.size, census.rejected)
    return ValueError(
        f"`score` must be finite for some legal point, got none in {run.evaluations} evaluations; "
        "add constraints with `space.where` so that the search avoids what cannot run"
    )
