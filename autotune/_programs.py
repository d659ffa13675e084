"""Tuning a whole program at once: every choice of its tasks, scored by the exact simulated makespan."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pyptox._checks import integer
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

GROUP = 256
"""Combinations of one part's parameters that are tried at once."""

KICK = 3
"""Parameters that a restart draws anew."""

DRAWS = 100
"""Draws of a restart that its space may refuse, and restarts in a row that may find nothing new."""


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
    simulated, and the best kept; when no single one helps, the parameters of one part of the program are taken together
    (those called alike up to a dot), and when that does not either, a few are drawn anew and the descent goes on.
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
            ``prefetch`` beside the choice of that name; ``prefetch`` is no integer from 0 on.

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
    integer("prefetch", prefetch, 0)
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
    idle = 0
    while not scores.spent and idle < DRAWS:
        before = len(scores.order)
        best = min(best, _descend(scores, _kicked(space, best, rng), acts_on), key=scores)
        idle = idle + 1 if len(scores.order) == before else 0
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
    """One parameter at a time until none helps, then the parameters of one part of the program at once."""
    singles = [(name,) for name in scores.space.parameters]
    groups = list(_groups(scores.space))
    while True:
        config = _by_worth(scores, config, singles, acts_on)
        best = _by_worth(scores, config, groups, acts_on, first=True)
        if best == config:
            return config
        config = best


def _groups(space: Space) -> Iterator[tuple[str, ...]]:
    """Parameters that cut one part of the program, called alike up to a dot, where all their values can be tried."""
    parts: dict[str, list[str]] = {}
    for name in space.parameters:
        parts.setdefault(name.split(".")[0], []).append(name)
    for names in parts.values():
        while math.prod(len(space.parameters[name].values) for name in names) > GROUP:
            names.pop()
        if len(names) > 1:
            yield tuple(names)


def _by_worth(
    scores: Scores,
    config: Config,
    todo: Sequence[tuple[str, ...]],
    acts_on: Mapping[str, Sequence[str]] | None,
    first: bool = False,
) -> Config:
    """Each set of parameters at the values that are best for it, the one first that the makespan hangs on most.

    After a gain all the others come again, or with ``first`` that gain is the answer.
    """
    if not np.isfinite(scores(config)):
        return config
    left, parts = list(todo), scores.parts(config)
    while left and not scores.spent:
        left.sort(key=lambda names: (-max(_worth(parts, _tasks_of(name, acts_on)) for name in names), names))
        names = left.pop(0)
        grid = itertools.product(*(scores.space.parameters[name].values.tolist() for name in names))
        others = (Config({**config, **dict(zip(names, values, strict=True))}) for values in grid)
        best = min([config, *(c for c in others if c != config)], key=scores)
        if best != config:
            if first:
                return best
            config, left, parts = best, [other for other in todo if other != names], scores.parts(best)
    return config


def _tasks_of(name: str, acts_on: Mapping[str, Sequence[str]] | None) -> Sequence[str]:
    return (acts_on or {}).get(name, (name.split(".")[0],))


def _kicked(space: Space, config: Config, rng: np.random.Generator) -> Config:
    """Some parameters drawn anew, until the point is one of the space."""
    for _ in range(DRAWS):
        names = rng.choice(list(space.parameters), size=min(KICK, len(space.parameters)), replace=False).tolist()
        drawn = {name: rng.choice(space.parameters[name].values).item() for name in names}
        kicked = Config({**config, **drawn})
        if tiles_of(kicked) in space:
            return kicked
    return config


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
    """From ``first`` to ``last``, one parameter at a time, always the one that saves most.

    Where none is legal by itself several change at once.
    """
    changes, config = [], first
    while config != last:
        left = [name for name in last if config[name] != last[name]]
        for count in (1, 2, len(left)):
            steps = {names: _with(config, last, names) for names in itertools.combinations(left, count)}
            names = min(steps, key=lambda names: (scores(steps[names]), names))
            if np.isfinite(scores(steps[names])):
                break
        changes.append(_change(names, config, steps[names], scores(config) - scores(steps[names])))
        config = steps[names]
    return tuple(changes)


def _with(config: Config, other: Config, names: Sequence[str]) -> Config:
    return Config({**config, **{name: other[name] for name in names}})


def _change(names: Sequence[str], before: Config, after: Config, saved_us: float) -> Change:
    one, *more = names
    if not more:
        return Change(one, before[one], after[one], saved_us)
    was, now = (", ".join(str(config[name]) for name in names) for config in (before, after))
    return Change(" + ".join(names), was, now, saved_us)
