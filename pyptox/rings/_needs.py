"""What every submission needs back before it can go on: positions on FIFO rings follow from the order alone.

A ring gives out its slots, bytes and pool entries in the order of submission and takes them back in that order. So the
place of every block is known before anything runs, and with it the last earlier task of the ring that must have been
reclaimed. Positions count up without end; ``position mod capacity`` is where a block lies.
"""

from dataclasses import dataclass

import numpy as np

from ._limits import RINGS, Limits
from ._submissions import Submissions

RESOURCES = ("task_window", "heap", "dep_pool")
"""What a submission takes of its own ring, in the order in which it asks."""

NOTHING, ALL_AND_MORE = -1, np.iinfo(np.int64).max
"""Needs nothing back; needs more than the ring has."""


def heap_positions(size: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the block of each task of a ring ends, and up to where the heap is free once it is reclaimed, in bytes.

    A block does not straddle the end of the heap: where it does not fit there, it begins at the heap's start, one lap
    on; what is left at the end is free again with the block before it. Where it does not fit before the oldest block
    either, all have to go: the empty heap starts over, so that nothing is left out. A block that is larger than the
    heap ends the account; it and those after it have no place (-1).

    >>> end, free = heap_positions(np.array([6, 3, 4, 9]), 10)
    >>> end.tolist(), free.tolist()
    ([6, 9, 14, 29], [6, 9, 20, 29])
    """
    total = np.concatenate([[0], np.cumsum(size)])
    following = np.searchsorted(total, total + capacity, "right") - 1
    first, laps, chain = 0, [0], following.tolist()
    while chain[first] < len(size) and chain[first] != first:
        first = chain[first]
        laps.append(first)
    placed = first if chain[first] == first else len(size)
    starts = np.asarray(laps)
    lap = np.searchsorted(starts, np.arange(placed), "right") - 1
    begin = lap * capacity + total[:placed] - total[starts[lap]]
    end, free = np.full(len(size), -1, np.int64), np.full(len(size), -1, np.int64)
    end[:placed] = free[:placed] = begin + size[:placed]
    over = np.flatnonzero(end[1:placed] - capacity > end[: max(placed - 1, 0)])  # the one after does not fit beside it
    free[over] = begin[over + 1]
    return end, free


def needs_of_heap(size: np.ndarray, capacity: int) -> np.ndarray:
    """The last task of the ring (by place) that must be reclaimed before each one can be given its bytes.

    >>> needs_of_heap(np.array([6, 3, 4, 7, 99]), 10).tolist()[:4]
    [-1, -1, 0, 2]
    """
    end, free = heap_positions(size, capacity)
    placed = int((end >= 0).sum())
    need = np.full(len(size), ALL_AND_MORE, np.int64)
    wanted = end[:placed] - capacity
    found = np.searchsorted(free[:placed], wanted, "left")
    need[:placed] = np.where((wanted <= 0) | (size[:placed] == 0), NOTHING, found)
    return need


def needs_of_pool(amount: np.ndarray, capacity: int) -> np.ndarray:
    """The same for entries that may lie anywhere.

    >>> needs_of_pool(np.array([2, 2, 2, 5]), 4).tolist()[:3]
    [-1, -1, 0]
    """
    total = np.cumsum(amount)
    need = np.where(total <= capacity, NOTHING, np.searchsorted(total, total - capacity, "left"))
    need[amount == 0] = NOTHING
    need[amount > capacity] = ALL_AND_MORE
    return need


def needs_of_window(count: int, window: int) -> np.ndarray:
    """The same for slots, of which one is never used.

    >>> needs_of_window(5, 4).tolist()
    [-1, -1, -1, 0, 1]
    """
    return np.maximum(np.arange(count) - (window - 1), NOTHING)


@dataclass(frozen=True, eq=False)
class Needs:
    """For every task what its submission waits for.

    Attributes:
        by_resource: for each of :data:`RESOURCES` the task (by number) that must be reclaimed with all before it on the
            same ring; :data:`NOTHING` or :data:`ALL_AND_MORE`.
        task: the latest of the three.
    """

    by_resource: dict[str, np.ndarray]
    task: np.ndarray


def needs(work: Submissions, limits: Limits) -> Needs:
    """What every submission of ``work`` needs back under ``limits``.

    >>> work = Submissions.of([1024] * 6)
    >>> needs(work, Limits().replace(heap=4096)).task.tolist()
    [-1, -1, -1, -1, 0, 1]
    """
    found = {name: np.full(work.count, NOTHING, np.int64) for name in RESOURCES}
    for ring in range(RINGS):
        tasks = work.on(ring)
        local = {
            "task_window": needs_of_window(len(tasks), limits.task_window[ring]),
            "heap": needs_of_heap(work.bytes[tasks], limits.heap[ring]),
            "dep_pool": needs_of_pool(work.fanin[tasks], limits.dep_pool[ring]),
        }
        for name, place in local.items():
            known = (place != NOTHING) & (place != ALL_AND_MORE)
            found[name][tasks] = np.where(known, tasks[np.where(known, place, 0)] if len(tasks) else 0, place)
    return Needs(found, np.maximum.reduce([found[name] for name in RESOURCES]))


def reclaimable(work: Submissions) -> np.ndarray:
    """How many tasks must be submitted before each one can be reclaimed: its scope, and those of all before it on its
    ring, have closed then. A task whose entry is beyond the task that is being submitted pins the ring.
    """
    result = np.zeros(work.count, np.int64)
    for ring in range(RINGS):
        tasks = work.on(ring)
        result[tasks] = np.maximum.accumulate(work.closes[tasks])
    return result


def first_pinned(work: Submissions, ring: int) -> np.ndarray:
    """For each task of a ring the place of the oldest one there that cannot be reclaimed before it is submitted; its
    own place where all before it can.

    >>> first_pinned(Submissions.of([1024] * 3), 0).tolist()
    [0, 0, 0]
    """
    tasks = work.on(ring)
    pinned = np.searchsorted(np.maximum.accumulate(work.closes[tasks]), tasks, "right")
    return np.minimum(pinned, np.arange(len(tasks)))


def open_entries(work: Submissions) -> np.ndarray:
    """Entries of the tensor map that cannot be taken back, at the submission of each task and with its own.

    An entry goes when its task is reclaimed, or when a later task covers what it says.
    """
    change = np.zeros(work.count + 1, np.int64)
    release = np.minimum(reclaimable(work), work.count)
    left = work.entries.copy()
    np.add.at(change, np.arange(work.count), work.entries)
    for task, covered in enumerate(work.covers):
        for producer in covered:
            if left[producer] > 0 and release[producer] > task:
                left[producer] -= 1
                change[task] -= 1
    np.add.at(change, np.maximum(release, np.arange(work.count) + 1), -left)
    return np.cumsum(change)[: work.count]


def open_tasks(work: Submissions) -> np.ndarray:
    """Tasks of all scopes that are open at each submission, with the one that is submitted."""
    change = np.zeros(work.count + 1, np.int64)
    change[: work.count] += 1
    np.add.at(change, np.minimum(work.closes, work.count), -1)
    return np.cumsum(change)[: work.count]
