"""Tuning a whole program at once: every choice of its tasks, scored by the exact simulated makespan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyptox import chip
from pyptox._errors import PyptoxError
from pyptox.cost import verify
from pyptox.hardware import Hardware, a2a3
from pyptox.program import Graph
from pyptox.rings import DeadlockError

from ._config import Config
from ._program_result import Change, Check, ProgramCandidate, ProgramResult
from ._space import Space

EVALUATIONS = 400
"""Simulations of a search, where no number is given."""

FINALISTS = 3
"""The best configurations, whose values are checked."""

ALIKE = 1e-3
"""Share of the time that is not worth a change."""

KICK = 3
"""Parameters that a restart draws anew."""

Build = Callable[[Mapping[str, Any]], Graph]


def tune_program(
    build: Build,
    space: Space,
    *,
    start: Mapping[str, Any],
    acts_on: Mapping[str, Sequence[str]] | None = None,
    hardware: Hardware | None = None,
    check: Callable[[Mapping[str, Any]], Check] | None = None,
    seed: int = 0,
    evaluations: int = EVALUATIONS,
    progress: Callable[[int, float], None] = lambda done, best_us: None,
) -> ProgramResult:
    """The fastest configuration of a program that a search from ``start`` finds.

    Parameters are taken in the order of what they can buy: the microseconds of the makespan, by its exact derivative,
    that the tasks they act on are worth (:meth:`pyptox.chip.Timeline.attribution`). Every value of a parameter is
    simulated, and the best kept; when no single one helps, a few are drawn anew and the descent goes on from there.
    Differences from ``start`` that buy nothing are taken back. Configurations whose tiles do not fit the chip, and
    finalists that fail ``check``, are refused. The answer is never slower than ``start``.

    Args:
        build: from values by name to a program's graph; what it refuses with a ``PyptoxError`` is illegal.
        space: names and values.
        start: a legal point of the space.
        acts_on: names of tasks by parameter; where left out, those called like the part of its name before a dot.
        hardware: the chip; a2a3 by default.
        check: whether a configuration's values are right; of the best few, the first that passes is the answer.
        seed: of the restarts; the same one gives the same answer.
        evaluations: simulations of the search; each configuration counts once.
        progress: told of simulations done, and the best time.

    Raises:
        PyptoxError: ``start`` is illegal, fails its check, or is not a point of the space.

    >>> import autotune, pyptox as px
    >>> from pyptox import program as pp
    >>> specs = px.spec((16, 2048), "bf16"), px.spec((2048, 2048), "bf16")
    >>> def build(values):
    ...     def product(x, w):
    ...         return pp.submit(px.kernels.matmul, x, w, m=16, n=values["matmul.n"], k=values["matmul.k"])
    ...
    ...     return pp.graph(pp.Program(product, "product", ("x", "w")), *specs)
    >>> space = autotune.Space(**{"matmul.n": autotune.PowerOfTwo(16, 512), "matmul.k": autotune.PowerOfTwo(64, 512)})
    >>> found = autotune.tune_program(build, space, start={"matmul.n": 16, "matmul.k": 64}, evaluations=24)
    >>> found.best.time_us < found.start.time_us
    True
    """
    machine = hardware or a2a3()
    scores = _Scores(build, space, machine, evaluations, progress)
    first = Config(start)
    if not space.legal({name: np.array([first[name]]) for name in space.parameters})[0][0]:
        raise PyptoxError(f"`start` must be a point of the space; got {first}")
    if not np.isfinite(scores(first)):
        raise PyptoxError(f"`start` must be legal; {scores.refused[first]}")
    rng = np.random.default_rng(seed)
    best = _descend(scores, first, acts_on)
    while not scores.spent:
        again = _descend(scores, _kicked(space, best, rng), acts_on)
        best = min(best, again, key=scores)
    searched, curve = len(scores.order), scores.curve()
    scores.budget = None  # what follows explains the answer
    ranked = sorted(scores.known, key=lambda config: (scores.known[config], _distance(first, config)))
    finalists: list[ProgramCandidate] = []
    for config in [_pruned(scores, first, best), *ranked]:
        if len(finalists) == FINALISTS:
            break
        if config not in [c.config for c in finalists] and np.isfinite(scores(config)):
            finalists.append(ProgramCandidate(config, scores(config), None if check is None else check(config)))
    passed = [c for c in finalists if c.check is None or c.check.passed]
    if not passed:
        last = ProgramCandidate(first, scores(first), None if check is None else check(first))
        if last.check is not None and not last.check.passed:
            raise PyptoxError(f"`check` must pass for `start`; got {last.check}")
        passed = [last]
    answer = passed[0]
    return ProgramResult(
        answer,
        ProgramCandidate(first, scores(first), None),
        tuple(finalists),
        _in_order(scores, first, answer.config),
        searched,
        tuple(scores.refused.values()),
        curve,
        seed,
        machine.name,
    )


@dataclass(eq=False)
class _Scores:
    """Makespans by configuration, µs; infinite where it is refused or the budget is spent."""

    build: Build
    space: Space
    hardware: Hardware
    budget: int | None
    progress: Callable[[int, float], None]
    known: dict[Config, float] = field(default_factory=dict)
    parts: dict[Config, dict[str, float]] = field(default_factory=dict)
    refused: dict[Config, str] = field(default_factory=dict)
    order: list[float] = field(default_factory=list)
    legal: dict[Any, str] = field(default_factory=dict)

    @property
    def spent(self) -> bool:
        return self.budget is not None and len(self.order) >= self.budget

    def curve(self) -> np.ndarray:
        """The best time after each simulation."""
        return np.minimum.accumulate(np.array(self.order))

    def __call__(self, config: Config) -> float:
        if config not in self.known:
            if self.spent:
                return np.inf
            self.known[config] = self._simulated(config)
            self.order.append(self.known[config])
            self.progress(len(self.order), min(self.order))
        return self.known[config]

    def _simulated(self, config: Config) -> float:
        try:
            graph = self.build(config)
        except PyptoxError as error:
            self.refused[config] = str(error)
            return np.inf
        wall = self._wall(graph)
        if wall:
            self.refused[config] = wall
            return np.inf
        try:
            timeline = chip.simulate(graph, hardware=self.hardware)
        except DeadlockError as error:
            self.refused[config] = str(error)
            return np.inf
        self.parts[config] = timeline.attribution()
        return timeline.makespan_us

    def _wall(self, graph: Graph) -> str:
        """The first error of the verifier, or nothing."""
        for task in graph.tasks:
            if task.kernel is None:
                continue
            key = task.kernel, tuple(task.specs().items()), tuple(sorted(task.values.items()))
            if key not in self.legal:
                found = verify(task.kernel, task.specs(), task.values, self.hardware)
                self.legal[key] = "; ".join(map(str, found.errors))
            if self.legal[key]:
                return f"{task.name}: {self.legal[key]}"
        return ""


def _distance(first: Config, config: Config) -> int:
    return sum(first[name] != config[name] for name in first)


def _worth(parts: Mapping[str, float], names: Sequence[str]) -> float:
    return sum(parts.get(name, 0.0) for name in names)


def _descend(scores: _Scores, config: Config, acts_on: Mapping[str, Sequence[str]] | None) -> Config:
    """One parameter at a time, the one first whose tasks the makespan hangs on most, until none helps."""
    parameters = scores.space.parameters
    if not np.isfinite(scores(config)):
        return config
    todo = list(parameters)
    while todo and not scores.spent:
        parts = scores.parts[config]
        todo.sort(key=lambda name: (-_worth(parts, _tasks_of(name, acts_on)), name))
        name = todo.pop(0)
        values = parameters[name].values.tolist()
        others = [Config({**config, name: value}) for value in values]
        best = min([config, *(c for c in others if c != config)], key=scores)
        if best != config:
            config, todo = best, [other for other in parameters if other != name]
    return config


def _tasks_of(name: str, acts_on: Mapping[str, Sequence[str]] | None) -> Sequence[str]:
    return (acts_on or {}).get(name, (name.split(".")[0],))


def _kicked(space: Space, config: Config, rng: np.random.Generator) -> Config:
    """Some parameters drawn anew."""
    names = rng.choice(list(space.parameters), size=min(KICK, len(space.parameters)), replace=False).tolist()
    drawn = {name: rng.choice(np.arange(len(space.parameters[name].values))) for name in names}
    return Config({**config, **{name: space.parameters[name].values.tolist()[n] for name, n in drawn.items()}})


def _pruned(scores: _Scores, first: Config, config: Config) -> Config:
    """``config`` without the differences from ``first`` that buy next to nothing."""
    changed = True
    while changed:
        changed = False
        for name in config:
            back = Config({**config, name: first[name]})
            if back != config and scores(back) <= scores(config) * (1 + ALIKE) and scores(back) <= scores(first):
                config, changed = back, True
    return config


def _in_order(scores: _Scores, first: Config, last: Config) -> tuple[Change, ...]:
    """From ``first`` to ``last``, one parameter at a time, always the one that saves most."""
    changes, config = [], first
    while config != last:
        steps = {name: Config({**config, name: last[name]}) for name in last if config[name] != last[name]}
        name = min(steps, key=lambda name: (scores(steps[name]), name))
        changes.append(Change(name, config[name], last[name], scores(config) - scores(steps[name])))
        config = steps[name]
    return tuple(changes)
