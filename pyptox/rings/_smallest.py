"""The smallest capacities that pass: below them a submission waits for something that its own scope holds.

They follow from the program alone, whatever its tasks take. Larger ones wait less.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._limits import ALIGNMENT, RINGS, Limits
from ._needs import first_pinned, heap_positions, open_entries, open_tasks
from ._submissions import Submissions

MOST_TRIED = 4096
"""Heap sizes that are tried one after another before the search halves instead; fewer for more than 1,024 tasks."""


@dataclass(frozen=True)
class Smallest:
    """Capacities that pass while smaller ones do not.

    Attributes:
        limits: the smallest, one step of each: 1024 bytes, twice the slots, one entry. A ring without tasks has the
            least that a ring can have.
        safe_heap: by ring, a bound: bytes from which every larger heap surely passes too. Where a wrap leaves a gap
            before the end of the heap, a heap between the two may fail; often none does, and the least such size is not
            looked for. In JSON it is ``safe_heap_bound``.
        exhaustive: for each ring whether every smaller heap was tried; otherwise only the one that is a step smaller.
    """

    limits: Limits
    safe_heap: tuple[int, ...]
    exhaustive: tuple[bool, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"limits": self.limits.to_dict(), "safe_heap_bound": self.safe_heap, "exhaustive": self.exhaustive}


def smallest(work: Submissions) -> Smallest:
    """The smallest capacities under which no submission of ``work`` waits for ever.

    >>> found = smallest(Submissions.of([1024, 2048, 1024]))
    >>> found.limits.heap[0], found.limits.task_window[0], found.limits.scope_tasks
    (4096, 4, 3)
    """
    heaps = [smallest_heap(work, ring) for ring in range(RINGS)]
    limits = Limits(
        heap=tuple(heap for heap, _, _ in heaps),
        task_window=tuple(smallest_window(work, ring) for ring in range(RINGS)),
        dep_pool=tuple(smallest_pool(work, ring) for ring in range(RINGS)),
        tensormap=max(1, int(open_entries(work).max(initial=0))),
        scope_tasks=max(1, int(open_tasks(work).max(initial=0))),
    )
    return Smallest(limits, tuple(safe for _, safe, _ in heaps), tuple(whole for _, _, whole in heaps))


def smallest_window(work: Submissions, ring: int) -> int:
    """Slots: a power of two with one to spare for the most tasks that the ring must hold at once."""
    held = np.arange(len(work.on(ring))) - first_pinned(work, ring) + 1
    return max(2, 1 << int(held.max(initial=1)).bit_length())


def smallest_pool(work: Submissions, ring: int) -> int:
    """Entries of the dependency pool."""
    total = np.concatenate([[0], np.cumsum(work.fanin[work.on(ring)])])
    return max(1, int((total[1:] - total[first_pinned(work, ring)]).max(initial=0)))


def smallest_heap(work: Submissions, ring: int) -> tuple[int, int, bool]:
    """Bytes of the heap; bytes from which every larger one passes; and whether all smaller ones were tried."""
    size, pinned = work.bytes[work.on(ring)], first_pinned(work, ring)
    total = np.concatenate([[0], np.cumsum(size)])
    largest = int(size.max(initial=0))
    least = max(ALIGNMENT, largest, int((total[1:] - total[pinned]).max(initial=0)))
    step = max(ALIGNMENT, int(np.gcd.reduce(size, initial=0)))
    safe = least + max(0, largest - step)
    last = np.flatnonzero(np.append(np.diff(pinned) != 0, True)) if len(size) else np.zeros(0, np.int64)

    def passes(capacity: int) -> bool:
        end, free = heap_positions(size, capacity)
        return bool((end[last] - np.where(pinned[last] > 0, free[pinned[last] - 1], 0) <= capacity).all())

    return _first(passes, range(least, safe + step, step), max(1, MOST_TRIED * 1024 // max(1024, len(size))))


def _first(passes: Callable[[int], bool], tried: range, most: int) -> tuple[int, int, bool]:
    """The first of ``tried`` that passes; the last one does, and all beyond it."""
    step, safe = tried.step, tried[-1]
    for capacity in tried[:most]:
        if passes(capacity):
            return capacity, safe, True
    fails, good = tried[most - 1], safe
    while good - fails > step:
        middle = fails + (good - fails) // step // 2 * step
        fails, good = (fails, middle) if passes(middle) else (middle, good)
    return good, safe, False
