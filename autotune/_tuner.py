"""The engine: a search over trials by ask and tell, and the loop that drives it."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, final

from ._budget import Budget
from ._config import Config
from ._search._base import AbstractSearch
from ._search.local import Local
from ._space import Space
from ._store import Store
from ._trial import Trial

Evaluate = Callable[[Config], Trial | float]


@final
class Tuner:
    """Hands out configurations by `ask` and learns from trials by `tell`, in any order.

    `evaluations` is the budget the search divides its effort by, None for no limit. Trials told before they
    are asked for are used and not asked again, so telling the trials of an earlier run resumes it.

    >>> from autotune import Integer, Exhaustive
    >>> tuner = Tuner(Space(x=Integer(0, 9)), search=Exhaustive())
    >>> while not tuner.done:
    ...     tuner.tell([Trial(config, value=abs(config["x"] - 3)) for config in tuner.ask(4)])
    >>> str(tuner.best)
    'Config(x=3): 0'
    """

    def __init__(
        self,
        space: Space,
        *,
        search: AbstractSearch | None = None,
        seed: int = 0,
        evaluations: int | None = None,
    ):
        self.space = space
        self.seed = seed
        self._run = (search or Local()).start(space, seed=seed, evaluations=evaluations)
        self._trials: dict[Config, Trial] = {}

    def ask(self, n: int = 1) -> list[Config]:
        """Up to `n` configurations to try; none while earlier ones must be told first, or at the end."""
        return self.space.configs(self._run.ask(n))

    def tell(self, trials: Iterable[Trial]) -> None:
        """Learn from finished trials; a configuration that was told before keeps its first trial."""
        new = {trial.config: trial for trial in reversed(list(trials)) if trial.config not in self._trials}
        finished = list(reversed(new.values()))
        points = self.space.points([trial.config for trial in finished])
        self._run.tell(points, [trial.value for trial in finished])
        self._trials.update((trial.config, trial) for trial in finished)

    @property
    def done(self) -> bool:
        """Whether the search has nothing more to ask."""
        return self._run.done

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials told so far, in that order."""
        return tuple(self._trials.values())

    @property
    def best(self) -> Trial | None:
        """The trial with the smallest value, None before any succeeded."""
        best = self._run.best()
        return None if best is None else self._trials[best.config]


@final
@dataclasses.dataclass(frozen=True)
class DriveProgress:
    """What `drive` reports after each trial."""

    trial: Trial
    best: Trial | None
    evaluations: int
    seconds: float

    @property
    def improved(self) -> bool:
        """Whether this trial is the best so far."""
        return self.best is not None and self.best.config == self.trial.config


@final
@dataclasses.dataclass(frozen=True)
class Drive:
    """What a drive came to: the best trial (None when none succeeded), all trials, why it stopped."""

    best: Trial | None
    trials: tuple[Trial, ...]
    seconds: float
    stopped: Literal["finished", "evaluations", "seconds", "interrupted"]

    def __str__(self) -> str:
        return f"{self.best or 'no trial succeeded'} ({len(self.trials)} trials, stopped: {self.stopped})"

    def to_dict(self) -> dict[str, Any]:
        """A dictionary that JSON carries."""
        return {
            "best": self.best and self.best.to_dict(),
            "trials": [trial.to_dict() for trial in self.trials],
            "seconds": self.seconds,
            "stopped": self.stopped,
        }


def drive(
    tuner: Tuner,
    evaluate: Evaluate,
    budget: Budget | None = None,
    *,
    progress: Callable[[DriveProgress], object] | None = None,
    store: Store | None = None,
    batch: int = 1,
    mapping: Callable[[Callable[[Config], Trial], list[Config]], Iterable[Trial]] = map,
) -> Drive:
    """Evaluate what the tuner asks for until it is done or the budget is spent; Ctrl-C ends it like a budget.

    `evaluate` returns a value or a `Trial`; an exception it raises becomes a trial with status "crashed".
    The trials already in `store` that the space allows are told first and count as evaluations; each new
    one is written as it finishes. `batch` configurations are asked for at once and evaluated with
    `mapping`: the `map` of an executor runs them side by side.

    >>> from autotune import Integer
    >>> tuner = Tuner(Space(x=Integer(0, 99)))
    >>> print(drive(tuner, lambda config: abs(config["x"] - 42), Budget(evaluations=60)).best)
    Config(x=42): 0
    """
    budget = budget or Budget()
    started = time.perf_counter()
    stopped = "finished"

    def timed(config: Config) -> Trial:
        return _evaluated(evaluate, config, tuner.seed)

    try:
        if store is not None:
            tuner.tell(trial for trial in store.load() if trial.config in tuner.space)
        while not tuner.done:
            left = math.inf if budget.evaluations is None else budget.evaluations - len(tuner.trials)
            if left <= 0:
                stopped = "evaluations"
                break
            for trial in mapping(timed, tuner.ask(int(min(batch, left)))):
                if store is not None:
                    store.append(trial)
                tuner.tell([trial])
                seconds = time.perf_counter() - started
                if progress is not None:
                    progress(DriveProgress(trial, tuner.best, len(tuner.trials), seconds))
                if budget.seconds is not None and seconds >= budget.seconds:
                    stopped = "seconds"
                    break
            if stopped == "seconds":
                break
    except KeyboardInterrupt:
        stopped = "interrupted"
    return Drive(tuner.best, tuner.trials, time.perf_counter() - started, stopped)


def _evaluated(evaluate: Evaluate, config: Config, seed: int) -> Trial:
    """One evaluation as a trial, timed; what it raises is a crash, what is not finite is invalid."""
    started = time.perf_counter()
    try:
        outcome = evaluate(config)
    except Exception as error:
        outcome = Trial.failed(config, "crashed", f"{type(error).__name__}: {error}")
    if not isinstance(outcome, Trial):
        value = float(outcome)
        outcome = Trial(config, value=value) if math.isfinite(value) else Trial.failed(config, "invalid")
    seconds = outcome.seconds or time.perf_counter() - started
    return dataclasses.replace(outcome, seconds=seconds, seed=seed)
