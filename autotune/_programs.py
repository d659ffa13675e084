"""Tuning a whole program at once: every choice of its tasks, scored by the exact simulated makespan."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pyptox._errors import PyptoxError
from pyptox.hardware import Hardware, a2a3

from ._config import Config
from ._program_result import Change, Check, ProgramCandidate, ProgramResult
from ._program_scores import NONE, WARMS, Build, Scores, tiles_of
from ._space import Space

EVALUATIONS = 400
"""Simulations of a search, where no number is given."""

FINALISTS = 3
"""The best configurations, whose values are checked."""

ALIKE = 1e-3
"""Share of the time that is not worth a change."""

IDLE = 64
"""Restarts in a row without a configuration that was not simulated before, after which a search ends."""

KICK = 3
"""Parameters that a restart draws anew."""


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
    prefetch: int = 0,
    progress: Callable[[int, float], None] = lambda done, best_us: None,
) -> ProgramResult:
    """The fastest configuration of a program that a search from ``start`` finds.

    Parameters are taken in the order of what they can buy: the microseconds of the makespan, by its exact derivative,
    that the tasks they act on are worth (:meth:`pyptox.chip.Timeline.attribution`). Every value of a parameter is
    simulated, and the best kept; when no single one helps, a few are drawn anew and the descent goes on from there.
    Differences from ``start`` that buy nothing are taken back. Configurations whose tiles do not fit the chip, and
    finalists that fail ``check``, are refused. The answer is never slower than ``start``.

    With ``prefetch``, warms are chosen together with the tiles: for the best configuration and for ``start``
    :func:`autotune.prefetch` searches, then the descent goes on from the best of both with its warms in place, and the
    warms are searched again, until neither gains. The answer is never slower than that of the tiles alone, nor than the
    warms alone; the choice is its value of ``prefetch``, ``none`` or such as ``down.b@norm``.

    Args:
        build: from values by name to a program's graph; what it refuses with a ``PyptoxError`` is illegal.
        space: names and values.
        start: a legal point of the space.
        acts_on: names of tasks by parameter; where left out, those called like the part of its name before a dot.
        hardware: the chip; a2a3 by default.
        check: whether a configuration's values are right; of the best few, the first that passes is the answer.
        seed: of the restarts; the same one gives the same answer.
        evaluations: simulations of the search; each configuration counts once. As many for each descent with warms.
        prefetch: choices of warms that are priced at a time; 0 leaves the program's own.
        progress: told of simulations done, and the best time.

    Raises:
        PyptoxError: ``start`` is illegal, fails its check, or is not a point of the space; a parameter called
            ``prefetch`` beside the choice of that name.

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
    scores = Scores(build, space, machine, evaluations, progress)
    if prefetch and WARMS in space.parameters:
        raise PyptoxError(f"`space` must leave the name `{WARMS}` to the choice of warms; or leave out `prefetch`")
    first = Config({**start, WARMS: NONE} if prefetch else start)
    if not space.legal({name: np.array([first[name]]) for name in space.parameters})[0][0]:
        raise PyptoxError(f"`start` must be a point of the space; got {first}")
    if not np.isfinite(scores(first)):
        raise PyptoxError(f"`start` must be legal; {scores.refused[first]}")
    rng = np.random.default_rng(seed)
    best = _descend(scores, first, acts_on)
    idle = 0  # restarts that met nothing new: the space may be smaller than the budget
    while not scores.spent and idle < IDLE:
        before = len(scores.order)
        again = _descend(scores, _kicked(space, best, rng), acts_on)
        best = min(best, again, key=scores)
        idle = 0 if len(scores.order) > before else idle + 1
    if prefetch:
        best = _with_warms(scores, (best, first), prefetch, evaluations, acts_on)
    searched, curve = len(scores.order), scores.curve()
    scores.budget = None  # what follows explains the answer
    ranked = sorted(scores.known, key=lambda config: (scores.known[config], _distance(first, config)))
    checked = functools.cache(lambda tiles: None if check is None else check(tiles))
    finalists: list[ProgramCandidate] = []
    for config in [_pruned(scores, first, best), *ranked]:
        if len(finalists) == FINALISTS:
            break
        if config not in [c.config for c in finalists] and np.isfinite(scores(config)):
            finalists.append(ProgramCandidate(config, scores(config), checked(tiles_of(config))))
    passed = [c for c in finalists if c.check is None or c.check.passed]
    if not passed:
        last = ProgramCandidate(first, scores(first), checked(tiles_of(first)))
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


def _with_warms(
    scores: Scores,
    begin: Sequence[Config],
    choices: int,
    evaluations: int,
    acts_on: Mapping[str, Sequence[str]] | None,
) -> Config:
    """Warms for these configurations, tiles for the best warms, and so on while it gains."""
    for config in begin:
        scores.search_warms(config, choices)
    best, before = min(scores.known, key=scores), np.inf
    while scores(best) < before * (1 - ALIKE):
        before = scores(best)
        scores.budget = len(scores.order) + evaluations
        again = _descend(scores, best, acts_on)
        scores.search_warms(again, choices)
        best = min(scores.known, key=scores)
    return best


def _distance(first: Config, config: Config) -> int:
    return sum(first[name] != config[name] for name in first)


def _worth(parts: Mapping[str, float], names: Sequence[str]) -> float:
    return sum(parts.get(name, 0.0) for name in names)


def _descend(scores: Scores, config: Config, acts_on: Mapping[str, Sequence[str]] | None) -> Config:
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


def _pruned(scores: Scores, first: Config, config: Config) -> Config:
    """``config`` without the differences from ``first`` that buy next to nothing."""
    changed = True
    while changed:
        changed = False
        for name in config:
            back = Config({**config, name: first[name]})
            if back != config and scores(back) <= scores(config) * (1 + ALIKE) and scores(back) <= scores(first):
                config, changed = back, True
    return config


def _in_order(scores: Scores, first: Config, last: Config) -> tuple[Change, ...]:
    """From ``first`` to ``last``, one parameter at a time, always the one that saves most."""
    changes, config = [], first
    while config != last:
        steps = {name: Config({**config, name: last[name]}) for name in last if config[name] != last[name]}
        name = min(steps, key=lambda name: (scores(steps[name]), name))
        changes.append(Change(name, config[name], last[name], scores(config) - scores(steps[name])))
        config = steps[name]
    return tuple(changes)
