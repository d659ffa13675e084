"""Warms for a program: which weights, behind which task, in which order."""

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pyptox import chip
from pyptox._checks import integer
from pyptox._errors import PyptoxError
from pyptox.chip import Schedule, Sdma, Timeline, Workload
from pyptox.hardware import Hardware, a2a3
from pyptox.program import Graph, Program, graph

from ._prefetch_candidates import Candidates, Choice, WarmScope, candidates, simulated
from ._prefetch_result import PrefetchResult, Priced, best_of

BUDGET = 200
"""Choices that are priced at most."""

PATIENCE = 3
"""Anchors in turn behind which the gradient finds nothing better, and after which it is left."""

SECONDS = 8
"""Of the best warms so many are tried at once as a second one."""

_START = 0.1
"""Fraction of each weight at which the derivative is taken: so little of each that all of them land."""


def prefetch(
    what: Program | Graph | Workload,
    *,
    choices: Sequence[str] | None = None,
    hardware: Hardware | None = None,
    schedule: Schedule | None = None,
    sdma: Sdma | None = None,
    repeated: bool = False,
    budget: int = BUDGET,
    **sizes: Any,
) -> PrefetchResult:
    """Which weights to warm, behind which task and in which order, by the chip simulator.

    A choice is the same for every occurrence: weights of a kind of task, behind the last task of the anchor's kind that
    comes before. For likely anchors the derivative of the makespan by the fraction of each kind of weight ranks them,
    and the first ones are priced whole; then each weight is tried by itself, and the best choice is changed in one
    thing after another (a second warm, one weight more or less, anchor, order, contexts). What is left of ``budget``
    goes to every choice of one warm, then to pairs of those that gain, the best first. Never worse than no warm, nor
    with a larger budget than with a smaller one.

    Args:
        what: a program, with ``sizes``, its graph, or a workload with a memory. Its own warms are left out.
        choices: to price these alone: ``"wo_a,wo_b@q_b"``; ``/2`` puts the weights on two contexts, ``+`` adds a warm.
        hardware, schedule: as for :func:`pyptox.chip.simulate`.
        sdma: what warms cost.
        repeated: L2 holds what a round before left; by default the program is a step inside a network.
        budget: choices that are priced at most.

    Raises:
        PyptoxError: what is no choice or has an unknown name in ``choices``, a budget that is no integer above 0, or a
            workload without a memory.

    >>> import autotune
    >>> from pyptox import chip
    >>> memory = chip.Memory.of([90.0, 4.0], [0.0, 9.0], [0.0, 0.0], regions=[2**22], uses=[[], [(0, 1.0)]])
    >>> shapes, names = ["AIV", "AIV", "AIC"], ["t0 norm", "t1 mix", "t2 down"]
    >>> memory = chip.Memory.of(
    ...     [9.0, 90.0, 4.0], [0.0, 0.0, 9.0], [0.0, 0.0, 0.0], regions=[2**22], uses=[[], [], [(0, 1.0)]]
    ... )
    >>> work = chip.Workload.of(shapes, [1, 1, 24], [9.0, 90.0, 9.0], [[], [0], [1]], names=names, memory=memory)
    >>> str(autotune.prefetch(work).best)
    'down@norm'
    """
    integer("budget", budget, 1)
    if isinstance(choices, str) or not isinstance(choices, Iterable | None):
        raise PyptoxError(f"`choices` must be several texts, such as ['wo_a,wo_b@q_b']; got {choices!r}")
    hardware = hardware or a2a3()
    found = graph(what, hardware=hardware, **sizes) if isinstance(what, Program) else what
    program = found if isinstance(found, Graph) else None
    work = chip.workload(found, hardware) if isinstance(found, Graph) else found
    base = chip.simulate(chip.without_warms(work)[0], hardware=hardware, schedule=schedule, repeated=repeated)
    search = Search(candidates(base, program), hardware, sdma, budget)
    if choices is not None:
        for text in choices:
            search.price(search.found.parse(text), "given")
        method = "given"
    else:
        method = search.run()
    return search.result(method)


@dataclass(eq=False)
class Search:
    """Choices of warms that have been priced, and the search for more."""

    found: Candidates
    hardware: Hardware
    sdma: Sdma | None
    budget: int
    known: dict[Choice, Priced] = field(default_factory=dict)
    spent: int = 0  # simulations, those on the way of a gradient too

    def __post_init__(self) -> None:
        self.known[()] = Priced((), self.found.base.makespan_us)
        self.anchors = functools.cache(self._anchors)
        self.timeline = functools.lru_cache(maxsize=64)(self._timeline)

    def _timeline(self, choice: Choice) -> tuple[Timeline, list[int]]:
        return simulated(self.found, choice, self.hardware, self.sdma)

    def spend(self, origin: str = "search") -> None:
        """One simulation; choices that are given are priced whatever the budget."""
        if origin != "given" and self.spent >= self.budget:
            raise _Spent
        self.spent += 1

    @property
    def best(self) -> Priced:
        return best_of(self.known.values())

    def price(self, choice: Choice, origin: str = "search") -> Priced:
        if choice not in self.known:
            self.spend(origin)
            self.known[choice] = Priced(choice, self.timeline(choice)[0].makespan_us, origin)
        return self.known[choice]

    def result(self, method: str) -> PrefetchResult:
        best = self.best
        ordered = sorted(self.known.values(), key=lambda one: (one is not best, one.time_us, one.size, str(one)))
        l2 = float(self.hardware.sizes.l2)
        return PrefetchResult(self.found, tuple(ordered), method, l2, self.timeline)

    def run(self) -> str:
        """Search; says how. What is priced, and in which order, is the same for every budget: it ends sooner or later.

        A larger budget is therefore never worse, but for :data:`ALIKE`, by which a smaller choice is preferred.
        """
        if not self.found.weights:
            return "exhaustive"
        method, heaviest = "gradient", self.by_potential()[0]
        with contextlib.suppress(_Spent):
            for anchor in self.anchors(heaviest)[:1]:
                self.price((WarmScope((heaviest,), anchor),))
            self.along_gradients(self.anchors(heaviest))
            self.scan()
            for choice in itertools.islice(self.pairs(), SECONDS):
                self.price(choice)
            self.climb()
            for choice in self.all_of_one_warm():
                self.price(choice)
            method = "exhaustive"
            self.climb()
            for choice in self.pairs():
                self.price(choice)
            self.climb()
        return method

    def along_gradients(self, anchors: Sequence[str]) -> None:
        """Behind the most likely anchors, until some in turn have not given a better choice."""
        if self.found.base.repeated:
            return  # the derivative is taken with room for every weight, which a round before would have left there
        idle = 0
        for anchor in anchors:
            best, priced = self.best, len(self.known)
            self.along_gradient(anchor)
            idle = 0 if self.best is not best else idle + (len(self.known) > priced)
            if idle == PATIENCE:
                return

    def scan(self) -> None:
        """Each weight by itself, behind one anchor after another before its use, until some in turn are no better."""
        for name in self.by_potential():
            best, idle = self.found.base.makespan_us, 0
            for anchor in self.anchors(name):
                time = self.price((WarmScope((name,), anchor),)).time_us
                best, idle = (time, 0) if time < best else (best, idle + 1)
                if idle == PATIENCE:
                    break

    def by_potential(self) -> list[str]:
        """Names of weights, the largest saving first."""
        return sorted(self.found.weights, key=lambda name: -self.found.weights[name].potential_us)

    def singles(self) -> list[WarmScope]:
        """Warms that gain by themselves, the best first."""
        known = sorted(self.known.values(), key=lambda one: one.time_us)
        return [one.choice[0] for one in known if len(one.choice) == 1 and one.time_us < self.found.base.makespan_us]

    def pairs(self) -> Iterator[Choice]:
        """Two warms of different weights that each gain, those first that save most by themselves together."""
        singles = self.singles()
        gain = {scope: self.found.base.makespan_us - self.known[scope,].time_us for scope in singles}
        disjoint = (pair for pair in itertools.combinations(singles, 2) if not _shared(*pair))
        yield from sorted(disjoint, key=lambda pair: -gain[pair[0]] - gain[pair[1]])

    def _anchors(self, name: str) -> list[str]:
        """Kinds that come before a weight's use, those soonest before it first."""
        times, order = self.found.base.times, {}
        uses = self.found.weights[name].uses
        for name, tasks in self.found.anchors.items():
            before = np.array(tasks)
            places = [int(np.searchsorted(before, task)) - 1 for task, _ in uses]
            ahead = [
                float(times.dispatch[task] - times.finish[before[at]])
                for (task, _), at in zip(uses, places, strict=True)
                if at >= 0
            ]
            if ahead:
                order[name] = float(np.mean(ahead))
        return sorted(order, key=order.__getitem__)

    def deadlines(self, names: Sequence[str], anchor: str) -> tuple[str, ...]:
        """In the order in which they are used after the anchor."""
        anchors, times = np.array(self.found.anchors[anchor]), self.found.base.times

        def ahead(name: str) -> float:
            uses = self.found.weights[name].uses
            places = [(task, int(np.searchsorted(anchors, task)) - 1) for task, _ in uses]
            some = [float(times.dispatch[task] - times.finish[anchors[at]]) for task, at in places if at >= 0]
            return float(np.mean(some)) if some else float("inf")

        return tuple(sorted(names, key=ahead))

    def all_of_one_warm(self) -> Iterator[Choice]:
        """Every set in every order behind every anchor, in one context or two."""
        names = list(self.found.weights)
        for count in range(1, len(names) + 1):
            for weights in itertools.permutations(names, count):
                for anchor in self.anchors(weights[0]):
                    yield (WarmScope(weights, anchor),)
                    if count > 1:
                        yield (WarmScope(weights, anchor, 2),)

    def along_gradient(self, anchor: str) -> None:
        """Behind one anchor, the weights whose first bytes save most: one, two, ... of them, while that gains."""
        names = self.deadlines(list(self.found.weights), anchor)
        slopes = self.slopes((WarmScope(names, anchor),), dict.fromkeys(names, _START))
        ranked = sorted((name for name in names if slopes[name] < 0), key=slopes.__getitem__)
        before = self.found.base.makespan_us
        for count in range(1, len(ranked) + 1):
            chosen = self.deadlines(ranked[:count], anchor)
            time = self.price((WarmScope(chosen, anchor),), "gradient").time_us
            if time >= before and count > 1:
                return
            before = min(time, before)

    def slopes(self, choice: Choice, fraction: dict[str, float]) -> dict[str, float]:
        """Derivative of the makespan by the fraction of each kind of weight, µs."""
        named = {r: n for n, c in self.found.weights.items() for _, each in c.uses for r in each}
        warms = [
            replace(warm, regions=tuple((r, fraction[named[r]]) for r, _ in warm.regions))
            for warm in self.found.warms(choice)
        ]
        base, hbm = self.found.base, float(self.hardware.times.hbm_us)
        free = replace(self.sdma or Sdma(), issue_us=0.0)  # what a warm costs whatever its fraction is not part of it
        work, _ = chip.with_warms(base.workload, warms, hbm_byte_us=hbm, sdma=free)
        assert work.memory is not None
        # a warm sets whole regions aside, which all of these together would not leave room for
        work = replace(work, memory=replace(work.memory, capacity=float(work.memory.regions.sum())))
        self.spend()
        timeline = chip.simulate(work, hardware=self.hardware, schedule=base.schedule, repeated=base.repeated)
        memory = timeline.workload.memory
        assert memory is not None
        assert memory.warms is not None
        regions = [region for each in memory.warms.targets for region, _ in each]
        totals = dict.fromkeys(choice[0].weights, 0.0)
        for region, slope in zip(regions, timeline.fraction_slopes().tolist(), strict=True):
            totals[named[region]] += slope
        return totals

    def climb(self) -> None:
        """Change the best choice in one thing until nothing gains: the first change that does is kept."""
        here: Choice | None = None
        while here != self.best.choice:
            here = self.best.choice
            for choice in self.changes(here):
                self.price(choice)
                if self.best.choice != here:
                    break

    def changes(self, choice: Choice) -> Iterator[Choice]:
        """Neighbours, the likely ones first."""
        names = self.by_potential()
        if not choice:
            yield from ((WarmScope((name,), anchor),) for name in names for anchor in self.anchors(name))
            return
        used = {name for scope in choice for name in scope.weights}
        yield from ((*choice, more) for more in self.singles()[:SECONDS] if not used & set(more.weights))
        for at, scope in enumerate(choice):

            def put(*scopes: WarmScope, at: int = at) -> Choice:
                return (*choice[:at], *scopes, *choice[at + 1 :])

            for name in names:
                if name not in used:
                    yield put(replace(scope, weights=self.deadlines((*scope.weights, name), scope.anchor)))
                    yield put(replace(scope, weights=(*scope.weights, name)))
            for anchor in self.anchors(scope.weights[0]):
                if anchor != scope.anchor:
                    yield put(replace(scope, anchor=anchor))
            if len(scope.weights) > 1:
                yield from (put(replace(scope, weights=_less(scope.weights, name))) for name in scope.weights)
                yield put(replace(scope, weights=scope.weights[::-1]))
                yield put(replace(scope, contexts=3 - min(scope.contexts, 2)))
                for name in scope.weights:
                    rest = replace(scope, weights=_less(scope.weights, name))
                    yield from (put(rest, WarmScope((name,), a)) for a in self.anchors(name) if a != scope.anchor)
            yield put()
        for name in names:
            if name not in used:
                yield from ((*choice, WarmScope((name,), anchor)) for anchor in self.anchors(name))


class _Spent(Exception):
    """The budget is."""


def _shared(one: WarmScope, other: WarmScope) -> bool:
    return bool(set(one.weights) & set(other.weights))


def _less(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)
