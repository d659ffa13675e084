"""Rules that the boundaries of scopes keep in every run: they nest, count up, and hold no more than there is.

The rules are those of the runtime's rings: a scope is on ring ``min(depth, 3)``, scopes nest, what a ring has given out
and taken back only grows, and the difference is no more than its capacity.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._limits import PER_RING, RINGS, show_bytes

if TYPE_CHECKING:
    from ._stats import Boundary, ScopeStats

MOST_NESTED = 64
"""Scopes that may be open inside each other (MULTI_RING.md of simpler)."""


def broken_rules(stats: "ScopeStats") -> list[str]:
    """A sentence for each boundary that cannot be, with its line where it is from a file.

    Where boundaries were dropped, or a run failed, those that are missing break no rule.

    >>> from pyptox.rings import Boundary, Limits, ScopeStats
    >>> two = Boundary("a.py:1", "begin", 0, 0), Boundary("a.py:1", "end", 0, 0, heap=(0, 2048))
    >>> broken_rules(ScopeStats(Limits().replace(heap=1024), two))
    ['boundary 2 (end of a.py:1): heap of ring 0 holds 2 KiB of 1 KiB']
    """
    found = []
    if 0 < stats.total < len(stats.boundaries):
        found.append(f"there are {len(stats.boundaries)} boundaries; `total` says {stats.total}")
    whole = not stats.dropped and stats.total <= len(stats.boundaries)
    per_boundary = [*_amounts(stats), *(_nesting(stats) if whole else ())]
    for number, text in sorted(per_boundary, key=lambda one: one[0]):
        boundary = stats.boundaries[number]
        found.append(f"{_place(stats, number)} ({boundary.phase} of {boundary.site}): {text}")
    return found


def _place(stats: "ScopeStats", number: int) -> str:
    return f"line {stats.lines[number]}" if stats.lines else f"boundary {number + 1}"


def _amounts(stats: "ScopeStats") -> Iterator[tuple[int, str]]:
    """Positions that go back, and rings and tensor maps that hold more than there is."""
    last: dict[int, Boundary] = {}
    for number, boundary in enumerate(stats.boundaries):
        before = last.get(boundary.ring, boundary)
        for name in PER_RING:
            show = show_bytes if name == "heap" else "{:,}".format
            (start, end), was = getattr(boundary, name), getattr(before, name)
            capacity = getattr(stats.limits, name)[boundary.ring]
            if start < was[0] or end < was[1]:
                yield number, f"{name} of ring {boundary.ring} goes back, from {was} to {(start, end)}"
            if capacity and end - start > capacity:
                yield number, f"{name} of ring {boundary.ring} holds {show(end - start)} of {show(capacity)}"
        if stats.limits.tensormap and boundary.tensormap > stats.limits.tensormap:
            yield number, f"the tensor map holds {boundary.tensormap:,} of {stats.limits.tensormap:,} entries"
        last[boundary.ring] = boundary


def _nesting(stats: "ScopeStats") -> Iterator[tuple[int, str]]:
    """Scopes that are on another ring than their depth says, or do not lie in each other."""
    opened: list[tuple[int, Boundary]] = []
    for number, boundary in enumerate(stats.boundaries):
        depth, ring = boundary.depth, min(boundary.depth, RINGS - 1)
        if depth >= MOST_NESTED:
            yield number, f"depth {depth} is beyond the {MOST_NESTED} scopes that may be open"
        if boundary.ring != ring:
            yield number, f"a scope of depth {depth} is on ring {ring}; got ring {boundary.ring}"
        if boundary.phase == "begin":
            inside = [scope for _, scope in opened if scope.depth >= depth]
            if inside:
                yield number, f"{inside[-1].site}, of depth {inside[-1].depth}, is still open"
            elif depth and not any(scope.depth == depth - 1 for _, scope in opened):
                yield number, f"no scope of depth {depth - 1} is open"
            opened = [(at, scope) for at, scope in opened if scope.depth < depth] + [(number, boundary)]
            continue
        mine = [at for at, (_, scope) in enumerate(opened) if (scope.site, scope.depth) == (boundary.site, depth)]
        if not mine:
            yield number, f"no scope {boundary.site} of depth {depth} is open"
            continue
        inner = [scope for _, scope in opened[mine[-1] + 1 :]]
        if inner:
            yield number, f"{inner[-1].site}, of depth {inner[-1].depth}, is still open inside it"
        begun, scope = opened.pop(mine[-1])
        if scope.ring != boundary.ring:
            yield number, f"it begins on ring {scope.ring}, at {_place(stats, begun)}, and ends on ring {boundary.ring}"
