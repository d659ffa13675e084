"""Rings of a program: the smallest capacities that pass, and the scopes that need the least."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyptox import rings as px_rings
from pyptox._checks import integer
from pyptox._dtypes import dtype_of
from pyptox._errors import PyptoxError
from pyptox.chip import Pressure, pressure
from pyptox.hardware import Hardware
from pyptox.program import Graph, Program, graph
from pyptox.rings import VISIBLE_BYTES, Limits, Smallest, show_bytes

from ._rings_result import AS_IS, RingsResult, ScopeChoice

MOST_LEVELS = 3
"""Depths of scopes that are placed: each has a ring of its own."""

ALIKE = 0.1
"""Share of the memory that is not worth more scopes."""

_THRESHOLDS = 4
_FRACTIONS = (0.0, 0.125, 0.25, 0.5, 1.0)


def rings(
    what: Program | Graph,
    *,
    limits: Limits | None = None,
    hardware: Hardware | None = None,
    memory: int | None = None,
    added_time: float = 0.05,
    **sizes: Any,
) -> RingsResult:
    """The smallest capacities that pass, and the placement of scopes that needs the least memory for its heaps.

    Scopes are placed between tasks where few bytes are used on both sides: at up to three levels, for every choice of
    thresholds of these bytes. What a scope makes for later tasks is allocated before it. Each placement is given its
    smallest heaps, or larger ones until the rings add no more than ``added_time``; windows and pools stay as asked
    where that passes.

    Args:
        what: a program, with ``sizes``, or its graph.
        limits: capacities to start from; the runtime's defaults.
        hardware: the chip.
        memory: bytes for the four heaps; what a die has, less the program's arguments, where left out.
        added_time: share of the time without rings that may be added.

    >>> import autotune, pyptox as px
    >>> from pyptox import program as pp
    >>> @pp.program(sizes=lambda: {"x": px.spec((16, 256), "fp32"), "y": px.spec((16, 256), "fp32")})
    ... def steps(x, y):
    ...     for _ in range(16):
    ...         x = pp.submit(px.kernels.residual_add, x, y, m=16, n=256)
    ...     return x
    >>> found = autotune.rings(steps, added_time=1.0)
    >>> found.as_is.smallest.limits.arena > found.best.smallest.limits.arena
    True
    """
    if memory is not None:
        integer("memory", memory, 1)
    found = what if isinstance(what, Graph) else graph(what, hardware=hardware, **sizes)
    if not 0 <= added_time < float("inf"):
        raise PyptoxError(f"`added_time` must be a share of the time, 0.05 for 5 %; got {added_time}")
    arguments = sum(int(np.prod(s.shape)) * dtype_of(s.dtype).bytes for s in found.arguments.values())
    memory = max(0, VISIBLE_BYTES - arguments) if memory is None else memory
    asked = pressure(found, limits, hardware=hardware)
    search = _Search(asked, memory, added_time)
    last = px_rings.last_uses(found)
    choices = [search.choice(AS_IS, px_rings.as_it_is(asked.work))]
    for name, spans in _placements(asked.work, last):
        choices.append(search.choice(name, px_rings.place(asked.work, spans, last)))
    return RingsResult(asked, memory, added_time, tuple(sorted(choices, key=_preference(choices))))


def _preference(choices: list[ScopeChoice]) -> Callable[[ScopeChoice], tuple[Any, ...]]:
    """Allowed ones first; of those with the least memory but for a tenth, the one with the fewest changes."""
    enough = min((c.arena for c in choices if c.allowed), default=0) * (1 + ALIKE)

    def key(choice: ScopeChoice) -> tuple[Any, ...]:
        alike = choice.allowed and choice.arena <= enough
        changes = len(choice.spans) + len(choice.moved) if alike else 0
        return not choice.allowed, not alike, changes, choice.arena, choice.time_us

    return key


def _placements(work: px_rings.Submissions, last: np.ndarray) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Nested scopes between the places that the fewest bytes cross: at all of them, or at every few."""
    across = px_rings.crossing(work.bytes, last)
    inside = np.zeros(work.count + 1, bool)
    for scope in work.scopes:
        if scope.mode == "manual":
            inside[scope.begin + 1 : work.count if scope.end is None else scope.end] = True
    places = np.flatnonzero(~inside[: work.count])
    places = places[places > 0]
    values = np.unique(across[places])
    if len(values) > _THRESHOLDS:
        values = values[np.unique(np.geomspace(1, len(values), _THRESHOLDS).round().astype(int) - 1)]
    levels: dict[frozenset[int], str] = {}
    for value in values.tolist():
        cuts = places[across[places] <= value].tolist()
        stride = math.isqrt(len(cuts) + 1)
        levels.setdefault(frozenset(cuts), f"≤{show_bytes(value)}")
        levels.setdefault(frozenset(cuts[stride - 1 :: stride]), f"≤{show_bytes(value)}/{stride}")
    coarse_first, seen = sorted(levels, key=len), set[frozenset[tuple[int, int]]]()
    for count in range(1, MOST_LEVELS + 1):
        for chosen in itertools.combinations(coarse_first, count):
            if all(outer < inner for outer, inner in itertools.pairwise(chosen)):
                spans = frozenset(
                    (begin, end)
                    for cuts in chosen
                    for begin, end in itertools.pairwise([0, *sorted(cuts), work.count])
                    if end - begin > 1
                )
                if spans and spans not in seen:
                    seen.add(spans)
                    yield " + ".join(levels[cuts] for cuts in chosen), sorted(spans)


@dataclass(frozen=True, eq=False)
class _Search:
    pressure: Pressure
    memory: int
    added_time: float

    def choice(self, name: str, placed: px_rings.Placed) -> ScopeChoice:
        """The placement with its smallest heaps, or as much larger ones as the cap on added time asks for."""
        work, base = placed.work, self.pressure.free.time_us
        service = np.where(placed.moved, 0.0, self.pressure.service_us[placed.source])
        cost = np.where(
            placed.moved, np.min(self.pressure.cost_us, initial=np.inf), self.pressure.cost_us[placed.source]
        )
        least = px_rings.smallest(work)
        free = px_rings.orchestrate(work, service, cost, px_rings.unlimited(self.pressure.run.limits))
        limits, run = least.limits, None
        for fraction in _FRACTIONS:
            limits = self._between(least, free.peak["heap"], fraction)
            run = px_rings.orchestrate(work, service, cost, limits)
            if run.deadlock is None and run.time_us <= base * (1 + self.added_time):
                break
        assert run is not None
        moved = tuple(placed.source[placed.moved].tolist())
        added = run.time_us - base
        allowed = run.deadlock is None and added <= base * self.added_time and limits.arena <= self.memory
        return ScopeChoice(name, placed.spans, moved, least, limits, run.time_us, added, allowed)

    def _between(self, least: Smallest, peak: tuple[int, ...], fraction: float) -> Limits:
        asked = self.pressure.run.limits
        heap = [
            small if fraction == 0 else max(safe, small + int((top - small) * fraction) // 1024 * 1024)
            for small, safe, top in zip(least.limits.heap, least.safe_heap, peak, strict=True)
        ]
        larger = {
            name: tuple(map(max, getattr(least.limits, name), getattr(asked, name)))
            for name in ("task_window", "dep_pool")
        }
        return dataclasses.replace(
            asked,
            heap=tuple(heap),
            tensormap=max(least.limits.tensormap, asked.tensormap),
            scope_tasks=max(least.limits.scope_tasks, asked.scope_tasks),
            **larger,
        )
